//! The memory that this process takes beside the kernel's cache: what bounds it, who holds it, how scarce it is.
//!
//! * [`limits`]: the least of all bounds (control groups, the process's own, the machine).
//! * [`accounts`]: who holds how much, counted by each thread for itself; [`charge`] is how others have their memory counted.
//! * [`level`]: how scarce memory is, and so what is given up; set by one thread, read by all.
//! * [`cgroup`]: what the control group says of its memory.
//!
//! Not here: the thread that watches, and those who give up what they hold (each its own). Invariant: nobody waits for anybody here; to
//! be counted costs a thread a store to memory of its own.

pub mod accounts;
pub mod cgroup;
pub mod level;
pub mod limits;

pub use accounts::{Charge, Holder, charge};
pub use level::Level;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// What is a copy of something that the kernel has in its cache takes at most this part of the budget, whatever the number of loops.
pub const COPIES_SHARE: u64 = 8;
/// Answers that wait for a cache's disk take at most this part of the budget.
pub const UNSAVED_SHARE: u64 = 16;
/// Buffers that stand in for `sendfile` take at most this part of the budget, those that are read into as much.
pub const BUFFERS_SHARE: u64 = 8;
/// What files that are kept open take is at most this part of the budget, whatever the number of loops.
pub const FILES_SHARE: u64 = 16;
/// What a file takes that is kept open, in bytes: ours, and with what the kernel cannot give up meanwhile (its inode, its name, the descriptor),
/// as `bench/small` shows them.
pub(crate) const FILE_BYTES: usize = 1 << 10;
const FILE_BYTES_IN_ALL: u64 = 3 << 10;
/// Answers that are ready to be sent take at most this part of the budget, those of files as much as those of caches.
const ANSWERS_SHARE: u64 = 64;
/// What a ready answer takes, in bytes: a head, a key, and what is known of the entry.
pub const ANSWER_BYTES: usize = 2 << 10;
/// With a smaller budget memory is tight: it is not spent for a few percent of processor time. In bytes.
const TIGHT: u64 = 192 << 20;
/// A part of a limit is the budget that `auto` means: the rest is for the kernel's cache, and its own memory.
const AUTO: (u64, u64) = (3, 4);

/// Bytes; until somebody says so there is no budget.
static BUDGET: AtomicU64 = AtomicU64::new(u64::MAX);
/// Loops that keep copies and files.
static LOOPS: AtomicUsize = AtomicUsize::new(0);

/// The budget that follows from a limit, where nobody has set one.
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

/// Is there so little that none is spent to save processor time?
#[must_use]
pub fn is_tight(budget: u64) -> bool {
    budget < TIGHT
}

/// One loop's part of what copies may take.
pub(crate) fn copies_of_a_loop() -> u64 {
    budget() / COPIES_SHARE / loops() as u64
}

/// Files that one loop may keep open now, by what they take.
pub(crate) fn files_of_a_loop() -> usize {
    if level::level() >= Level::Files {
        return 0;
    }
    let files = budget() / FILES_SHARE / FILE_BYTES_IN_ALL / loops() as u64;
    usize::try_from(files).unwrap_or(usize::MAX)
}

/// Answers of one kind that one loop may have ready.
#[must_use]
pub fn answers_of_a_loop() -> usize {
    let answers = budget() / ANSWERS_SHARE / ANSWER_BYTES as u64 / loops() as u64;
    usize::try_from(answers).unwrap_or(usize::MAX)
}

/// Loops that keep copies and files.
pub(crate) fn loops() -> usize {
    LOOPS.load(Relaxed).max(1)
}

/// One loop's part of what buffers may take that it reads into.
#[must_use]
pub fn buffers_of_a_loop() -> u64 {
    budget() / BUFFERS_SHARE / loops() as u64
}

/// Stands for a loop that keeps copies and files.
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
