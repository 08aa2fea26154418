//! The server: nginx's configuration and behaviour on event loops that never wait for a disk.
//!
//! A library with a thin `main`, so that a program of one's own can add modules (`content::module`). The way of a request
//! is [`respond::respond`]; the processes are in [`process`], the loops in [`loops`].

pub mod after;
pub mod before;
pub mod caching;
pub mod clock;
pub mod command_line;
pub mod connection;
pub mod content;
pub mod cpu;
pub mod dashboard;
pub mod default_paths;
pub mod error_page;
pub mod explain;
pub mod failure;
pub mod figures;
pub mod forwarded;
pub mod geo;
pub mod hash;
pub mod headers_more;
pub mod identity;
pub mod limits;
pub mod listen;
pub mod locate;
pub mod log;
pub mod loops;
pub mod manual;
pub mod map;
pub mod memory;
pub mod names;
pub mod outcome;
pub mod password;
pub mod path;
pub mod permissions;
mod places;
pub mod process;
pub mod redirects;
pub mod regex;
pub mod request;
pub mod request_body;
pub mod respond;
pub mod route;
pub mod settings;
pub mod split_clients;
pub mod subrequest;
pub mod template;
pub mod upstream;
pub mod user_agent;
pub mod variables;

pub use command_line::main;
pub use failure::Failure;
pub use request::Request;

/// A response whose file chunks are files of the disk layer.
pub type Response = message::Response<std::rc::Rc<disk::OpenFile>>;
