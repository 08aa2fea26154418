//! OCSP (RFC 6960): what is asked, and what an answer is worth: for stapling, and for clients' certificates.
//!
//! Not here: fetching. What has a connection to the responder sends [`request`] and gives the answer's bytes to
//! [`check`]. Invariant: nothing an answer says counts before its signature is right and its time is now.

mod asking;
mod cache;
mod file;
mod response;
mod stapling;

pub use asking::{Asked, AsksStatus};
pub use cache::StatusCache;
pub use file::from_file;
pub use response::{
    Answer, CLOCK_SECONDS, Fault, RESPONSE_BYTES_MAX, RESPONSES_MAX, SIGNERS_MAX, Status, check,
    check_by,
};
pub use stapling::{
    REFRESH_SECONDS_MAX, REFRESH_SECONDS_MIN, RETRY_SECONDS_FIRST, RETRY_SECONDS_MIN, Stapling,
    Verification,
};

use crate::x509::certificate::Certificate;
use crate::x509::der;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

const SHA1: &[u8] = &[0x2b, 0x0e, 3, 2, 0x1a];

/// A request for the status of one certificate, as DER: the body of a POST.
#[must_use]
pub fn request(certificate: &Certificate<'_>, issuer: &Certificate<'_>) -> Vec<u8> {
    let wrapped = |inner: &[u8]| der::value(der::SEQUENCE, inner);
    let single = wrapped(&certificate_id(certificate, issuer));
    wrapped(&wrapped(&wrapped(&single)))
}

/// The last part of a GET's path for a request: base64, its special characters escaped (RFC 6960, A.1).
#[must_use]
pub fn path(request: &[u8]) -> String {
    let mut path = String::new();
    for character in STANDARD.encode(request).chars() {
        match character {
            '+' => path.push_str("%2B"),
            '/' => path.push_str("%2F"),
            '=' => path.push_str("%3D"),
            other => path.push(other),
        }
    }
    path
}

/// What names a certificate in requests and answers: hashes of its issuer's name and key, and its serial number.
#[must_use]
pub fn certificate_id(certificate: &Certificate<'_>, issuer: &Certificate<'_>) -> Vec<u8> {
    let algorithm = der::values(
        der::SEQUENCE,
        &[&der::value(der::OID, SHA1), &der::value(der::NULL, &[])],
    );
    let name = der::value(der::OCTET_STRING, &Sha1::digest(certificate.issuer));
    let key = der::value(der::OCTET_STRING, &Sha1::digest(issuer.key.bits));
    let serial = der::value(der::INTEGER, certificate.serial);
    der::values(der::SEQUENCE, &[&algorithm, &name, &key, &serial])
}
