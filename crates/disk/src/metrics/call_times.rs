//! Durations of the system calls that may wait for a disk, by operation and by disk.
//!
//! Measured where the call is made, on a pool thread, for the whole process. Not here: answers from memory
//! (`metrics::counters`). Invariant: only time in the kernel counts, not the wait for a thread.

use crate::metrics::Number;
use crate::metrics::counters::{OPERATIONS, Operation};
use crate::metrics::histogram::{Histogram, Times};
use parking_lot::RwLock;
use rustix::io::Errno;
use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// Disks with measurements of their own; calls on further ones count for their operation only.
pub const DISKS_MAX: usize = 64;

/// The measurements of one operation.
#[derive(Clone, Debug)]
pub struct OperationCalls {
    /// Its name.
    pub operation: &'static str,
    /// How long its calls took.
    pub took: Times,
    /// Calls that failed because of the disk (EIO, ENOSPC, …); a missing file is no such failure.
    pub errors: u64,
}

/// The measurements of one disk.
#[derive(Clone, Debug)]
pub struct DiskCalls {
    /// Its number, as stat(2) gives it.
    pub device: u64,
    /// How long reads took: of files opened, read and sent.
    pub reads: Times,
    /// How long writes took.
    pub writes: Times,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Calls that failed because of the disk.
    pub errors: u64,
}

#[derive(Debug, Default)]
struct OfOperation {
    took: Histogram,
    errors: Number,
}

#[derive(Debug)]
struct OfDisk {
    device: u64,
    reads: Histogram,
    writes: Histogram,
    read_bytes: Number,
    written_bytes: Number,
    errors: Number,
}

static OPERATION_CALLS: LazyLock<[OfOperation; OPERATIONS.len()]> = LazyLock::new(Default::default);
static DISK_CALLS: RwLock<Vec<Arc<OfDisk>>> = RwLock::new(Vec::new());

/// What is told of the calls that a thread makes for a job.
pub(crate) trait CallWatch {
    /// Called before one; an error takes its place (for tests).
    fn before(&self, operation: Operation) -> Option<Errno>;
    /// Called after one.
    fn done(&self, errno: Option<Errno>);
    /// Called where a call of many parts has come a part further.
    fn step(&self);
}

thread_local! {
    static WATCH: RefCell<Option<Box<dyn CallWatch>>> = const { RefCell::new(None) };
}

/// Does work whose calls are watched.
pub(crate) fn watched<R>(watch: Box<dyn CallWatch>, work: impl FnOnce() -> R) -> R {
    /// Ends it also when the work panics.
    struct Ends(Option<Box<dyn CallWatch>>);
    impl Drop for Ends {
        fn drop(&mut self) {
            WATCH.set(self.0.take());
        }
    }
    let _ends = Ends(WATCH.replace(Some(watch)));
    work()
}

/// The error that a test wants in the place of a call.
pub(crate) fn fault(operation: Operation) -> Option<Errno> {
    WATCH.with_borrow(|watch| watch.as_ref()?.before(operation))
}

/// Says that a call of many parts has come to this part, at one part in `each`.
pub(crate) fn step(part: usize, each: usize) {
    if part.is_multiple_of(each) {
        WATCH.with_borrow(|watch| {
            if let Some(watch) = watch {
                watch.step();
            }
        });
    }
}

fn make<T, E: HasErrno>(operation: Operation, call: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    match fault(operation) {
        None => call(),
        Some(errno) => Err(E::of(errno)),
    }
}

/// Makes a call and measures it.
pub(crate) fn timed<T, E: HasErrno>(
    operation: Operation,
    call: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let begun = Instant::now();
    let result = make(operation, call);
    let errno = result.as_ref().err().and_then(HasErrno::errno);
    done(operation, begun.elapsed(), None, 0, errno);
    result
}

/// Makes a call on an open file and measures it; `bytes` returns how many were moved.
pub(crate) fn timed_on<T, E: HasErrno>(
    operation: Operation,
    fd: BorrowedFd<'_>,
    bytes: impl FnOnce(&T) -> u64,
    call: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let begun = Instant::now();
    let result = make(operation, call);
    let moved = result.as_ref().map_or(0, bytes);
    let errno = result.as_ref().err().and_then(HasErrno::errno);
    done_on(operation, begun, fd, moved, errno);
    result
}

/// Makes a call that opens a file and measures it; `device_and_bytes` returns the file's disk and how many bytes were
/// read.
pub(crate) fn timed_open<T, E: HasErrno>(
    operation: Operation,
    device_and_bytes: impl FnOnce(&T) -> (u64, u64),
    open: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let begun = Instant::now();
    let result = make(operation, open);
    let took = begun.elapsed();
    let found = result.as_ref().ok().map(device_and_bytes);
    let errno = result.as_ref().err().and_then(HasErrno::errno);
    let bytes = found.map_or(0, |(_, bytes)| bytes);
    done(
        operation,
        took,
        found.map(|(device, _)| device),
        bytes,
        errno,
    );
    result
}

/// Records a call that was made on an open file.
pub(crate) fn done_on(
    operation: Operation,
    begun: Instant,
    fd: BorrowedFd<'_>,
    bytes: u64,
    errno: Option<Errno>,
) {
    let took = begun.elapsed();
    let device = rustix::fs::fstat(fd).ok().map(|stat| stat.st_dev);
    done(operation, took, device, bytes, errno);
}

/// Records a call that was made.
fn done(
    operation: Operation,
    took: Duration,
    device: Option<u64>,
    bytes: u64,
    errno: Option<Errno>,
) {
    WATCH.with_borrow(|watch| {
        if let Some(watch) = watch {
            watch.done(errno);
        }
    });
    let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
    let is_trouble = errno.is_some_and(is_trouble);
    let calls = &OPERATION_CALLS[operation as usize];
    calls.took.record_shared(ns);
    calls.errors.add_shared(u64::from(is_trouble));
    let Some(disk) = device.and_then(disk) else {
        return;
    };
    disk.errors.add_shared(u64::from(is_trouble));
    match operation {
        Operation::Write | Operation::Fsync => {
            disk.writes.record_shared(ns);
            disk.written_bytes.add_shared(bytes);
        }
        _ => {
            disk.reads.record_shared(ns);
            disk.read_bytes.add_shared(bytes);
        }
    }
}

fn disk(device: u64) -> Option<Arc<OfDisk>> {
    let find = |disks: &[Arc<OfDisk>]| disks.iter().find(|disk| disk.device == device).cloned();
    if let Some(known) = find(&DISK_CALLS.read()) {
        return Some(known);
    }
    let mut disks = DISK_CALLS.write();
    if let Some(known) = find(&disks) {
        return Some(known);
    }
    if disks.len() == DISKS_MAX {
        return None;
    }
    let new = Arc::new(OfDisk {
        device,
        reads: Histogram::default(),
        writes: Histogram::default(),
        read_bytes: Number::default(),
        written_bytes: Number::default(),
        errors: Number::default(),
    });
    disks.push(Arc::clone(&new));
    Some(new)
}

/// Does this error come from the disk, and not from the request?
fn is_trouble(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::IO
            | Errno::NOSPC
            | Errno::DQUOT
            | Errno::ROFS
            | Errno::NODEV
            | Errno::NXIO
            | Errno::UCLEAN
            | Errno::TIMEDOUT
            | Errno::NOTCONN
            | Errno::REMOTEIO
    )
}

/// An error that may come from the kernel.
pub(crate) trait HasErrno {
    /// The error of a call that failed with this number.
    fn of(errno: Errno) -> Self;
    /// The kernel's error number, if it does.
    fn errno(&self) -> Option<Errno>;
}

impl HasErrno for Errno {
    fn of(errno: Errno) -> Self {
        errno
    }

    fn errno(&self) -> Option<Errno> {
        Some(*self)
    }
}

/// The measurements of each operation.
#[must_use]
pub fn operations() -> Vec<OperationCalls> {
    let all = OPERATIONS.iter().zip(&*OPERATION_CALLS);
    all.map(|(operation, calls)| OperationCalls {
        operation,
        took: calls.took.times(),
        errors: calls.errors.get(),
    })
    .collect()
}

/// The measurements of each disk.
#[must_use]
pub fn disks() -> Vec<DiskCalls> {
    let copy = |disk: &Arc<OfDisk>| DiskCalls {
        device: disk.device,
        reads: disk.reads.times(),
        writes: disk.writes.times(),
        read_bytes: disk.read_bytes.get(),
        written_bytes: disk.written_bytes.get(),
        errors: disk.errors.get(),
    };
    DISK_CALLS.read().iter().map(copy).collect()
}
