//! The clocks of a loop: coarse ones (a kernel tick, 1 to 10 ms), because they cost 5 ns and are read per request.

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds since some fixed moment; never goes back.
pub fn monotonic_ms() -> u64 {
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
