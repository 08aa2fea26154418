//! Certificates whose names have variables: known only when a client's handshake begins.
//!
//! Not here: the values of variables, and the reading of files ([`crate::connection`]). Invariant: nothing here waits, but
//! [`NamedCertificates::fetch`] works on keys: it is called in a pool.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use config::Template;
use tls::certificates::{CertificateCache, Certificates, Pair, StampOf};
use tls::keys::{Password, ReadFile};
use tls::suites::conf_command::Commands;

use super::files::full_name;
use super::values;

/// Certificates of a server whose names have variables.
pub struct NamedCertificates {
    /// The names of certificates and keys.
    pub lines: Vec<(Template, Template)>,
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
        lines: Vec<(Template, Template)>,
        conf_prefix: &Path,
        passwords: Vec<Password>,
        commands: &Commands,
        cache: Option<&values::CertificateCache>,
    ) -> Self {
        Self {
            lines,
            conf_prefix: conf_prefix.to_owned(),
            passwords,
            commands: commands.clone(),
            cache: values::CertificateCache::made(cache),
        }
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
