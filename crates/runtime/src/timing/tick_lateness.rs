//! How late a tick of one millisecond is served. It is reckoned from a loop's iterations, since a real timer would wake
//! loops that have nothing to do.
//!
//! A tick that falls into an iteration is served at its end; further ticks in the same iteration are skipped, as a late
//! timer does. A tick that falls into the loop's sleep is served at once. The time until the kernel gives an awake loop
//! its processor is not included: `event_loop_blocked` and the polls themselves have it.

use disk::metrics::Histogram;

/// Between two ticks, in nanoseconds.
const TICK_NS: u64 = 1_000_000;

/// The last tick up to `now`.
pub(super) fn last(now: u64) -> u64 {
    now / TICK_NS
}

/// Counts the ticks after the tick `before`, the last one counted: the loop was at work up to `ended`, and slept from
/// there to `now`. Returns the last tick.
pub(super) fn count(late: &Histogram, before: u64, ended: u64, now: u64) -> u64 {
    let (at_work, all) = (last(ended), last(now));
    if before < at_work {
        late.record(ended - (before + 1) * TICK_NS);
    }
    let asleep = all.saturating_sub(at_work.max(before));
    if asleep > 0 {
        late.record_none(asleep);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = TICK_NS;

    /// Number of ticks, and the sum of their lateness in milliseconds.
    fn counted(began: u64, ended: u64, now: u64) -> (u64, f64) {
        let late = Histogram::default();
        assert_eq!(count(&late, last(began), ended, now), last(now));
        let times = late.times();
        (times.count(), times.sum_ns() as f64 / MS as f64)
    }

    #[test]
    fn a_tick_of_a_turn_is_late_by_what_is_left_of_it() {
        let at = 5 * MS + MS / 2;
        assert_eq!(counted(at, at + MS / 4, at + MS / 4), (0, 0.0), "none came");
        assert_eq!(counted(at, at + MS, at + MS), (1, 0.5));
        let long = counted(at, at + 3 * MS, at + 3 * MS);
        assert_eq!(long, (1, 2.5), "the others are skipped");
    }

    #[test]
    fn ticks_of_a_sleep_are_served_at_once() {
        let at = 5 * MS + MS / 2;
        assert_eq!(counted(at, at + MS / 4, at + 3 * MS), (3, 0.0));
        assert_eq!(counted(at, at + MS, at + 3 * MS), (3, 0.5));
        assert_eq!(counted(6 * MS, 6 * MS, 6 * MS), (0, 0.0));
    }
}
