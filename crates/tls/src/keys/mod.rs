//! Certificates, private keys and lists of revocations out of PEM: what `ssl_certificate`, `ssl_certificate_key`,
//! `ssl_trusted_certificate` and `ssl_crl` name.
//!
//! Not here: choosing among certificates (`certificates`), trust (`verify`).
//! Invariants: a pair's key is its certificate's; the certificate may be of any version, so the check is our own and
//! not rustls' one, which refuses X.509 v1.

mod encrypted;
pub mod passwords;
mod pem;
mod source;

pub use encrypted::ITERATIONS_MAX;
pub use passwords::Password;
pub use pem::BLOCKS_MAX;
pub use source::{ReadFile, path};

use crate::error::{Error, Fault, Kind, cannot_open};
use crate::provider;
use crate::x509::certificate::Certificate;
use crate::x509::revocations::RevocationList;
use pem::Block;
pub use rustls::pki_types::CertificateDer;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::{CertifiedKey, SigningKey};
use std::sync::Arc;
use zeroize::Zeroizing;

/// Maximum of certificates in a chain that is sent.
pub const CHAIN_MAX: usize = 100;

const READ_CERTIFICATE: &str = "PEM_read_bio_X509_AUX";
const READ_KEY: &str = "PEM_read_bio_PrivateKey";
const READ_CRL: &str = "PEM_read_bio_X509_CRL";
const READ_PARAMETERS: &str = "PEM_read_bio_Parameters";
const DH_LABELS: [&str; 2] = ["DH PARAMETERS", "X9.42 DH PARAMETERS"];
const CERTIFICATE_LABELS: [&str; 3] = ["CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE"];
const BROKEN_CERTIFICATE: &str = "068000A8:asn1 encoding routines::wrong tag error:0688010A:asn1 encoding \
                                  routines::nested asn1 error:Type=X509 error:0488000D:PEM routines::ASN1 lib";
const BROKEN_LIST: &str = "068000A8:asn1 encoding routines::wrong tag error:0688010A:asn1 encoding routines::nested \
                           asn1 error:Type=X509_CRL error:0488000D:PEM routines::ASN1 lib";
const UNSUPPORTED_KEY: &str =
    "1E08010C:DECODER routines::unsupported:No supported data to decode. Input type: PEM";
const BAD_DECRYPT: &str =
    "1C800064:Provider routines::bad decrypt error:04800065:PEM routines::bad decrypt";
const BAD_DECRYPT_PKCS8: &str = "1C800064:Provider routines::bad decrypt error:11800074:PKCS12 routines::pkcs12 \
                                 cipherfinal error:maybe wrong password";
const BAD_PASSWORD_READ: &str = "04800068:PEM routines::bad password read";
const VALUES_MISMATCH: &str = "05800074:x509 certificate routines::key values mismatch";
const TYPE_MISMATCH: &str = "05800073:x509 certificate routines::key type mismatch";

/// A chain of certificates and the key of its first one.
///
/// # Errors
/// The sentence of the first fault.
pub fn pair(
    certificate: &str,
    key: &str,
    passwords: &[Password],
    file: ReadFile<'_>,
) -> Result<CertifiedKey, Error> {
    let chain = chain(certificate, file)?;
    let key_read = private_key(key, passwords, file)?;
    let first = chain.first().and_then(|der| Certificate::read(der));
    let first = first.ok_or_else(|| Error::CertificateType(certificate.to_owned()))?;
    if let Some(reason) = mismatch(&first, &*key_read) {
        let name = key.to_owned();
        return Err(Error::KeyMismatch { name, reason });
    }
    Ok(CertifiedKey::new(chain, key_read))
}

/// The certificates that `name` stands for, at least one.
///
/// # Errors
/// The sentence of the first fault.
pub fn chain(name: &str, file: ReadFile<'_>) -> Result<Vec<CertificateDer<'static>>, Error> {
    certificates(name, CHAIN_MAX, file)
}

/// The certificates of a file of trusted ones, at least one.
///
/// # Errors
/// The sentence of the first fault.
pub fn trusted(name: &str, file: ReadFile<'_>) -> Result<Vec<CertificateDer<'static>>, Error> {
    certificates(name, BLOCKS_MAX, file)
}

fn certificates(
    name: &str,
    max: usize,
    file: ReadFile<'_>,
) -> Result<Vec<CertificateDer<'static>>, Error> {
    let text = source::read(Kind::Certificate, name, file)?;
    let faulty = |fault| load(Kind::Certificate, name, fault);
    let blocks = blocks(&text, &CERTIFICATE_LABELS, READ_CERTIFICATE).map_err(faulty)?;
    if blocks.is_empty() {
        return Err(faulty(Fault::NoStartLine {
            function: READ_CERTIFICATE,
            label: "TRUSTED CERTIFICATE",
        }));
    }
    if blocks.len() > max {
        return Err(faulty(Fault::TooMany(max, "certificates")));
    }
    let certificates = blocks.into_iter().map(|block| certificate(&block));
    certificates.collect::<Option<_>>().ok_or_else(|| {
        faulty(Fault::Broken {
            function: READ_CERTIFICATE,
            reason: BROKEN_CERTIFICATE,
        })
    })
}

/// A block's certificate, without OpenSSL's notes of trust behind it.
fn certificate(block: &Block<'_>) -> Option<CertificateDer<'static>> {
    let bytes = match block.label {
        "TRUSTED CERTIFICATE" => crate::x509::der::Reader::new(&block.contents).next()?.whole,
        _ => &block.contents,
    };
    Certificate::read(bytes)?;
    Some(CertificateDer::from(bytes.to_vec()))
}

/// The lists of revocations in a file, at least one.
///
/// # Errors
/// The sentence of the first fault.
pub fn revocations(name: &str, file: ReadFile<'_>) -> Result<Vec<RevocationList>, Error> {
    let text = source::read(Kind::Crl, name, file)?;
    let faulty = |fault| load(Kind::Crl, name, fault);
    let blocks = blocks(&text, &["X509 CRL"], READ_CRL).map_err(faulty)?;
    if blocks.is_empty() {
        return Err(faulty(Fault::NoStartLine {
            function: READ_CRL,
            label: "X509 CRL",
        }));
    }
    let lists = blocks
        .into_iter()
        .map(|block| RevocationList::read(block.contents.to_vec()));
    lists.collect::<Option<_>>().ok_or_else(|| {
        faulty(Fault::Broken {
            function: READ_CRL,
            reason: BROKEN_LIST,
        })
    })
}

/// Checks a file of Diffie-Hellman parameters (`ssl_dhparam`), which nothing here uses.
///
/// # Errors
/// The sentence of the first fault.
pub fn dh_parameters(path: &str, file: ReadFile<'_>) -> Result<(), Error> {
    let faulty = |call, reason| Error::Parameters {
        call,
        path: path.to_owned(),
        reason,
    };
    let text =
        file(path).map_err(|error| faulty("BIO_new_file", cannot_open(path, "r", &error)))?;
    let read = blocks(&text, &DH_LABELS, READ_PARAMETERS);
    let is_there = read.is_ok_and(|blocks| !blocks.is_empty());
    let reason = || "error:0480006C:PEM routines::no start line:Expecting: PARAMETERS".to_owned();
    is_there
        .then_some(())
        .ok_or_else(|| faulty(READ_PARAMETERS, reason()))
}

/// The private key that `name` stands for; passwords are tried in their order.
///
/// # Errors
/// The sentence of the first fault.
pub fn private_key(
    name: &str,
    passwords: &[Password],
    file: ReadFile<'_>,
) -> Result<Arc<dyn SigningKey>, Error> {
    let text = Zeroizing::new(source::read(Kind::Key, name, file)?.into_owned());
    let broken = |reason| {
        let function = READ_KEY;
        load(Kind::Key, name, Fault::Broken { function, reason })
    };
    let blocks = pem::blocks(&text).map_err(|_| broken(UNSUPPORTED_KEY))?;
    let block = blocks
        .into_iter()
        .find(|block| block.label.ends_with("PRIVATE KEY"));
    let block = block.ok_or_else(|| broken(UNSUPPORTED_KEY))?;
    let fault = match block.label {
        "ENCRYPTED PRIVATE KEY" => BAD_DECRYPT_PKCS8,
        _ if is_traditional(&block) => BAD_DECRYPT,
        _ => UNSUPPORTED_KEY,
    };
    let keys = plain_keys(block, passwords).map_err(broken)?;
    let key = keys.into_iter().find_map(|key| {
        let provider = provider::provider();
        provider.key_provider.load_private_key(key).ok()
    });
    key.ok_or_else(|| broken(fault))
}

/// Whether the private key that `name` stands for is under a password.
pub(crate) fn is_encrypted(name: &str, file: ReadFile<'_>) -> bool {
    let Ok(text) = source::read(Kind::Key, name, file) else {
        return false;
    };
    let text = Zeroizing::new(text.into_owned());
    let blocks = pem::blocks(&text).unwrap_or_default();
    let mut keys = blocks
        .iter()
        .filter(|block| block.label.ends_with("PRIVATE KEY"));
    keys.next()
        .is_some_and(|key| key.label == "ENCRYPTED PRIVATE KEY" || is_traditional(key))
}

/// What a block may be under one password after the other.
fn plain_keys(
    block: Block<'_>,
    passwords: &[Password],
) -> Result<Vec<PrivateKeyDer<'static>>, &'static str> {
    let info = block.header("DEK-Info");
    let decrypted = |password: &Password| match (block.label, info) {
        ("ENCRYPTED PRIVATE KEY", _) => encrypted::pkcs8(&block.contents, password),
        (_, Some(info)) => encrypted::traditional(info, &block.contents, password),
        _ => None,
    };
    if block.label != "ENCRYPTED PRIVATE KEY" && !is_traditional(&block) {
        let key = private_key_of(block.label, &block.contents);
        return key.map(|key| vec![key]).ok_or(UNSUPPORTED_KEY);
    }
    if passwords.is_empty() {
        return Err(BAD_PASSWORD_READ);
    }
    let plain = passwords.iter().filter_map(decrypted);
    let keys: Vec<_> = plain
        .filter_map(|bytes| private_key_of(block.label, &bytes))
        .collect();
    Ok(keys)
}

fn is_traditional(block: &Block<'_>) -> bool {
    let kind = block.header("Proc-Type");
    kind.is_some_and(|kind| kind.ends_with("ENCRYPTED"))
}

fn private_key_of(label: &str, bytes: &[u8]) -> Option<PrivateKeyDer<'static>> {
    let bytes = bytes.to_vec();
    match label {
        "RSA PRIVATE KEY" => Some(PrivateKeyDer::Pkcs1(bytes.into())),
        "EC PRIVATE KEY" => Some(PrivateKeyDer::Sec1(bytes.into())),
        "PRIVATE KEY" | "ENCRYPTED PRIVATE KEY" => Some(PrivateKeyDer::Pkcs8(bytes.into())),
        _ => None,
    }
}

/// Why a key is not the certificate's. Keys that do not tell their public part are taken.
fn mismatch(certificate: &Certificate<'_>, key: &dyn SigningKey) -> Option<&'static str> {
    let public = key.public_key()?;
    let public = crate::x509::certificate::PublicKey::read(&public)?;
    let kind = |algorithm: &[u8]| algorithm.get(..4).map(<[u8]>::to_vec);
    if public.bits == certificate.key.bits {
        None
    } else if kind(public.algorithm) == kind(certificate.key.algorithm) {
        Some(VALUES_MISMATCH)
    } else {
        Some(TYPE_MISMATCH)
    }
}

/// The blocks with one of the labels.
fn blocks<'a>(
    text: &'a [u8],
    labels: &[&str],
    function: &'static str,
) -> Result<Vec<Block<'a>>, Fault> {
    let blocks = pem::blocks(text).map_err(|reason| Fault::Broken { function, reason })?;
    let is_one = |block: &Block<'_>| labels.contains(&block.label);
    Ok(blocks.into_iter().filter(is_one).collect())
}

fn load(kind: Kind, name: &str, fault: Fault) -> Error {
    let name = name.to_owned();
    Error::Load { kind, name, fault }
}
