//! HTTP/1 as pure functions on byte slices (RFC 9112), by nginx's rules: `read`, `body` and `write` for the server
//! side, `request`, `response` and `answer` for the client side.

pub mod answer;

pub mod body;
pub mod head_buffers;
pub mod line;
pub mod read;
pub mod request;
pub mod response;
pub mod write;
