//! Resumption: sessions that the server keeps (`cache`) and sessions that the client keeps (`tickets`).
//!
//! Invariant: a session made under one server's certificates and one way to verify clients is not taken under another.

pub mod cache;
pub mod tickets;

pub use cache::{KeptSessions, Sessions};
pub use tickets::Tickets;

use aws_lc_rs::digest;

/// What tells servers apart: sessions are taken in the context that they were made in.
pub type Context = [u8; 32];

/// The context of a protocol's name, of certificates (their bytes, or their names where they come with a connection),
/// and of all that decides whether a client is accepted (modes, certificates, revocations).
#[must_use]
pub fn context(protocol: &str, certificates: &[&[u8]], verification: &[&[u8]]) -> Context {
    let mut digest = digest::Context::new(&digest::SHA256);
    for part in [&[protocol.as_bytes()][..], certificates, verification] {
        digest.update(&(part.len() as u64).to_be_bytes());
        for bytes in part {
            digest.update(&(bytes.len() as u64).to_be_bytes());
            digest.update(bytes);
        }
    }
    let mut context = Context::default();
    context.copy_from_slice(digest.finish().as_ref());
    context
}
