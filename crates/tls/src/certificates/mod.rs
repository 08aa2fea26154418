//! The certificates that a server shows: chosen by what a client can verify, replaced when files change, kept when
//! their names come with connections.
//!
//! Not here: reading PEM (`keys`), names of servers (the server's routing).

pub mod cache;
mod compression;
mod files_read;
mod slot;
mod watch;

pub use cache::CertificateCache;
pub(crate) use compression::COMPRESSORS;
pub use files_read::{Contents, FilesRead};
pub use rustls::sign::CertifiedKey;
pub use slot::{CERTIFICATES_MAX, Certificates, Pair};
pub use watch::{Outcome, Stamp, StampOf, Watched};
