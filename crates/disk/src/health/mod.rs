//! Whether a disk is well: what its jobs tell of it, and what follows from that.
//!
//! A [`DiskHealth`](crate::DiskHealth) is one disk's: of a directory, say. A [`Pool`](crate::Pool) that was made
//! [for it](crate::Pool::for_disk) has its jobs counted and timed there, and refuses them at once while the disk is
//! out: so nothing is queued behind threads that hang. Something has to call
//! [`tick`](crate::DiskHealth::tick) every [`TICK`].
//!
//! * `machine`: the states, and what moves them.
//! * `disk_health`: the counters, and the history.
//! * `probe`: reads and writes of our own, in a thread that may hang.
//! * `fault`: faults on demand, for tests.
//!
//! Not here: what callers do instead of asking the disk. Invariant: a healthy disk costs a few relaxed atomics for each
//! job of a pool, and nothing for what is in memory.

pub(crate) mod disk_health;
pub(crate) mod fault;
pub(crate) mod machine;
mod probe;
#[cfg(test)]
mod tests;

pub use disk_health::{HEDGE_MIN, HISTORY_MAX, HealthCounts, READ_PATIENCE};
pub use fault::set_file as set_fault_file;
pub use machine::{
    FAILING_ERRORS, FAILING_QUIET, OUT_ERRORS, PROBE_FIRST, PROBE_MAX, PROBES_GOOD,
    PROBES_GOOD_MAX, RELAPSE, SLOW_MIN, SLOW_READS, STALL_MAX, STALL_MIN, TICK, WRITE_STALL,
};
pub use probe::{HANGS_AFTER, HUNG_MAX, PROBED_AT};
