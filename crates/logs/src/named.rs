//! Access logs with variables in their paths, and `open_log_file_cache`.
//!
//! Invariant: a path made of a client's values never creates a log below a root directory that does not exist (nginx's
//! check), and at most `max` files stay open per cache. Only the log thread runs this code, as the worker's user.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};

use super::error::ErrorLogs;
use super::file::{Complaint, READER_WAIT, Takes, write_within};
use super::level::Level;

/// The parameters of `open_log_file_cache`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenLogFileCache {
    /// How many paths are remembered.
    pub max: usize,
    /// A file not written for this long is closed.
    pub inactive: Duration,
    /// A file stays open once it was written this often within `inactive`.
    pub min_uses: u64,
    /// After this long it is looked whether the path still names the same file.
    pub valid: Duration,
}

/// How many paths a cache remembers, whatever the configuration says.
pub(crate) const CACHE_FILES_MAX: usize = 65_536;

/// See the module.
#[derive(Debug)]
pub(super) struct Named {
    cache: Option<OpenLogFileCache>,
    /// The error logs of the place.
    pub errors: ErrorLogs,
    files: Mutex<HashMap<Box<[u8]>, Open>>,
    /// Whether the last line for a pipe found no reader that reads: the next one waits for none.
    is_stalled: AtomicBool,
}

#[derive(Debug)]
struct Open {
    descriptor: Option<OwnedFd>,
    uses: u64,
    used: Instant,
    checked: Instant,
}

impl Named {
    pub(crate) fn new(cache: Option<OpenLogFileCache>, errors: ErrorLogs) -> Self {
        Self {
            cache,
            errors,
            files: Mutex::default(),
            is_stalled: AtomicBool::new(false),
        }
    }

    /// Closes all files.
    pub(crate) fn forget(&self) {
        self.files.lock().clear();
    }

    /// Writes a line that has the root's and the log's path in front of it.
    pub(crate) fn write(&self, bytes: &[u8], (root, path): (u16, u16)) -> Result<(), Complaint> {
        let (root, rest) = bytes.split_at(usize::from(root));
        let (path, line) = rest.split_at(usize::from(path));
        self.check_root(root)?;
        let now = Instant::now();
        let Some(cache) = self.cache else {
            let descriptor = open(path).map_err(|error| failed("open", path, &error))?;
            return self.write_line(&descriptor, path, line);
        };
        let mut files = self.files.lock();
        close_inactive(&mut files, cache, now);
        if let Some(file) = files.get_mut(path) {
            return file.write(self, path, line, cache, now);
        }
        let descriptor = open(path).map_err(|error| failed("open", path, &error))?;
        let written = self.write_line(&descriptor, path, line);
        if files.len() >= cache.max.min(CACHE_FILES_MAX) {
            forget_oldest(&mut files);
        }
        let descriptor = (cache.min_uses <= 1).then_some(descriptor);
        files.insert(
            path.into(),
            Open {
                descriptor,
                uses: 1,
                used: now,
                checked: now,
            },
        );
        written
    }

    fn write_line(&self, file: &OwnedFd, path: &[u8], line: &[u8]) -> Result<(), Complaint> {
        let takes = Takes::of(file.as_fd());
        let was_stalled = self.is_stalled.load(Ordering::Relaxed);
        let patience = if was_stalled {
            Duration::ZERO
        } else {
            READER_WAIT
        };
        let written = write_within(file.as_fd(), takes, line, patience)
            .map_err(|error| unwritten(path, &error))?;
        let is_whole = written == line.len();
        if takes == Takes::Reader {
            self.is_stalled.store(!is_whole, Ordering::Relaxed);
        }
        match is_whole {
            true => Ok(()),
            false if was_stalled => Err(Complaint::silent(1)),
            false => Err(unwritten(path, &io::Error::from_raw_os_error(libc::EAGAIN))),
        }
    }

    /// A request for a root that is not there writes no log: else a client could make up directories' names.
    fn check_root(&self, root: &[u8]) -> Result<(), Complaint> {
        if root.is_empty() {
            return Ok(());
        }
        let path = Path::new(std::ffi::OsStr::from_bytes(root));
        #[expect(clippy::disallowed_methods, reason = "the log thread is no loop")]
        let found = std::fs::metadata(path);
        let error = match found {
            Ok(found) if found.is_dir() => return Ok(()),
            Ok(_) => io::Error::from_raw_os_error(libc::ENOTDIR),
            Err(error) => error,
        };
        let mut text = b"testing \"".to_vec();
        text.extend_from_slice(root);
        text.extend_from_slice(b"\" existence failed");
        super::append_os_error(&mut text, &error);
        Err(complaint(Level::Error, text))
    }
}

impl Open {
    fn write(
        &mut self,
        named: &Named,
        path: &[u8],
        line: &[u8],
        cache: OpenLogFileCache,
        now: Instant,
    ) -> Result<(), Complaint> {
        self.uses += 1;
        self.used = now;
        if now >= self.checked + cache.valid {
            self.checked = now;
            let same = self
                .descriptor
                .as_ref()
                .is_some_and(|open| is_same_file(open, path));
            self.descriptor = self.descriptor.take().filter(|_| same);
        }
        let descriptor = match self.descriptor.take() {
            Some(descriptor) => descriptor,
            None => open(path).map_err(|error| failed("open", path, &error))?,
        };
        let written = named.write_line(&descriptor, path, line);
        self.descriptor = (self.uses >= cache.min_uses).then_some(descriptor);
        written
    }
}

fn close_inactive(files: &mut HashMap<Box<[u8]>, Open>, cache: OpenLogFileCache, now: Instant) {
    if !cache.inactive.is_zero() {
        files.retain(|_, file| now < file.used + cache.inactive);
    }
}

fn forget_oldest(files: &mut HashMap<Box<[u8]>, Open>) {
    let oldest = files
        .iter()
        .min_by_key(|(_, file)| file.used)
        .map(|(path, _)| path.clone());
    if let Some(oldest) = oldest {
        files.remove(&oldest);
    }
}

fn open(path: &[u8]) -> io::Result<OwnedFd> {
    // A pipe without a reader is refused, where this thread would wait for one.
    let flags = OFlags::WRONLY
        | OFlags::APPEND
        | OFlags::CREATE
        | OFlags::CLOEXEC
        | OFlags::NOCTTY
        | OFlags::NONBLOCK;
    #[expect(clippy::disallowed_methods, reason = "the log thread is no loop")]
    let opened = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644));
    opened.map_err(io::Error::from)
}

fn is_same_file(open: &OwnedFd, path: &[u8]) -> bool {
    #[expect(clippy::disallowed_methods, reason = "the log thread is no loop")]
    let found = rustix::fs::stat(path);
    match (rustix::fs::fstat(open), found) {
        (Ok(open), Ok(found)) => (open.st_dev, open.st_ino) == (found.st_dev, found.st_ino),
        _ => false,
    }
}

fn failed(call: &str, path: &[u8], error: &io::Error) -> Complaint {
    let mut text = Vec::new();
    super::append_failed(&mut text, call, path, error);
    complaint(Level::Crit, text)
}

fn unwritten(path: &[u8], error: &io::Error) -> Complaint {
    let mut text = b"write() to \"".to_vec();
    text.extend_from_slice(path);
    text.extend_from_slice(b"\" failed");
    super::append_os_error(&mut text, error);
    complaint(Level::Alert, text)
}

fn complaint(level: Level, mut text: Vec<u8>) -> Complaint {
    text.extend_from_slice(b" while logging request");
    Complaint {
        text,
        level,
        lost: 1,
    }
}
