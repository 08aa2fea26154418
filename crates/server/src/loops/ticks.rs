//! How late a tick of one millisecond is served: reckoned from a loop's turns, for a timer that ran would wake loops that have nothing
//! to do.
//!
//! A tick that falls into a turn is served at its end, one that falls into the loop's sleep at once. What the kernel takes to give a loop
//! that is awake its processor is not in it: `event_loop_blocked` and the polls themselves have that.

use disk::figures::Histogram;

/// Between two ticks, in nanoseconds.
const TICK_NS: u64 = 1_000_000;
/// Ticks of one turn that are reckoned each for itself; those before, in a turn that took longer than this, count as the first of these.
const EACH_MAX: u64 = 10_000;

/// Counts the ticks since `began`: from there to `ended` the loop was at work, from there to `now` it slept.
pub(super) fn count(late: &Histogram, began: u64, ended: u64, now: u64) {
    let (first, last) = (began / TICK_NS + 1, ended / TICK_NS);
    if first <= last {
        let each = first.max(last.saturating_sub(EACH_MAX - 1));
        late.record_many(ended - each * TICK_NS, each - first);
        for tick in each..=last {
            late.record_many(ended - tick * TICK_NS, 1);
        }
    }
    late.record_many(0, (now / TICK_NS).saturating_sub(last.max(first - 1)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = TICK_NS;

    /// How many ticks, and the sum of what they were late, in milliseconds.
    fn counted(began: u64, ended: u64, now: u64) -> (u64, f64) {
        let late = Histogram::default();
        count(&late, began, ended, now);
        let times = late.times();
        (times.count(), times.sum_ns() as f64 / MS as f64)
    }

    #[test]
    fn ticks_of_a_turn_are_late_by_what_is_left_of_it_and_others_are_not() {
        let at = 5 * MS + MS / 2;
        assert_eq!(
            counted(at, at + MS / 4, at + MS / 4),
            (0, 0.0),
            "no tick came"
        );
        assert_eq!(counted(at, at + MS / 4, at + 3 * MS), (3, 0.0), "it slept");
        assert_eq!(counted(at, at + 3 * MS, at + 3 * MS), (3, 0.5 + 1.5 + 2.5));
        assert_eq!(counted(at, at + MS, at + 2 * MS), (2, 0.5));
    }

    #[test]
    fn every_tick_counts_once() {
        let times = [
            0,
            3 * MS / 4,
            MS,
            2 * MS + 1,
            9 * MS,
            9 * MS,
            40_000 * MS + 7,
        ];
        let mut all = 0;
        for turn in times.windows(2) {
            let middle = (turn[0] + turn[1]) / 2;
            all += counted(turn[0], middle, turn[1]).0;
        }
        assert_eq!(all, 40_000);
    }
}
