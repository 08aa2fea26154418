//! What a handshake asks for the status of a client's certificate (`ssl_ocsp`).
//!
//! Not here: fetching, caches, queues. They stand where connections and name servers are.

use crate::ocsp::response::Status;
use crate::x509::certificate::Certificate;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// The status that is waited for; or why there is none, as a line for the log.
pub type Asked = Pin<Box<dyn Future<Output = Result<Status, Arc<str>>>>>;

/// A source of statuses.
pub trait AsksStatus: Debug + Send + Sync {
    /// Whether the status of each certificate of a chain is wanted (`ssl_ocsp on`), or that of a client's own only
    /// (`leaf`).
    fn wants_chain(&self) -> bool;

    /// Asks for the status of a certificate. Never blocks; what it takes in memory and connections is bounded.
    fn ask(self: Arc<Self>, certificate: &Certificate<'_>, issuer: &Certificate<'_>) -> Asked;
}
