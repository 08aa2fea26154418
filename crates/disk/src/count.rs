//! Counters: per operation, how often the kernel's memory had the answer and how often a pool was asked.
//!
//! Each loop counts for itself in plain cells; a sum over loops is made from the copies that loops publish.

use std::cell::Cell;
use std::time::Duration;

/// The operations that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Operation {
    /// `open`.
    Open,
    /// `stat`.
    Stat,
    /// `read`.
    Read,
    /// Windows proven and sent.
    Send,
    /// `readdir`, create, rename, unlink, … (always a pool).
    Other,
}

/// Names for metrics, in the order of [`Operation`].
pub const OPERATIONS: [&str; 5] = ["open", "stat", "read", "send", "other"];

/// One operation's numbers since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Answered from memory, on the loop.
    pub memory: u64,
    /// Of those, answered by the descriptor cache.
    pub cached: u64,
    /// Handed to a pool.
    pub offloaded: u64,
    /// Refused because a pool's queue was full.
    pub overflowed: u64,
    /// Microseconds that callers waited for the pool, in sum.
    pub offloaded_us: u64,
}

/// The counters of one loop.
#[derive(Debug, Default)]
pub(crate) struct Counters([Cell<Count>; OPERATIONS.len()]);

impl Counters {
    pub fn memory(&self, operation: Operation) {
        self.change(operation, |count| count.memory += 1);
    }

    pub fn cached(&self, operation: Operation) {
        self.change(operation, |count| {
            count.memory += 1;
            count.cached += 1;
        });
    }

    pub fn offloaded(&self, operation: Operation, waited: Duration) {
        self.change(operation, |count| {
            count.offloaded += 1;
            count.offloaded_us += u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        });
    }

    pub fn overflowed(&self, operation: Operation) {
        self.change(operation, |count| count.overflowed += 1);
    }

    pub fn get(&self) -> [Count; OPERATIONS.len()] {
        std::array::from_fn(|index| self.0[index].get())
    }

    fn change(&self, operation: Operation, how: impl FnOnce(&mut Count)) {
        let cell = &self.0[operation as usize];
        let mut count = cell.get();
        how(&mut count);
        cell.set(count);
    }
}
