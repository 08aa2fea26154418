//! Signatures by a public key as it stands in a certificate, of whatever version the certificate is.
//!
//! Not here: which signatures are asked for. Invariant: no certificate is read by webpki, which knows version 3 only.

use crate::provider;
use crate::x509::certificate::{Certificate, PublicKey};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, SignatureVerificationAlgorithm};
use rustls::{CertificateError, DigitallySignedStruct, Error, PeerMisbehaved, SignatureScheme};
use std::cell::Cell;

thread_local! {
    /// The scheme of the last signature of a handshake that was right, on this thread: rustls does not tell it.
    static LAST: Cell<Option<u16>> = const { Cell::new(None) };
}

type Algorithm = &'static dyn SignatureVerificationAlgorithm;

/// Whether `signature` is of `message` by `key`; `algorithm` is what the certificate or list says.
pub(crate) fn is_valid(
    algorithm: &[u8],
    key: &PublicKey<'_>,
    message: &[u8],
    signature: &[u8],
) -> bool {
    let all = provider::provider().signature_verification_algorithms.all;
    all.iter()
        .filter(|known| known.signature_alg_id().as_ref() == algorithm)
        .any(|known| is_valid_by(*known, key, message, signature))
}

fn is_valid_by(
    algorithm: Algorithm,
    key: &PublicKey<'_>,
    message: &[u8],
    signature: &[u8],
) -> bool {
    algorithm.public_key_alg_id().as_ref() == key.algorithm
        && algorithm
            .verify_signature(key.bits, message, signature)
            .is_ok()
}

/// Whether a certificate is signed by this key.
pub(crate) fn is_signed_by(certificate: &Certificate<'_>, key: &PublicKey<'_>) -> bool {
    is_valid(
        certificate.signature_algorithm,
        key,
        certificate.signed,
        certificate.signature,
    )
}

/// Does a step of a handshake, and says the scheme that the peer signed with in it.
pub(crate) fn noting_scheme<T>(step: impl FnOnce() -> T) -> (T, Option<u16>) {
    LAST.set(None);
    let result = step();
    (result, LAST.take())
}

/// The schemes that peers may sign with.
pub(crate) fn schemes() -> Vec<SignatureScheme> {
    provider::provider()
        .signature_verification_algorithms
        .supported_schemes()
}

/// Checks what a peer signed in a handshake.
///
/// # Errors
/// The signature is wrong, or of a scheme that was not offered.
pub(crate) fn handshake(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    is_tls13: bool,
) -> Result<HandshakeSignatureValid, Error> {
    let certificate = Certificate::read(certificate).ok_or(CertificateError::BadEncoding)?;
    let schemes = provider::provider()
        .signature_verification_algorithms
        .mapping;
    let algorithms = schemes
        .iter()
        .find(|(scheme, _)| *scheme == signed.scheme && (!is_tls13 || is_newer(*scheme)))
        .map(|(_, algorithms)| *algorithms)
        .ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
    // TLS 1.3 binds curve and hash; before, a hash may stand with any curve (RFC 5246, 7.4.1.4.1).
    let algorithms = if is_tls13 {
        &algorithms[..1]
    } else {
        algorithms
    };
    let is_valid = algorithms
        .iter()
        .any(|algorithm| is_valid_by(*algorithm, &certificate.key, message, signed.signature()));
    if is_valid {
        LAST.set(Some(u16::from(signed.scheme)));
        Ok(HandshakeSignatureValid::assertion())
    } else {
        Err(CertificateError::BadSignature.into())
    }
}

/// Whether TLS 1.3 allows a scheme for handshakes: no PKCS#1 v1.5, no SHA-1 (RFC 8446, 4.2.3).
fn is_newer(scheme: SignatureScheme) -> bool {
    let id = u16::from(scheme);
    id & 0xff != 1 && id >> 8 != 2
}
