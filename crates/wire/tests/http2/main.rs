//! The HTTP/2 state machine without a socket: h2spec's checks by name, streams, flow control, limits, both roles, and the
//! crate `h2` at the other end.

#![allow(clippy::unwrap_used, reason = "tests, and what they share")]

mod client;
mod floods;
mod other_implementation;
mod peer;
mod server;
mod spec;
