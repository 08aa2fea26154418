//! TLS as HTTP sees it: what a server offers, and what a client's handshake has brought.
//!
//! Not here: handshakes and records (crate `tls`), their way over the socket ([`crate::connection`]).

pub mod acme;
pub mod certificate_metrics;
mod client_tls;
pub mod directives;
mod files;
pub mod making;
mod named_certificates;
mod server_tls;
pub mod values;
mod zones;

pub use acme::AcmeSlot;
pub use client_tls::{ClientTls, Rules};
pub use directives::TlsSettings;
pub use files::full_name;
pub use making::Making;
pub use named_certificates::{CertificateLine, NamedCertificates};
pub use server_tls::{Resumption, ServerTls, WatchedPair};
