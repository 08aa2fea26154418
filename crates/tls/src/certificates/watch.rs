//! Certificates whose files have changed are read again, without a reload (`ssl_certificate_watch`).
//!
//! Not here: when to look, and on which thread. Invariant: certificate and key are taken together, and only if they fit
//! together; else the old pair stays, and one line says so once for each state of the files.

use crate::Error;
use crate::certificates::slot::{Certificates, Pair};
use crate::keys::{self, Password, ReadFile};
use std::sync::Arc;

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Nanoseconds of its last change.
    pub changed_ns: i128,
    /// Its inode.
    pub inode: u64,
    /// Its size in bytes.
    pub size: u64,
}

impl Stamp {
    /// Of a file whose inode changed at this time (seconds and nanoseconds since 1970: `ctime`).
    #[must_use]
    pub fn new((seconds, nanoseconds): (i64, u32), inode: u64, size: u64) -> Self {
        Self {
            changed_ns: i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds),
            inode,
            size,
        }
    }
}

/// Asks for the stamp of a file; `None`: it cannot be looked at.
pub type StampOf<'a> = &'a dyn Fn(&str) -> Option<Stamp>;

/// A certificate and its key, by the names that the configuration has for them.
pub struct Watched {
    certificate: String,
    key: String,
    passwords: Vec<Password>,
    pair: Pair,
    stamps: Stamps,
}

type Stamps = [Option<Stamp>; 2];

/// What came of looking.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The files are as they were.
    Unchanged,
    /// The new pair is in use.
    Replaced,
    /// The files changed and are no pair; the old one stays.
    Kept(Error),
}

impl Watched {
    /// Of a pair that has just been read.
    #[must_use]
    pub fn new(
        certificate: &str,
        key: &str,
        passwords: Vec<Password>,
        pair: Pair,
        stamp: StampOf<'_>,
    ) -> Self {
        let mut watched = Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            passwords,
            pair,
            stamps: Stamps::default(),
        };
        watched.stamps = watched.look(stamp);
        watched
    }

    fn look(&self, stamp: StampOf<'_>) -> Stamps {
        [&self.certificate, &self.key].map(|name| keys::path(name).and_then(stamp))
    }

    /// Looks, and reads and replaces what has changed.
    pub fn check(
        &mut self,
        certificates: &Certificates,
        stamp: StampOf<'_>,
        file: ReadFile<'_>,
    ) -> Outcome {
        let stamps = self.look(stamp);
        if stamps == self.stamps {
            return Outcome::Unchanged;
        }
        let read = keys::pair(&self.certificate, &self.key, &self.passwords, file);
        // What is written while it is read is looked at again.
        if self.look(stamp) != stamps {
            return Outcome::Unchanged;
        }
        self.stamps = stamps;
        match read {
            Err(error) => Outcome::Kept(error),
            Ok(pair) => {
                let pair = Arc::new(pair);
                certificates.replace(&self.pair, Arc::clone(&pair));
                self.pair = pair;
                Outcome::Replaced
            }
        }
    }
}
