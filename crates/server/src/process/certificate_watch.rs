//! `ssl_certificate_watch`: certificates and keys whose files have changed go to the worker without a reload of the
//! configuration, from its texts as they were read.
//!
//! The master looks, since the worker's user may not read keys. Not here: the way of a configuration to the worker
//! ([`super::reload`]). Invariants: a certificate and its key are taken together, and only if they fit together; else the
//! old pair stays, and one line says so for each state of the files.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use httpcore::tls::WatchedPair;
use logs::process_log::{Level, error_log};
use runtime::timing::poll_timing::now_ns;
use tls::certificates::Stamp;
use tls::keys;

use super::directories::Made;
use super::load::Kept;
use super::master::{Candidate, Master, Purpose};
use crate::settings::circumstances::Circumstances;
use crate::settings::named_files::{NamedFiles, Outcome, from_disk};

/// Time between two looks at the files. Files that have just changed are taken at the next one, when all are written.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The states of files, by their names.
type Stamps = BTreeMap<String, Option<Stamp>>;
/// The bytes of files, by their names.
type Files = BTreeMap<String, Outcome>;

/// What is known of the files of a configuration.
#[derive(Debug, Default)]
pub(crate) struct CertificateWatch {
    /// The configuration that is watched for.
    generation: u64,
    /// At the last look.
    seen: Stamps,
    /// When the files were last read; `None`: not since the configuration was.
    read: Option<Stamps>,
    look_at: Option<Instant>,
}

impl CertificateWatch {
    /// When to look next; `None`: there is nothing to watch.
    pub(super) fn due(&self) -> Option<Instant> {
        self.look_at
    }

    /// The files count as not read: what was read of them last is not served.
    pub(super) fn forget(&mut self) {
        self.read = None;
    }

    /// Looks; whether the files are to be read: they have changed, and not since the last look.
    fn look(&mut self, current: &Candidate) -> bool {
        if self.generation != current.generation {
            *self = Self {
                generation: current.generation,
                look_at: self.look_at,
                ..Self::default()
            };
        }
        let now = stamps(&current.kept.watched);
        let is_new = self.read.as_ref() != Some(&now) && self.seen == now;
        if is_new {
            self.read = Some(now.clone());
        }
        self.seen = now;
        is_new
    }
}

impl Master {
    /// Looks at the certificates when it is time to, and has the worker use what has changed.
    pub(super) fn watch_certificates(&mut self) {
        let is_idle = self.purpose == Purpose::Serving && self.pending.is_none();
        if self.current.kept.watched.is_empty() || !is_idle || self.pid_file.is_none() {
            self.watch.look_at = None;
            return;
        }
        let now = Instant::now();
        if self.watch.look_at.is_some_and(|at| at > now) {
            return;
        }
        self.watch.look_at = Some(now + LOOK_EVERY);
        if !self.watch.look(&self.current) {
            return;
        }
        let begun_ns = now_ns();
        if let Some(files) = changed(&self.current.kept) {
            error_log(
                Level::Notice,
                format_args!("certificates have changed, reconfiguring with them"),
            );
            let next = self.with_files(files);
            self.send(next, begun_ns);
        }
    }

    /// The configuration as it is, with other files.
    fn with_files(&self, files: Files) -> Candidate {
        let current = &self.current;
        let circumstances = Circumstances {
            files: NamedFiles::known(files),
            ..current.kept.circumstances.clone()
        };
        Candidate {
            generation: current.generation + 1,
            kept: Kept {
                main: current.kept.main.clone(),
                texts: current.kept.texts.clone(),
                circumstances,
                settings: None,
                watched: current.kept.watched.clone(),
                acme: current.kept.acme.clone(),
            },
            account: current.account.clone(),
            sockets: current.sockets.clone(),
            logs: current.logs.clone(),
            devices: current.devices.clone(),
            made: Made::default(),
        }
    }
}

/// The files of a configuration with those that have changed in the place of the old ones; `None`: none has, or none
/// can be used.
fn changed(kept: &Kept) -> Option<Files> {
    let read = |name: &str| from_disk(name).map_err(|error| error.raw_os_error().unwrap_or(0));
    changed_of(&kept.watched, kept.circumstances.files.all(), &read)
}

/// The same, with what reads a file. There may be tens of thousands: what a pair costs does not depend on their number.
fn changed_of(
    watched: &[Arc<WatchedPair>],
    mut files: Files,
    read: &dyn Fn(&str) -> Outcome,
) -> Option<Files> {
    let mut has_changed = false;
    for pair in watched {
        let names = [&pair.certificate, &pair.key].map(|name| keys::path(name));
        let names = names.into_iter().flatten();
        let next: Files = names.map(|name| (name.to_owned(), read(name))).collect();
        if next.iter().all(|(name, now)| files.get(name) == Some(now)) {
            continue;
        }
        match check(pair, &next, &files) {
            Ok(()) => {
                files.extend(next);
                has_changed = true;
            }
            Err(error) => error_log(
                Level::Error,
                format_args!(
                    "certificate \"{}\" has changed and is not used, the old one stays: {error}",
                    pair.certificate
                ),
            ),
        }
    }
    has_changed.then_some(files)
}

/// Whether a certificate and its key, of these files, can be used together; their passwords are in the others.
fn check(pair: &WatchedPair, own: &Files, others: &Files) -> Result<(), tls::Error> {
    let read = |name: &str| {
        let known = own.get(name).or_else(|| others.get(name)).cloned();
        let bytes = known.unwrap_or(Err(rustix::io::Errno::NOENT.raw_os_error()));
        let bytes = bytes.map_err(io::Error::from_raw_os_error)?;
        Ok(bytes.to_vec())
    };
    let passwords = match &pair.passwords {
        Some(path) => keys::passwords::of_file(path, &read)?,
        None => Vec::new(),
    };
    keys::pair(&pair.certificate, &pair.key, &passwords, &read).map(|_| ())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the master runs no loop, and looks at a file in a moment"
)]
fn stamps(watched: &[Arc<WatchedPair>]) -> Stamps {
    use std::os::unix::fs::MetadataExt as _;
    let names = watched
        .iter()
        .flat_map(|pair| [&pair.certificate, &pair.key]);
    let stamp = |name: &str| {
        let meta = std::fs::metadata(keys::path(name)?).ok()?;
        let changed = (meta.ctime(), meta.ctime_nsec() as u32);
        Some(Stamp::new(changed, meta.ino(), meta.len()))
    };
    names.map(|name| (name.clone(), stamp(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn made(name: &str) -> [Outcome; 2] {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        [certificate.pem(), key.serialize_pem()].map(|text| Ok(text.into_bytes().into()))
    }

    #[test]
    fn each_pair_is_judged_by_its_own_files() {
        let watched = ["one", "two", "three"].map(|name| {
            Arc::new(WatchedPair {
                certificate: format!("/{name}.crt"),
                key: format!("/{name}.key"),
                passwords: Some("/passwords".to_owned()),
            })
        });
        let mut old = Files::from([("/passwords".to_owned(), Ok(b"secret\n"[..].into()))]);
        for pair in &watched {
            let [certificate, key] = made("old.test");
            old.insert(pair.certificate.clone(), certificate);
            old.insert(pair.key.clone(), key);
        }
        let disk = RefCell::new(old.clone());
        let asked = RefCell::new(Vec::new());
        let read = |name: &str| {
            asked.borrow_mut().push(name.to_owned());
            disk.borrow()[name].clone()
        };
        assert_eq!(changed_of(&watched, old.clone(), &read), None);
        assert_eq!(asked.take().len(), 6);
        let [certificate, key] = made("new.test");
        let mut expected = old.clone();
        for (name, outcome) in [("/three.crt", certificate), ("/three.key", key)] {
            expected.insert(name.to_owned(), outcome);
        }
        let [certificate, _] = made("unfit.test");
        *disk.borrow_mut() = expected.clone();
        disk.borrow_mut().insert("/one.crt".to_owned(), certificate);
        assert_eq!(changed_of(&watched, old, &read), Some(expected));
    }
}
