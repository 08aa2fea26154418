//! Walking a cache's directory, one name at a time, and reading entries from their files and segments.
//!
//! Invariant: memory does not grow with the directory, but for the entries of one segment (some MiB at most), and those on
//! a device (less than 200 bytes each); a file that vanishes meanwhile is no error.
#![expect(
    clippy::disallowed_methods,
    reason = "a command: no loop runs in this process"
)]

use std::collections::VecDeque;
use std::fs::{File, OpenOptions, ReadDir};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use cache::inspect::{
    Place as FilePlace, PlacedEntry, entries_in_segment, entries_on_device, entry_len, entry_names,
};
use cache::{ChecksumTable, Entry, EntryFault, Levels};

use super::place::Place;

/// Maximum depth of directories; deeper ones are not a cache's.
const DEPTH_MAX: usize = 16;
/// Bytes of a file that the first read of its head asks for.
const HEAD_BYTES: usize = 4096;
/// First bytes of an entry that make it one.
const NAME_BYTES: usize = 128;
/// Alignment of what O_DIRECT reads.
const ALIGNED: usize = 4096;
/// Bytes of one read of a body.
const READ_BYTES: usize = 256 << 10;

/// The files below a directory, in the order of the disk; instead of a segment, the entries in it.
#[derive(Debug)]
pub(super) struct Files {
    root: PathBuf,
    open: Vec<ReadDir>,
    /// Entries of the segment that is being read.
    inside: VecDeque<Found>,
    /// The device beside the directory, and the entries on it that the journal knows.
    device: PathBuf,
    on_device: VecDeque<PlacedEntry>,
}

/// Where an entry lies.
#[derive(Clone, Debug)]
pub(super) struct Located {
    /// The file.
    pub path: PathBuf,
    /// Where it begins in a segment, and its length, in bytes; `None`: it has the file of its own.
    pub span: Option<(u64, u64)>,
}

impl Located {
    /// In a file of its own.
    pub(super) fn whole(path: PathBuf) -> Self {
        Self { path, span: None }
    }

    /// The name of its place, for a reader.
    pub(super) fn shown(&self) -> String {
        match self.span {
            None => self.path.display().to_string(),
            Some((at, _)) => format!("{}@{at}", self.path.display()),
        }
    }

    /// Reads its head. Returns its length, too.
    ///
    /// # Errors
    /// [`Unread`].
    pub(super) fn head(&self) -> Result<(Entry, u64), Unread> {
        let file = open(&self.path, 0)?;
        match self.span {
            None => {
                let len = file.metadata()?.len();
                head(&file, 0, len)
            }
            Some((at, len)) => head(&file, at, len),
        }
    }

    /// Copies it to a file.
    ///
    /// # Errors
    /// Those of the files.
    pub(super) fn copy_to(&self, to: &Path) -> io::Result<()> {
        let Some((at, len)) = self.span else {
            return std::fs::copy(&self.path, to).map(drop);
        };
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        std::fs::write(to, read_at(&open(&self.path, 0)?, at, len)?)
    }

    /// Deletes it, where no process owns the directory: its file, or its first bytes, without which it is none.
    ///
    /// # Errors
    /// Those of the files.
    pub(super) fn remove(&self) -> io::Result<()> {
        match self.span {
            None => std::fs::remove_file(&self.path),
            Some((at, _)) => {
                let file = OpenOptions::new().write(true).open(&self.path)?;
                file.write_all_at(&[0; NAME_BYTES], at)
            }
        }
    }

    fn start(&self) -> u64 {
        self.span.map_or(0, |(at, _)| at)
    }
}

/// A file that was found.
#[derive(Debug)]
pub(super) struct Found {
    /// Where it is.
    pub at: Located,
    /// The name of its place, relative to the directory.
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
    /// The files below a directory, then what is on the device beside it, if there is one.
    ///
    /// # Errors
    /// A sentence: the directory, the device or the journal cannot be read.
    pub(super) fn below(place: &Place) -> Result<Self, String> {
        let root = &place.directory;
        let open = std::fs::read_dir(root).map_err(|error| error.to_string())?;
        let (device, on_device) = match place.device()? {
            None => (PathBuf::new(), Vec::new()),
            Some((path, header)) => (path, entries_on_device(&place.journal(None)?, &header)),
        };
        Ok(Self {
            root: root.clone(),
            open: vec![open],
            inside: VecDeque::new(),
            device,
            on_device: on_device.into(),
        })
    }

    /// The next entry on the device.
    fn next_on_device(&mut self) -> Option<<Self as Iterator>::Item> {
        while let Some(placed) = self.on_device.pop_front() {
            match on_device(&self.device, &placed) {
                Ok(Some(at)) => {
                    return Some(Ok(Found {
                        relative: PathBuf::from(at.shown()),
                        at,
                        place: FilePlace::Entry(placed.key, Levels::default()),
                    }));
                }
                // It has another place by now.
                Ok(None) => {}
                Err(error) => return Some(Err((self.device.clone(), error))),
            }
        }
        None
    }

    /// Reads what is in a segment.
    fn enter_segment(&mut self, path: &Path, relative: &Path) -> io::Result<()> {
        let file = open(path, 0)?;
        let entries = entries_in_segment(|at, len| read_at(&file, at, len))?;
        self.inside = entries
            .unwrap_or_default()
            .into_iter()
            .map(|entry| Found {
                at: Located {
                    path: path.to_owned(),
                    span: Some((entry.at, entry.len)),
                },
                relative: PathBuf::from(format!("{}@{}", relative.display(), entry.at)),
                place: FilePlace::Entry(entry.key, Levels::default()),
            })
            .collect();
        Ok(())
    }
}

/// The place of an entry on a device, with its length. None: another one lies there.
pub(super) fn on_device(device: &Path, placed: &PlacedEntry) -> io::Result<Option<Located>> {
    let front = read_at(&open(device, 0)?, placed.at, HEAD_BYTES)?;
    let is_it = entry_names(&front) == Some((placed.key, placed.tag));
    let len = entry_len(&front).filter(|len| is_it && *len <= placed.len);
    Ok(len.map(|len| Located {
        path: device.to_owned(),
        span: Some((placed.at, len)),
    }))
}

/// Reads as many bytes, or fewer at the end of the file.
pub(super) fn read_at(file: &File, at: u64, len: usize) -> io::Result<Bytes> {
    let mut bytes = vec![0; len];
    let count = read_fully(file, &mut bytes, at)?;
    bytes.truncate(count);
    Ok(bytes.into())
}

impl Iterator for Files {
    type Item = Result<Found, (PathBuf, io::Error)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(found) = self.inside.pop_front() {
                return Some(Ok(found));
            }
            let Some(inner) = self.open.last_mut() else {
                return self.next_on_device();
            };
            let name = match inner.next() {
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
            if let FilePlace::Segment(_) = place {
                match self.enter_segment(&path, &relative) {
                    Err(error) if error.kind() != ErrorKind::NotFound => {
                        return Some(Err((path, error)));
                    }
                    _ => continue,
                }
            }
            return Some(Ok(Found {
                at: Located::whole(path),
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

/// Reads the head of the entry of this length that begins at an offset.
fn head(file: &File, at: u64, len: u64) -> Result<(Entry, u64), Unread> {
    let mut wanted = HEAD_BYTES;
    loop {
        let mut front = vec![0; wanted];
        let count = read_fully(file, &mut front, at)?;
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
    pub(super) fn check(&mut self, at: &Located) -> Result<Entry, Unread> {
        let (entry, _) = at.head()?;
        let (path, start) = (&at.path, at.start());
        let file = match open(path, nix::libc::O_DIRECT) {
            Err(error) if error.raw_os_error() == Some(nix::libc::EINVAL) => open(path, 0)?,
            opened => opened?,
        };
        let placed = |range: Range<u64>| start + range.start..start + range.end;
        // What was replaced between the two is another file.
        self.bytes += entry.body().start;
        let table = self.range(&file, placed(entry.table()))?;
        let table = ChecksumTable::decode(&table.into(), &entry).map_err(Unread::Fault)?;
        for index in 0..entry.blocks() {
            let block = self.range(&file, placed(entry.block(index)))?;
            table.verify(index, &block).map_err(Unread::Fault)?;
        }
        Ok(entry)
    }

    /// A range of a file; shorter if the file is.
    fn range(&mut self, file: &File, range: Range<u64>) -> io::Result<Vec<u8>> {
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
