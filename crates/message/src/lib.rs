//! HTTP messages as values: request heads, responses, bodies, dates, entity tags, ranges, conditional requests.
//!
//! The crate knows no sockets, paths or clocks: times are passed in as arguments, and file handles stay opaque (`F`).
//! `wire` parses the bytes; what a message *means* is decided here, by nginx's rules where configurations rely on them.

#![warn(unreachable_pub)]

pub mod base64;
pub mod body;
pub mod conditional;
pub mod credentials;
pub mod date;
pub mod escape;
pub mod etag;
pub mod field;
pub mod head;
pub mod headers;
pub mod hop_by_hop;
pub mod host;
pub mod media_type;
pub mod method;
pub mod range;
pub mod range_fields;
pub mod response;
pub mod response_head;
pub mod status;
pub mod uri;
pub mod words;

pub use body::{Body, BodyError, Chunk, FileRange, Source};
pub use date::Date;
pub use etag::ETag;
pub use field::{Field, HeaderId, Span};
pub use head::{ConnectionType, Framing, RequestHead, Version};
pub use headers::{Header, Headers};
pub use hop_by_hop::HopByHop;
pub use host::Host;
pub use method::{Method, Methods};
pub use response::Response;
pub use response_head::{ResponseFraming, ResponseHead};
