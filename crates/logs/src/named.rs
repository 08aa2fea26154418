//! Access logs with variables in their paths, and `open_log_file_cache`.
//!
//! Invariant: a path made of a client's values never creates a log below a root directory that does not exist (nginx's
//! check), and at most `max` files stay open per cache. Only the log thread runs this code, as the worker's user.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};

use super::error::ErrorLogs;
use super::file::{Complaint, Failures, Takes, patience, write_within};
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

/// Maximum number of unused files that are closed before a line.
const CLOSED_MAX: usize = 2;

/// See the module.
#[derive(Debug)]
pub(super) struct Named {
    cache: Option<OpenLogFileCache>,
    /// The error logs of the place.
    pub errors: ErrorLogs,
    files: Mutex<Files>,
    /// Of all files together.
    failures: Mutex<Failures>,
    /// Whether the last line for a pipe found no reader that reads: the next one waits for none.
    is_stalled: AtomicBool,
}

#[derive(Debug)]
struct Open {
    descriptor: Option<OwnedFd>,
    uses: u64,
    /// The number of its last use among those of all files, and its time.
    turn: u64,
    used: Instant,
    checked: Instant,
}

impl Named {
    pub(crate) fn new(cache: Option<OpenLogFileCache>, errors: ErrorLogs) -> Self {
        Self {
            cache,
            errors,
            files: Mutex::default(),
            failures: Mutex::default(),
            is_stalled: AtomicBool::new(false),
        }
    }

    /// Closes all files.
    pub(crate) fn forget(&self) {
        *self.files.lock() = Files::default();
    }

    /// Writes a line that has the root's and the log's path in front of it.
    pub(crate) fn write(&self, bytes: &[u8], (root, path): (u16, u16)) -> Result<(), Complaint> {
        let now = Instant::now();
        if self.failures.lock().is_paused(now) {
            return Err(Complaint::silent(1));
        }
        let (root, rest) = bytes.split_at(usize::from(root));
        let (path, line) = rest.split_at(usize::from(path));
        self.check_root(root)?;
        let Some(cache) = self.cache else {
            let descriptor = open(path).map_err(|error| failed("open", path, &error))?;
            return self.write_line(&descriptor, path, line);
        };
        let mut files = self.files.lock();
        files.close_inactive(cache.inactive, now);
        if let Some(file) = files.get(path) {
            return file.write(self, path, line, cache, now);
        }
        let descriptor = open(path).map_err(|error| failed("open", path, &error))?;
        let written = self.write_line(&descriptor, path, line);
        let file = Open {
            descriptor: (cache.min_uses <= 1).then_some(descriptor),
            uses: 1,
            turn: 0,
            used: now,
            checked: now,
        };
        files.insert(path, file, cache.max.min(CACHE_FILES_MAX));
        written
    }

    fn write_line(&self, file: &OwnedFd, path: &[u8], line: &[u8]) -> Result<(), Complaint> {
        let takes = Takes::of(file.as_fd());
        let was_stalled = self.is_stalled.load(Ordering::Relaxed);
        let written = write_within(file.as_fd(), takes, line, patience(was_stalled))
            .map_err(|error| self.unwritten(path, &error))?;
        let is_whole = written == line.len();
        if takes == Takes::Reader {
            self.is_stalled.store(!is_whole, Ordering::Relaxed);
        }
        match is_whole {
            true => Ok(()),
            false if was_stalled => Err(Complaint::silent(1)),
            false => Err(self.unwritten(path, &io::Error::from_raw_os_error(libc::EAGAIN))),
        }
    }

    fn unwritten(&self, path: &[u8], error: &io::Error) -> Complaint {
        match self.failures.lock().note(Instant::now(), error) {
            true => unwritten(path, error),
            false => Complaint::silent(1),
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

/// The files of a cache, and the order in which they were used last.
#[derive(Debug, Default)]
struct Files {
    by_path: HashMap<Arc<[u8]>, Open>,
    /// By the turns of their uses. A file that was used again since then is moved only once it is the first here, so that a use
    /// costs no more than a number.
    by_turn: BTreeMap<u64, Arc<[u8]>>,
    turns: u64,
    /// Number of files looked at or moved.
    #[cfg(test)]
    looks: usize,
}

impl Files {
    /// Uses a file.
    fn get(&mut self, path: &[u8]) -> Option<&mut Open> {
        let file = self.by_path.get_mut(path)?;
        self.turns += 1;
        file.turn = self.turns;
        Some(file)
    }

    /// Adds a file that is not here; the one used least recently goes where there are `max`.
    fn insert(&mut self, path: &[u8], mut file: Open, max: usize) {
        if self.by_path.len() >= max {
            self.remove_oldest();
        }
        self.turns += 1;
        file.turn = self.turns;
        let path = Arc::<[u8]>::from(path);
        self.by_turn.insert(file.turn, Arc::clone(&path));
        self.by_path.insert(path, file);
    }

    fn close_inactive(&mut self, inactive: Duration, now: Instant) {
        if inactive.is_zero() {
            return;
        }
        for _ in 0..CLOSED_MAX {
            match self.oldest() {
                Some(file) if now >= file.used + inactive => self.remove_oldest(),
                _ => return,
            }
        }
    }

    /// The file used least recently, which is the first one then.
    fn oldest(&mut self) -> Option<&Open> {
        // Ends: each turn moves a file that was used since it came to its place.
        loop {
            #[cfg(test)]
            {
                self.looks += 1;
            }
            let first = self.by_turn.first_entry()?;
            let turn = self.by_path.get(first.get())?.turn;
            if turn == *first.key() {
                let path = first.get();
                return self.by_path.get(path);
            }
            let path = first.remove();
            self.by_turn.insert(turn, path);
        }
    }

    fn remove_oldest(&mut self) {
        if self.oldest().is_some()
            && let Some((_, path)) = self.by_turn.pop_first()
        {
            self.by_path.remove(&path);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn used(now: Instant) -> Open {
        Open {
            descriptor: None,
            uses: 1,
            turn: 0,
            used: now,
            checked: now,
        }
    }

    #[test]
    fn a_line_looks_at_few_of_many_files() {
        let (mut files, start) = (Files::default(), Instant::now());
        let path = |number: usize| number.to_string().into_bytes();
        // Each line with the files' uses in another order, beyond the maximum too.
        for line in 0..5000 {
            let (path, now) = (path(line * 7919 % 1500), start + SECOND);
            files.close_inactive(10 * SECOND, now);
            match files.get(&path) {
                Some(file) => file.used = now,
                None => files.insert(&path, used(now), 1000),
            }
        }
        assert_eq!((files.by_path.len(), files.by_turn.len()), (1000, 1000));
        assert!(files.looks <= 5 * 5000, "{}", files.looks);
        // The last ones are those used last, and all go in their time, a few with each line.
        assert!((4000..5000).all(|line| files.by_path.contains_key(&*path(line * 7919 % 1500))));
        for _ in 0..1000 / CLOSED_MAX {
            files.close_inactive(10 * SECOND, start + 10 * SECOND);
        }
        assert_eq!(files.by_path.len(), 1000, "too early");
        for _ in 0..1000 / CLOSED_MAX {
            files.close_inactive(10 * SECOND, start + 11 * SECOND);
        }
        assert!(files.by_path.is_empty() && files.by_turn.is_empty());
    }
}
