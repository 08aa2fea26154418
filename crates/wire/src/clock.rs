//! The clocks of a loop: coarse ones (a kernel tick, 1 to 10 ms), because they cost 5 ns and are read per request.

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

/// Milliseconds since some fixed moment; never goes back. A thread that calls [`forget`] reads it once from one call to the next.
pub fn monotonic_ms() -> u64 {
    match REMEMBERED.get() {
        NEVER => read_ms(),
        UNKNOWN => {
            let now_ms = read_ms();
            REMEMBERED.set(now_ms);
            now_ms
        }
        now_ms => now_ms,
    }
}

/// For a loop, where the poll of a task begins: within one, which takes less than a tick as a rule, one reading will do.
#[inline]
pub fn forget() {
    REMEMBERED.set(UNKNOWN);
}

fn read_ms() -> u64 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
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
        assert!(monotonic_ms() > third);
    }
}
