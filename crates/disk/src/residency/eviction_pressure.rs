//! Eviction pressure: whether the disks are read so fast that cached pages do not live long.
//!
//! In the long run each page that is read replaces another. So on average a page lives as long as it takes to read as
//! much as there is memory; any page that has been unused for that long may be the next to go. Computed from the reads
//! of this process (other programs evict pages, too, but a server with slow disks is the one that reads), and from the
//! memory that its control group allows it.
//!
//! Invariant: a query costs a loop one reading of the coarse clock, and every [`SAMPLE_NS`] one call that never waits.

use crate::files::residency_memo::now_ns;
use crate::memory::limits::{self, Groups};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The lifetime of a page, in seconds, below which it may be evicted between its proof and its use. (With 1 second,
/// every other run of `bench/mixed` saw that once or twice.)
const LIFE_MIN_S: u64 = 10;
/// Nanoseconds between two samples, at least.
const SAMPLE_NS: u64 = 100_000_000;
/// How long the pressure stays high after a sample says so, in nanoseconds.
const LASTS_NS: u64 = 1_000_000_000;
/// Bytes of a block as getrusage(2) counts them.
const BLOCK: u64 = 512;

/// Samples the rate of reads and compares it with the size of memory.
#[derive(Debug)]
pub(crate) struct EvictionPressure {
    /// Bytes of memory that files may be cached in.
    memory: u64,
    /// The time of the last sample, and the blocks that had been read by then.
    sampled_ns: AtomicU64,
    blocks: AtomicU64,
    is_sampling: AtomicBool,
    /// The end of the current high pressure; past or 0: it is not high.
    until_ns: AtomicU64,
}

impl EvictionPressure {
    /// Reads the memory limits, so it must be called before the loops run.
    pub(crate) fn new() -> EvictionPressure {
        EvictionPressure {
            memory: memory(),
            sampled_ns: AtomicU64::new(now_ns()),
            blocks: AtomicU64::new(sys::blocks_read_by_all()),
            is_sampling: AtomicBool::new(false),
            until_ns: AtomicU64::new(0),
        }
    }

    /// Does an unused page live for less than [`LIFE_MIN_S`]?
    pub(crate) fn is_high(&self) -> bool {
        let now = now_ns();
        if now.saturating_sub(self.sampled_ns.load(Relaxed)) >= SAMPLE_NS
            && !self.is_sampling.swap(true, Relaxed)
        {
            self.sample(now, sys::blocks_read_by_all());
            self.is_sampling.store(false, Relaxed);
        }
        now < self.until_ns.load(Relaxed)
    }

    fn sample(&self, now: u64, blocks: u64) {
        let took_ns = now.saturating_sub(self.sampled_ns.swap(now, Relaxed));
        let read = blocks.saturating_sub(self.blocks.swap(blocks, Relaxed)) * BLOCK;
        // read per time * life >= memory
        let read_in_life = u128::from(read) * u128::from(LIFE_MIN_S * 1_000_000_000);
        if read_in_life >= u128::from(self.memory) * u128::from(took_ns.max(1)) {
            self.until_ns.store(now + LASTS_NS, Relaxed);
        }
    }
}

/// Bytes of memory that this process may have files cached in.
fn memory() -> u64 {
    limits::least_for_files(&Groups::of(Path::new("/proc")))
}

#[cfg(test)]
impl EvictionPressure {
    /// Makes it high from now on.
    pub(crate) fn hold_high(&self) {
        self.until_ns.store(u64::MAX, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn it_is_high_while_memory_is_read_full_in_ten_seconds() {
        let pressure = EvictionPressure {
            memory: 1000 * BLOCK,
            sampled_ns: AtomicU64::new(100 * SECOND),
            blocks: AtomicU64::new(5000),
            is_sampling: AtomicBool::new(false),
            until_ns: AtomicU64::new(0),
        };
        let until = |now, blocks| {
            pressure.sample(now, blocks);
            pressure.until_ns.load(Relaxed)
        };
        assert_eq!(until(101 * SECOND, 5099), 0);
        assert_eq!(until(102 * SECOND, 5199), 102 * SECOND + LASTS_NS);
        let half = 102 * SECOND + SECOND / 2;
        assert_eq!(until(half, 5248), 102 * SECOND + LASTS_NS, "not renewed");
        assert_eq!(until(103 * SECOND, 5298), 103 * SECOND + LASTS_NS);
        assert_eq!(until(103 * SECOND, 5298), 103 * SECOND + LASTS_NS);
    }

    #[test]
    fn without_reads_there_is_no_pressure() {
        let pressure = EvictionPressure::new();
        assert!(pressure.memory > 0);
        assert!(!pressure.is_high());
    }
}
