//! TLS of one `server` block.

use std::sync::{Arc, OnceLock};

use tls::configure;
use tls::ocsp::AsksStatus;
use tls::sessions::{Sessions, Tickets};

use super::acme::AcmeSlot;
use super::directives::VerifyClient;
use super::making::alpn;
use super::named_certificates::NamedCertificates;

/// TLS of one `server` block.
#[derive(Debug)]
pub struct ServerTls {
    /// What its handshakes use; `None`: it has no certificate, so those of the default server of the address are used.
    pub handshakes: Option<Arc<configure::Server>>,
    /// Whether those offer HTTP/2.
    pub offers_http2: bool,
    /// The same for addresses where that is otherwise; made when it is first asked for.
    pub of_other_addresses: OnceLock<Arc<configure::Server>>,
    /// The certificates that are read in each handshake, where their names have variables.
    pub named: Option<Arc<NamedCertificates>>,
    /// `ssl_reject_handshake`.
    pub rejects: bool,
    /// `ssl_verify_client`: whether its requests need a client's certificate.
    pub verify: VerifyClient,
    /// What tells the status of clients' certificates (`ssl_ocsp`).
    pub statuses: Option<Arc<dyn AsksStatus>>,
    /// Its cache of sessions and its tickets' keys, if its lines name one of them: those of all servers of an address
    /// whose default server it is, but for the ones that name their own.
    pub resumption: Option<Resumption>,
    /// Its certificates that are taken when they change (`ssl_certificate_watch`).
    pub watched: Vec<Arc<WatchedPair>>,
    /// The place of its certificate by ACME: the value of `$acme_certificate`.
    pub acme: Option<Arc<AcmeSlot>>,
}

/// Where sessions are kept, and what tickets are sealed with.
#[derive(Clone, Debug)]
pub struct Resumption {
    /// The cache; `None`: there is none.
    pub sessions: Option<Arc<Sessions>>,
    /// The keys; those of a server without tickets are for others at its addresses.
    pub tickets: Arc<Tickets>,
}

/// A certificate and its key, by the full names of their files, or as text (`data:`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchedPair {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
    /// The file with passwords of the key.
    pub passwords: Option<String>,
}

impl ServerTls {
    /// Whether handshakes may name this server alone: it has a certificate, or refuses them.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.rejects || self.handshakes.is_some()
    }

    /// What a handshake uses that offers HTTP/2, or none that does. Whether one does depends on the address and on the server
    /// that the client names, not on the server whose certificate it is.
    #[must_use]
    pub fn offering(&self, has_http2: bool) -> Option<Arc<configure::Server>> {
        let handshakes = self.handshakes.as_ref()?;
        if has_http2 == self.offers_http2 {
            return Some(Arc::clone(handshakes));
        }
        let other = || Arc::new(handshakes.with_alpn(&alpn(has_http2)));
        Some(Arc::clone(self.of_other_addresses.get_or_init(other)))
    }
}
