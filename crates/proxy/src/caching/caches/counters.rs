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
pub struct CacheCounters {
    hits: Box<[Line]>,
    by_status: [AtomicU64; STATUSES.len()],
    passed: AtomicU64,
    past_disk: AtomicU64,
    taken_over: AtomicU64,
    broken_off: AtomicU64,
    followed: AtomicU64,
}

impl Default for CacheCounters {
    fn default() -> Self {
        Self {
            hits: std::iter::repeat_with(Line::default).take(LINES).collect(),
            by_status: std::array::from_fn(|_| AtomicU64::new(0)),
            passed: AtomicU64::new(0),
            past_disk: AtomicU64::new(0),
            taken_over: AtomicU64::new(0),
            broken_off: AtomicU64::new(0),
            followed: AtomicU64::new(0),
        }
    }
}

impl CacheCounters {
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

    /// Counts a request that is answered past the disk: that is out, fails or takes too long.
    pub fn pass_disk(&self) {
        self.past_disk.fetch_add(1, Relaxed);
    }

    /// Requests answered past the disk.
    #[must_use]
    pub fn past_disk(&self) -> u64 {
        self.past_disk.load(Relaxed)
    }

    /// Counts a response whose disk failed in its middle; `is_taken_over`: the origin has given the rest.
    pub fn take_over(&self, is_taken_over: bool) {
        match is_taken_over {
            true => &self.taken_over,
            false => &self.broken_off,
        }
        .fetch_add(1, Relaxed);
    }

    /// Responses whose disk failed in their middle: those whose rest the origin has given, and those whose rest it has
    /// not.
    #[must_use]
    pub fn taken_over(&self) -> (u64, u64) {
        (self.taken_over.load(Relaxed), self.broken_off.load(Relaxed))
    }

    /// Responses with any status so far.
    #[must_use]
    pub fn all(&self) -> u64 {
        STATUSES.iter().map(|status| self.of(*status)).sum()
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
