//! From the response of an upstream server, or of a cache, to ours.
//!
//! * `to_client`: the way of a server's response (`upstream_response`); `early_hints`: of an interim one.
//! * `response_head`: the head, with `accel` (`X-Accel-…`) and `set_cookie`.
//! * `response_body`: the body as it arrives, `read_ahead` of a slow client into a `temp_file`; `store`: into a
//!   file that stays; `upgrade`: a tunnel.

pub mod accel;
pub mod early_hints;
mod read_ahead;
pub(crate) mod response_body;
pub mod response_head;
pub(crate) mod set_cookie;
pub(crate) mod store;
mod temp_file;
pub(crate) mod to_client;
pub(crate) mod upgrade;
mod upload;
pub(crate) mod upstream_response;
