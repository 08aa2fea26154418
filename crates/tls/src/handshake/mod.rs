//! Handshakes, without sockets: bytes in, bytes out, one step at a time.
//!
//! Shaped like rustls 0.24: `NeedsInput` → `Accepted` (choose a server) → `NeedsInput` → `Complete`. A state is a value
//! that can be moved to another thread; a step that takes processor time is a call that any thread may make.
//! Invariants: what is kept of a peer that is not yet known is bounded; a failed handshake has its alert in `outgoing`.

mod client;
mod facts;
mod machine;
mod rustls_connection;
mod server;

pub use crate::failure::{Cause, Failure, Level};
pub use client::{
    ClientNeedsInput, Connected, Connecting, PeerSessions, SESSION_NAMES_MAX, ServerFault,
    can_be_sent, verify_server,
};
pub use facts::Facts;
pub use machine::HANDSHAKE_BYTES_MAX;
pub use server::{Accepted, Complete, Handshake, NeedsInput};
