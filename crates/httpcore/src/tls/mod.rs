//! TLS as HTTP sees it: what a server offers, and what a client's handshake has brought.
//!
//! Not here: handshakes and records (crate `tls`), their way over the socket ([`crate::connection`]).

mod client_tls;
mod server_tls;

pub use client_tls::ClientTls;
pub use server_tls::ServerTls;
