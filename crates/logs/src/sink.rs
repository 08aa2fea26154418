//! The destinations of lines: a file (or a pipe, or the terminal), buffered or not, compressed or not; syslog; files
//! whose names depend on the request.
//!
//! Not the thread's loop. Invariant: only the log thread (and the master, which has none) touches a file here; a
//! descriptor is exchanged between two writes, never in the middle of a line.

use std::io;
use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::Mutex;

use super::named::Named;
use super::syslog::{Head, Peer, Syslog};

/// Maximum bytes that gather for a log without `buffer=`; its lines are written earlier when the thread has taken all.
const WRITE_BYTES: usize = 256 << 10;
/// Maximum time in seconds to wait for a pipe or terminal that takes no bytes, before its lines are dropped.
const PIPE_WAIT_S: i64 = 1;
/// Minimum interval between two complaints about a log that cannot be written (nginx: once a minute).
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);
/// Pause in writing after ENOSPC (nginx: to the end of the second).
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// A destination of lines, shared by all `access_log` and `error_log` lines that name it.
pub type Target = Arc<Sink>;

/// `buffer=`, `flush=` and `gzip=` of an access log; they belong to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffer {
    /// Bytes that gather before they are written.
    pub size: usize,
    /// Maximum time that the oldest line waits.
    pub flush: Option<Duration>,
    /// Compression level 1 to 9.
    pub gzip: Option<u8>,
}

/// See the module.
#[derive(Debug)]
pub struct Sink {
    kind: Kind,
    /// Lines lost since the log last reported any.
    dropped: AtomicU64,
}

#[derive(Debug)]
enum Kind {
    File { path: PathBuf, file: Mutex<File> },
    Syslog(Syslog),
    Named(Named),
}

/// An order for the log thread beside writing.
#[derive(Debug)]
pub(super) enum Order {
    /// Write the gathered lines to the old descriptor, then continue with this one.
    Reopen {
        target: Target,
        descriptor: OwnedFd,
        buffer: Option<Option<Buffer>>,
    },
    /// Nothing: it is done.
    Done,
    /// Forget the open files of logs with variables in their names.
    ForgetNamed,
}

/// The failure of a write, for the error log.
#[derive(Debug)]
pub(super) struct Complaint {
    pub text: Vec<u8>,
    pub level: super::Level,
    /// Number of lines that it lost.
    pub lost: u64,
}

#[derive(Debug)]
struct File {
    descriptor: Descriptor,
    buffer: Option<Buffer>,
    gathered: Vec<u8>,
    lines: u64,
    /// The time by which the gathered bytes must be written.
    due: Option<Instant>,
    paused: Option<Instant>,
    complained: Option<Instant>,
}

#[derive(Debug)]
enum Descriptor {
    Own(OwnedFd),
    Stderr(io::Stderr),
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(descriptor) => descriptor.as_fd(),
            Self::Stderr(stderr) => stderr.as_fd(),
        }
    }
}

impl Sink {
    /// A file that is open for appending.
    #[must_use]
    pub fn file(path: &Path, descriptor: OwnedFd, buffer: Option<Buffer>) -> Target {
        Self::with_file(path, Descriptor::Own(descriptor), buffer)
    }

    /// Standard error.
    #[must_use]
    pub fn stderr() -> Target {
        Self::with_file(Path::new(""), Descriptor::Stderr(io::stderr()), None)
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

    /// The path of a log file.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.kind {
            Kind::File { path, file } if matches!(file.lock().descriptor, Descriptor::Own(_)) => {
                Some(path)
            }
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

    fn with_file(path: &Path, descriptor: Descriptor, buffer: Option<Buffer>) -> Target {
        let file = File {
            descriptor,
            buffer,
            gathered: Vec::new(),
            lines: 0,
            due: None,
            paused: None,
            complained: None,
        };
        Self::new(Kind::File {
            path: path.to_owned(),
            file: Mutex::new(file),
        })
    }

    fn new(kind: Kind) -> Target {
        Arc::new(Self {
            kind,
            dropped: AtomicU64::new(0),
        })
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
            // Nowhere to complain.
            Kind::File { file, .. } => drop(write_all(file.lock().descriptor.as_fd(), line)),
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
            Kind::File { path, file } => file.lock().append(path, bytes, lines),
            Kind::Syslog(syslog) => syslog.send(bytes),
            Kind::Named(named) => named.write(bytes, names),
        }
    }

    /// Writes the gathered lines; of a buffered log, unless `all`, only if they are due.
    pub(super) fn flush(&self, all: bool) -> Result<(), Complaint> {
        match &self.kind {
            Kind::File { path, file } => {
                let mut file = file.lock();
                let due = file.due.is_some_and(|due| due <= Instant::now());
                if all || file.buffer.is_none() || due {
                    file.write_gathered(path)
                } else {
                    Ok(())
                }
            }
            _ => Ok(()),
        }
    }

    /// The latest time for the next call of `flush`.
    pub(super) fn due(&self) -> Option<Instant> {
        match &self.kind {
            Kind::File { file, .. } => file.lock().due,
            _ => None,
        }
    }

    /// Whether lines have gathered.
    pub(super) fn holds_lines(&self) -> bool {
        match &self.kind {
            Kind::File { file, .. } => !file.lock().gathered.is_empty(),
            _ => false,
        }
    }

    /// Exchanges the descriptor; the gathered lines go to the old one.
    pub(super) fn reopen(
        &self,
        descriptor: OwnedFd,
        buffer: Option<Option<Buffer>>,
    ) -> Result<(), Complaint> {
        let Kind::File { path, file } = &self.kind else {
            return Ok(());
        };
        let mut file = file.lock();
        let written = file.write_gathered(path);
        file.descriptor = Descriptor::Own(descriptor);
        file.paused = None;
        if let Some(buffer) = buffer {
            file.buffer = buffer;
        }
        written
    }

    pub(super) fn forget_named(&self) {
        if let Kind::Named(named) = &self.kind {
            named.forget();
        }
    }
}

impl File {
    fn append(&mut self, path: &Path, bytes: &[u8], lines: u32) -> Result<(), Complaint> {
        let size = self.buffer.map_or(WRITE_BYTES, |buffer| buffer.size);
        let mut result = Ok(());
        if self.gathered.len() + bytes.len() > size {
            result = self.write_gathered(path);
        }
        self.gathered.extend_from_slice(bytes);
        self.lines += u64::from(lines);
        if self.gathered.len() >= size {
            return result.and(self.write_gathered(path));
        }
        if self.due.is_none() {
            self.due = self
                .buffer
                .and_then(|buffer| buffer.flush)
                .map(|flush| Instant::now() + flush);
        }
        result
    }

    fn write_gathered(&mut self, path: &Path) -> Result<(), Complaint> {
        self.due = None;
        if self.gathered.is_empty() {
            return Ok(());
        }
        let lost = std::mem::take(&mut self.lines);
        let now = Instant::now();
        if self.paused.is_some_and(|until| now < until) {
            self.gathered.clear();
            return Err(Complaint {
                text: Vec::new(),
                level: super::Level::Alert,
                lost,
            });
        }
        let written = match self.buffer.and_then(|buffer| buffer.gzip) {
            Some(level) => write_gzip(self.descriptor.as_fd(), &self.gathered, level),
            None => write_all(self.descriptor.as_fd(), &self.gathered),
        };
        self.gathered.clear();
        self.gathered.shrink_to(WRITE_BYTES);
        written.map_err(|error| {
            self.paused = (error.raw_os_error() == Some(libc::ENOSPC)).then_some(now + FULL_PAUSE);
            let silent = self
                .complained
                .is_some_and(|last| now < last + COMPLAIN_EVERY);
            let mut text = Vec::new();
            if !silent {
                self.complained = Some(now);
                text.extend_from_slice(b"write() to \"");
                text.extend_from_slice(path.as_os_str().as_bytes());
                text.extend_from_slice(b"\" failed");
                super::append_os_error(&mut text, &error);
            }
            Complaint {
                text,
                level: super::Level::Alert,
                lost,
            }
        })
    }
}

/// Writes all bytes, waiting for a pipe's reader [`PIPE_WAIT_S`] at a time.
pub(super) fn write_all(descriptor: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(descriptor, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => wait_writable(descriptor)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn wait_writable(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let timeout = Timespec {
        tv_sec: PIPE_WAIT_S,
        tv_nsec: 0,
    };
    match poll(
        &mut [PollFd::from_borrowed_fd(descriptor, PollFlags::OUT)],
        Some(&timeout),
    ) {
        Ok(0) => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// One gzip member per write, so that the file is valid at any moment.
fn write_gzip(descriptor: BorrowedFd<'_>, bytes: &[u8], level: u8) -> io::Result<()> {
    let mut encoder = GzEncoder::new(
        Vec::with_capacity(bytes.len() / 4),
        Compression::new(level.into()),
    );
    encoder.write_all(bytes)?;
    write_all(descriptor, &encoder.finish()?)
}
