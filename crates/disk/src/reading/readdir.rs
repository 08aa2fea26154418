//! Listing a directory, always in a pool.

use crate::access::{Access, AioMode};
use crate::files::error::Error;
use crate::files::open_file::{FileKind, Meta};
use crate::local::Local;
use crate::metrics::call_times;
use crate::metrics::counters::Operation;
use crate::pool::{Lane, Pool};
use rustix::fs::{AtFlags, Dir, FileType, Mode as FileMode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

/// Entries of a listing at most; a larger directory is an error.
pub const READDIR_MAX: usize = 100_000;
/// Names, and entries whose metadata are asked for, after which the job has come a step further.
const NAMES_OF_STEP: usize = 256;
const STATS_OF_STEP: usize = 16;

/// Names that [`Local::names`] returns at most; a larger directory is an error.
pub const NAMES_MAX: usize = 1 << 22;

/// A name in a directory, with its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryName {
    /// The name, without a slash; neither `.` nor `..`.
    pub name: Box<[u8]>,
    /// Its type; a symlink is [`FileKind::Other`].
    pub kind: FileKind,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, without a slash; neither `.` nor `..`.
    pub name: Box<[u8]>,
    /// Its metadata, symlinks followed; for a symlink that leads nowhere or in a circle, those of the link itself.
    pub meta: Meta,
}

/// What is in a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Its entries, in the file system's order.
    pub entries: Vec<DirEntry>,
    /// The names whose metadata are not to be had, and why stat(2) failed.
    pub failed: Vec<(Box<[u8]>, Errno)>,
}

impl DirEntry {
    /// Is it a directory?
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.meta.kind == FileKind::Directory
    }
}

impl Local {
    /// The entries of the directory at an absolute path.
    ///
    /// # Errors
    /// [`Error::System`] with `opendir()` or `readdir()`, [`Error::TooManyEntries`], [`Error::Overflow`].
    pub async fn readdir(&self, path: &[u8], access: &Access<'_>) -> Result<Listing, Error> {
        if access.mode == AioMode::Inline {
            return list(path);
        }
        let path: Box<[u8]> = path.into();
        let begun = Instant::now();
        let entries = access
            .pool
            .run(Lane::Read, move || {
                call_times::timed(Operation::Readdir, || list(&path))
            })
            .await;
        match &entries {
            Ok(_) => self
                .0
                .counters
                .offloaded(Operation::Readdir, begun.elapsed()),
            Err(_) => self.0.counters.overflowed(Operation::Readdir),
        }
        entries?
    }

    /// The names in the directory at an absolute path, in the file system's order; the named files are not looked at,
    /// unless the directory does not say their types.
    ///
    /// # Errors
    /// As [`Local::readdir`].
    pub async fn names(&self, path: &[u8], pool: &Pool) -> Result<Vec<EntryName>, Error> {
        let path: Box<[u8]> = path.into();
        let begun = Instant::now();
        let names = pool
            .run(Lane::Read, move || {
                call_times::timed(Operation::Readdir, || names(&path))
            })
            .await;
        match &names {
            Ok(_) => self
                .0
                .counters
                .offloaded(Operation::Readdir, begun.elapsed()),
            Err(_) => self.0.counters.overflowed(Operation::Readdir),
        }
        names?
    }
}

/// **Waits.**
fn names(path: &[u8]) -> Result<Vec<EntryName>, Error> {
    let fd = open(path)?;
    let mut names = Vec::new();
    for entry in Dir::read_from(&fd).map_err(|errno| Error::system("opendir()", errno))? {
        let entry = entry.map_err(|errno| Error::system("readdir()", errno))?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        call_times::step(names.len(), NAMES_OF_STEP);
        if names.len() == NAMES_MAX {
            return Err(Error::TooManyEntries(NAMES_MAX));
        }
        let file_type = match entry.file_type() {
            // Not every file system fills in `d_type`.
            FileType::Unknown => rustix::fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |stat| {
                    FileType::from_raw_mode(stat.st_mode)
                }),
            known => known,
        };
        names.push(EntryName {
            name: name.to_bytes().into(),
            kind: match file_type {
                FileType::RegularFile => FileKind::File,
                FileType::Directory => FileKind::Directory,
                _ => FileKind::Other,
            },
        });
    }
    Ok(names)
}

fn open(path: &[u8]) -> Result<OwnedFd, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    #[expect(
        clippy::disallowed_methods,
        reason = "runs in a pool, or inline (AioMode::Inline)"
    )]
    rustix::fs::open(OsStr::from_bytes(path), flags, FileMode::empty())
        .map_err(|errno| Error::system("opendir()", errno))
}

/// **Waits.**
fn list(path: &[u8]) -> Result<Listing, Error> {
    let fd = open(path)?;
    let mut listing = Listing::default();
    for entry in Dir::read_from(&fd).map_err(|errno| Error::system("opendir()", errno))? {
        let entry = entry.map_err(|errno| Error::system("readdir()", errno))?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let seen = listing.entries.len() + listing.failed.len();
        call_times::step(seen, STATS_OF_STEP);
        if seen == READDIR_MAX {
            return Err(Error::TooManyEntries(READDIR_MAX));
        }
        let stat = match rustix::fs::statat(&fd, name, AtFlags::empty()) {
            Err(Errno::NOENT | Errno::LOOP) => {
                rustix::fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW)
            }
            stat => stat,
        };
        let name = name.to_bytes().into();
        match stat {
            Ok(stat) => listing.entries.push(DirEntry {
                name,
                meta: Meta::from_stat(&stat),
            }),
            // Removed since readdir(3) returned its name.
            Err(Errno::NOENT) => {}
            Err(errno) => listing.failed.push((name, errno)),
        }
    }
    Ok(listing)
}
