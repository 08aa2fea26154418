//! Values of directives made into what handshakes use.
//!
//! Not here: directives, inheritance, reading files (`keys`). Nothing waits: this is arithmetic and takes some
//! microseconds. Invariant: what is made never changes; certificates and keys for tickets change inside of their own
//! types.

mod choice;
mod client;
mod server;

pub(crate) use choice::is_chacha;
pub use client::{Client, ClientOptions};
pub use server::{
    ClientVerification, EARLY_DATA_BYTES_MAX, EARLY_SESSIONS_BYTES, Server, ServerOptions,
};
