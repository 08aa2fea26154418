//! HTTP/1 as pure functions on byte slices (RFC 9112), by nginx's rules. The server side: `request_parser`,
//! `body_decoder`, `response_writer`. The client side: `request_writer`, `response_parser` and
//! `body_decoder`. Both: `line`, `head_buffers`.

pub mod body_decoder;
pub mod head_buffers;
mod head_limits;
mod header_line;
pub(crate) mod line;
pub mod request_parser;
pub mod request_writer;
pub mod response_parser;
pub mod response_writer;
mod trailer_lines;
