//! Files that directives name and that settings are built of: certificates, keys, passwords, revocations.
//!
//! The master reads them, as root, when it builds the settings to check them; what it read goes to the worker in the
//! bundle, as texts do. So `-t`, master and worker see the same bytes, and the worker's user needs no right to a key.
//! Each file is read once for a configuration.
//!
//! A module that builds settings of such files gets [`NamedFiles::reading`] as a function ([`tls::keys::ReadFile`]):
//!
//! ```ignore
//! let files = &surroundings.circumstances.files;
//! let certificate = full_name(&surroundings.conf_prefix, "cert.pem");
//! let pair = tls::keys::pair(&certificate, &key, &passwords, &files.reading())?;
//! ```
//!
//! Not here: files read while serving (those that variables name), which go through a pool. Invariant: a worker's
//! `NamedFiles` never looks at the disk.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::Arc;

use parking_lot::Mutex;

pub use httpcore::tls::full_name;

/// Maximum size of one file in bytes. Lists of revocations of large authorities have some tens of megabytes.
pub const NAMED_FILE_BYTES_MAX: u64 = 64 << 20;

/// What a file had when it was read: its bytes, or the system's error number.
pub type Outcome = Result<Arc<[u8]>, i32>;

/// The files of one configuration. Clones share what is known.
#[derive(Clone, Default)]
pub struct NamedFiles(Arc<Shared>);

#[derive(Default)]
struct Shared {
    known: Mutex<BTreeMap<String, Outcome>>,
    /// Whether there is nothing beyond what is known: in a worker.
    is_complete: bool,
}

impl std::fmt::Debug for NamedFiles {
    /// Names only: keys are no text for a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.known.lock().keys()).finish()
    }
}

impl NamedFiles {
    /// With these alone: what a worker got from its master.
    #[must_use]
    pub fn known(all: BTreeMap<String, Outcome>) -> Self {
        Self(Arc::new(Shared {
            known: Mutex::new(all),
            is_complete: true,
        }))
    }

    /// All that are known.
    #[must_use]
    pub fn all(&self) -> BTreeMap<String, Outcome> {
        self.0.known.lock().clone()
    }

    /// Whether there is nothing beyond what is known: in a worker.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.0.is_complete
    }

    /// The bytes of the file with this full name ([`full_name`]).
    ///
    /// # Errors
    /// Those of open(2) and read(2), with their number; `EFBIG` for more than [`NAMED_FILE_BYTES_MAX`].
    pub fn read(&self, path: &str) -> io::Result<Arc<[u8]>> {
        let mut known = self.0.known.lock();
        let outcome = match known.get(path) {
            Some(outcome) => outcome.clone(),
            None if self.0.is_complete => Err(number_of(&io::ErrorKind::NotFound.into())),
            None => {
                let outcome = from_disk(path).map_err(|error| number_of(&error));
                known.insert(path.to_owned(), outcome.clone());
                outcome
            }
        };
        outcome.map_err(io::Error::from_raw_os_error)
    }

    /// The same as a function that gives bytes of its own, as the crate `tls` takes it.
    pub fn reading(&self) -> impl Fn(&str) -> io::Result<Vec<u8>> + use<> {
        let files = self.clone();
        move |path| files.read(path).map(|bytes| bytes.to_vec())
    }
}

/// The number of an error; an error without one counts as one of the device.
fn number_of(error: &io::Error) -> i32 {
    let by_kind = match error.kind() {
        io::ErrorKind::NotFound => rustix::io::Errno::NOENT,
        _ => rustix::io::Errno::IO,
    };
    error
        .raw_os_error()
        .unwrap_or_else(|| by_kind.raw_os_error())
}

/// The bytes of a file as it is now.
///
/// # Errors
/// As [`NamedFiles::read`].
#[expect(
    clippy::disallowed_methods,
    reason = "only the master reads these files, and it runs no loop; a worker knows them all"
)]
pub(crate) fn from_disk(path: &str) -> io::Result<Arc<[u8]>> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path)?;
    file.take(NAMED_FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > NAMED_FILE_BYTES_MAX {
        return Err(rustix::io::Errno::FBIG.into());
    }
    Ok(bytes.into())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test runs no loop")]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_once_and_a_worker_never_looks_at_the_disk() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        std::fs::write(&path, b"one").unwrap();
        let path = path.to_str().unwrap();
        let files = NamedFiles::default();
        assert_eq!(files.read(path).unwrap()[..], *b"one");
        std::fs::write(path, b"two").unwrap();
        assert_eq!(files.reading()(path).unwrap(), b"one");
        let missing = format!("{path}x");
        let number = |files: &NamedFiles| files.read(&missing).unwrap_err().raw_os_error();
        assert_eq!(number(&files), Some(2));
        let worker = NamedFiles::known(files.all());
        assert_eq!(worker.read(path).unwrap()[..], *b"one");
        assert_eq!(number(&worker), Some(2));
        std::fs::write(&missing, b"late").unwrap();
        assert_eq!(number(&worker), Some(2));
        assert!(!format!("{worker:?}").contains("one"));
    }
}
