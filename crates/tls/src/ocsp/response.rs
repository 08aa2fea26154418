//! An answer of an OCSP responder, and its checks (RFC 6960, 3.2 and 4.2).

use crate::ocsp::certificate_id;
use crate::verify::signature;
use crate::x509::canonical;
use crate::x509::certificate::{Certificate, PublicKey};
use crate::x509::der::{self, Reader};
use crate::x509::time::{self, Seconds};
use rustls::pki_types::CertificateDer;

/// Maximum size of an answer in bytes.
pub const RESPONSE_BYTES_MAX: usize = 64 * 1024;
/// Maximum of statuses and of certificates in an answer that are looked at.
pub const RESPONSES_MAX: usize = 32;
/// Maximum of certificates of the configuration that are tried as the signer of an answer.
pub const SIGNERS_MAX: usize = 256;
/// How far the responder's clock may be ahead of ours, or behind, in seconds.
pub const CLOCK_SECONDS: Seconds = 300;

const BASIC: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1];
const OCSP_SIGNING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 9];

/// The status of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not revoked.
    Good,
    /// Revoked.
    Revoked,
    /// The responder does not know it.
    Unknown,
}

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The certificate's status.
    pub status: Status,
    /// Until when it says so.
    pub next_update: Option<Seconds>,
    /// Whether it is signed by a responder that the issuer has named, not by the issuer itself.
    pub is_delegated: bool,
}

/// Why an answer is worth nothing. `Display` is nginx's sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It cannot be read.
    #[error("d2i_OCSP_RESPONSE() failed")]
    Unreadable,
    /// The responder has no answer.
    #[error("OCSP response not successful ({number}: {text})", number = .0, text = status_text(*.0))]
    NotSuccessful(u64),
    /// Its signature is wrong, or whose it is is not known.
    #[error("OCSP_basic_verify() failed")]
    Signature,
    /// It is about other certificates.
    #[error("certificate status not found in the OCSP response")]
    NotFound,
    /// Its time is over, or has not come.
    #[error("OCSP_check_validity() failed")]
    Time,
}

fn status_text(number: u64) -> &'static str {
    match number {
        1 => "malformedrequest",
        2 => "internalerror",
        3 => "trylater",
        5 => "sigrequired",
        6 => "unauthorized",
        _ => "(UNKNOWN)",
    }
}

/// Checks an answer about a certificate. Its signature is always looked at: it is the issuer's, or that of a responder
/// that the issuer has named.
///
/// # Errors
/// It is worth nothing.
pub fn check(
    response: &[u8],
    certificate: &Certificate<'_>,
    issuer: &Certificate<'_>,
    now: Seconds,
) -> Result<Answer, Fault> {
    check_by(response, certificate, issuer, &[], now)
}

/// The same, where certificates of the configuration may have signed as well (RFC 6960, 4.2.2.2): at most
/// [`SIGNERS_MAX`] are tried.
///
/// # Errors
/// It is worth nothing.
pub fn check_by(
    response: &[u8],
    certificate: &Certificate<'_>,
    issuer: &Certificate<'_>,
    configured: &[CertificateDer<'_>],
    now: Seconds,
) -> Result<Answer, Fault> {
    if response.len() > RESPONSE_BYTES_MAX {
        return Err(Fault::Unreadable);
    }
    let basic = basic(response)?;
    let answer = Basic::read(basic).ok_or(Fault::Unreadable)?;
    let signer = answer
        .signer(issuer, configured, now)
        .ok_or(Fault::Signature)?;
    let id = certificate_id(certificate, issuer);
    let mut single = single(answer.responses, &id)?;
    single.answer.is_delegated = signer == Signer::Delegate;
    let is_now = single.this_update <= now + CLOCK_SECONDS
        && single
            .answer
            .next_update
            .is_none_or(|next| now - CLOCK_SECONDS <= next && single.this_update <= next);
    if is_now {
        Ok(single.answer)
    } else {
        Err(Fault::Time)
    }
}

/// The bytes of the basic answer.
fn basic(response: &[u8]) -> Result<&[u8], Fault> {
    let outer = der::only(response, der::SEQUENCE).ok_or(Fault::Unreadable)?;
    let mut outer = Reader::new(outer);
    let status = outer.expect(der::ENUMERATED).and_then(der::unsigned);
    match status.ok_or(Fault::Unreadable)? {
        0 => {}
        number => return Err(Fault::NotSuccessful(number)),
    }
    octets(outer).ok_or(Fault::Unreadable)
}

fn octets(mut outer: Reader<'_>) -> Option<&[u8]> {
    let mut inner = outer.enter(der::constructed(0))?.enter(der::SEQUENCE)?;
    let kind = inner.expect(der::OID)?;
    inner.expect(der::OCTET_STRING).filter(|_| kind == BASIC)
}

/// Whose signature an answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signer {
    Issuer,
    Delegate,
    Configured,
}

/// A basic answer, taken apart.
struct Basic<'a> {
    signed: &'a [u8],
    algorithm: &'a [u8],
    signature: &'a [u8],
    certificates: &'a [u8],
    responses: &'a [u8],
}

impl<'a> Basic<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut outer = Reader::new(der::only(bytes, der::SEQUENCE)?);
        let data = outer.expect_value(der::SEQUENCE)?;
        let algorithm = outer.expect(der::SEQUENCE)?;
        let signature = outer.bit_string()?;
        let certificates = match outer.optional(der::constructed(0))? {
            Some(list) => der::only(list, der::SEQUENCE)?,
            None => &[],
        };
        let mut fields = Reader::new(data.contents);
        fields.optional(der::constructed(0))?;
        // Whose answer it is: the signature shows it.
        fields.next()?;
        fields.expect(der::GENERALIZED_TIME)?;
        let responses = fields.expect(der::SEQUENCE)?;
        Some(Self {
            signed: data.whole,
            algorithm,
            signature,
            certificates,
            responses,
        })
    }

    /// Whose signature it has: the issuer's, or that of a certificate that the issuer has made a responder.
    /// Or a configured one.
    fn signer(
        &self,
        issuer: &Certificate<'_>,
        configured: &[CertificateDer<'_>],
        now: Seconds,
    ) -> Option<Signer> {
        let signs = |key: &PublicKey<'_>| {
            signature::is_valid(self.algorithm, key, self.signed, self.signature)
        };
        let mut list = Reader::new(self.certificates);
        let certificates = std::iter::from_fn(|| list.expect_value(der::SEQUENCE));
        let mut responders = certificates
            .take(RESPONSES_MAX)
            .filter_map(|value| Certificate::read(value.whole));
        if signs(&issuer.key) {
            return Some(Signer::Issuer);
        }
        let is_named = |responder: Certificate<'_>| {
            is_responder(&responder, issuer, now) && signs(&responder.key)
        };
        if responders.any(is_named) {
            return Some(Signer::Delegate);
        }
        let mut configured = configured.iter().take(SIGNERS_MAX);
        let has_signed =
            |der: &CertificateDer<'_>| Certificate::read(der).is_some_and(|one| signs(&one.key));
        configured.any(has_signed).then_some(Signer::Configured)
    }
}

/// Whether the issuer has made this certificate's subject a responder.
fn is_responder(certificate: &Certificate<'_>, issuer: &Certificate<'_>, now: Seconds) -> bool {
    let is_for_ocsp = certificate
        .extensions
        .extended_key_usage
        .is_some_and(|list| {
            let mut list = Reader::new(list);
            std::iter::from_fn(|| list.expect(der::OID)).any(|usage| usage == OCSP_SIGNING)
        });
    is_for_ocsp
        && canonical::is_same(certificate.issuer, issuer.subject)
        && (certificate.not_before..=certificate.not_after).contains(&now)
        && signature::is_signed_by(certificate, &issuer.key)
}

/// What is said of one certificate.
struct Single {
    answer: Answer,
    this_update: Seconds,
}

/// The status of the certificate with this id.
fn single(responses: &[u8], id: &[u8]) -> Result<Single, Fault> {
    let mut list = Reader::new(responses);
    for _ in 0..RESPONSES_MAX {
        let Some(one) = list.enter(der::SEQUENCE) else {
            break;
        };
        let mut fields = one;
        let named = fields
            .expect_value(der::SEQUENCE)
            .ok_or(Fault::Unreadable)?;
        if is_same(named.contents, id) {
            return read_single(fields).ok_or(Fault::Unreadable);
        }
    }
    Err(Fault::NotFound)
}

/// Whether an id is ours; the algorithm may stand with or without its empty parameters.
fn is_same(named: &[u8], id: &[u8]) -> bool {
    let rest = |contents| {
        let mut reader = Reader::new(contents);
        let hash = reader.enter(der::SEQUENCE)?.expect(der::OID)?;
        let parts = [
            reader.next()?.contents,
            reader.next()?.contents,
            reader.next()?.contents,
        ];
        Some((hash, parts))
    };
    let id = der::only(id, der::SEQUENCE).and_then(rest);
    id.is_some() && rest(named) == id
}

fn read_single(mut fields: Reader<'_>) -> Option<Single> {
    let status = match fields.next()?.tag {
        0x80 => Status::Good,
        0xa1 => Status::Revoked,
        0x82 => Status::Unknown,
        _ => return None,
    };
    let this_update = time::read(fields.next()?)?;
    let next_update = match fields.optional(der::constructed(0))? {
        Some(contents) => Some(time::read(Reader::new(contents).next()?)?),
        None => None,
    };
    let answer = Answer {
        status,
        next_update,
        is_delegated: false,
    };
    Some(Single {
        answer,
        this_update,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ocsp::{path, request};
    use rcgen::{CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, KeyPair, SigningKey};

    const NOW: Seconds = 1_767_225_600;
    const ECDSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];

    fn params(name: &str) -> CertificateParams {
        CertificateParams::new(vec![name.to_owned()]).unwrap()
    }

    fn stamp(text: &str) -> Vec<u8> {
        der::value(der::GENERALIZED_TIME, text.as_bytes())
    }

    /// An answer about one certificate.
    fn answer(id: &[u8], status: &[u8], next: &str, key: &KeyPair, extra: &[&[u8]]) -> Vec<u8> {
        let next = der::value(der::constructed(0), &stamp(next));
        let this = stamp("20251231000000Z");
        let single = der::values(der::SEQUENCE, &[id, status, &this, &next]);
        let responder = der::value(
            der::constructed(2),
            &der::value(der::OCTET_STRING, &[1; 20]),
        );
        let list = der::value(der::SEQUENCE, &single);
        let data = der::values(
            der::SEQUENCE,
            &[&responder, &stamp("20251231000000Z"), &list],
        );
        let signature = [&[0][..], &key.sign(&data).unwrap()].concat();
        let algorithm = der::value(der::SEQUENCE, &der::value(der::OID, ECDSA_SHA256));
        let certificates = der::value(der::constructed(0), &der::values(der::SEQUENCE, extra));
        let signature = der::value(der::BIT_STRING, &signature);
        let basic = der::values(
            der::SEQUENCE,
            &[&data, &algorithm, &signature, &certificates],
        );
        let basic = der::value(der::OCTET_STRING, &basic);
        let inner = der::values(der::SEQUENCE, &[&der::value(der::OID, BASIC), &basic]);
        let status = der::value(der::ENUMERATED, &[0]);
        der::values(
            der::SEQUENCE,
            &[&status, &der::value(der::constructed(0), &inner)],
        )
    }

    #[test]
    fn answers_are_checked() {
        let issuer_key = KeyPair::generate().unwrap();
        let root = CertifiedIssuer::self_signed(params("root"), &issuer_key).unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf = params("leaf").signed_by(&key, &root).unwrap();
        let issuer = Certificate::read(root.der()).unwrap();
        let leaf = Certificate::read(leaf.der()).unwrap();
        let id = certificate_id(&leaf, &issuer);
        let good = der::value(der::context(0), &[]);
        let revoked = der::value(der::constructed(1), &stamp("20251230000000Z"));
        let says = |bytes: &[u8]| check(bytes, &leaf, &issuer, NOW);
        let next = "20260201000000Z";
        let by_issuer = answer(&id, &good, next, &issuer_key, &[]);
        assert_eq!(says(&by_issuer).unwrap().status, Status::Good);
        assert_eq!(
            says(&answer(&id, &revoked, next, &issuer_key, &[]))
                .unwrap()
                .status,
            Status::Revoked
        );
        let old = answer(&id, &good, "20251231000001Z", &issuer_key, &[]);
        assert_eq!(says(&old), Err(Fault::Time));
        let foreign = answer(&id, &good, next, &key, &[]);
        assert_eq!(says(&foreign), Err(Fault::Signature));
        assert!(!says(&by_issuer).unwrap().is_delegated);
        let other = certificate_id(&issuer, &issuer);
        assert_eq!(
            says(&answer(&other, &good, next, &issuer_key, &[])),
            Err(Fault::NotFound)
        );
        let other = params("other").self_signed(&key).unwrap();
        let configured = [other.der().clone()];
        let by = check_by(&foreign, &leaf, &issuer, &configured, NOW).unwrap();
        assert_eq!(by.status, Status::Good);
        for end in 0..by_issuer.len() {
            assert!(says(&by_issuer[..end]).is_err());
        }
    }

    #[test]
    fn only_those_made_responders_may_answer() {
        let issuer_key = KeyPair::generate().unwrap();
        let root = CertifiedIssuer::self_signed(params("root"), &issuer_key).unwrap();
        let issuer = Certificate::read(root.der()).unwrap();
        let key = KeyPair::generate().unwrap();
        let id = certificate_id(&issuer, &issuer);
        let good = der::value(der::context(0), &[]);
        let by = |params: &CertificateParams| {
            let responder = params.signed_by(&key, &root).unwrap();
            let bytes = answer(&id, &good, "20260201000000Z", &key, &[responder.der()]);
            check(&bytes, &issuer, &issuer, NOW)
        };
        let mut params = params("responder");
        assert_eq!(by(&params), Err(Fault::Signature));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::OcspSigning];
        let answer = by(&params).unwrap();
        assert_eq!((answer.status, answer.is_delegated), (Status::Good, true));
    }

    #[test]
    fn a_refusal_is_named() {
        let key = KeyPair::generate().unwrap();
        let root = params("root").self_signed(&key).unwrap();
        let root = Certificate::read(root.der()).unwrap();
        let fault = check(&[0x30, 3, 0x0a, 1, 3], &root, &root, NOW).unwrap_err();
        assert_eq!(
            fault.to_string(),
            "OCSP response not successful (3: trylater)"
        );
        let path = path(&request(&root, &root));
        assert!(path.starts_with('M') && !path.contains(['+', '/', '=']));
    }
}
