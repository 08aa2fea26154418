//! The modules that act on requests here: before the content, as the content, after it, and those that define variables.
//!
//! Not here: passing requests on (crate `proxy`), and which module acts when (crate `server`). Invariant: no module
//! knows another one, unless both are parts of the same thing.

#![warn(unreachable_pub)]

pub mod after;
pub mod before;
pub mod browser;
pub mod content;
pub mod geo;
pub mod headers_more;
pub mod limits;
pub mod map;
pub(crate) mod password;
pub mod realpath_root;
pub mod referer;
pub mod secure_link;
pub mod split_clients;
mod turns;
