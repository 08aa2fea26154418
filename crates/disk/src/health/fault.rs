//! Faults of a disk on demand, for tests of the whole program: a disk that hangs, one that fails, one that is full.
//!
//! A file names them ([`set_file`]), a line each: a directory, and `stall`, `fail N` (one read in N fails with EIO),
//! `readonly`, `full` or `slow MS`. Not here: the environment variable (the program's). Invariant: without the file's
//! name there is no thread, and a disk costs one relaxed load for each call.

use crate::metrics::counters::Operation;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often the file is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Every job hangs.
    Stall,
    /// One read in so many fails.
    Fail(u64),
    ReadOnly,
    Full,
    /// Every job takes so many milliseconds more.
    Slow(u64),
}

impl Fault {
    /// The kind in the upper byte, its number below.
    fn code(self) -> u64 {
        let (kind, number) = match self {
            Self::None => (0, 0),
            Self::Stall => (1, 0),
            Self::Fail(number) => (2, number),
            Self::ReadOnly => (3, 0),
            Self::Full => (4, 0),
            Self::Slow(ms) => (5, ms),
        };
        kind << 56 | number & (u64::MAX >> 8)
    }

    fn of_code(code: u64) -> Self {
        let number = code & (u64::MAX >> 8);
        match code >> 56 {
            1 => Self::Stall,
            2 => Self::Fail(number.max(1)),
            3 => Self::ReadOnly,
            4 => Self::Full,
            5 => Self::Slow(number),
            _ => Self::None,
        }
    }

    fn parse(text: &str) -> Self {
        let mut words = text.split_whitespace();
        let kind = words.next();
        let number = words.next().and_then(|word| word.parse().ok());
        match (kind, number) {
            (Some("stall"), _) => Self::Stall,
            (Some("fail"), Some(number)) => Self::Fail(number),
            (Some("readonly"), _) => Self::ReadOnly,
            (Some("full"), _) => Self::Full,
            (Some("slow"), Some(ms)) => Self::Slow(ms),
            _ => Self::None,
        }
    }
}

/// The faults of one disk.
#[derive(Debug)]
pub(crate) struct Faults {
    directory: PathBuf,
    code: AtomicU64,
    reads: AtomicU64,
}

/// The file that names faults, and the disks that may have some.
struct FaultFile {
    path: Option<PathBuf>,
    disks: Vec<Weak<Faults>>,
}

static FILE: Mutex<FaultFile> = Mutex::new(FaultFile {
    path: None,
    disks: Vec::new(),
});

/// Has faults on demand, named by this file, from now on. Starts a thread that looks at it every 10 ms: for a debug
/// switch, never for production.
///
/// # Errors
/// The thread could not be started.
pub fn set_file(path: PathBuf) -> std::io::Result<()> {
    FILE.lock().path = Some(path.clone());
    let look = move || {
        loop {
            #[expect(clippy::disallowed_methods, reason = "a thread of its own")]
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let mut file = FILE.lock();
            file.disks.retain(|disk| disk.strong_count() > 0);
            for disk in file.disks.iter().filter_map(Weak::upgrade) {
                disk.obey(&text);
            }
            drop(file);
            #[expect(clippy::disallowed_methods, reason = "a thread of its own")]
            std::thread::sleep(LOOK);
        }
    };
    let thread = std::thread::Builder::new().name("disk faults".to_owned());
    thread.spawn(look).map(drop)
}

impl Faults {
    pub(super) fn of(directory: &Path) -> Arc<Self> {
        let faults = Arc::new(Self {
            directory: directory.to_owned(),
            code: AtomicU64::new(0),
            reads: AtomicU64::new(0),
        });
        let mut file = FILE.lock();
        if file.path.is_some() {
            file.disks.push(Arc::downgrade(&faults));
        }
        faults
    }

    fn obey(&self, text: &str) {
        let own = text.lines().find_map(|line| {
            let rest = line
                .as_bytes()
                .strip_prefix(self.directory.as_os_str().as_bytes())?;
            let rest = std::str::from_utf8(rest).ok()?;
            rest.starts_with(' ').then(|| Fault::parse(rest))
        });
        let fault = own.unwrap_or(Fault::None);
        self.code.store(fault.code(), Relaxed);
    }

    pub(super) fn get(&self) -> Fault {
        match self.code.load(Relaxed) {
            0 => Fault::None,
            code => Fault::of_code(code),
        }
    }

    /// Waits as long as a disk that hangs, or takes as long as one that is slow.
    pub(super) fn wait(&self) {
        if let Fault::Slow(ms) = self.get() {
            #[expect(clippy::disallowed_methods, reason = "a thread of a pool")]
            std::thread::sleep(Duration::from_millis(ms));
        }
        while self.get() == Fault::Stall {
            #[expect(clippy::disallowed_methods, reason = "a thread of a pool")]
            std::thread::sleep(LOOK);
        }
    }

    /// The error that a call meets.
    pub(super) fn errno(&self, operation: Operation) -> Option<Errno> {
        let is_write = matches!(
            operation,
            Operation::Create
                | Operation::Write
                | Operation::Rename
                | Operation::Fsync
                | Operation::Other
        );
        match self.get() {
            Fault::Fail(of) if !is_write => {
                let number = self.reads.fetch_add(1, Relaxed);
                number.is_multiple_of(of).then_some(Errno::IO)
            }
            Fault::ReadOnly if is_write || operation == Operation::Unlink => Some(Errno::ROFS),
            Fault::Full if is_write => Some(Errno::NOSPC),
            _ => None,
        }
    }
}
