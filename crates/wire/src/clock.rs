//! The clocks of a loop: its time, which is read once in a poll of a task, and the kernel's coarse one (a tick, 1 to 10 ms) for dates.

use std::cell::Cell;

use rustix::time::{ClockId, clock_gettime};

/// Of a thread that never says when its next task begins: nothing is remembered.
const NEVER: u64 = u64::MAX;
/// Nothing is remembered yet.
const UNKNOWN: u64 = 0;

thread_local! {
    /// What was read last in the poll of a task that is running.
    static REMEMBERED: Cell<u64> = const { Cell::new(NEVER) };
}

/// Milliseconds since some fixed moment; never goes back. Where loops call [`forget`] or [`remember`], that of the poll that is running.
#[inline]
pub fn monotonic_ms() -> u64 {
    monotonic_ns() / 1_000_000
}

/// The same in nanoseconds, on the clock of [`read_ns`].
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

/// For a loop, where the poll of a task begins: within one, which takes less than a millisecond as a rule, one reading will do.
#[inline]
pub fn forget() {
    REMEMBERED.set(UNKNOWN);
}

/// The same for who has just read the clock.
#[inline]
pub fn remember(now_ns: u64) {
    REMEMBERED.set(now_ns);
}

/// Nanoseconds of CLOCK_MONOTONIC, now.
pub fn read_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}

/// Milliseconds since 1970.
pub fn unix_ms() -> i64 {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    time.tv_sec * 1000 + time.tv_nsec / 1_000_000
}

/// Seconds since 1970, for `Date` and expiry.
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
