//! Writing a file next to its target and then renaming it over the target.
//!
//! Not here: whether it is complete. Invariant: its name never shows an incomplete file, and nothing is left when it is
//! dropped.

use crate::changing::temporary::{Temporary, next_number};
use crate::changing::write::{Create, Output, create, make_directory, renamed};
use crate::files::error::Error;
use crate::local::Local;
use crate::metrics::counters::Operation;
use crate::pool::Pool;
use rustix::fs::{Mode, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};

/// Permissions of a file while it is being written.
const MODE_MEANWHILE: u32 = 0o600;
/// Names that are tried before the directory counts as full.
const TRIES_MAX: u32 = 1000;

/// The attributes of a file that replaces another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplaceOptions {
    /// Permissions.
    pub mode: u32,
    /// Its modification time, in Unix seconds; None: now.
    pub mtime: Option<i64>,
}

impl Local {
    /// Makes a file next to `path`, to be written with [`Local::append`]. Missing directories are made with
    /// `directory_mode`.
    ///
    /// # Errors
    /// [`Error::System`] with `open()` or `mkdir()`, [`Error::Overflow`].
    pub async fn begin_beside(
        &self,
        path: &[u8],
        directory_mode: u32,
        pool: &Pool,
    ) -> Result<Temporary, Error> {
        let path: Box<[u8]> = path.into();
        let owner = pool.clone();
        // A `Temporary` from the start, so that the file is removed if the caller stops waiting.
        let work = move || {
            let (fd, beside) = begin(&path, directory_mode)?;
            Ok(Temporary::removed(Output::new(fd, &owner), beside, &owner))
        };
        self.write_job(Operation::Create, pool, work).await
    }

    /// Renames a file to its target. If that fails, the file is removed.
    ///
    /// # Errors
    /// [`Error::System`] with `chmod()`, `utimes()` or `rename()`, [`Error::Overflow`].
    pub async fn put_in_place(
        &self,
        file: Temporary,
        path: &[u8],
        options: ReplaceOptions,
        pool: &Pool,
    ) -> Result<(), Error> {
        let path: Box<[u8]> = path.into();
        self.write_job(Operation::Rename, pool, move || {
            place(file.output.fd(), file.path(), &path, options)?;
            file.spare();
            Ok(())
        })
        .await
    }
}

/// **Waits.**
fn begin(path: &[u8], directory_mode: u32) -> Result<(OwnedFd, Vec<u8>), Error> {
    match beside(path) {
        Err(error) if error.errno() == Some(Errno::NOENT) => {
            make_directories(path, directory_mode)?;
            beside(path)
        }
        outcome => outcome,
    }
}

/// **Waits.** Makes a file whose name begins with `path`.
pub(crate) fn beside(path: &[u8]) -> Result<(OwnedFd, Vec<u8>), Error> {
    for _ in 0..TRIES_MAX {
        let beside = [path, format!(".{:010}", next_number()).as_bytes()].concat();
        match create(&beside, Create::New, MODE_MEANWHILE) {
            Ok(fd) => return Ok((fd, beside)),
            Err(error) if error.errno() == Some(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::system("open()", Errno::EXIST))
}

/// **Waits.** Makes the directories above a path.
pub(crate) fn make_directories(path: &[u8], mode: u32) -> Result<(), Error> {
    let slashes = path.iter().enumerate().skip(1);
    for (at, _) in slashes.filter(|(_, byte)| **byte == b'/') {
        make_directory(&path[..at], mode)?;
    }
    Ok(())
}

fn place(fd: &OwnedFd, from: &[u8], to: &[u8], options: ReplaceOptions) -> Result<(), Error> {
    adorn(fd, Some(options.mode), options.mtime)?;
    renamed(from, to).map_err(|errno| Error::system("rename()", errno))
}

/// **Waits.** Sets a file's permissions and modification time, where they are given.
pub(crate) fn adorn(fd: impl AsFd, mode: Option<u32>, mtime: Option<i64>) -> Result<(), Error> {
    let fd = fd.as_fd();
    if let Some(mode) = mode {
        rustix::fs::fchmod(fd, Mode::from_raw_mode(mode))
            .map_err(|errno| Error::system("chmod()", errno))?;
    }
    if let Some(mtime) = mtime {
        set_mtime(fd, mtime).map_err(|errno| Error::system("utimes()", errno))?;
    }
    Ok(())
}

pub(crate) fn set_mtime(fd: impl AsFd, mtime: i64) -> Result<(), Errno> {
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: mtime,
            tv_nsec: 0,
        },
    };
    rustix::fs::futimens(fd, &times)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use crate::tests::{block_on, local};
    use bytes::Bytes;
    use std::os::unix::fs::MetadataExt;

    const PLACING: ReplaceOptions = ReplaceOptions {
        mode: 0o640,
        mtime: Some(1_000_000),
    };

    #[test]
    fn a_file_takes_its_place_whole_or_leaves_nothing() {
        block_on(async {
            let (local, pool) = local();
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a/b/file");
            let text = path.as_os_str().as_bytes();
            let begin = || local.begin_beside(text, 0o700, &pool);
            let write = |file: &Temporary, bytes: &'static str| {
                let output = file.output.clone();
                let (local, pool) = (local.clone(), pool.clone());
                let parts = vec![Bytes::from_static(bytes.as_bytes())];
                async move { local.append(&output, parts, &pool).await.unwrap() }
            };
            let given_up = begin().await.unwrap();
            write(&given_up, "a part").await;
            assert!(!path.exists());
            drop(given_up);
            for bytes in ["one", "two"] {
                let file = begin().await.unwrap();
                write(&file, bytes).await;
                local
                    .put_in_place(file, text, PLACING, &pool)
                    .await
                    .unwrap();
                assert_eq!(std::fs::read_to_string(&path).unwrap(), bytes);
            }
            let stat = std::fs::metadata(&path).unwrap();
            assert_eq!((stat.mode() & 0o777, stat.mtime()), (0o640, 1_000_000));
            while std::fs::read_dir(path.parent().unwrap()).unwrap().count() > 1 {
                tokio::task::yield_now().await;
            }
        });
    }

    #[test]
    fn a_place_that_is_none_is_told() {
        block_on(async {
            let (local, pool) = local();
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("file"), "x").unwrap();
            let below = dir.path().join("file/x");
            let below = below.as_os_str().as_bytes();
            let error = local.begin_beside(below, 0o700, &pool).await.unwrap_err();
            assert_eq!(error.errno(), Some(Errno::NOTDIR));
            // A directory is in the way.
            let over = dir.path().as_os_str().as_bytes();
            let file = local.begin_beside(over, 0o700, &pool).await.unwrap();
            let beside = file.path().to_vec();
            let error = local.put_in_place(file, over, PLACING, &pool).await;
            assert_eq!(error.unwrap_err().errno(), Some(Errno::ISDIR));
            while std::fs::exists(OsStr::from_bytes(&beside)).unwrap() {
                tokio::task::yield_now().await;
            }
        });
    }
}
