//! Listing a directory, always in a pool.

use crate::access::{Access, AioMode};
use crate::files::error::Error;
use crate::files::open_file::{FileKind, Meta};
use crate::local::Local;
use crate::metrics::call_times;
use crate::metrics::counters::Operation;
use crate::pool::{Lane, Pool};
use rustix::fs::{AtFlags, Dir, FileType, Mode as FileMode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

/// Entries of a listing at most; a larger directory is an error.
pub const READDIR_MAX: usize = 100_000;
/// Entries of a listing recorded at most whose metadata are not to be had; further ones are only counted.
pub const STAT_ERRORS_MAX: usize = 100;
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
    /// The entries whose metadata are not to be had.
    pub failed: StatErrors,
}

/// The entries of a directory for which stat(2) failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatErrors {
    /// Names and reasons of the first [`STAT_ERRORS_MAX`], in the file system's order.
    pub noted: Vec<(Box<[u8]>, Errno)>,
    /// The number of all.
    pub count: usize,
    /// Whether one of them failed for another reason than its permissions.
    pub has_others: bool,
}

impl StatErrors {
    fn note(&mut self, name: Box<[u8]>, errno: Errno) {
        self.count += 1;
        self.has_others |= errno != Errno::ACCESS;
        if self.noted.len() < STAT_ERRORS_MAX {
            self.noted.push((name, errno));
        }
    }
}

/// The regular files of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileNames {
    /// Their names, in the file system's order.
    pub names: Vec<Box<[u8]>>,
    /// The entry at which the search ended, since it cannot be looked at, and why.
    pub failed: Option<(Box<[u8]>, Errno)>,
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
        let all = |path: &[u8]| list(path, |_| true);
        self.read_directory(path, access, all, |listing| listing)
            .await
    }

    /// What `then` makes, in the same job, of the entries of the directory whose names do not begin with a dot.
    ///
    /// # Errors
    /// As [`Local::readdir`].
    pub async fn readdir_shown<T: Send + 'static>(
        &self,
        path: &[u8],
        access: &Access<'_>,
        then: impl FnOnce(Listing) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let shown = |path: &[u8]| list(path, is_shown);
        self.read_directory(path, access, shown, then).await
    }

    /// What `then` makes, in the same job, of the names of the regular files in the directory, and of links to such, that
    /// do not begin with a dot. Only links are looked at, unless the directory does not say the types.
    ///
    /// # Errors
    /// As [`Local::readdir`].
    pub async fn files_shown<T: Send + 'static>(
        &self,
        path: &[u8],
        access: &Access<'_>,
        then: impl FnOnce(FileNames) -> T + Send + 'static,
    ) -> Result<T, Error> {
        self.read_directory(path, access, files, then).await
    }

    /// The names in the directory at an absolute path, in the file system's order; the named files are not looked at,
    /// unless the directory does not say their types.
    ///
    /// # Errors
    /// As [`Local::readdir`].
    pub async fn names(&self, path: &[u8], pool: &Pool) -> Result<Vec<EntryName>, Error> {
        self.read_directory(path, &Access::new(pool), names, |names| names)
            .await
    }

    async fn read_directory<L: 'static, T: Send + 'static>(
        &self,
        path: &[u8],
        access: &Access<'_>,
        read: fn(&[u8]) -> Result<L, Error>,
        then: impl FnOnce(L) -> T + Send + 'static,
    ) -> Result<T, Error> {
        if access.mode == AioMode::Inline {
            return read(path).map(then);
        }
        let path: Box<[u8]> = path.into();
        let begun = Instant::now();
        let job = move || call_times::timed(Operation::Readdir, || read(&path)).map(then);
        let made = access.pool.run(Lane::Read, job).await;
        match &made {
            Ok(_) => self
                .0
                .counters
                .offloaded(Operation::Readdir, begun.elapsed()),
            Err(_) => self.0.counters.overflowed(Operation::Readdir),
        }
        made?
    }
}

fn is_shown(name: &[u8]) -> bool {
    !name.starts_with(b".")
}

/// **Waits.**
fn names(path: &[u8]) -> Result<Vec<EntryName>, Error> {
    let mut dir = open(path)?;
    let mut names = Vec::new();
    while let Some(entry) = dir.read() {
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
            FileType::Unknown => stat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)
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

fn open(path: &[u8]) -> Result<Dir, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    #[expect(
        clippy::disallowed_methods,
        reason = "runs in a pool, or inline (AioMode::Inline)"
    )]
    rustix::fs::open(OsStr::from_bytes(path), flags, FileMode::empty())
        // `Dir::read_from` would open it once more, and ask for the right to search it.
        .and_then(Dir::new)
        .map_err(|errno| Error::system("opendir()", errno))
}

/// **Waits.**
fn stat(dir: &Dir, name: &CStr, flags: AtFlags) -> Result<Stat, Errno> {
    rustix::fs::statat(dir.fd()?, name, flags)
}

/// **Waits.**
fn list(path: &[u8], is_wanted: fn(&[u8]) -> bool) -> Result<Listing, Error> {
    let mut dir = open(path)?;
    let mut listing = Listing::default();
    while let Some(entry) = dir.read() {
        let entry = entry.map_err(|errno| Error::system("readdir()", errno))?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") || !is_wanted(name.to_bytes()) {
            continue;
        }
        let seen = listing.entries.len() + listing.failed.count;
        call_times::step(seen, STATS_OF_STEP);
        if seen == READDIR_MAX {
            return Err(Error::TooManyEntries(READDIR_MAX));
        }
        let stat = match stat(&dir, name, AtFlags::empty()) {
            Err(Errno::NOENT | Errno::LOOP) => stat(&dir, name, AtFlags::SYMLINK_NOFOLLOW),
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
            Err(errno) => listing.failed.note(name, errno),
        }
    }
    Ok(listing)
}

/// **Waits.**
fn files(path: &[u8]) -> Result<FileNames, Error> {
    let mut dir = open(path)?;
    let mut found = FileNames::default();
    let mut seen = 0;
    while let Some(entry) = dir.read() {
        let entry = entry.map_err(|errno| Error::system("readdir()", errno))?;
        let name = entry.file_name();
        call_times::step(seen, STATS_OF_STEP);
        seen += 1;
        if !is_shown(name.to_bytes()) {
            continue;
        }
        let file_type = match entry.file_type() {
            FileType::Unknown | FileType::Symlink => {
                match stat(&dir, name, AtFlags::empty()) {
                    Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                    // A link that leads nowhere, or a file that is gone.
                    Err(Errno::NOENT) => continue,
                    Err(errno) => {
                        found.failed = Some((name.to_bytes().into(), errno));
                        return Ok(found);
                    }
                }
            }
            known => known,
        };
        if file_type != FileType::RegularFile {
            continue;
        }
        if found.names.len() == READDIR_MAX {
            return Err(Error::TooManyEntries(READDIR_MAX));
        }
        found.names.push(name.to_bytes().into());
    }
    Ok(found)
}
