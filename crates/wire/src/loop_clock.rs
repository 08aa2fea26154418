//! The clocks of a loop: CLOCK_MONOTONIC, read once per poll of a task, and the kernel's coarse real-time clock (one
//! tick, 1 to 10 ms) for dates.

use std::cell::Cell;

use rustix::time::{ClockId, clock_gettime};

/// In a thread that never calls [`forget`] or [`remember`]: nothing is cached.
const NEVER: u64 = u64::MAX;
/// Nothing is cached yet in this poll.
const UNKNOWN: u64 = 0;

thread_local! {
    /// The clock as last read in the current poll of a task.
    static REMEMBERED: Cell<u64> = const { Cell::new(NEVER) };
}

/// Milliseconds since an arbitrary fixed time; never goes back. In a loop that calls [`forget`] or [`remember`], the
/// time of the current poll.
#[inline]
pub fn monotonic_ms() -> u64 {
    monotonic_ns() / 1_000_000
}

/// As [`monotonic_ms`], in nanoseconds, on the clock of [`read_ns`].
#[inline]
pub fn monotonic_ns() -> u64 {
    match REMEMBERED.get() {
        NEVER => read_ns(),
        UNKNOWN => {
            let now_ns = read_ns();
            REMEMBERED.set(now_ns);
            now_ns
        }
        now_ns => now_ns,
    }
}

/// Forgets the cached time. A loop calls it before each poll of a task: a poll usually takes less than a millisecond,
/// so one reading is enough.
#[inline]
pub fn forget() {
    REMEMBERED.set(UNKNOWN);
}

/// Sets the cached time, for a loop that has just read the clock.
#[inline]
pub fn remember(now_ns: u64) {
    REMEMBERED.set(now_ns);
}

/// Reads CLOCK_MONOTONIC, in nanoseconds.
pub fn read_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}

/// Seconds since 1970, for the `Date` header and expiry times.
pub fn unix_seconds() -> i64 {
    clock_gettime(ClockId::RealtimeCoarse).tv_sec
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may sleep")]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_loop_reads_the_clock_once_in_a_poll_and_others_always() {
        let wait = || std::thread::sleep(Duration::from_millis(30));
        let first = monotonic_ms();
        wait();
        let second = monotonic_ms();
        assert!(second > first);
        forget();
        let third = monotonic_ms();
        assert!(third >= second);
        wait();
        assert_eq!(monotonic_ms(), third);
        forget();
        let fourth = monotonic_ms();
        assert!(fourth > third);
        remember(1_000_000 * (fourth + 7));
        assert_eq!(monotonic_ms(), fourth + 7);
    }
}
