//! What was just proven of a file's windows, so that many who send the same hot file share one look at its page table.
//!
//! A look costs 3 µs per MiB, as much as sending a tenth of it. Whoever looked has then sent the pages, so the kernel has seen
//! them used; it does not evict such pages within a tick of its clock. Invariant: a proof holds for the tick in which it was
//! made (1 to 10 ms), and ends with the first look that finds a page missing.

use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::ops::RangeInclusive;

/// Windows of one file that are remembered; further ones take their places.
const SLOTS: usize = 16;

/// For one file of one loop: window and tick, by window modulo [`SLOTS`].
#[derive(Debug, Default)]
pub(crate) struct Proofs([Cell<(u64, u64)>; SLOTS]);

impl Proofs {
    /// Were all these windows proven in this tick?
    pub fn hold(&self, windows: RangeInclusive<u64>) -> bool {
        let now = tick();
        windows.clone().count() <= SLOTS
            && windows.into_iter().all(|w| self.slot(w).get() == (w, now))
    }

    /// They have just been looked at.
    pub fn learn(&self, windows: RangeInclusive<u64>, are_present: bool) {
        let tick = if are_present { tick() } else { 0 };
        for window in windows {
            self.slot(window).set((window, tick));
        }
    }

    fn slot(&self, window: u64) -> &Cell<(u64, u64)> {
        &self.0[window as usize % SLOTS]
    }
}

/// The kernel's coarse clock in nanoseconds: it moves once per tick, and is read in 5 ns. Never 0.
fn tick() -> u64 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    (time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_ends_with_its_tick_or_with_a_page_that_is_missing() {
        let proofs = Proofs::default();
        let hold_soon_after = |windows: RangeInclusive<u64>| {
            // A tick may end between the two calls, but not each time.
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
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(!proofs.hold(0..=3), "the tick is over");
    }
}
