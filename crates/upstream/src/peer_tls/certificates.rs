//! Own certificates whose names are made of variables: read when a connection is opened, by the pool that reads files.
//!
//! Invariant: a loop opens no file, and a file is read whole or not at all.

use std::sync::Arc;
use std::time::Instant;

use disk::pool::{Lane, Overflow};
use runtime::Loop;
use tls::certificates::{CertificateCache, Contents, FilesRead, Pair, Stamp};
use tls::keys::{self, Password};

/// Maximum size in bytes of a file with a certificate or key that is read for a request.
const FILE_BYTES_MAX: usize = 1 << 20;

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
        let mut read = FilesRead::default();
        for path in [&names.0, &names.1]
            .into_iter()
            .filter_map(|name| keys::path(name))
        {
            read.insert(path, contents(path, loop_).await?);
        }
        let (own, names) = (Arc::clone(self), Arc::clone(names));
        let work = move || {
            let stamp = |path: &str| read.stamp(path);
            let file = |path: &str| read.contents(path);
            let names = (&names.0[..], &names.1[..]);
            own.cache.fetch(names, &own.passwords, (&stamp, &file), now)
        };
        let pool = loop_.disk.disk().default_pool();
        let outcome = pool.run(Lane::Read, work).await;
        outcome
            .map_err(NoCertificate::Overflow)?
            .map_err(NoCertificate::Faulty)
    }
}

async fn contents(path: &str, loop_: &Loop) -> Result<Contents, NoCertificate> {
    let pool = loop_.disk.disk().default_pool();
    let read = loop_
        .disk
        .read_front(path.as_bytes(), FILE_BYTES_MAX, &pool)
        .await;
    Ok(match read {
        Ok((_, meta)) if meta.len > FILE_BYTES_MAX as u64 => Err(disk::Errno::FBIG.raw_os_error()),
        Ok((bytes, meta)) => {
            let stamp = Stamp::new((meta.ctime, meta.ctime_nsec), meta.ino, meta.len);
            Ok((bytes.to_vec(), stamp))
        }
        Err(disk::Error::Overflow(overflow)) => return Err(NoCertificate::Overflow(overflow)),
        Err(error) => Err(error.errno().unwrap_or(disk::Errno::IO).raw_os_error()),
    })
}
