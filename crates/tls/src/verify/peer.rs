//! What rustls asks about a peer's certificate in a handshake: only whether the peer has its key.
//!
//! Not here: trust. It is judged behind the handshake, so that a verdict is a value and not an alert.

use crate::verify::signature;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// Asks a client for a certificate, and takes any, or none.
#[derive(Debug)]
pub(crate) struct AnyClient {
    names: Vec<DistinguishedName>,
}

impl AnyClient {
    /// `names` are those of the authorities that the client is told of.
    pub(crate) fn new(names: Vec<DistinguishedName>) -> Self {
        Self { names }
    }
}

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.names
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        signature::handshake(message, certificate, signed, false)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        signature::handshake(message, certificate, signed, true)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        signature::schemes()
    }
}

/// Takes any server's certificate.
#[derive(Debug)]
pub(crate) struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        signature::handshake(message, certificate, signed, false)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        signature::handshake(message, certificate, signed, true)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        signature::schemes()
    }
}
