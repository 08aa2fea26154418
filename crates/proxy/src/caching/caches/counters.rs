//! Counters of a cache: how many requests were answered in which way.
//!
//! Invariant: whatever every request counts, each loop counts in a cache line of its own.

use crate::state::cache_state::{STATUSES, Status};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Cache lines for the loops; with more loops, some share one.
const LINES: usize = 64;

/// One loop's counters, in a cache line of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line(AtomicU64);

/// The counters of one cache.
#[derive(Debug)]
pub struct Tally {
    hits: Box<[Line]>,
    by_status: [AtomicU64; STATUSES.len()],
    passed: AtomicU64,
    followed: AtomicU64,
    unsaved: AtomicU64,
    /// Until then no fill waits for its turn, in milliseconds of the monotonic clock.
    distrusted_until: AtomicU64,
}

/// Milliseconds for which no fill waits for its turn to be written, after one has waited in vain.
const DISTRUST_MS: u64 = 5000;

impl Default for Tally {
    fn default() -> Self {
        Self {
            hits: std::iter::repeat_with(Line::default).take(LINES).collect(),
            by_status: std::array::from_fn(|_| AtomicU64::new(0)),
            passed: AtomicU64::new(0),
            followed: AtomicU64::new(0),
            unsaved: AtomicU64::new(0),
            distrusted_until: AtomicU64::new(0),
        }
    }
}

impl Tally {
    /// Counts a response that this loop gave.
    pub fn count(&self, status: Status, loop_index: usize) {
        match status {
            Status::Hit => &self.hits[loop_index % LINES].0,
            other => &self.by_status[other as usize],
        }
        .fetch_add(1, Relaxed);
    }

    /// Counts a response that was to be stored and is passed on unstored, since the disk is behind.
    pub fn pass(&self) {
        self.passed.fetch_add(1, Relaxed);
    }

    /// Counts a request that follows another's fill.
    pub fn follow(&self) {
        self.followed.fetch_add(1, Relaxed);
    }

    /// Requests that followed another's fill.
    #[must_use]
    pub fn followed(&self) -> u64 {
        self.followed.load(Relaxed)
    }

    /// Adds bytes that have arrived and are to be written.
    pub fn begin_saving(&self, bytes: u64) {
        self.unsaved.fetch_add(bytes, Relaxed);
    }

    /// Subtracts bytes that were written or given up.
    pub fn end_saving(&self, bytes: u64) {
        self.unsaved.fetch_sub(bytes, Relaxed);
    }

    /// Bytes that wait to be written.
    #[must_use]
    pub fn unsaved(&self) -> u64 {
        self.unsaved.load(Relaxed)
    }

    /// Whether it is worth waiting for the disk.
    #[must_use]
    pub fn is_disk_trusted(&self, now_ms: u64) -> bool {
        self.distrusted_until.load(Relaxed) <= now_ms
    }

    /// Records that a fill waited for the disk in vain.
    pub fn distrust_disk(&self, now_ms: u64) {
        self.distrusted_until.store(now_ms + DISTRUST_MS, Relaxed);
    }

    /// Number of responses with this status so far.
    #[must_use]
    pub fn of(&self, status: Status) -> u64 {
        if status == Status::Hit {
            return self.hits.iter().map(|line| line.0.load(Relaxed)).sum();
        }
        self.by_status[status as usize].load(Relaxed)
    }

    /// Number of responses passed on unstored.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.passed.load(Relaxed)
    }
}
