//! Whether a peer's certificate is accepted: a client's by `ssl_verify_client`, a server's by `proxy_ssl_verify`.
//!
//! A handshake takes any certificate whose key its peer has; then its chain is judged here, and the verdict is a value:
//! nginx lets a request go on and shows it as `$ssl_client_verify`. Not here: OCSP (`ocsp`), hosts (`x509::host`).
//! Invariant: no fault is no fault only if every check has been made.

mod constraints;
mod path;
mod peer;
mod reason;
mod revocation;
pub(crate) mod signature;

pub use path::{CANDIDATES_MAX, CHAIN_MAX, PRESENTED_MAX, Purpose};
pub(crate) use peer::{AnyClient, AnyServer};
pub use reason::Reason;
pub use revocation::LISTS_MAX;

use crate::x509::canonical::{self, CanonicalName};
use crate::x509::certificate::Certificate;
use crate::x509::revocations::RevocationList;
use crate::x509::time::Seconds;
use aws_lc_rs::digest;
use hashbrown::HashMap;
use rustls::pki_types::CertificateDer;
use std::cmp::Reverse;

/// What is known of a peer: `Display` is the value of `$ssl_client_verify`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It showed no certificate.
    #[default]
    None,
    /// Its certificate is accepted.
    Success,
    /// Its certificate is not accepted.
    Failed(Reason),
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("NONE"),
            Self::Success => f.write_str("SUCCESS"),
            Self::Failed(reason) => write!(f, "FAILED:{reason}"),
        }
    }
}

/// What a configuration trusts.
#[derive(Debug, Default)]
pub struct Trust {
    /// By the subject's name.
    certificates: HashMap<CanonicalName, Vec<CertificateDer<'static>>>,
    /// By the issuer's name, the newest first.
    revocations: HashMap<CanonicalName, Vec<RevocationList>>,
    /// How many certificates may stand between a peer's and a configured one (`ssl_verify_depth`).
    depth: usize,
    /// Of all of that.
    digest: [u8; 32],
}

impl Trust {
    /// Of certificates, lists (with the first one every certificate needs one), and a depth.
    #[must_use]
    pub fn new(
        certificates: impl IntoIterator<Item = CertificateDer<'static>>,
        revocations: Vec<RevocationList>,
        depth: usize,
    ) -> Self {
        let mut trust = Self {
            depth,
            ..Self::default()
        };
        let mut digest = digest::Context::new(&digest::SHA256);
        let mut add = |kind: u8, bytes: &[u8]| {
            digest.update(&[kind]);
            digest.update(&(bytes.len() as u64).to_be_bytes());
            digest.update(bytes);
        };
        add(0, &depth.to_be_bytes());
        for der in certificates {
            add(1, &der);
            let subject =
                Certificate::read(&der).map_or(&[][..], |certificate| certificate.subject);
            let subject = CanonicalName::of(subject);
            let known = trust.certificates.entry(subject).or_default();
            if !known.contains(&der) {
                known.push(der);
            }
        }
        for list in revocations {
            add(2, list.der());
            let issuer = CanonicalName::of(list.issuer());
            trust.revocations.entry(issuer).or_default().push(list);
        }
        for lists in trust.revocations.values_mut() {
            lists.sort_by_key(|list| Reverse(list.this_update));
        }
        trust.digest.copy_from_slice(digest.finish().as_ref());
        trust
    }

    /// A digest (SHA-256) of certificates, lists and depth: where it is the same, verdicts are, but for the time.
    #[must_use]
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Judges the certificates that a peer presented, its own first.
    ///
    /// # Errors
    /// The reason that OpenSSL would give.
    pub fn verify(
        &self,
        presented: &[CertificateDer<'_>],
        purpose: Purpose,
        now: Seconds,
    ) -> Result<(), Reason> {
        path::verify(self, presented, purpose, now)
    }

    /// The chain of what a peer presented, as far as it is found: its own certificate first. `ssl_ocsp on` asks for
    /// the status of each but the last one, by the key of the one behind it.
    #[must_use]
    pub fn chain(
        &self,
        presented: &[CertificateDer<'_>],
        now: Seconds,
    ) -> Vec<CertificateDer<'static>> {
        path::chain(self, presented, now)
    }

    /// The verdict on what a peer presented, perhaps nothing.
    #[must_use]
    pub fn verdict(
        &self,
        presented: &[CertificateDer<'_>],
        purpose: Purpose,
        now: Seconds,
    ) -> Verdict {
        if presented.is_empty() {
            return Verdict::None;
        }
        match self.verify(presented, purpose, now) {
            Ok(()) => Verdict::Success,
            Err(reason) => Verdict::Failed(reason),
        }
    }

    /// Whether one of the certificates is this one, byte for byte.
    fn has(&self, der: &[u8]) -> bool {
        let subject = Certificate::read(der).map(|certificate| certificate.subject);
        let subject = subject.map(CanonicalName::of);
        let known = subject.and_then(|subject| self.certificates.get(&subject));
        known.is_some_and(|known| known.iter().any(|other| other.as_ref() == der))
    }

    /// The certificates with this subject.
    fn issuers(&self, name: &CanonicalName) -> impl Iterator<Item = Certificate<'_>> {
        let known = self.certificates.get(name).into_iter().flatten();
        known.filter_map(|der| Certificate::read(der))
    }

    fn has_revocations(&self) -> bool {
        !self.revocations.is_empty()
    }

    fn revocations(&self, issuer: &[u8]) -> &[RevocationList] {
        let lists = self.revocations.get(&CanonicalName::of(issuer));
        lists.map_or(&[], Vec::as_slice)
    }

    /// The certificate that issued another, of those that a peer presented and of the configured ones: OCSP asks by
    /// its key.
    #[must_use]
    pub fn issuer_of(
        &self,
        certificate: &Certificate<'_>,
        presented: &[CertificateDer<'_>],
    ) -> Option<CertificateDer<'static>> {
        let is_issuer = |der: &&[u8]| {
            Certificate::read(der).is_some_and(|issuer| {
                canonical::is_same(issuer.subject, certificate.issuer)
                    && signature::is_signed_by(certificate, &issuer.key)
            })
        };
        let issuer = CanonicalName::of(certificate.issuer);
        let configured = self.certificates.get(&issuer);
        let configured = configured.into_iter().flatten().map(AsRef::as_ref);
        let presented = presented.iter().take(PRESENTED_MAX).map(AsRef::as_ref);
        let found = configured.chain(presented).find(is_issuer)?;
        Some(CertificateDer::from(found.to_vec()))
    }
}
