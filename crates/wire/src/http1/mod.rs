//! HTTP/1 as pure functions over byte slices (RFC 9112), by nginx's rules: `read`, `body` and `write` as a server, `request`,
//! `response` and `answer` as a client.

pub mod answer;

pub mod body;
pub mod head_buffers;
pub mod line;
pub mod read;
pub mod request;
pub mod response;
pub mod write;
