//! Temporary files: made, written, read again, and gone with their last user, also if the process is killed.
//!
//! Not here: their users. Invariant: a file that is not to be kept has no name any more when the caller gets it, unless
//! the caller asked for the name.

use crate::changing::write::{Output, unlinked, write_all};
use crate::files::error::Error;
use crate::files::open_file::OpenFile;
use crate::local::Local;
use crate::metrics::call_times;
use crate::metrics::counters::Operation;
use crate::pool::Pool;
use bytes::Bytes;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::hash::{BuildHasher, Hasher};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Levels of subdirectories, at most.
pub const LEVELS_MAX: usize = 3;
/// Digits of a file's name.
const DIGITS: usize = 10;
/// Names that are tried before the directory counts as full.
const TRIES_MAX: u32 = 1000;

/// The number in the last file's name: one counter for all directories of the process.
static LAST: AtomicU32 = AtomicU32::new(0);

/// A directory for temporary files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemporaryPlace {
    /// The directory, without a trailing slash.
    pub directory: Arc<[u8]>,
    /// Digits of each level of subdirectories, from the end of the file's name; 0: no such level.
    pub levels: [u8; LEVELS_MAX],
}

/// How long a temporary file and its name exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// Without a name from the start; gone with the last descriptor, also when the process is killed.
    Nameless,
    /// With a name as long as the [`Temporary`] lives.
    Removed,
    /// For good.
    Kept,
}

/// A temporary file.
#[derive(Debug)]
pub struct Temporary {
    /// To write with ([`Local::append`]).
    pub output: Output,
    path: Arc<[u8]>,
    /// Removes the file, and the pool for that.
    removal: Option<(RemoveOnDrop, Pool)>,
}

/// A temporary file that is written and read at the same time.
#[derive(Debug)]
pub struct Spooled {
    /// To write with.
    pub file: Temporary,
    /// To read with; its length is that of the first write ([`OpenFile::grown`]).
    pub open: Rc<OpenFile>,
}

/// Removes a file when it is dropped. **Waits.**
#[derive(Debug)]
struct RemoveOnDrop {
    path: Arc<[u8]>,
    is_spared: bool,
}

impl RemoveOnDrop {
    fn new(path: &Arc<[u8]>) -> RemoveOnDrop {
        RemoveOnDrop {
            path: Arc::clone(path),
            is_spared: false,
        }
    }
}

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        if !self.is_spared {
            // If it is gone already, all is well.
            let _ = unlinked(&self.path);
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some((removal, pool)) = self.removal.take() {
            pool.release(removal);
        }
    }
}

impl Temporary {
    /// A file that is removed when this is dropped.
    pub(crate) fn removed(output: Output, path: Vec<u8>, pool: &Pool) -> Temporary {
        let path: Arc<[u8]> = path.into();
        Temporary {
            output,
            removal: Some((RemoveOnDrop::new(&path), pool.clone())),
            path,
        }
    }

    /// Keeps the file: it has been renamed to its final name.
    pub(crate) fn spare(mut self) {
        if let Some((mut removal, _)) = self.removal.take() {
            removal.is_spared = true;
        }
    }

    /// Its path, also if the file has no name any more.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        &self.path
    }
}

impl Local {
    /// Makes a temporary file that begins with `bytes`, and the subdirectories for its name, and opens it for reading, too,
    /// in one job. `mode`: its permissions.
    ///
    /// # Errors
    /// [`Error::System`] with the call's name, [`Error::Overflow`]. Only a file that is to be kept may be left then.
    pub async fn spool(
        &self,
        place: &TemporaryPlace,
        retention: Retention,
        bytes: Bytes,
        mode: u32,
        pool: &Pool,
    ) -> Result<Spooled, Error> {
        let (place, disk, writer) = (place.clone(), self.0.disk.clone(), pool.clone());
        // A `Temporary` from the start, so that the file is removed if the caller stops waiting.
        let work = move || {
            let (fd, path) = make_temporary(&place, retention, mode)?;
            let path: Arc<[u8]> = path.into();
            let removal = (retention == Retention::Removed)
                .then(|| (RemoveOnDrop::new(&path), writer.clone()));
            let file = Temporary {
                output: Output::new(fd, &writer),
                path,
                removal,
            };
            write_all(file.output.fd(), &[bytes])?;
            let reader = file.output.reader(&disk)?;
            Ok((file, reader))
        };
        let (file, (handle, meta)) = self.write_job(Operation::Create, pool, work).await?;
        Ok(Spooled {
            file,
            open: Rc::new(OpenFile::of(handle, meta)),
        })
    }
}

/// **Waits.**
pub(crate) fn make_temporary(
    place: &TemporaryPlace,
    retention: Retention,
    mode: u32,
) -> Result<(OwnedFd, Vec<u8>), Error> {
    for _ in 0..TRIES_MAX {
        let path = path_of(place, next_number());
        match open(place, &path, mode) {
            Ok(fd) => {
                if retention == Retention::Nameless {
                    unlinked(&path).map_err(|errno| Error::system("unlink()", errno))?;
                }
                return Ok((fd, path));
            }
            // A file that was kept before a restart: the next free number may be far off.
            Err(Error::System { errno, .. }) if errno == Errno::EXIST => {
                LAST.fetch_add(random() % 1_000_000, Relaxed);
            }
            Err(error) => return Err(error),
        }
    }
    Err(Error::system("open()", Errno::EXIST))
}

fn open(place: &TemporaryPlace, path: &[u8], mode: u32) -> Result<OwnedFd, Error> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    #[expect(clippy::disallowed_methods, reason = "runs in a pool")]
    let open = || rustix::fs::open(OsStr::from_bytes(path), flags, Mode::from_raw_mode(mode));
    let open = || call_times::timed(Operation::Create, open);
    match open() {
        Err(Errno::NOENT) if place.levels[0] > 0 => make_levels(place, path)?,
        outcome => return outcome.map_err(|errno| Error::system("open()", errno)),
    }
    open().map_err(|errno| Error::system("open()", errno))
}

/// Makes the subdirectories for a file's path.
fn make_levels(place: &TemporaryPlace, path: &[u8]) -> Result<(), Error> {
    let from = place.directory.len() + 1;
    let slashes = path.iter().enumerate().skip(from);
    for (at, _) in slashes.filter(|(_, byte)| **byte == b'/') {
        match rustix::fs::mkdir(OsStr::from_bytes(&path[..at]), Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(Error::system("mkdir()", errno)),
        }
    }
    Ok(())
}

/// The number in the next file's name.
pub(crate) fn next_number() -> u32 {
    LAST.fetch_add(1, Relaxed).wrapping_add(1)
}

/// `DIRECTORY/7/45/0123456457`: each level takes its digits from the end of the name.
fn path_of(place: &TemporaryPlace, number: u32) -> Vec<u8> {
    let name = format!("{number:0width$}", width = DIGITS);
    let mut path = place.directory.to_vec();
    let mut end = name.len();
    for digits in place.levels.iter().map(|digits| usize::from(*digits)) {
        let start = end.saturating_sub(digits);
        if start < end {
            path.push(b'/');
            path.extend_from_slice(&name.as_bytes()[start..end]);
        }
        end = start;
    }
    path.push(b'/');
    path.extend_from_slice(name.as_bytes());
    path
}

/// A random number, different in each process.
fn random() -> u32 {
    let state = std::hash::RandomState::new();
    state.build_hasher().finish() as u32
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::tests::{block_on, local};

    fn place(dir: &tempfile::TempDir, levels: [u8; LEVELS_MAX]) -> TemporaryPlace {
        TemporaryPlace {
            directory: dir.path().as_os_str().as_bytes().into(),
            levels,
        }
    }

    #[test]
    fn levels_take_their_digits_from_the_end() {
        let place = TemporaryPlace {
            directory: (*b"/t").into(),
            levels: [1, 2, 0],
        };
        assert_eq!(path_of(&place, 123_457), b"/t/7/45/0000123457");
    }

    #[test]
    fn a_temporary_file_is_read_back_and_leaves_nothing() {
        block_on(async {
            let (local, pool) = local();
            let dir = tempfile::tempdir().unwrap();
            let place = place(&dir, [0; LEVELS_MAX]);
            let first = Bytes::from_static(b"so");
            let spooled = local.spool(&place, Retention::Nameless, first, 0o600, &pool);
            let Spooled { file, open } = spooled.await.unwrap();
            let parts = vec![Bytes::from_static(b"me "), Bytes::from_static(b"bytes")];
            local.append(&file.output, parts, &pool).await.unwrap();
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
            let open = Rc::new(open.grown(10));
            let access = Access::new(&pool);
            let bytes = local.read(&open, 5, 100, &access).await.unwrap();
            assert_eq!(bytes, "bytes");
        });
    }

    #[test]
    fn a_name_lasts_as_long_as_it_was_asked_for() {
        block_on(async {
            let (local, pool) = local();
            let dir = tempfile::tempdir().unwrap();
            let place = place(&dir, [1, 0, 0]);
            let path = |file: &Temporary| OsStr::from_bytes(file.path()).to_owned();
            let create = |retention| local.spool(&place, retention, Bytes::new(), 0o600, &pool);
            let kept = create(Retention::Kept).await.unwrap().file;
            let removed = create(Retention::Removed).await.unwrap().file;
            let (kept_path, removed_path) = (path(&kept), path(&removed));
            assert!(std::fs::exists(&removed_path).unwrap());
            drop((kept, removed));
            while std::fs::exists(&removed_path).unwrap() {
                tokio::task::yield_now().await;
            }
            assert!(std::fs::exists(&kept_path).unwrap());
        });
    }
}
