//! The memory of this process outside the kernel's cache: its limits, its holders, and how scarce it is.
//!
//! * [`limits`]: the least of all limits (control groups, the process, the machine).
//! * [`accounts`]: bytes by holder, counted by each thread for itself; [`charge`] counts memory.
//! * [`level`]: how scarce memory is, and so what is given up; set by one thread, read by all.
//! * [`cgroup`]: how much of a control group's memory is taken.
//! * [`unwritten`]: how much of it may wait to be on a disk.
//!
//! Not here: the thread that watches, and the code that gives memory up (each holder has its own). Invariant: nothing
//! here waits; counting costs a thread a store to memory of its own.

pub mod accounts;
pub mod cgroup;
pub mod level;
pub mod limits;
pub mod unwritten;

pub use accounts::{BoundedCharge, Charge, Holder, Total, charge};
pub use level::MemoryLevel;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Copies of files that are in the kernel's cache take at most one part in this many of the budget, whatever the number
/// of loops.
pub const COPIES_SHARE: u64 = 8;
/// The same where memory is tight: a program beside this one finds the more room before the kernel kills the largest.
const COPIES_SHARE_TIGHT: u64 = 32;
/// Responses that wait for a cache's disk take at most one part in this many of the budget.
pub const UNSAVED_SHARE: u64 = 16;
/// Buffers that stand in for `sendfile` take at most one part in this many of the budget, and so do buffers that are
/// read into, and large pieces that were read into memory of their own.
pub const BUFFERS_SHARE: u64 = 8;
/// Kept files take at most one part in this many of the budget, whatever the number of loops.
pub const FILES_SHARE: u64 = 16;
/// Bytes of a kept file: our own, and all, with what the kernel cannot reclaim meanwhile (inode, dentry, descriptor),
/// as measured by `bench/small`.
pub(crate) const FILE_BYTES: usize = 1 << 10;
const FILE_BYTES_IN_ALL: u64 = 3 << 10;
/// Prepared responses take at most one part in this many of the budget, those of files and those of caches each.
const ANSWERS_SHARE: u64 = 64;
/// Bytes of a prepared response: a head, a key, and the entry's metadata.
pub const ANSWER_BYTES: usize = 2 << 10;
/// Small entries of caches' segments, with their decoded heads and copies, take at most one part in this many of the budget.
const ENTRIES_SHARE: u64 = 32;
/// Bytes of a budget below which memory is tight: none is then spent to save a few percent of CPU time.
const TIGHT: u64 = 192 << 20;
/// The fraction of the limit that is the budget `auto`: the rest is for the kernel's cache, and the kernel's own
/// memory.
const AUTO: (u64, u64) = (3, 4);

/// The budget in bytes; no budget until it is set.
static BUDGET: AtomicU64 = AtomicU64::new(u64::MAX);
/// Loops that keep copies and files.
static LOOPS: AtomicUsize = AtomicUsize::new(0);

/// The budget for a limit, where none is configured.
#[must_use]
pub fn of_limit(limit: u64) -> u64 {
    limit / AUTO.1 * AUTO.0
}

/// Sets the budget, in bytes.
pub fn set_budget(bytes: u64) {
    BUDGET.store(bytes, Relaxed);
}

/// The budget in bytes; `u64::MAX`: there is none.
#[must_use]
pub fn budget() -> u64 {
    BUDGET.load(Relaxed)
}

/// Is the budget so small that no memory is spent to save CPU time?
#[must_use]
pub fn is_tight(budget: u64) -> bool {
    budget < TIGHT
}

/// Bytes of copies that one loop may keep.
pub(crate) fn copies_of_a_loop() -> u64 {
    copies_of(budget()) / loops() as u64
}

fn copies_of(budget: u64) -> u64 {
    let share = match is_tight(budget) {
        true => COPIES_SHARE_TIGHT,
        false => COPIES_SHARE,
    };
    budget / share
}

/// Files that one loop may keep open now, by their memory.
pub(crate) fn files_of_a_loop() -> usize {
    if level::level() >= MemoryLevel::Files {
        return 0;
    }
    let files = files_of(budget()) / loops() as u64;
    usize::try_from(files).unwrap_or(usize::MAX)
}

/// Files that all loops together may keep open, by their memory.
#[must_use]
pub fn files_of(budget: u64) -> u64 {
    budget / FILES_SHARE / FILE_BYTES_IN_ALL
}

/// Prepared responses of one kind that one loop may keep.
#[must_use]
pub fn answers_of_a_loop() -> usize {
    let answers = budget() / ANSWERS_SHARE / ANSWER_BYTES as u64 / loops() as u64;
    usize::try_from(answers).unwrap_or(usize::MAX)
}

/// Bytes of small entries of segments that one loop may keep.
#[must_use]
pub fn entries_of_a_loop() -> u64 {
    budget() / ENTRIES_SHARE / loops() as u64
}

/// Loops that keep copies and files.
pub(crate) fn loops() -> usize {
    LOOPS.load(Relaxed).max(1)
}

/// Bytes of read buffers that one loop may have.
#[must_use]
pub fn buffers_of_a_loop() -> u64 {
    budget() / BUFFERS_SHARE / loops() as u64
}

/// Registers a loop that keeps copies and files, while it lives.
#[derive(Debug)]
pub(crate) struct Keeps(());

impl Keeps {
    pub(crate) fn begin() -> Keeps {
        LOOPS.fetch_add(1, Relaxed);
        Keeps(())
    }
}

impl Drop for Keeps {
    fn drop(&mut self) {
        LOOPS.fetch_sub(1, Relaxed);
    }
}
