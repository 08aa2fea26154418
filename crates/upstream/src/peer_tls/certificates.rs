//! Own certificates whose names are made of variables: read when a connection is opened, by the pool that reads files.
//!
//! Invariant: a loop opens no file, and a file is read whole or not at all.

use std::sync::{Arc, Weak};
use std::time::Instant;

use disk::pool::{Lane, Overflow};
use hashbrown::HashMap;
use parking_lot::Mutex;
use runtime::Loop;
use tls::certificates::{CertificateCache, CertifiedKey, Contents, FilesRead, Pair, Stamp};
use tls::configure::Client;
use tls::keys::{self, Password};

/// Maximum size in bytes of a file with a certificate or key that is read for a request.
const FILE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of pairs whose handshakes' values are kept.
const MADE_MAX: usize = 1024;

/// Where certificates come from that are named by variables.
pub struct RequestCertificates {
    /// `proxy_ssl_certificate_cache`; one for nothing where there is none.
    pub cache: CertificateCache,
    /// `proxy_ssl_password_file`.
    pub passwords: Vec<Password>,
    /// What handshakes with pairs of the cache use.
    made: Mutex<HashMap<Arc<Names>, Made>>,
}

/// The names of a certificate and its key.
type Names = (String, String);

/// A pair, and what handshakes with it use.
type Made = (Weak<CertifiedKey>, Arc<Client>);

/// Why there is no certificate.
#[derive(Debug)]
pub(super) enum NoCertificate {
    Faulty(tls::Error),
    Overflow(Overflow),
}

impl RequestCertificates {
    /// With a cache, and the passwords of keys.
    #[must_use]
    pub fn new(cache: CertificateCache, passwords: Vec<Password>) -> Self {
        Self {
            cache,
            passwords,
            made: Mutex::default(),
        }
    }

    /// What a handshake with a pair uses: the same value as before for a pair of the cache, since sessions of servers are
    /// taken up only with the one that they came from.
    pub(super) fn client(
        &self,
        names: &Arc<Names>,
        pair: &Pair,
        configured: &Client,
    ) -> Arc<Client> {
        let mut all = self.made.lock();
        if let Some((of, client)) = all.get(names)
            && of.ptr_eq(&Arc::downgrade(pair))
        {
            return Arc::clone(client);
        }
        let client = Arc::new(configured.with_certificate(pair));
        // Those whose pairs the cache has dropped go.
        all.retain(|_, (of, _)| of.strong_count() > 0);
        if all.len() < MADE_MAX {
            let made = (Arc::downgrade(pair), Arc::clone(&client));
            all.insert(Arc::clone(names), made);
        }
        client
    }

    /// The pair with these names.
    pub(super) async fn pair(
        self: &Arc<Self>,
        names: &Arc<Names>,
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
