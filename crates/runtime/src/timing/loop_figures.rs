//! The counters of one loop.
//!
//! Invariant: only the loop's thread writes them; it never waits for a reader.

use std::sync::Arc;

use disk::metrics::{Histogram, Number};
use parking_lot::Mutex;
use slots::SharedTable;

use super::Kind;
use super::counters::{COUNTERS_MAX, Counters};
use crate::metrics::stalls::Stalls;

/// The figures of one loop, in memory of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct LoopFigures {
    /// The loop's number.
    pub index: usize,
    /// Its slot among all loops that ever ran, shared with no other running loop.
    pub slot: usize,
    /// The list for polls that took too long.
    pub stalls: Arc<Stalls>,
    /// `event_loop_blocked`: from the moment the loop got an event to the start of the poll that it is for.
    pub blocked: Histogram,
    /// Durations of polls.
    pub polls: Histogram,
    /// Start of the poll that runs now, in nanoseconds of CLOCK_MONOTONIC; 0: none runs.
    pub began_ns: Number,
    /// Lateness of ticks of a millisecond.
    pub ticks: Histogram,
    /// Connections that its sockets accepted.
    pub accepted: Number,
    /// Requests that began.
    pub requests: Number,
    /// Connections that read or answer a request now.
    pub in_exchange: Number,
    /// Connections that answer a request now, a part of `in_exchange`.
    pub answering: Number,
    /// The longest poll, in nanoseconds.
    pub longest_ns: Number,
    /// The kind of task of the longest poll; locked only when there is a longer one.
    pub longest: Mutex<Option<Kind>>,
    /// Time that the loop was ready without a processor.
    pub unserved: Mutex<Unserved>,
    /// Counters of modules, by type.
    pub(super) modules: SharedTable<COUNTERS_MAX>,
}

impl LoopFigures {
    /// Those of a new loop; the slot is that of no other one.
    #[must_use]
    pub fn new(index: usize, slot: usize, stalls: Arc<Stalls>) -> Self {
        Self {
            index,
            slot,
            stalls,
            ..Self::default()
        }
    }

    /// A module's counters, made at the first use.
    #[inline]
    pub fn of<T: Counters>(&self) -> &T {
        self.modules.get_or_init(T::default)
    }

    /// The same, for a holder that outlives the borrow.
    #[must_use]
    pub fn share<T: Counters>(&self) -> Arc<T> {
        self.modules.share_or_init(T::default)
    }

    /// A module's counters, if it has counted.
    #[must_use]
    pub(super) fn if_any<T: Counters>(&self) -> Option<Arc<T>> {
        self.modules.get::<T>().map(|_| self.share())
    }
}

/// Time that the threads of a loop were ready without a processor, as the kernel counts it; read when figures are
/// gathered.
#[derive(Debug, Default)]
pub struct Unserved {
    thread: Option<i32>,
    /// The sum of earlier threads, if the kernel reported any.
    before_ns: Option<u64>,
    /// The last value of this thread.
    own_ns: Option<u64>,
}

impl Unserved {
    /// This thread is the loop's from now on.
    pub fn begin(&mut self, thread: i32) {
        self.before_ns = self.told_ns();
        self.own_ns = None;
        self.thread = Some(thread);
    }

    /// The sum in nanoseconds, with the value of `look` for a thread that still runs; `None`: the kernel does not tell.
    pub fn sum_ns(&mut self, look: impl FnOnce(i32) -> Option<u64>) -> Option<u64> {
        let seen = self.thread.and_then(look);
        // What ends at the same time may be seen no more.
        self.own_ns = self.own_ns.max(seen);
        self.told_ns()
    }

    fn told_ns(&self) -> Option<u64> {
        let own_ns = self.own_ns.or(self.before_ns.map(|_| 0))?;
        Some(self.before_ns.unwrap_or(0) + own_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_loop_has_waited_goes_on_with_the_next_thread() {
        let mut unserved = Unserved::default();
        assert_eq!(unserved.sum_ns(|_| Some(9)), None, "there is no thread");
        unserved.begin(1);
        assert_eq!(unserved.sum_ns(|_| None), None, "it is not told");
        assert_eq!(unserved.sum_ns(|_| Some(5)), Some(5));
        assert_eq!(unserved.sum_ns(|_| None), Some(5), "it has ended");
        unserved.begin(2);
        assert_eq!(unserved.sum_ns(|_| None), Some(5), "the next one begins");
        assert_eq!(unserved.sum_ns(|_| Some(3)), Some(8));
    }
}
