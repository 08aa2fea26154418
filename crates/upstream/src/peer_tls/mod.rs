//! TLS to peers: what a place of the configuration asks of it, and the handshake of a new connection.
//!
//! Not here: directives, records (crate `tls`), which peer. Invariant: a connection is one with TLS once its server's
//! certificate is accepted, and not before.

mod certificates;
mod handshake;
mod sessions;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tls::configure::Client;
use tls::verify::Trust;

pub use certificates::RequestCertificates;
pub use handshake::{HandshakeKind, TlsError, handshake};
use sessions::Sessions;

/// What handshakes with peers use.
pub struct PeerTls {
    client: Arc<Client>,
    trust: Option<Arc<Trust>>,
    sessions: Option<Sessions>,
    certificates: Option<Arc<RequestCertificates>>,
    sends_name: bool,
    identity: u64,
}

/// What [`PeerTls`] is made of.
pub struct PeerTlsValues {
    /// What handshakes offer.
    pub client: Client,
    /// What servers' certificates have to come from; `None`: any certificate is accepted.
    pub trust: Option<Arc<Trust>>,
    /// Whether sessions are taken up again.
    pub keeps_sessions: bool,
    /// Whether servers are told their name.
    pub sends_name: bool,
    /// Own certificates whose names come with a request.
    pub certificates: Option<RequestCertificates>,
}

impl PeerTls {
    /// Of values; those with the same `identity`, which stands for all that they were made of, have the same
    /// connections.
    #[must_use]
    pub fn new(values: PeerTlsValues, identity: &impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        identity.hash(&mut hasher);
        Self {
            client: Arc::new(values.client),
            trust: values.trust,
            sessions: values.keeps_sessions.then(Sessions::default),
            certificates: values.certificates.map(Arc::new),
            sends_name: values.sends_name,
            identity: hasher.finish(),
        }
    }

    /// Whether a handshake needs the server's name: to tell it, or to compare it.
    #[must_use]
    pub fn needs_name(&self) -> bool {
        self.sends_name || self.trust.is_some()
    }
}

impl std::fmt::Debug for PeerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerTls").finish_non_exhaustive()
    }
}

/// TLS as one request asks for it. Two that are equal may use the same connection.
#[derive(Clone, Debug)]
pub struct TlsOrder {
    /// What its handshake uses.
    pub tls: Arc<PeerTls>,
    /// The server's name, without a port; empty where it is not needed.
    pub name: Arc<str>,
    /// The names of the own certificate and its key, where they were made of variables.
    pub certificate: Option<Arc<(String, String)>>,
}

impl PartialEq for TlsOrder {
    fn eq(&self, other: &Self) -> bool {
        self.tls.identity == other.tls.identity
            && self.name == other.name
            && self.certificate == other.certificate
    }
}

impl Eq for TlsOrder {}
