//! Counters by operation: answers from the kernel's memory, and jobs for a pool.
//!
//! Not here: durations of the calls in pools (`call_times`). Invariant: each loop counts in memory of its own, which it
//! alone writes; readers add up.

use crate::metrics::{ARE_COUNTED, Number};
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
    /// Sends of windows.
    Send,
    /// Files made (always in a pool, as are all that follow).
    Create,
    /// `write`.
    Write,
    /// `rename`.
    Rename,
    /// `unlink`.
    Unlink,
    /// Directories read.
    Readdir,
    /// `fdatasync`.
    Fsync,
    /// Jobs of several of these, and everything else.
    Other,
}

/// Names for metrics, in the order of [`Operation`].
pub const OPERATIONS: [&str; 11] = [
    "open", "stat", "read", "send", "create", "write", "rename", "unlink", "readdir", "fsync",
    "other",
];

/// One operation's counts since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationCount {
    /// Answered from memory, on the loop.
    pub memory: u64,
    /// Of those, answered by a table of kept files.
    pub cached: u64,
    /// Handed to a pool.
    pub offloaded: u64,
    /// Refused because a pool's queue was full.
    pub overflowed: u64,
    /// Nanoseconds that callers waited for the pool, in total.
    pub offloaded_ns: u64,
}

impl OperationCount {
    /// Adds the counts of another loop.
    pub(crate) fn add(&mut self, other: OperationCount) {
        self.memory += other.memory;
        self.cached += other.cached;
        self.offloaded += other.offloaded;
        self.overflowed += other.overflowed;
        self.offloaded_ns = self.offloaded_ns.wrapping_add(other.offloaded_ns);
    }
}

/// One operation's counters.
#[derive(Debug, Default)]
struct OperationCounters {
    memory: Number,
    cached: Number,
    offloaded: Number,
    overflowed: Number,
    offloaded_ns: Number,
}

/// How long a request has waited for pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitTimes {
    /// For operations in pools, from request to result, in nanoseconds.
    pub disk_ns: u64,
    /// For a pool thread to start a job, in nanoseconds.
    pub pool_ns: u64,
}

impl WaitTimes {
    /// The sum of two.
    #[must_use]
    pub(crate) fn plus(self, other: WaitTimes) -> WaitTimes {
        WaitTimes {
            disk_ns: self.disk_ns.wrapping_add(other.disk_ns),
            pool_ns: self.pool_ns.wrapping_add(other.pool_ns),
        }
    }
}

thread_local! {
    static LAST: Cell<Option<Operation>> = const { Cell::new(None) };
    static WAITED: Cell<WaitTimes> = const { Cell::new(WaitTimes { disk_ns: 0, pool_ns: 0 }) };
}

/// The last operation that this thread answered from memory since [`forget_last_operation`]; empty: none.
#[must_use]
pub fn last_operation() -> &'static str {
    LAST.get()
        .map_or("", |operation| OPERATIONS[operation as usize])
}

/// Resets [`last_operation`]: the thread turns to another task.
#[inline]
pub fn forget_last_operation() {
    LAST.set(None);
}

/// How long this thread's current request has waited so far.
#[must_use]
pub fn waited() -> WaitTimes {
    WAITED.get()
}

/// Sets how long this thread's current request has waited: the thread turns to another one.
#[inline]
pub fn set_waited(waited: WaitTimes) {
    WAITED.set(waited);
}

/// Adds to the waits of this thread's current request.
pub(crate) fn add_waited(disk: Duration, pool: Duration) {
    let ns = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    WAITED.set(WAITED.get().plus(WaitTimes {
        disk_ns: ns(disk),
        pool_ns: ns(pool),
    }));
}

/// The counters of one loop.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct LoopCounters {
    operations: [OperationCounters; OPERATIONS.len()],
}

impl LoopCounters {
    pub(crate) fn memory(&self, operation: Operation) {
        if ARE_COUNTED {
            LAST.set(Some(operation));
        }
        self.operations[operation as usize].memory.add(1);
    }

    pub(crate) fn cached(&self, operation: Operation) {
        self.memory(operation);
        self.operations[operation as usize].cached.add(1);
    }

    pub(crate) fn offloaded(&self, operation: Operation, waited: Duration) {
        let ns = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        let counters = &self.operations[operation as usize];
        counters.offloaded.add(1);
        counters.offloaded_ns.add(ns);
        add_waited(waited, Duration::ZERO);
    }

    pub(crate) fn overflowed(&self, operation: Operation) {
        self.operations[operation as usize].overflowed.add(1);
    }

    pub(crate) fn get(&self) -> [OperationCount; OPERATIONS.len()] {
        std::array::from_fn(|index| {
            let counters = &self.operations[index];
            OperationCount {
                memory: counters.memory.get(),
                cached: counters.cached.get(),
                offloaded: counters.offloaded.get(),
                overflowed: counters.overflowed.get(),
                offloaded_ns: counters.offloaded_ns.get(),
            }
        })
    }
}
