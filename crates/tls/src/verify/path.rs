//! The chain from a peer's certificate to a configured one, found and judged as OpenSSL does (RFC 5280, 6.1).
//!
//! webpki is not used: it refuses certificates of version 1 and leaves that are authorities, which private set-ups and
//! `openssl req -x509` make, and does not say what OpenSSL says. As nginx lets OpenSSL go on behind each fault, the last
//! one found is the reason. Not here: lists of revocations.
//! Invariants: a chain has at most [`CHAIN_MAX`] certificates; at most [`CANDIDATES_MAX`] issuers are tried for each.

use crate::verify::Trust;
use crate::verify::reason::Reason;
use crate::verify::revocation::{self, Judged};
use crate::verify::{constraints, signature};
use crate::x509::canonical::CanonicalName;
use crate::x509::certificate::{
    Certificate, DIGITAL_SIGNATURE, KEY_AGREEMENT, KEY_CERT_SIGN, KEY_ENCIPHERMENT,
};
use crate::x509::der::{self, Reader};
use crate::x509::time::Seconds;
use rustls::pki_types::CertificateDer;

/// Maximum of certificates in a chain, whatever depth is configured.
pub const CHAIN_MAX: usize = 64;
/// Maximum of certificates that a peer may present.
pub const PRESENTED_MAX: usize = 64;
/// Maximum of certificates of one name whose signatures are tried.
pub const CANDIDATES_MAX: usize = 8;

const SERVER_AUTHENTICATION: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
const CLIENT_AUTHENTICATION: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];

/// What a peer's certificate is to be for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A client's.
    Client,
    /// A server's.
    Server,
}

/// A chain, the peer's own certificate first.
pub(crate) struct Path<'a> {
    pub(crate) certificates: Vec<Certificate<'a>>,
}

/// Remembers the last fault.
#[derive(Default)]
struct Verdict(Option<Reason>);

impl Verdict {
    fn note(&mut self, result: Result<(), Reason>) {
        if let Err(reason) = result {
            self.fail(reason);
        }
    }

    fn fail(&mut self, reason: Reason) {
        self.0 = Some(reason);
    }

    fn is_good(&self) -> bool {
        self.0.is_none()
    }

    fn end(self) -> Result<(), Reason> {
        self.0.map_or(Ok(()), Err)
    }
}

/// Judges the certificates that a peer presented.
pub(crate) fn verify(
    trust: &Trust,
    presented: &[CertificateDer<'_>],
    purpose: Purpose,
    now: Seconds,
) -> Result<(), Reason> {
    let presented = presented
        .iter()
        .take(PRESENTED_MAX)
        .map(|der| Certificate::read(der));
    let presented: Option<Vec<_>> = presented.collect();
    let presented = presented.ok_or(Reason::Unreadable)?;
    let leaf = presented.first().ok_or(Reason::Unreadable)?;
    let mut verdict = Verdict::default();
    let (path, found) = build(trust, leaf, &presented[1..], now);
    verdict.note(found);
    for height in 0..path.certificates.len() {
        verdict.note(extensions(&path, height, purpose).end());
    }
    let mut signed = Verdict::default();
    signatures_and_times(&path, now, &mut signed);
    if trust.has_revocations() {
        let judged = Judged {
            chain: &path.certificates,
            is_believed: verdict.is_good() && signed.is_good(),
            now,
        };
        for height in 0..path.certificates.len() {
            verdict.note(revocation::check(trust, &judged, height));
        }
    }
    verdict.note(signed.end());
    verdict.note(names(&path));
    verdict.end()
}

/// The certificates of the chain, as far as it is found.
pub(crate) fn chain(
    trust: &Trust,
    presented: &[CertificateDer<'_>],
    now: Seconds,
) -> Vec<CertificateDer<'static>> {
    let presented = presented.iter().take(PRESENTED_MAX);
    let presented: Vec<_> = presented.filter_map(|der| Certificate::read(der)).collect();
    let Some((leaf, others)) = presented.split_first() else {
        return Vec::new();
    };
    let (path, _) = build(trust, leaf, others, now);
    let certificates = path.certificates.iter();
    certificates
        .map(|one| CertificateDer::from(one.der.to_vec()))
        .collect()
}

/// The chain as far as issuers are found, configured ones first, and whether it ends where it should.
fn build<'a>(
    trust: &'a Trust,
    leaf: &Certificate<'a>,
    others: &[Certificate<'a>],
    now: Seconds,
) -> (Path<'a>, Result<(), Reason>) {
    let mut path = Path {
        certificates: vec![leaf.clone()],
    };
    let names = others.iter().map(|other| CanonicalName::of(other.subject));
    let names: Vec<_> = names.collect();
    let length_max = trust.depth.saturating_add(2).min(CHAIN_MAX);
    let mut is_configured = false;
    loop {
        let (last, length) = (path.last(), path.certificates.len());
        if is_self_signed(last) {
            let end = match length {
                _ if trust.has(last.der) => Ok(()),
                1 => Err(Reason::SelfSigned),
                _ => Err(Reason::SelfSignedInChain),
            };
            return (path, end);
        }
        let name = CanonicalName::of(last.issuer);
        let ours = choose(trust.issuers(&name), last, now);
        let issuer = match &ours {
            Some(_) => ours.clone(),
            // What a peer presents does not go on from what is configured.
            None if is_configured => None,
            None => {
                let named = others.iter().zip(&names).filter(|(_, own)| **own == name);
                choose(named.map(|(other, _)| other.clone()), last, now)
            }
        };
        let issuer = issuer.filter(|issuer| length < length_max && !path.has(issuer));
        match issuer {
            Some(issuer) => path.certificates.push(issuer),
            None if is_configured => return (path, Err(Reason::NoIssuer)),
            None => return (path, Err(Reason::NoIssuerLocally)),
        }
        is_configured = ours.is_some();
    }
}

/// The certificate that issued `subject`, of those that have its issuer's name: one whose key made the signature, else
/// one that is valid now, else any.
fn choose<'a>(
    candidates: impl Iterator<Item = Certificate<'a>>,
    subject: &Certificate<'_>,
    now: Seconds,
) -> Option<Certificate<'a>> {
    let fits = |issuer: &Certificate<'_>| {
        let keys = (
            subject.extensions.authority_key,
            issuer.extensions.subject_key,
        );
        !matches!(keys, (Some(asked), Some(has)) if asked != has)
    };
    let mut fitting: Vec<_> = candidates.filter(fits).take(CANDIDATES_MAX).collect();
    let signed = |issuer: &Certificate<'_>| signature::is_signed_by(subject, &issuer.key);
    let is_valid = |issuer: &Certificate<'_>| time(issuer, now).is_ok();
    let best = match fitting.len() {
        0 => return None,
        1 => 0,
        _ => fitting
            .iter()
            .position(|issuer| signed(issuer) && is_valid(issuer))
            .or_else(|| fitting.iter().position(signed))
            .or_else(|| fitting.iter().position(is_valid))
            .unwrap_or(0),
    };
    Some(fitting.swap_remove(best))
}

/// Whether a certificate names itself as its issuer, by name and by key.
fn is_self_signed(certificate: &Certificate<'_>) -> bool {
    let extensions = &certificate.extensions;
    let keys = (extensions.authority_key, extensions.subject_key);
    certificate.is_self_issued() && !matches!(keys, (Some(asked), Some(has)) if asked != has)
}

impl<'a> Path<'a> {
    fn last(&self) -> &Certificate<'a> {
        self.certificates.last().expect("it has its leaf")
    }

    fn has(&self, certificate: &Certificate<'_>) -> bool {
        let mut certificates = self.certificates.iter();
        certificates.any(|other| other.der == certificate.der)
    }
}

/// What the extensions of the certificate at a height say: authorities stand above the leaf, for this purpose, with
/// no more below them than they allow.
fn extensions(path: &Path<'_>, height: usize, purpose: Purpose) -> Verdict {
    let certificate = &path.certificates[height];
    let extensions = &certificate.extensions;
    let mut verdict = Verdict::default();
    if extensions.has_unknown_critical {
        verdict.fail(Reason::CriticalExtension);
    }
    let is_top = height + 1 == path.certificates.len();
    let authority = authority(certificate);
    let issues = authority == Authority::Yes || is_top && authority == Authority::AtTop;
    if height > 0 && !issues {
        verdict.fail(Reason::InvalidAuthority);
    }
    let is_none = height > 0 && authority == Authority::No;
    if is_none || !serves(certificate, purpose, height) {
        verdict.fail(Reason::Purpose);
    }
    let below = path.certificates[..height].iter().skip(1);
    let below = below
        .filter(|certificate| !certificate.is_self_issued())
        .count() as u64;
    let length = extensions
        .basic_constraints
        .and_then(|constraints| constraints.path_length);
    if height > 1 && length.is_some_and(|length| below > length) {
        verdict.fail(Reason::PathLength);
    }
    verdict
}

/// What a certificate is as an issuer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Authority {
    No,
    /// At the top of a chain only: of the first version and its own issuer, or with a key usage for it and no word on
    /// being an authority.
    AtTop,
    Yes,
}

fn authority(certificate: &Certificate<'_>) -> Authority {
    let extensions = &certificate.extensions;
    let may_sign = extensions.key_usage.map(|usage| usage & KEY_CERT_SIGN != 0);
    let is_ca = extensions
        .basic_constraints
        .map(|constraints| constraints.is_ca);
    let is_old = certificate.version == 1 && is_self_signed(certificate);
    match (is_ca, may_sign) {
        (_, Some(false)) | (Some(false), _) => Authority::No,
        (Some(true), _) => Authority::Yes,
        (None, Some(true)) => Authority::AtTop,
        (None, None) if is_old => Authority::AtTop,
        (None, None) => Authority::No,
    }
}

/// Whether a certificate may be used for a purpose, by its key usages.
fn serves(certificate: &Certificate<'_>, purpose: Purpose, height: usize) -> bool {
    let extensions = &certificate.extensions;
    let (wanted, usages) = match purpose {
        Purpose::Client => (CLIENT_AUTHENTICATION, DIGITAL_SIGNATURE | KEY_AGREEMENT),
        Purpose::Server => (
            SERVER_AUTHENTICATION,
            DIGITAL_SIGNATURE | KEY_AGREEMENT | KEY_ENCIPHERMENT,
        ),
    };
    let extended = extensions.extended_key_usage;
    let is_extended = extended.is_none_or(|list| {
        let mut list = Reader::new(list);
        std::iter::from_fn(|| list.expect(der::OID)).any(|usage| usage == wanted)
    });
    let is_used = height > 0 || extensions.key_usage.is_none_or(|usage| usage & usages != 0);
    is_extended && is_used
}

/// Signatures from the top down, and the time of each certificate.
fn signatures_and_times(path: &Path<'_>, now: Seconds, verdict: &mut Verdict) {
    let certificates = &path.certificates;
    let top = certificates.len() - 1;
    // A self-signed top has been compared byte for byte; any other top has no issuer to be checked with.
    if is_self_signed(&certificates[top]) {
        verdict.note(time(&certificates[top], now));
    } else if top == 0 {
        verdict.fail(Reason::FirstCertificate);
    }
    for pair in certificates.windows(2).rev() {
        let (subject, issuer) = (&pair[0], &pair[1]);
        let usage = issuer.extensions.key_usage;
        if usage.is_some_and(|usage| usage & KEY_CERT_SIGN == 0) {
            verdict.fail(Reason::NoCertificateSigning);
        }
        if !signature::is_signed_by(subject, &issuer.key) {
            verdict.fail(Reason::Signature);
        }
        verdict.note(time(subject, now));
    }
}

/// Whether a certificate's time is now.
fn time(certificate: &Certificate<'_>, now: Seconds) -> Result<(), Reason> {
    if now < certificate.not_before {
        Err(Reason::NotYetValid)
    } else if now > certificate.not_after {
        Err(Reason::Expired)
    } else {
        Ok(())
    }
}

/// The constraints that authorities put on the names below them.
fn names(path: &Path<'_>) -> Result<(), Reason> {
    for (height, authority) in path.certificates.iter().enumerate().skip(1) {
        let Some(constraints) = authority.extensions.name_constraints else {
            continue;
        };
        for (at, below) in path.certificates[..height].iter().enumerate() {
            if at == 0 || !below.is_self_issued() {
                constraints::check(constraints, below, at == 0)?;
            }
        }
    }
    Ok(())
}
