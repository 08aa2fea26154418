//! Loops that do not come back from a poll: each of their connections waits, new ones among them, and the figures of
//! polls show nothing before the poll has ended.
//!
//! Not here: polls that took long ([`crate::metrics::stalls`]). Invariant: lines about one poll are bounded: at `LONG`,
//! then each `AGAIN`.

use std::collections::HashMap;
use std::time::Duration;

use logs::process_log::{Level, error_log};

use super::ledger::Ledger;
use crate::timing::poll_timing::now_ns;

/// Duration from which on a poll is told of while it goes on.
const LONG: Duration = Duration::from_secs(5);
/// Interval between two lines about the same poll.
const AGAIN: Duration = Duration::from_secs(60);

/// What the log was told of the polls of each loop.
#[derive(Debug, Default)]
pub struct HeldLoops {
    /// By the slot of the loop, of which a worker has as many as it had loops at a time: when the poll began, and when it
    /// was last told of, in nanoseconds of CLOCK_MONOTONIC.
    told: HashMap<usize, (u64, u64)>,
}

impl HeldLoops {
    /// Looks at all loops that run, and logs those that are held. To be called about once a second, from no loop.
    pub fn look(&mut self, ledger: &Ledger) {
        let now = now_ns();
        for entry in ledger.entries().iter().filter(|entry| entry.is_alive()) {
            let figures = &entry.figures;
            if let Some(took) = self.due(figures.slot, figures.began_ns.get(), now) {
                error_log(
                    Level::Alert,
                    format_args!(
                        "event loop {} has been in one step for {:.0} s, its connections wait meanwhile",
                        figures.index,
                        took.as_secs_f64()
                    ),
                );
            }
        }
    }

    /// The duration so far of a poll that is to be told of now. `began`: 0 while there is none.
    fn due(&mut self, slot: usize, began: u64, now: u64) -> Option<Duration> {
        let took = Duration::from_nanos(now.saturating_sub(began));
        if began == 0 || took < LONG {
            return None;
        }
        let is_again = |at: u64| Duration::from_nanos(now.saturating_sub(at)) >= AGAIN;
        if let Some(&(poll, at)) = self.told.get(&slot)
            && poll == began
            && !is_again(at)
        {
            return None;
        }
        self.told.insert(slot, (began, now));
        Some(took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_long_poll_is_told_of_once_a_minute() {
        let mut held = HeldLoops::default();
        assert_eq!(held.due(0, 0, 100 * S), None, "none runs");
        assert_eq!(held.due(0, 97 * S, 100 * S), None);
        assert_eq!(held.due(0, 97 * S, 102 * S), Some(LONG));
        assert_eq!(held.due(0, 97 * S, 103 * S), None);
        assert_eq!(held.due(1, 97 * S, 103 * S), Some(Duration::from_secs(6)));
        assert_eq!(held.due(0, 97 * S, 161 * S), None);
        assert_eq!(held.due(0, 97 * S, 162 * S), Some(Duration::from_secs(65)));
        assert_eq!(held.due(0, 163 * S, 168 * S), Some(LONG), "another poll");
    }
}
