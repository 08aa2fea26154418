//! `ssl_certificate_cache`: certificates whose names come with a connection, kept for the next one.
//!
//! Not here: reading on a thread that may wait; [`CertificateCache::fetch`] is called there. A loop asks
//! [`CertificateCache::find`], which waits for nothing. Invariant: at most `max` pairs, the one that was used longest
//! ago goes first.

use crate::Error;
use crate::certificates::slot::Pair;
use crate::certificates::watch::{Stamp, StampOf};
use crate::keys::{self, Password, ReadFile};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A cache of pairs by the names of certificate and key.
pub struct CertificateCache {
    /// Maximum number of pairs.
    max: usize,
    inactive: Duration,
    valid: Duration,
    entries: Mutex<HashMap<(String, String), Entry>>,
}

#[derive(Clone)]
struct Entry {
    pair: Pair,
    stamps: [Option<Stamp>; 2],
    checked: Instant,
    used: Instant,
}

impl CertificateCache {
    /// With the values of `max=`, `inactive=` and `valid=`. As in nginx, `max` counts certificates and keys, of which a
    /// pair has one each; 0 keeps nothing.
    #[must_use]
    pub fn new(max: usize, inactive: Duration, valid: Duration) -> Self {
        Self {
            max: max.div_ceil(2),
            inactive,
            valid,
            entries: Mutex::default(),
        }
    }

    /// A pair that needs not be looked at again; `None`: it has to be fetched.
    #[must_use]
    pub fn find(&self, certificate: &str, key: &str, now: Instant) -> Option<Pair> {
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(&(certificate.to_owned(), key.to_owned()))?;
        let is_valid = now.saturating_duration_since(entry.checked) <= self.valid;
        is_valid.then(|| {
            entry.used = now;
            Arc::clone(&entry.pair)
        })
    }

    /// The pair with these names, read where it is not kept or its files have changed. May wait for the disk.
    ///
    /// # Errors
    /// The sentence of the first fault.
    pub fn fetch(
        &self,
        (certificate, key): (&str, &str),
        passwords: &[Password],
        (stamp, file): (StampOf<'_>, ReadFile<'_>),
        now: Instant,
    ) -> Result<Pair, Error> {
        let names = (certificate.to_owned(), key.to_owned());
        let stamps = [certificate, key].map(|name| keys::path(name).and_then(stamp));
        let kept = self.entries.lock().get(&names).cloned();
        let pair = match kept {
            Some(entry) if entry.stamps == stamps => entry.pair,
            _ => Arc::new(keys::pair(certificate, key, passwords, file)?),
        };
        // A key under a password is not kept, as in nginx: whoever takes the password away takes the key away.
        if !passwords.is_empty() && keys::is_encrypted(key, file) {
            self.entries.lock().remove(&names);
        } else {
            self.keep(names, Arc::clone(&pair), stamps, now);
        }
        Ok(pair)
    }

    fn keep(&self, names: (String, String), pair: Pair, stamps: [Option<Stamp>; 2], now: Instant) {
        let mut entries = self.entries.lock();
        entries.retain(|_, entry| now.saturating_duration_since(entry.used) <= self.inactive);
        if self.max == 0 {
            return;
        }
        if entries.len() >= self.max && !entries.contains_key(&names) {
            let oldest = entries.iter().min_by_key(|(_, entry)| entry.used);
            if let Some(oldest) = oldest.map(|(names, _)| names.clone()) {
                entries.remove(&oldest);
            }
        }
        let entry = Entry {
            pair,
            stamps,
            checked: now,
            used: now,
        };
        entries.insert(names, entry);
    }

    /// How many pairs are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
