//! What was negotiated: what variables, logs and the choice of a protocol above TLS ask for.
//!
//! Not here: what a client offered (`hello`). Invariant: nothing here is secret.

use crate::suites;
use crate::x509::distinguished::hexadecimal;
use rustls::pki_types::CertificateDer;
use rustls::{CommonState, HandshakeKind};

/// What was negotiated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The version's number.
    pub version: u16,
    /// The cipher suite's number.
    pub cipher: u16,
    /// The number of the key exchange's group; none where an old session of TLS 1.2 was taken up.
    pub group: Option<u16>,
    /// The number of the signature scheme that the server signed with; none where an old session was taken up.
    pub signature_scheme: Option<u16>,
    /// The number of the signature scheme that the client signed with, where it has shown a certificate.
    pub client_signature_scheme: Option<u16>,
    /// The protocol above TLS.
    pub alpn: Option<Vec<u8>>,
    /// The name that the client asked for.
    pub server_name: Option<Vec<u8>>,
    /// Whether an old session was taken up.
    pub is_resumed: bool,
    /// The session's id.
    pub session_id: Vec<u8>,
    /// The peer's certificates, its own first; empty if it showed none.
    pub certificates: Vec<CertificateDer<'static>>,
}

impl Facts {
    pub(crate) fn of(state: &CommonState) -> Self {
        let group = state.negotiated_key_exchange_group();
        let suite = state.negotiated_cipher_suite();
        let certificates = state.peer_certificates().unwrap_or_default();
        Self {
            version: state.protocol_version().map_or(0, u16::from),
            cipher: suite.map_or(0, |suite| u16::from(suite.suite())),
            group: group.map(|group| u16::from(group.name())),
            signature_scheme: None,
            client_signature_scheme: None,
            alpn: state.alpn_protocol().map(<[u8]>::to_vec),
            server_name: None,
            is_resumed: state.handshake_kind() == Some(HandshakeKind::Resumed),
            session_id: Vec::new(),
            certificates: certificates
                .iter()
                .map(|der| der.clone().into_owned())
                .collect(),
        }
    }

    /// `$ssl_protocol`.
    #[must_use]
    pub fn protocol_name(&self) -> &'static str {
        suites::version_name(self.version).unwrap_or("unknown")
    }

    /// `$ssl_cipher`.
    #[must_use]
    pub fn cipher_name(&self) -> &'static str {
        suites::cipher_name(self.cipher).unwrap_or("unknown")
    }

    /// `$ssl_curve`.
    #[must_use]
    pub fn group_name(&self) -> String {
        let name = |id| suites::group_name(id).map_or_else(|| format!("0x{id:04x}"), str::to_owned);
        self.group.map(name).unwrap_or_default()
    }

    /// `$ssl_sigalg`.
    #[must_use]
    pub fn signature_scheme_name(&self) -> &'static str {
        let name = self
            .signature_scheme
            .and_then(suites::signature_scheme_name);
        name.unwrap_or_default()
    }

    /// `$ssl_client_sigalg`.
    #[must_use]
    pub fn client_signature_scheme_name(&self) -> &'static str {
        let name = self
            .client_signature_scheme
            .and_then(suites::signature_scheme_name);
        name.unwrap_or_default()
    }

    /// `$ssl_session_reused`.
    #[must_use]
    pub fn reused(&self) -> &'static str {
        if self.is_resumed { "r" } else { "." }
    }

    /// `$ssl_session_id`.
    #[must_use]
    pub fn session_id_digits(&self) -> String {
        hexadecimal(&self.session_id).to_ascii_lowercase()
    }
}
