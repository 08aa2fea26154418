//! TLS of one `server` block.

use std::sync::Arc;

use tls::configure;
use tls::ocsp::AsksStatus;

use super::acme::AcmeSlot;
use super::directives::VerifyClient;
use super::named_certificates::NamedCertificates;

/// TLS of one `server` block.
#[derive(Debug)]
pub struct ServerTls {
    /// What its handshakes use; `None`: it has no certificate, so those of the default server of the address are used.
    pub handshakes: Option<Arc<configure::Server>>,
    /// The certificates that are read in each handshake, where their names have variables.
    pub named: Option<Arc<NamedCertificates>>,
    /// `ssl_reject_handshake`.
    pub rejects: bool,
    /// `ssl_verify_client`: whether its requests need a client's certificate.
    pub verify: VerifyClient,
    /// What tells the status of clients' certificates (`ssl_ocsp`).
    pub statuses: Option<Arc<dyn AsksStatus>>,
    /// Its certificates that are taken when they change (`ssl_certificate_watch`).
    pub watched: Vec<Arc<WatchedPair>>,
    /// The place of its certificate by ACME: the value of `$acme_certificate`.
    pub acme: Option<Arc<AcmeSlot>>,
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
}
