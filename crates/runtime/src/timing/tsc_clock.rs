//! A monotonic clock read from the TSC and re-anchored to CLOCK_MONOTONIC once per loop iteration. It takes a fifth of
//! the instructions and a third of the time of `clock_gettime`.
//!
//! A loop reads the kernel's clock once per iteration and this one at the end of each poll, so no error adds up,
//! neither of the measured frequency nor of a suspend. The frequency is measured while the loop runs, between two
//! readings that it makes anyway, until two measurements agree; up to then the kernel's clock is used. Invariant: the
//! TSC counts only where the kernel itself uses it as its clock source ([`trust`]): then it is the same on all cores,
//! at any frequency of theirs.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use wire::loop_clock::read_ns;

/// The kernel's clock source.
const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
/// Minimum time that a measurement covers, in nanoseconds; more where the ones before agree.
const MEASURED_NS: u64 = 100_000_000;
const SURE_NS: u64 = 10_000_000_000;
/// Two measurements agree if they differ by at most this part (1/128). The thread may lose its processor in the middle
/// of a reading.
const PART: u64 = 128;
/// Steps of the counter that one second at least is made of, and that two readings may lie apart, so that no product is
/// too large.
const STEPS_MAX: u64 = 1 << 32;

static IS_TRUSTED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static FINER: Finer = const { Finer::new() };
}

/// Checks whether the kernel's clock source is the TSC. Called before any loop runs.
pub fn trust() {
    #[expect(clippy::disallowed_methods, reason = "before any loop runs")]
    let source = std::fs::read_to_string(SOURCE).unwrap_or_default();
    IS_TRUSTED.store(source.trim() == "tsc", Ordering::Relaxed);
}

/// Reads the kernel's clock.
pub(super) fn anchor() -> u64 {
    let now_ns = read_ns();
    if IS_TRUSTED.load(Ordering::Relaxed)
        && let Some(count) = sys::cycles()
    {
        FINER.with(|finer| finer.anchor(now_ns, count));
    }
    now_ns
}

/// The same time by the TSC, where that is known to be right.
#[inline]
pub(super) fn now_ns() -> u64 {
    FINER.with(|finer| finer.now()).unwrap_or_else(read_ns)
}

/// The clock of one thread.
#[derive(Debug)]
struct Finer {
    /// The last reading of the kernel's clock, and the counter's value then.
    anchor: Cell<(u64, u64)>,
    /// Start of the measurement in progress; 0: none yet.
    begin: Cell<(u64, u64)>,
    /// The last measurement: the length of a step in fractions of a nanosecond ([`STEPS_MAX`]).
    measure: Cell<u64>,
    /// The same if the one before agrees; else 0.
    step: Cell<u64>,
    /// When the next measurement is due.
    due_ns: Cell<u64>,
}

impl Finer {
    const fn new() -> Self {
        Self {
            anchor: Cell::new((0, 0)),
            begin: Cell::new((0, 0)),
            measure: Cell::new(0),
            step: Cell::new(0),
            due_ns: Cell::new(0),
        }
    }

    fn anchor(&self, now_ns: u64, count: u64) {
        self.anchor.set((now_ns, count));
        if now_ns >= self.due_ns.get() {
            self.measure(now_ns, count);
        }
    }

    #[cold]
    fn measure(&self, now_ns: u64, count: u64) {
        let (begin_ns, begin) = self.begin.replace((now_ns, count));
        self.due_ns.set(now_ns + MEASURED_NS);
        if begin_ns == 0 {
            return;
        }
        let (took_ns, steps) = (now_ns - begin_ns, count.wrapping_sub(begin).max(1));
        let measure = u128::from(took_ns) * u128::from(STEPS_MAX) / u128::from(steps);
        let measure = u64::try_from(measure).unwrap_or(u64::MAX);
        let before = self.measure.replace(measure);
        let is_sure = measure < STEPS_MAX && measure.abs_diff(before) <= before / PART;
        self.step.set(0);
        if is_sure {
            self.step.set(measure);
            self.due_ns.set(now_ns + SURE_NS);
        }
    }

    /// `None`: the time is not known.
    #[inline]
    fn now(&self) -> Option<u64> {
        match self.step.get() {
            0 => None,
            _ => self.at(sys::cycles()?),
        }
    }

    #[inline]
    fn at(&self, count: u64) -> Option<u64> {
        let (then_ns, then) = self.anchor.get();
        let (steps, step) = (count.wrapping_sub(then), self.step.get());
        (step > 0 && steps < STEPS_MAX).then(|| then_ns + (steps * step / STEPS_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Anchored at these milliseconds, with a counter of 2.5 GHz.
    fn anchored(at_ms: &[u64]) -> Finer {
        let finer = Finer::new();
        for ms in at_ms {
            finer.anchor(ms * MS, 77 + ms * 2_500_000);
        }
        finer
    }

    #[test]
    fn it_is_not_known_before_two_measures_agree() {
        assert_eq!(anchored(&[50]).at(77), None);
        assert_eq!(anchored(&[500, 599, 650]).at(77 + 650 * 2_500_000), None);
        let finer = anchored(&[500, 600, 700, 701]);
        let at = |us: u64| finer.at(77 + 701 * 2_500_000 + us * 2500).unwrap();
        assert_eq!(at(0), 701 * MS);
        for us in [1, 10, 1000, 1_000_000] {
            assert!(at(us).abs_diff(701 * MS + us * 1000) <= 1 + us / 1000);
        }
    }

    #[test]
    fn a_sleep_of_the_machine_makes_it_unknown_and_then_it_is_measured_anew() {
        // The counter went on, or began anew, while the clock stood still.
        for count in [77 + 90_000 * 2_500_000, 5] {
            let finer = anchored(&[500, 600, 700]);
            assert!(finer.at(78 + 700 * 2_500_000).is_some());
            finer.anchor(10_700 * MS, count);
            assert_eq!(finer.at(count + 1), None);
            for ms in [100, 200] {
                finer.anchor((10_700 + ms) * MS, count + ms * 2_500_000);
            }
            assert!(finer.at(count + 201 * 2_500_000).is_some());
        }
    }

    #[test]
    fn a_counter_that_went_back_or_far_ahead_is_not_used() {
        let finer = anchored(&[500, 600, 700]);
        let there = 77 + 700 * 2_500_000;
        assert_eq!(finer.at(there - 1), None);
        assert_eq!(finer.at(there + STEPS_MAX), None);
    }

    #[test]
    fn it_goes_with_the_clock_of_the_kernel() {
        trust();
        let until = read_ns() + 5 * MEASURED_NS;
        let (mut wrong, mut all) = (0, 0);
        while read_ns() < until {
            anchor();
            // Where the counter is not trusted, it is the kernel's clock.
            let (before, now, after) = (read_ns(), now_ns(), read_ns());
            wrong += u32::from(now + MS / 100 < before || now > after + MS / 100);
            all += 1;
        }
        // The thread may lose its processor between the two readings of an anchor.
        assert!(wrong * 100 < all, "{wrong} of {all}");
    }
}
