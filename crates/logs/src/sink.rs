//! The destinations of lines: a file (or a pipe, or the terminal), buffered or not, compressed or not; syslog; files
//! whose names depend on the request.
//!
//! Not here: the thread's loop, and the writing to a file (`file`). Invariant: only the log thread (and the master, which has none)
//! touches a file here, and so may hold its lock while a disk hangs; a descriptor is exchanged between two writes, never in the
//! middle of a line.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::error::ErrorLogs;
use super::file::{Buffer, Complaint, Descriptor, File};
use super::named::Named;
use super::syslog::{Head, Peer, Syslog};

/// A destination of lines, shared by all `access_log` and `error_log` lines that name it.
pub type Target = Arc<Sink>;

/// See the module.
#[derive(Debug)]
pub struct Sink {
    kind: Kind,
    /// Lines lost since the log last reported any.
    dropped: AtomicU64,
    /// The lists of the log thread that it is in.
    pub(super) lists: Lists,
}

/// Whether a target is in a list of the log thread, which alone asks: each is in a list once, without a search.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub dirty: Listed,
    pub held: Listed,
}

/// Whether a target is in one list.
#[derive(Debug, Default)]
pub(super) struct Listed(AtomicBool);

impl Listed {
    /// Changes it; returns what it was.
    pub(super) fn set(&self, is_in: bool) -> bool {
        self.0.swap(is_in, Ordering::Relaxed)
    }

    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
enum Kind {
    /// A file; without a path it is standard error.
    File {
        path: Option<PathBuf>,
        file: Mutex<File>,
    },
    Syslog(Syslog),
    Named(Named),
}

/// An order for the log thread beside writing.
#[derive(Debug)]
pub(super) enum Order {
    /// Write the gathered lines to the old descriptor, then continue with this one.
    Reopen {
        target: Target,
        descriptor: Arc<OwnedFd>,
        buffer: Option<Option<Buffer>>,
    },
    /// Write what has gathered, and from now on all lines at once: the configuration in force does not name this log, and only
    /// requests of older ones have lines for it.
    Leave { target: Target },
    /// Nothing: it is done.
    Done,
    /// Forget the open files of logs with variables in their names.
    ForgetNamed,
}

impl Sink {
    /// A file that is open for appending.
    #[must_use]
    pub fn file(
        path: &Path,
        descriptor: impl Into<Arc<OwnedFd>>,
        buffer: Option<Buffer>,
    ) -> Target {
        Self::with_file(Some(path), Descriptor::Own(descriptor.into()), buffer)
    }

    /// Standard error.
    #[must_use]
    pub fn stderr() -> Target {
        Self::with_file(None, Descriptor::Stderr(io::stderr()), None)
    }

    /// A syslog server.
    #[must_use]
    pub fn syslog(peer: &Peer) -> Target {
        Self::new(Kind::Syslog(Syslog::new(peer)))
    }

    /// Files whose names come with each line.
    #[must_use]
    pub(super) fn named(named: Named) -> Target {
        Self::new(Kind::Named(named))
    }

    /// The path of a log file; never waits for its disk.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.kind {
            Kind::File { path, .. } => path.as_deref(),
            _ => None,
        }
    }

    /// The header that a syslog message has in front of its line; `None`: the line ends in a newline instead.
    #[must_use]
    pub fn syslog_head(&self) -> Option<&Head> {
        match &self.kind {
            Kind::Syslog(syslog) => Some(&syslog.head),
            _ => None,
        }
    }

    /// The error logs that have what goes wrong with this target, where those are not the process's.
    pub(super) fn error_logs(&self) -> Option<&ErrorLogs> {
        match &self.kind {
            Kind::Named(named) => Some(&named.errors),
            _ => None,
        }
    }

    fn with_file(path: Option<&Path>, descriptor: Descriptor, buffer: Option<Buffer>) -> Target {
        Self::new(Kind::File {
            path: path.map(Path::to_owned),
            file: Mutex::new(File::new(descriptor, buffer)),
        })
    }

    fn new(kind: Kind) -> Target {
        Arc::new(Self {
            kind,
            dropped: AtomicU64::new(0),
            lists: Lists::default(),
        })
    }

    /// Holds up what writes to a file, as a disk does that hangs.
    #[cfg(test)]
    pub(super) fn hold(&self) -> parking_lot::MutexGuard<'_, File> {
        match &self.kind {
            Kind::File { file, .. } => file.lock(),
            _ => unreachable!("only a file is written"),
        }
    }

    pub(super) fn keeps_lines_apart(&self) -> bool {
        !matches!(self.kind, Kind::File { .. })
    }

    pub(super) fn count_dropped(&self, lines: u64) {
        self.dropped.fetch_add(lines, Ordering::Relaxed);
    }

    /// Number of lines lost since the last call.
    pub(super) fn take_dropped(&self) -> u64 {
        if self.dropped.load(Ordering::Relaxed) == 0 {
            0
        } else {
            self.dropped.swap(0, Ordering::Relaxed)
        }
    }

    /// Writes at once, in the calling thread.
    pub(super) fn write_now(&self, line: &[u8]) {
        match &self.kind {
            Kind::File { file, .. } => file.lock().write_now(line),
            // Nowhere to complain.
            Kind::Syslog(syslog) => drop(syslog.send(line)),
            Kind::Named(_) => {}
        }
    }

    /// Takes lines; writes them now or when `flush` is called.
    pub(super) fn append(
        &self,
        bytes: &[u8],
        lines: u32,
        names: (u16, u16),
    ) -> Result<(), Complaint> {
        match &self.kind {
            Kind::File { path, file } => file.lock().append(name(path), bytes, lines),
            Kind::Syslog(syslog) => syslog.send(bytes),
            Kind::Named(named) => named.write(bytes, names),
        }
    }

    /// Writes the gathered lines; of a buffered log, unless `all`, only if they are due.
    pub(super) fn flush(&self, all: bool) -> Result<(), Complaint> {
        match &self.kind {
            Kind::File { path, file } => file.lock().flush(name(path), all),
            _ => Ok(()),
        }
    }

    /// The latest time for the next call of `flush`.
    pub(super) fn due(&self) -> Option<Instant> {
        match &self.kind {
            Kind::File { file, .. } => file.lock().due(),
            _ => None,
        }
    }

    /// Whether lines have gathered.
    pub(super) fn holds_lines(&self) -> bool {
        match &self.kind {
            Kind::File { file, .. } => file.lock().holds_lines(),
            _ => false,
        }
    }

    /// Exchanges the descriptor; the gathered lines go to the old one.
    pub(super) fn reopen(
        &self,
        descriptor: Arc<OwnedFd>,
        buffer: Option<Option<Buffer>>,
    ) -> Result<(), Complaint> {
        let Kind::File { path, file } = &self.kind else {
            return Ok(());
        };
        file.lock().reopen(name(path), descriptor, buffer)
    }

    /// Writes the gathered lines, and from now on all at once: see [`Order::Leave`].
    pub(super) fn leave(&self) -> Result<(), Complaint> {
        match &self.kind {
            Kind::File { path, file } => file.lock().leave(name(path)),
            _ => Ok(()),
        }
    }

    pub(super) fn forget_named(&self) {
        if let Kind::Named(named) = &self.kind {
            named.forget();
        }
    }
}

/// The name of a log in a complaint.
fn name(path: &Option<PathBuf>) -> &Path {
    path.as_deref().unwrap_or(Path::new("stderr"))
}
