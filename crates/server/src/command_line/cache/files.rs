//! Walking a cache's directory, one name at a time, and reading entries from their files.
//!
//! Invariant: memory does not grow with the directory; a file that vanishes meanwhile is no error.
#![expect(
    clippy::disallowed_methods,
    reason = "a command: no loop runs in this process"
)]

use std::fs::{File, OpenOptions, ReadDir};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use cache::inspect::Place as FilePlace;
use cache::{ChecksumTable, Entry, EntryFault};

/// Maximum depth of directories; deeper ones are not a cache's.
const DEPTH_MAX: usize = 16;
/// Bytes of a file that the first read of its head asks for.
const HEAD_BYTES: usize = 4096;
/// Alignment of what O_DIRECT reads.
const ALIGNED: usize = 4096;
/// Bytes of one read of a body.
const READ_BYTES: usize = 256 << 10;

/// The files below a directory, in the order of the disk.
#[derive(Debug)]
pub(super) struct Files {
    root: PathBuf,
    open: Vec<ReadDir>,
}

/// A file that was found.
#[derive(Debug)]
pub(super) struct Found {
    /// Its path.
    pub path: PathBuf,
    /// Its path, relative to the directory.
    pub relative: PathBuf,
    /// What the path says that it is.
    pub place: FilePlace,
}

/// Why an entry could not be read.
#[derive(Debug)]
pub(super) enum Unread {
    /// It is not there any more.
    Gone,
    /// The disk, or a permission.
    Disk(io::Error),
    /// Its bytes.
    Fault(EntryFault),
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::Gone,
            _ => Self::Disk(error),
        }
    }
}

impl Files {
    /// The files below `root`.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn below(root: &Path) -> io::Result<Self> {
        Ok(Self {
            root: root.to_owned(),
            open: vec![std::fs::read_dir(root)?],
        })
    }
}

impl Iterator for Files {
    type Item = Result<Found, (PathBuf, io::Error)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let name = match self.open.last_mut()?.next() {
                None => {
                    self.open.pop();
                    continue;
                }
                Some(Err(error)) => return Some(Err((self.root.clone(), error))),
                Some(Ok(name)) => name,
            };
            let path = name.path();
            let Ok(kind) = name.file_type() else { continue };
            if kind.is_dir() && self.open.len() < DEPTH_MAX {
                match std::fs::read_dir(&path) {
                    Ok(inner) => self.open.push(inner),
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Some(Err((path, error))),
                }
                continue;
            }
            let relative = path.strip_prefix(&self.root).unwrap_or(&path).to_owned();
            let place = match kind.is_file() {
                true => FilePlace::of(relative.as_os_str().as_bytes()),
                false if relative.starts_with(cache::JOURNAL_FOLDER) => FilePlace::Journal,
                false => FilePlace::Foreign,
            };
            return Some(Ok(Found {
                path,
                relative,
                place,
            }));
        }
    }
}

/// Opens a file without changing its access time, where that is permitted.
pub(super) fn open(path: &Path, more: i32) -> io::Result<File> {
    let with = |flags: i32| {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .custom_flags(flags | nix::libc::O_NOFOLLOW)
            .open(path)
    };
    match with(more | nix::libc::O_NOATIME) {
        Err(error) if error.raw_os_error() == Some(nix::libc::EPERM) => with(more),
        opened => opened,
    }
}

/// Reads an entry's head. Returns the length of the file, too.
///
/// # Errors
/// [`Unread`].
pub(super) fn head(file: &File) -> Result<(Entry, u64), Unread> {
    let len = file.metadata()?.len();
    let mut wanted = HEAD_BYTES;
    loop {
        let mut front = vec![0; wanted];
        let count = read_fully(file, &mut front, 0)?;
        front.truncate(count);
        match Entry::decode(&Bytes::from(front), len) {
            Ok(entry) => return Ok((entry, len)),
            Err(EntryFault::Needs(more)) if more > wanted && count == wanted => wanted = more,
            // The file ends before its head does.
            Err(EntryFault::Needs(_)) => return Err(Unread::Fault(EntryFault::Incomplete)),
            Err(fault) => return Err(Unread::Fault(fault)),
        }
    }
}

fn read_fully(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut count = 0;
    while count < buffer.len() {
        match file.read_at(&mut buffer[count..], offset + count as u64) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// Reads files for a check: past the kernel's memory where the file system can (O_DIRECT), so that what a server has
/// there stays, and what lies on the disk is read.
#[derive(Debug)]
pub(super) struct Checker {
    buffer: Vec<u8>,
    /// Bytes that were read so far.
    pub bytes: u64,
}

impl Checker {
    /// With a buffer of its own.
    pub(super) fn new() -> Self {
        Self {
            buffer: vec![0; READ_BYTES + 2 * ALIGNED],
            bytes: 0,
        }
    }

    /// Verifies all of an entry.
    ///
    /// # Errors
    /// [`Unread`].
    pub(super) fn check(&mut self, path: &Path) -> Result<Entry, Unread> {
        let (entry, _) = head(&open(path, 0)?)?;
        let file = match open(path, nix::libc::O_DIRECT) {
            Err(error) if error.raw_os_error() == Some(nix::libc::EINVAL) => open(path, 0)?,
            opened => opened?,
        };
        // What was replaced between the two is another file.
        self.bytes += entry.body().start;
        let table = self.range(&file, entry.table())?;
        let table = ChecksumTable::decode(&table.into(), &entry).map_err(Unread::Fault)?;
        for index in 0..entry.blocks() {
            let block = self.range(&file, entry.block(index))?;
            table.verify(index, &block).map_err(Unread::Fault)?;
        }
        Ok(entry)
    }

    /// A range of a file; shorter if the file is.
    fn range(&mut self, file: &File, range: std::ops::Range<u64>) -> io::Result<Vec<u8>> {
        let mut out = Vec::with_capacity(usize::try_from(range.end - range.start).unwrap_or(0));
        let mut at = range.start;
        while at < range.end {
            let from = at - at % ALIGNED as u64;
            let misplaced = self.buffer.as_ptr().align_offset(ALIGNED);
            let left = usize::try_from(range.end - from).unwrap_or(READ_BYTES);
            let len = left.next_multiple_of(ALIGNED).min(READ_BYTES);
            let buffer = &mut self.buffer[misplaced..misplaced + len];
            let count = match file.read_at(buffer, from) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let skipped = (at - from) as usize;
            if count <= skipped {
                break;
            }
            let wanted = (range.end - from).min(count as u64) as usize;
            out.extend_from_slice(&buffer[skipped..wanted]);
            at = from + wanted as u64;
        }
        self.bytes += out.len() as u64;
        Ok(out)
    }
}
