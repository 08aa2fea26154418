//! `ssl_ocsp_cache`: the status of clients' certificates, for all loops together.
//!
//! Invariant: at most so many entries; what is over is not found.

use crate::ocsp::certificate_id;
use crate::ocsp::response::{Answer, Status};
use crate::x509::certificate::Certificate;
use crate::x509::time::Seconds;
use hashbrown::HashMap;
use parking_lot::Mutex;

/// How long an answer counts that does not say it, in seconds.
const VALID_SECONDS: Seconds = 3600;
/// What an entry takes, in bytes: sizes of caches are given in bytes.
const ENTRY_BYTES: usize = 256;

/// A cache of statuses.
#[derive(Debug)]
pub struct StatusCache {
    max: usize,
    statuses: Mutex<HashMap<Vec<u8>, (Status, Seconds)>>,
}

impl StatusCache {
    /// A cache of about this many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            max: (bytes_max / ENTRY_BYTES).max(1),
            statuses: Mutex::default(),
        }
    }

    /// The status of a certificate, where it is known.
    #[must_use]
    pub fn find(
        &self,
        certificate: &Certificate<'_>,
        issuer: &Certificate<'_>,
        now: Seconds,
    ) -> Option<Status> {
        let statuses = self.statuses.lock();
        let (status, until) = statuses.get(&certificate_id(certificate, issuer))?;
        (now <= *until).then_some(*status)
    }

    /// Keeps an answer. In a full cache those that are over go, and if none is, one that ends first.
    pub fn keep(
        &self,
        certificate: &Certificate<'_>,
        issuer: &Certificate<'_>,
        answer: Answer,
        now: Seconds,
    ) {
        let mut statuses = self.statuses.lock();
        if statuses.len() >= self.max {
            statuses.retain(|_, (_, until)| now <= *until);
        }
        if statuses.len() >= self.max {
            let first = statuses.iter().min_by_key(|(_, (_, until))| *until);
            let first = first.map(|(id, _)| id.clone()).unwrap_or_default();
            statuses.remove(&first);
        }
        let until = answer.next_update.unwrap_or(now + VALID_SECONDS);
        statuses.insert(certificate_id(certificate, issuer), (answer.status, until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, SerialNumber};

    #[test]
    fn entries_are_bounded_and_end() {
        let key = KeyPair::generate().unwrap();
        let cache = StatusCache::new(4 * ENTRY_BYTES);
        let answer = |next_update| Answer {
            status: Status::Good,
            next_update,
            is_delegated: false,
        };
        for number in 0..10u64 {
            let mut params = CertificateParams::default();
            params.serial_number = Some(SerialNumber::from(number));
            let made = params.self_signed(&key).unwrap();
            let certificate = Certificate::read(made.der()).unwrap();
            let until = Some(100 + number as Seconds);
            cache.keep(&certificate, &certificate, answer(until), 0);
            assert!(cache.statuses.lock().len() <= 4);
            assert_eq!(
                cache.find(&certificate, &certificate, 100),
                Some(Status::Good)
            );
            assert_eq!(cache.find(&certificate, &certificate, 200), None);
        }
    }
}
