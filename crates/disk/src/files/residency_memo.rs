//! The latest residency proofs of a file's windows, so that requests for the same hot file share one scan of its pages.
//!
//! A scan costs 3 µs per MiB, as much as sending a tenth of it. Scanned pages are sent next, so the kernel has seen a
//! use of them and does not evict them within milliseconds. Invariant: a proof holds for [`HOLDS_NS`], or until a scan
//! finds a page missing.

use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::ops::RangeInclusive;

/// How long a proof holds, in nanoseconds (plus a tick of the kernel's clock, 1 to 10 ms).
pub(crate) const HOLDS_NS: u64 = 10_000_000;
/// Windows remembered per file; further ones overwrite them.
const SLOTS: usize = 16;

/// The proofs for one file of one loop.
#[derive(Debug, Default)]
pub(crate) struct ResidencyMemo {
    /// Window and time of the proof, by window modulo [`SLOTS`].
    windows: [Cell<(u64, u64)>; SLOTS],
    /// The range that was asked for last where no whole windows are, and the time of its proof.
    range: Cell<(u64, u64, u64)>,
}

impl ResidencyMemo {
    /// Were all these windows proven just now?
    pub(crate) fn hold(&self, windows: RangeInclusive<u64>) -> bool {
        let since = now_ns().saturating_sub(HOLDS_NS);
        windows.clone().count() <= SLOTS
            && windows.into_iter().all(|window| {
                let (known, at) = self.slot(window).get();
                known == window && at >= since && at > 0
            })
    }

    /// Was this range proven just now, as a part of the last one?
    pub(crate) fn hold_range(&self, offset: u64, end: u64) -> bool {
        let (first, last, at) = self.range.get();
        first <= offset && end <= last && at > 0 && at >= now_ns().saturating_sub(HOLDS_NS)
    }

    /// Records the proof of a range.
    pub(crate) fn learn_range(&self, offset: u64, end: u64) {
        self.range.set((offset, end, now_ns()));
    }

    /// Were all these windows proven, however long ago, at the last look at them?
    pub(crate) fn remember(&self, mut windows: RangeInclusive<u64>) -> bool {
        windows.all(|window| {
            let (known, at) = self.slot(window).get();
            known == window && at > 0
        })
    }

    /// Records the result of a scan.
    pub(crate) fn learn(&self, windows: RangeInclusive<u64>, are_present: bool) {
        let at = if are_present { now_ns() } else { 0 };
        if !are_present {
            self.range.take();
        }
        for window in windows {
            self.slot(window).set((window, at));
        }
    }

    fn slot(&self, window: u64) -> &Cell<(u64, u64)> {
        &self.windows[window as usize % SLOTS]
    }
}

/// The kernel's coarse monotonic clock, in nanoseconds: it moves once per tick and is read in 5 ns. Never 0.
pub(crate) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    (time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_range_is_proven_for_its_parts() {
        let proofs = ResidencyMemo::default();
        assert!(!proofs.hold_range(0, 0), "nothing was looked at");
        let holds = |offset, end| {
            (0..100).any(|_| {
                proofs.learn_range(4096, 9000);
                proofs.hold_range(offset, end)
            })
        };
        assert!(holds(4096, 9000) && holds(5000, 6000));
        assert!(!holds(4095, 6000) && !holds(5000, 9001));
    }

    #[test]
    fn a_proof_ends_soon_or_with_a_page_that_is_missing() {
        let proofs = ResidencyMemo::default();
        let hold_soon_after = |windows: RangeInclusive<u64>| {
            // This thread may lose its turn between the two calls, but not each time.
            (0..100).any(|_| {
                proofs.learn(0..=3, true);
                proofs.hold(windows.clone())
            })
        };
        assert!(hold_soon_after(0..=3));
        assert!(hold_soon_after(2..=2));
        assert!(!hold_soon_after(2..=4), "one was not looked at");
        assert!(!hold_soon_after(16..=17), "others in the same places");
        proofs.learn(0..=3, true);
        proofs.learn(1..=1, false);
        assert!(!proofs.hold(0..=3));
        proofs.learn(0..=3, true);
        #[expect(clippy::disallowed_methods, reason = "a test")]
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!proofs.hold(0..=3), "it was long ago");
        assert!(proofs.remember(2..=3));
        assert!(!proofs.remember(3..=4));
        proofs.learn(3..=3, false);
        assert!(!proofs.remember(2..=3));
    }
}
