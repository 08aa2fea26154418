//! A verifier for clients of tests, also of the black-box tests, that keeps what is stapled.

use super::any_certificate::Any;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use std::sync::{Mutex, PoisonError};

/// Takes every certificate, and keeps the OCSP response that came with the last one.
#[derive(Debug, Default)]
pub struct Stapled(Mutex<Vec<u8>>);

impl Stapled {
    /// The response; empty: none.
    pub fn last(&self) -> Vec<u8> {
        let last = self.0.lock();
        last.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ServerCertVerifier for Stapled {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        stapled: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = stapled.to_vec();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Any.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Any.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        Any.supported_verify_schemes()
    }
}
