//! Probes: whether a disk answers, found out by a thread that may hang.
//!
//! A probe writes a file of its own, past the kernel's cache where the file system can do that, and reads it back. Where
//! it cannot be written, it is read. A disk that is a device beside a directory is asked after that: it has a page for
//! probes ([`PROBED_AT`]). Invariants: one probe of a disk at a time, apart from those that hang; of these
//! there are at most [`HUNG_MAX`].

use super::fault::{Fault, Faults};
use super::machine::{ProbeEnd, Trouble, WriteState};
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Maximum of threads that hang in probes of one disk.
pub const HUNG_MAX: u64 = 2;
/// Time after which a probe hangs.
pub const HANGS_AFTER: Duration = Duration::from_secs(5);
/// Bytes that a probe writes and reads: a page, which is a multiple of every disk's sector.
const BYTES: usize = 4096;
/// Where a device has the page that probes write and read, in bytes.
pub const PROBED_AT: u64 = 4096;

#[derive(Debug, Default)]
pub(super) struct Prober {
    shared: Arc<Shared>,
    running: Mutex<Option<Running>>,
    begun: AtomicU64,
}

#[derive(Debug, Default)]
struct Shared {
    /// Probes that hang.
    hung: AtomicU64,
    /// The file system (stat(2), st_dev) on which probes have found their folder; 0: none yet.
    file_system: AtomicU64,
}

#[derive(Debug)]
struct Running {
    since: Instant,
    slot: Arc<Slot>,
}

/// The place of one probe's end.
#[derive(Debug, Default)]
struct Slot(Mutex<Stage>);

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Runs,
    Ended(ProbeEnd),
    /// Given up: it counts as hung until it ends.
    Hung,
}

impl Prober {
    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Relaxed)
    }

    pub(super) fn hanging(&self) -> u64 {
        self.shared.hung.load(Relaxed)
    }

    /// Begins a probe, unless one runs or too many hang.
    pub(super) fn begin(
        &self,
        directory: &Path,
        device: Option<&Arc<OwnedFd>>,
        faults: &Arc<Faults>,
    ) {
        let mut running = self.running.lock();
        if running.is_some() || self.hanging() >= HUNG_MAX {
            return;
        }
        let slot = Arc::<Slot>::default();
        let path = directory.join(".freewheel/probe");
        let (shared, own, faults) = (
            Arc::clone(&self.shared),
            Arc::clone(&slot),
            Arc::clone(faults),
        );
        let device = device.map(Arc::clone);
        let run = move || {
            let end = match run(&path, device.as_deref(), &faults, &shared.file_system) {
                Ok(writing) => ProbeEnd::Read(writing),
                Err(errno) => ProbeEnd::of(errno),
            };
            let mut stage = own.0.lock();
            if matches!(*stage, Stage::Hung) {
                shared.hung.fetch_sub(1, Relaxed);
            }
            *stage = Stage::Ended(end);
        };
        let thread = std::thread::Builder::new().name("disk probe".to_owned());
        if thread.spawn(run).is_ok() {
            self.begun.fetch_add(1, Relaxed);
            *running = Some(Running {
                since: Instant::now(),
                slot,
            });
        }
    }

    /// The end of the probe that runs, once.
    pub(super) fn ended(&self) -> Option<ProbeEnd> {
        let mut running = self.running.lock();
        let own = running.as_ref()?;
        let mut stage = own.slot.0.lock();
        let end = match *stage {
            Stage::Ended(end) => end,
            _ if own.since.elapsed() < HANGS_AFTER => return None,
            _ => {
                self.shared.hung.fetch_add(1, Relaxed);
                *stage = Stage::Hung;
                ProbeEnd::Hangs
            }
        };
        drop(stage);
        *running = None;
        Some(end)
    }
}

/// Reads, and says whether it could write. **Waits.**
fn run(
    path: &Path,
    device: Option<&OwnedFd>,
    faults: &Faults,
    file_system: &AtomicU64,
) -> Result<WriteState, Errno> {
    faults.wait();
    let written = match faults.get() {
        // Every read fails.
        Fault::Fail(1) => return Err(Errno::IO),
        Fault::ReadOnly => Err(Errno::ROFS),
        Fault::Full => Err(Errno::NOSPC),
        _ => {
            let written = open_to_write(path, file_system).and_then(|file| write(&file, 0));
            written.and_then(|()| device.map_or(Ok(()), |device| write(device, PROBED_AT)))
        }
    };
    let writing = match written.map_err(|errno| (errno, Trouble::of(errno))) {
        Ok(()) => WriteState::Allowed,
        Err((_, Some(Trouble::Full))) => WriteState::Full,
        Err((_, Some(Trouble::ReadOnly))) => WriteState::ReadOnly,
        Err((errno, _)) => return Err(errno),
    };
    if let Some(device) = device {
        read(device, PROBED_AT)?;
    }
    match open(path, OFlags::RDONLY).and_then(|file| read(&file, 0)) {
        // It was never written; the directory has answered at least.
        Err(Errno::NOENT) if writing != WriteState::Allowed => Ok(writing),
        Err(errno) => Err(errno),
        Ok(()) => Ok(writing),
    }
}

/// Opens the file, and makes it where it is missing. In a directory that was emptied its folder is made, too; but on no
/// file system other than before: the directory of a disk that was unmounted is empty as well.
fn open_to_write(path: &Path, file_system: &AtomicU64) -> Result<OwnedFd, Errno> {
    let folder = path.parent().ok_or(Errno::NOENT)?;
    let directory = folder.parent().ok_or(Errno::NOENT)?;
    #[expect(clippy::disallowed_methods, reason = "a thread of its own")]
    match rustix::fs::stat(folder) {
        Ok(stat) => file_system.store(stat.st_dev, Relaxed),
        Err(Errno::NOENT) if rustix::fs::stat(directory)?.st_dev == file_system.load(Relaxed) => {
            rustix::fs::mkdir(folder, Mode::RWXU)?;
        }
        Err(errno) => return Err(errno),
    }
    open(path, OFlags::RDWR | OFlags::CREATE)
}

#[expect(clippy::disallowed_methods, reason = "a thread of its own")]
fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(path, flags | OFlags::DIRECT, mode) {
        // Not every file system can do without its cache.
        Err(Errno::INVAL) => rustix::fs::open(path, flags, mode),
        opened => opened,
    }
}

/// A buffer with room for an aligned page, and where that begins.
fn buffer() -> (Vec<u8>, usize) {
    let buffer = vec![0; 2 * BYTES];
    let at = buffer.as_ptr().align_offset(BYTES).min(BYTES);
    (buffer, at)
}

fn write(file: &OwnedFd, offset: u64) -> Result<(), Errno> {
    let (buffer, at) = buffer();
    rustix::io::pwrite(file, &buffer[at..at + BYTES], offset)?;
    rustix::fs::fdatasync(file)
}

fn read(file: &OwnedFd, offset: u64) -> Result<(), Errno> {
    let (mut buffer, at) = buffer();
    #[expect(clippy::disallowed_methods, reason = "a thread of its own")]
    rustix::io::pread(file, &mut buffer[at..at + BYTES], offset).map(drop)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_made_anew_on_the_same_file_system_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(".freewheel/probe");
        let folder = path.parent().unwrap();
        let faults = Faults::of(directory.path());
        let known = AtomicU64::new(0);
        let run = || run(&path, None, &faults, &known);
        assert_eq!(run(), Err(Errno::NOENT));
        std::fs::create_dir(folder).unwrap();
        assert_eq!(run(), Ok(WriteState::Allowed));
        std::fs::remove_dir_all(folder).unwrap();
        assert_eq!(run(), Ok(WriteState::Allowed));
        std::fs::remove_dir_all(folder).unwrap();
        known.fetch_add(1, Relaxed);
        assert_eq!(run(), Err(Errno::NOENT));
    }
}
