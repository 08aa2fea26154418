//! The core of HTTP: a request, its way in and its response's way out, whatever makes the content.
//!
//! The folders, each above the next:
//!
//! * [`connection`]: the connections of clients, one task each; [`subrequest`]: requests of requests; [`responder`]: how both
//!   of them call the steps.
//! * [`steps`] that every server needs; [`handler`]: content from modules of other programs, and how modules show metrics;
//!   [`body_filter`].
//! * Work on a request, as functions: [`request_body`] (reading it), [`files`] (paths, pools, errors), [`mod@variables`].
//! * [`request`]: one request, its body as a value, what modules keep with it.
//! * [`client`], [`transport`] (what a request needs of its protocol), [`http_loop`] (what HTTP has on a loop), [`mod@tls`].
//! * [`settings`]: what the configuration says, as plain data.
//! * Words and tables that need none of these: [`response`], [`failure`], [`outcome`], [`route`], [`regex`], [`name_map`], …
//!
//! Not here: any module by name, how requests are passed on, the lists of steps (they stand on top, in `server`).

#![warn(unreachable_pub)]

pub mod body_filter;
pub mod client;
pub mod connection;
pub mod error_text;
pub mod failure;
pub mod file_mode;
pub mod files;
pub mod handler;
pub mod http_loop;
pub mod name_map;
pub mod outcome;
pub mod regex;
pub mod request;
pub mod request_body;
pub mod responder;
pub mod response;
pub mod route;
pub mod settings;
pub mod status_zone;
pub mod steps;
pub mod subrequest;
pub mod tls;
pub mod transport;
pub mod trusted_proxies;
pub mod user_agent;
pub mod variables;

pub use failure::Failure;
pub use logs::Level;
pub use request::Request;
pub use response::Response;
