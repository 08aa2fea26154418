//! The server: nginx's configuration and behaviour on event loops that never wait for a disk.
//!
//! A library with a thin `main`, so that other programs can add modules (`content::module`). The path of a request is
//! [`steps::respond`]; the processes are in [`process`], the loops in the crate [`runtime`].

pub mod absolute_redirect;
pub mod after;
pub mod before;
pub mod caching;
pub mod client;
pub mod command_line;
pub mod connection;
pub mod content;
pub mod dashboard;
pub mod error_page;
pub mod explain;
pub mod failure;
pub mod file_mode;
pub mod find_location;
mod generation;
pub mod geo;
pub mod hash;
pub mod headers_more;
mod http_loop;
mod http_server;
#[cfg(test)]
mod http_server_tests;
pub mod limits;
pub mod manual;
pub mod map;
pub mod memory;
pub mod module_metrics;
pub mod monitoring;
pub mod name_map;
pub mod observe;
pub mod outcome;
pub mod password;
pub mod path;
pub mod process;
mod realpath_root;
pub mod regex;
pub mod request;
pub mod request_body;
pub mod responder;
pub mod route;
pub mod satisfy;
pub mod server_tokens;
pub mod settings;
pub mod split_clients;
pub mod status_zone;
pub mod steps;
pub mod subrequest;
pub mod transport;
pub mod trusted_proxies;
pub mod user_agent;
pub mod variables;

pub use command_line::main;
pub use failure::Failure;
pub use logs::Level;
pub use request::Request;

/// A response whose file chunks are files of the disk layer.
pub type Response = message::Response<std::rc::Rc<disk::OpenFile>>;
