//! The core of HTTP: a request, its way in and its response's way out, whatever makes the content.
//!
//! * Requests: [`request`], [`request_body`], [`subrequest`], [`variables`], [`route`], [`settings`].
//! * Clients: [`connection`] (one task each), [`transport`] (what a request needs of its protocol), [`client`].
//! * What modules build on: [`handler`], [`body_filter`], [`files`], [`outcome`], [`failure`], [`module_metrics`].
//!
//! Not here: any module by name, how requests are passed on, the lists of steps (they stand on top, in `server`).

pub mod absolute_redirect;
pub mod body_filter;
pub mod client;
pub mod connection;
pub mod error_page;
pub mod error_text;
pub mod failure;
pub mod file_mode;
pub mod files;
pub mod find_location;
pub mod generation;
pub mod handler;
pub mod hot_files;
pub mod http_loop;
pub mod module_metrics;
pub mod name_map;
pub mod observe;
pub mod outcome;
pub mod path;
pub mod regex;
pub mod request;
pub mod request_body;
pub mod responder;
pub mod response;
pub mod route;
pub mod satisfy;
pub mod settings;
pub mod status_zone;
pub mod subrequest;
pub mod transport;
pub mod trusted_proxies;
pub mod user_agent;
pub mod variables;

pub use failure::Failure;
pub use logs::Level;
pub use request::Request;
pub use response::Response;
