//! Certificates whose names have variables: known only when a client's handshake begins.
//!
//! Not here: the values of variables, and the reading of files ([`crate::connection`]). Invariant: nothing here waits, but
//! [`NamedCertificates::fetch`] works on keys: it is called in a pool.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use config::Template;
use tls::certificates::{CertificateCache, Certificates, Pair, StampOf};
use tls::keys::{Password, ReadFile};
use tls::suites::conf_command::Commands;

use super::acme::AcmeSlot;
use super::files::full_name;
use super::values;

/// A certificate with its key that is known in a handshake only.
#[derive(Debug)]
pub enum CertificateLine {
    /// By these names.
    Names(Template, Template),
    /// By ACME: `$acme_certificate` with `$acme_certificate_key`, which are not read again in each handshake.
    Acme(Arc<AcmeSlot>),
}

impl CertificateLine {
    /// Of two directives, in a server whose certificate by ACME has this place.
    pub(super) fn new(
        certificate: &Template,
        key: &Template,
        acme: Option<&Arc<AcmeSlot>>,
    ) -> Self {
        let is = |template: &Template, names: [&[u8]; 2]| names.contains(&&template.source()[..]);
        match acme {
            Some(slot)
                if is(certificate, [b"$acme_certificate", b"${acme_certificate}"])
                    && is(key, [b"$acme_certificate_key", b"${acme_certificate_key}"]) =>
            {
                Self::Acme(Arc::clone(slot))
            }
            _ => Self::Names(certificate.clone(), key.clone()),
        }
    }
}

/// Certificates of a server whose names have variables.
pub struct NamedCertificates {
    /// The names of certificates and keys.
    pub lines: Vec<CertificateLine>,
    conf_prefix: PathBuf,
    passwords: Vec<Password>,
    commands: Commands,
    cache: CertificateCache,
}

impl std::fmt::Debug for NamedCertificates {
    /// Without passwords.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.lines).finish()
    }
}

impl NamedCertificates {
    pub(super) fn new(
        lines: Vec<CertificateLine>,
        conf_prefix: &Path,
        passwords: Vec<Password>,
        commands: &Commands,
        cache: values::CertificateCache,
    ) -> Self {
        Self {
            lines,
            conf_prefix: conf_prefix.to_owned(),
            passwords,
            commands: commands.clone(),
            cache: cache.made(),
        }
    }

    /// What sessions are made in: the names of its certificates.
    pub(super) fn names(&self) -> Vec<Bytes> {
        let name = |line: &CertificateLine| match line {
            CertificateLine::Names(certificate, _) => certificate.source().clone(),
            CertificateLine::Acme(slot) => slot.name().into(),
        };
        self.lines.iter().map(name).collect()
    }

    /// Certificates by ACME that there are.
    pub fn issued(&self) -> impl Iterator<Item = Pair> {
        self.lines.iter().filter_map(|line| match line {
            CertificateLine::Acme(slot) => slot.pair(),
            CertificateLine::Names(..) => None,
        })
    }

    /// The full name of a file.
    #[must_use]
    pub fn full_name(&self, name: &[u8]) -> String {
        full_name(&self.conf_prefix, &String::from_utf8_lossy(name))
    }

    /// A pair that is kept and need not be looked at again.
    #[must_use]
    pub fn find(&self, certificate: &str, key: &str) -> Option<Pair> {
        self.cache.find(certificate, key, Instant::now())
    }

    /// The pair of these names, out of what was read of its files.
    ///
    /// # Errors
    /// The sentence of the first fault.
    pub fn fetch(
        &self,
        names: (&str, &str),
        stamp: StampOf<'_>,
        file: ReadFile<'_>,
    ) -> Result<Pair, tls::Error> {
        let source = (stamp, file);
        self.cache
            .fetch(names, &self.passwords, source, Instant::now())
    }

    /// What a handshake shows of these pairs.
    #[must_use]
    pub fn certificates(&self, pairs: Vec<Pair>) -> Arc<Certificates> {
        let schemes = self.commands.signature_schemes.clone();
        Arc::new(Certificates::with_schemes(
            pairs,
            schemes.unwrap_or_default(),
        ))
    }
}
