//! Own certificates whose names are made of variables: read when a connection is opened, by the pool that reads files.
//!
//! Invariant: a loop opens no file.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Instant;

use disk::pool::{Lane, Overflow};
use runtime::Loop;
use tls::certificates::{CertificateCache, Pair, Stamp};
use tls::keys::Password;

/// Maximum size in bytes of a file with a certificate or key that is read for a request.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where certificates come from that are named by variables.
pub struct RequestCertificates {
    /// `proxy_ssl_certificate_cache`; one for nothing where there is none.
    pub cache: CertificateCache,
    /// `proxy_ssl_password_file`.
    pub passwords: Vec<Password>,
}

/// Why there is no certificate.
#[derive(Debug)]
pub(super) enum NoCertificate {
    Faulty(tls::Error),
    Overflow(Overflow),
}

impl RequestCertificates {
    /// The pair with these names.
    pub(super) async fn pair(
        self: &Arc<Self>,
        names: &Arc<(String, String)>,
        loop_: &Loop,
    ) -> Result<Pair, NoCertificate> {
        let now = Instant::now();
        if let Some(pair) = self.cache.find(&names.0, &names.1, now) {
            return Ok(pair);
        }
        let (own, names) = (Arc::clone(self), Arc::clone(names));
        let work = move || {
            let names = (&names.0[..], &names.1[..]);
            let how: (tls::certificates::StampOf<'_>, tls::keys::ReadFile<'_>) = (&stamp, &read);
            own.cache.fetch(names, &own.passwords, how, now)
        };
        let pool = loop_.disk.disk().default_pool();
        let outcome = pool.run(Lane::Read, work).await;
        outcome
            .map_err(NoCertificate::Overflow)?
            .map_err(NoCertificate::Faulty)
    }
}

#[expect(clippy::disallowed_methods, reason = "called by a thread of the pool")]
fn read(path: &str) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path)?;
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[expect(clippy::disallowed_methods, reason = "called by a thread of the pool")]
fn stamp(path: &str) -> Option<Stamp> {
    let found = std::fs::metadata(path).ok()?;
    Some(Stamp {
        changed_ns: i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec()),
        inode: found.ino(),
        size: found.size(),
    })
}
