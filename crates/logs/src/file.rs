//! One log file (or pipe, terminal, socket): the lines that gather for it, and how they are written.
//!
//! Not here: which lines (`sink`), and when (`thread`). Invariant: readers that read nothing hold up the other logs for
//! [`READER_WAIT`] in each [`READERS_PAUSE`] at most, however many they are; and a line that it has got in part is finished before the next one.

use std::cell::Cell;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::io::Errno;

use super::level::Level;

/// Maximum bytes that gather for a log without `buffer=`; its lines are written earlier when the thread has taken all.
const WRITE_BYTES: usize = 256 << 10;
/// Maximum time that one write waits for the reader of a pipe, terminal or socket. After that the log is stalled: nothing waits
/// for it, and lines beyond those that gather are dropped, until its reader has read what was begun.
const READER_WAIT: Duration = Duration::from_secs(1);
/// After a wait in vain, a thread waits for no reader for this long: several logs often have the same one.
const READERS_PAUSE: Duration = Duration::from_secs(10);
/// How often it is looked whether the reader of a stalled log reads again, where no line comes.
const STALLED_EVERY: Duration = Duration::from_secs(1);
/// Maximum bytes of a write to a pipe: so many go in whole once poll(2) says that it is writable (pipe(7), PIPE_BUF).
const PIECE_BYTES: usize = 4096;
/// Minimum interval between two complaints about a log that cannot be written (nginx: once a minute).
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);
/// Pause in writing after ENOSPC (nginx: to the end of the second).
const FULL_PAUSE: Duration = Duration::from_secs(1);

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

/// The failure of a write, for the error log.
#[derive(Debug)]
pub(super) struct Complaint {
    pub text: Vec<u8>,
    pub level: Level,
    /// Number of lines that it lost.
    pub lost: u64,
}

impl Complaint {
    /// Lines are lost, of which the log has told, or tells later.
    pub(super) fn silent(lost: u64) -> Self {
        Self {
            text: Vec::new(),
            level: Level::Alert,
            lost,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct File {
    descriptor: Descriptor,
    takes: Takes,
    buffer: Option<Buffer>,
    /// Whether the configuration names this log no more: nothing is buffered then.
    is_leaving: bool,
    gathered: Vec<u8>,
    lines: u64,
    /// What is left of lines that are being written, compressed where they are to be.
    begun: Vec<u8>,
    begun_lines: u64,
    stall: Option<Stall>,
    /// The time by which the gathered bytes must be written.
    due: Option<Instant>,
    failures: Failures,
}

/// Failures to write to a log, of which one a minute is told.
#[derive(Debug, Default)]
pub(super) struct Failures {
    paused: Option<Instant>,
    complained: Option<Instant>,
}

impl Failures {
    /// Whether the disk was full a moment ago, so that nothing is written.
    pub(super) fn is_paused(&self, now: Instant) -> bool {
        self.paused.is_some_and(|until| now < until)
    }

    /// Notes one; whether it is to be told.
    pub(super) fn note(&mut self, now: Instant, error: &io::Error) -> bool {
        let is_full = error.raw_os_error() == Some(libc::ENOSPC);
        self.paused = is_full.then_some(now + FULL_PAUSE);
        let is_told = self
            .complained
            .is_none_or(|last| now >= last + COMPLAIN_EVERY);
        if is_told {
            self.complained = Some(now);
        }
        is_told
    }
}

#[derive(Debug)]
pub(super) enum Descriptor {
    /// A file; who opened it may hold it, too.
    Own(Arc<OwnedFd>),
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

/// What takes the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// A disk: a write ends by itself.
    Disk,
    /// A reader, which may not read.
    Reader,
}

impl Takes {
    /// Of an open file.
    pub(super) fn of(descriptor: BorrowedFd<'_>) -> Self {
        let is_regular = rustix::fs::fstat(descriptor)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file());
        if is_regular { Self::Disk } else { Self::Reader }
    }
}

/// A reader that does not read.
#[derive(Debug, Default)]
struct Stall {
    /// Number of lines dropped meanwhile.
    dropped: u64,
}

impl File {
    pub(super) fn new(descriptor: Descriptor, buffer: Option<Buffer>) -> Self {
        Self {
            takes: Takes::of(descriptor.as_fd()),
            descriptor,
            buffer,
            is_leaving: false,
            gathered: Vec::new(),
            lines: 0,
            begun: Vec::new(),
            begun_lines: 0,
            stall: None,
            due: None,
            failures: Failures::default(),
        }
    }

    /// Writes a line at once, in the calling thread. What a reader does not take is lost.
    pub(super) fn write_now(&mut self, line: &[u8]) {
        let patience = patience(self.stall.is_some());
        let written = write_within(self.descriptor.as_fd(), self.takes, line, patience);
        self.stall = match written {
            Ok(count) if count < line.len() => Some(Stall::default()),
            // Nowhere to complain.
            _ => None,
        };
    }

    pub(super) fn append(
        &mut self,
        path: &Path,
        bytes: &[u8],
        lines: u32,
    ) -> Result<(), Complaint> {
        let size = self.buffer.map_or(WRITE_BYTES, |buffer| buffer.size);
        let mut result = Ok(());
        if self.gathered.len() + bytes.len() > size {
            result = self.write_gathered(path);
            if let Some(stall) = &mut self.stall {
                stall.dropped += u64::from(lines);
                return result.and(Err(Complaint::silent(lines.into())));
            }
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

    /// Writes the gathered lines; of a buffered log, unless `all`, only if they are due.
    pub(super) fn flush(&mut self, path: &Path, all: bool) -> Result<(), Complaint> {
        let due = self.due.is_some_and(|due| due <= Instant::now());
        if all || self.buffer.is_none() || self.is_leaving || due {
            self.write_gathered(path)
        } else {
            Ok(())
        }
    }

    /// Writes the gathered lines; from now on all are written at once: the configuration names this log no more.
    pub(super) fn leave(&mut self, path: &Path) -> Result<(), Complaint> {
        self.is_leaving = true;
        self.write_gathered(path)
    }

    /// Exchanges the descriptor; the gathered lines go to the old one.
    pub(super) fn reopen(
        &mut self,
        path: &Path,
        descriptor: Arc<OwnedFd>,
        buffer: Option<Option<Buffer>>,
    ) -> Result<(), Complaint> {
        let mut written = self.write_gathered(path);
        if self.holds_lines() && !is_same(self.descriptor.as_fd(), descriptor.as_fd()) {
            // The file that it was has a reader that does not read.
            let lost = self.forget();
            written = written.and(Err(Complaint::silent(lost)));
        }
        self.takes = Takes::of(descriptor.as_fd());
        self.descriptor = Descriptor::Own(descriptor);
        self.failures.paused = None;
        if let Some(buffer) = buffer {
            self.buffer = buffer;
            self.is_leaving = false;
        }
        written
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(super) fn holds_lines(&self) -> bool {
        !(self.gathered.is_empty() && self.begun.is_empty())
    }

    fn write_gathered(&mut self, path: &Path) -> Result<(), Complaint> {
        self.due = None;
        if !self.holds_lines() {
            return Ok(());
        }
        let now = Instant::now();
        if self.failures.is_paused(now) {
            return Err(Complaint::silent(self.forget()));
        }
        let written = self.write_begun().and_then(|done| {
            if !done {
                return Ok(false);
            }
            self.begin()?;
            self.write_begun()
        });
        match written {
            Ok(true) => match self.stall.take() {
                Some(stall) => Err(went_on(path, stall)),
                None => Ok(()),
            },
            Ok(false) => {
                self.due = Some(now + STALLED_EVERY);
                if self.stall.is_some() {
                    return Ok(());
                }
                self.stall = Some(Stall::default());
                let stalled = io::Error::from_raw_os_error(libc::EAGAIN);
                Err(self.complain(path, now, &stalled, 0))
            }
            Err(error) => {
                let lost = self.forget();
                Err(self.complain(path, now, &error, lost))
            }
        }
    }

    /// Takes the gathered lines to be written. With compression they are one gzip member, so that the file is valid at any moment.
    fn begin(&mut self) -> io::Result<()> {
        let gathered = std::mem::take(&mut self.gathered);
        self.begun_lines = std::mem::take(&mut self.lines);
        match self.buffer.and_then(|buffer| buffer.gzip) {
            Some(level) if !gathered.is_empty() => {
                let place = Vec::with_capacity(gathered.len() / 4);
                let mut encoder = GzEncoder::new(place, Compression::new(level.into()));
                encoder.write_all(&gathered)?;
                self.begun = encoder.finish()?;
                self.gathered = gathered;
                self.gathered.clear();
                self.gathered.shrink_to(WRITE_BYTES);
            }
            _ => self.gathered = std::mem::replace(&mut self.begun, gathered),
        }
        Ok(())
    }

    /// Writes what was begun; whether that is all of it.
    fn write_begun(&mut self) -> io::Result<bool> {
        if self.begun.is_empty() {
            return Ok(true);
        }
        let patience = patience(self.stall.is_some());
        let count = write_within(self.descriptor.as_fd(), self.takes, &self.begun, patience)?;
        self.begun.drain(..count);
        if self.begun.is_empty() {
            self.begun_lines = 0;
            self.begun.shrink_to(WRITE_BYTES);
        }
        Ok(self.begun.is_empty())
    }

    /// Drops all lines; returns their number.
    fn forget(&mut self) -> u64 {
        self.gathered.clear();
        self.begun.clear();
        self.stall = None;
        std::mem::take(&mut self.lines) + std::mem::take(&mut self.begun_lines)
    }

    fn complain(&mut self, path: &Path, now: Instant, error: &io::Error, lost: u64) -> Complaint {
        if !self.failures.note(now, error) {
            return Complaint::silent(lost);
        }
        let mut text = b"write() to \"".to_vec();
        text.extend_from_slice(path.as_os_str().as_bytes());
        text.extend_from_slice(b"\" failed");
        super::append_os_error(&mut text, error);
        if self.stall.is_some() {
            text.extend_from_slice(b": its reader does not read, lines are dropped until it does");
        }
        Complaint {
            text,
            level: Level::Alert,
            lost,
        }
    }
}

/// The end of a stall, which is told of like a complaint.
fn went_on(path: &Path, stall: Stall) -> Complaint {
    let mut text = b"\"".to_vec();
    text.extend_from_slice(path.as_os_str().as_bytes());
    text.extend_from_slice(b"\" takes lines again, ");
    text.extend_from_slice(stall.dropped.to_string().as_bytes());
    text.extend_from_slice(b" were dropped");
    Complaint {
        text,
        level: Level::Warn,
        lost: 0,
    }
}

fn is_same(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    match (rustix::fs::fstat(one), rustix::fs::fstat(other)) {
        (Ok(one), Ok(other)) => (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino),
        _ => false,
    }
}

thread_local! {
    /// The end of the pause after a wait in vain.
    static PAUSE: Cell<Option<Instant>> = const { Cell::new(None) };
    /// Number of waits in vain.
    #[cfg(test)]
    static WAITS: Cell<usize> = const { Cell::new(0) };
}

/// How long a write may wait for its reader.
pub(super) fn patience(is_stalled: bool) -> Duration {
    let is_pause = || PAUSE.get().is_some_and(|until| Instant::now() < until);
    if is_stalled || is_pause() {
        Duration::ZERO
    } else {
        READER_WAIT
    }
}

/// A reader has not read for all this time.
fn note_wait(patience: Duration) {
    if !patience.is_zero() {
        PAUSE.set(Some(Instant::now() + READERS_PAUSE));
        #[cfg(test)]
        WAITS.set(WAITS.get() + 1);
    }
}

/// Writes bytes, and returns their number. It is smaller only where a reader has not taken all of them in this time.
pub(super) fn write_within(
    descriptor: BorrowedFd<'_>,
    takes: Takes,
    bytes: &[u8],
    patience: Duration,
) -> io::Result<usize> {
    let start = Instant::now();
    let mut written = 0;
    while written < bytes.len() {
        let rest = &bytes[written..];
        let piece = match takes {
            Takes::Disk => rest,
            // Where another process writes to the same pipe between the two calls, and it is not open for writing without
            // waiting (O_NONBLOCK would be that process's, too), the write waits all the same.
            Takes::Reader if is_writable(descriptor, patience.saturating_sub(start.elapsed()))? => {
                piece_of(rest)
            }
            Takes::Reader => break,
        };
        match rustix::io::write(descriptor, piece) {
            Ok(count) => written += count,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if start.elapsed() < patience => {}
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error.into()),
        }
    }
    if written < bytes.len() {
        note_wait(patience);
    }
    Ok(written)
}

/// The first of these bytes that a writable pipe takes whole: whole lines, so that those of several processes stay apart.
fn piece_of(bytes: &[u8]) -> &[u8] {
    let Some(piece) = bytes.get(..PIECE_BYTES) else {
        return bytes;
    };
    match memchr::memrchr(b'\n', piece) {
        Some(last) => &piece[..=last],
        None => piece,
    }
}

fn is_writable(descriptor: BorrowedFd<'_>, patience: Duration) -> io::Result<bool> {
    let mut events = [PollFd::from_borrowed_fd(descriptor, PollFlags::OUT)];
    let timeout = Timespec::try_from(patience).ok();
    loop {
        match poll(&mut events, timeout.as_ref()) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_readers_that_do_not_read_are_waited_for_once() {
        let lines = vec![b'\n'; 100 << 10];
        let (_readers, logs): (Vec<_>, Vec<_>) = (0..5)
            .map(|_| {
                let (reader, writer) = std::io::pipe().unwrap();
                (reader, Descriptor::Own(Arc::new(writer.into())))
            })
            .unzip();
        for descriptor in logs {
            let mut file = File::new(descriptor, None);
            file.append(Path::new("pipe"), &lines, 1).unwrap();
            let complaint = file.flush(Path::new("pipe"), true).unwrap_err();
            assert!(complaint.text.ends_with(b"lines are dropped until it does"));
        }
        assert_eq!(WAITS.get(), 1);
    }
}
