//! HTTP/1 as pure functions over byte slices (RFC 9112), by nginx's rules.

pub mod body;
pub mod line;
pub mod read;
pub mod response;
pub mod write;
