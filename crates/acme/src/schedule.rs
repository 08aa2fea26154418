//! When a certificate is ordered: renewal by its dates or by the authority, and the waits between attempts.
//!
//! Not here: clocks, and the thread that waits ([`crate::Renewal`]). Invariant: two orders of a certificate are at least
//! [`ORDERS_APART_MIN`] apart, whatever the clock says.

use std::time::Duration;

/// Minimum time between two orders of a certificate.
pub const ORDERS_APART_MIN: Duration = Duration::from_secs(10);
/// Maximum time between two attempts.
pub const ATTEMPTS_APART_MAX: Duration = Duration::from_secs(24 * 3600);
/// Wait behind the first failed attempt; ten times as long behind each further one.
const FAILED_WAIT_FIRST: Duration = Duration::from_secs(60);
/// Wait behind a failure that lasts until the configuration or the authority's opinion changes.
const LASTING_WAIT: Duration = Duration::from_secs(12 * 3600);
/// Wait before a certificate is ordered again that was due as soon as it came; doubled each time.
const EARLY_WAIT_FIRST: Duration = Duration::from_secs(3600);
/// Maximum wait behind a failure for the first attempt of a process, or of a changed configuration.
pub(crate) const FIRST_WAIT_MAX: Duration = Duration::from_secs(60);
/// Validity in seconds up to which half of it is waited for, not two thirds: 10 days.
const SHORT_SECONDS: i64 = 10 * 24 * 3600;
/// How often an authority is asked when to renew, where it does not say.
const ASK_EVERY: Duration = Duration::from_secs(6 * 3600);
const ASK_EVERY_MIN: Duration = Duration::from_secs(60);
const ASK_EVERY_MAX: Duration = Duration::from_secs(24 * 3600);

/// A number in `0..1`, for spreading.
#[must_use]
pub fn roll() -> f64 {
    let mut bytes = [0; 4];
    // Without randomness nothing is spread, which does no harm.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
}

/// When to renew a certificate by its dates (seconds since 1970): at two thirds of its life, at half of a short one; spread by a
/// fiftieth to both sides.
#[must_use]
pub fn renew_at(not_before: i64, not_after: i64, roll: f64) -> i64 {
    let life = not_after.saturating_sub(not_before).max(0);
    let middle = match life > SHORT_SECONDS {
        true => life / 3 * 2,
        false => life / 2,
    };
    let spread = life / 50;
    let at = not_before.saturating_add(middle - spread);
    within((at, at.saturating_add(2 * spread)), roll)
}

/// A random second of a window.
#[must_use]
pub fn within((start, end): (i64, i64), roll: f64) -> i64 {
    let length = end.saturating_sub(start).max(0);
    start.saturating_add((length as f64 * roll) as i64)
}

/// The wait behind a failed attempt; `failures` counts it. Spread by a tenth.
#[must_use]
pub fn failed_wait(failures: u32, is_lasting: bool, roll: f64) -> Duration {
    let grown =
        FAILED_WAIT_FIRST.saturating_mul(10_u32.saturating_pow(failures.saturating_sub(1).min(6)));
    let wait = match is_lasting {
        true => grown.max(LASTING_WAIT),
        false => grown,
    };
    wait.min(ATTEMPTS_APART_MAX).mul_f64(0.9 + roll / 5.0)
}

/// Maximum wait behind a failed attempt to renew a certificate that ends at `end`: an eighth of the time until then, or since
/// then. Spread by a tenth.
#[must_use]
pub fn failed_wait_max(end: i64, now: i64, roll: f64) -> Duration {
    let eighth = Duration::from_secs(end.abs_diff(now) / 8);
    eighth.max(FAILED_WAIT_FIRST).mul_f64(0.9 + roll / 5.0)
}

/// The wait behind a certificate that was due as soon as it came; `early` counts it.
#[must_use]
pub fn early_wait(early: u32) -> Duration {
    let doubled = EARLY_WAIT_FIRST.saturating_mul(1 << early.saturating_sub(1).min(8));
    doubled.min(ATTEMPTS_APART_MAX)
}

/// How long what an authority says of a renewal holds.
#[must_use]
pub fn ask_again(retry_after: Option<Duration>) -> Duration {
    retry_after
        .unwrap_or(ASK_EVERY)
        .clamp(ASK_EVERY_MIN, ASK_EVERY_MAX)
}

/// The time for which a process, or one whose configuration has changed (`is_changed`), waits before its first attempt, at
/// `now`, where an earlier one is known. A time that has not come yet is a clock's fault, and counts as now.
#[must_use]
pub(crate) fn first_wait(
    attempts: &crate::store::Attempts,
    now: i64,
    is_changed: bool,
) -> Duration {
    let last = match attempts.last {
        0 => return Duration::ZERO,
        last => last.min(now),
    };
    let mut wait = ORDERS_APART_MIN;
    // A process that is started again and again is no person who has mended something.
    if attempts.failures > 0 && !is_changed {
        wait = wait.max(failed_wait(attempts.failures, false, 0.5).min(FIRST_WAIT_MAX));
    }
    if attempts.early > 0 {
        wait = wait.max(early_wait(attempts.early));
    }
    let passed = Duration::from_secs(now.abs_diff(last));
    let until = attempts.until.saturating_sub(now).max(0).unsigned_abs();
    let until = Duration::from_secs(until).min(ATTEMPTS_APART_MAX);
    wait.saturating_sub(passed).max(until)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Attempts;

    const DAY: i64 = 24 * 3600;

    #[test]
    fn long_lives_are_renewed_at_two_thirds_and_short_ones_at_half() {
        assert_eq!(renew_at(0, 90 * DAY, 0.5), 60 * DAY);
        assert_eq!(renew_at(0, 6 * DAY, 0.5), 3 * DAY);
        assert_eq!(renew_at(100, 145, 0.0), 122);
        let spread = renew_at(0, 90 * DAY, 0.999) - renew_at(0, 90 * DAY, 0.0);
        assert!((3 * DAY..4 * DAY).contains(&spread), "{spread}");
        assert_eq!(renew_at(10, 5, 0.5), 10, "dates that are none");
        assert!(
            renew_at(i64::MIN, i64::MAX, 0.9) > i64::MIN,
            "nor do these overflow"
        );
    }

    #[test]
    fn waits_grow_up_to_a_day() {
        let seconds = |failures| failed_wait(failures, false, 0.5).as_secs();
        assert_eq!(
            [1, 2, 3, 4, 100].map(seconds),
            [60, 600, 6000, 60_000, 86_400]
        );
        assert!(failed_wait(1, true, 0.5) >= Duration::from_secs(12 * 3600));
        assert!(failed_wait(9, true, 1.0) <= ATTEMPTS_APART_MAX.mul_f64(1.1));
        assert_eq!(
            [1, 2, 9].map(|early| early_wait(early).as_secs()),
            [3600, 7200, 86_400]
        );
    }

    #[test]
    fn waits_shrink_towards_the_end_of_a_certificate() {
        let seconds = |left| failed_wait_max(1000 + left, 1000, 0.5).as_secs();
        assert_eq!(
            [12 * 3600, 3600, 480, 0, -480, -3600, -30 * DAY].map(seconds),
            [5400, 450, 60, 60, 60, 450, 324_000]
        );
        assert!(failed_wait_max(i64::MAX, i64::MIN, 1.0) > ATTEMPTS_APART_MAX);
    }

    #[test]
    fn a_restart_causes_no_storm_and_a_wrong_clock_no_standstill() {
        let wait = |attempts: Attempts, now| first_wait(&attempts, now, false).as_secs();
        let last = |last| Attempts {
            last,
            ..Attempts::default()
        };
        assert_eq!(wait(last(0), 1000), 0, "never tried");
        assert_eq!(wait(last(1000), 1000), 10);
        assert_eq!(wait(last(1000), 2000), 0);
        assert_eq!(wait(last(9_000_000), 1000), 10, "the clock was ahead");
        let failing = Attempts {
            failures: 5,
            ..last(1000)
        };
        assert_eq!(wait(failing, 1000), 60);
        assert_eq!(first_wait(&failing, 1000, true).as_secs(), 10);
        assert_eq!(
            wait(
                Attempts {
                    early: 3,
                    ..last(1000)
                },
                1000
            ),
            4 * 3600
        );
        assert_eq!(
            wait(
                Attempts {
                    until: i64::MAX,
                    ..last(1000)
                },
                2000
            ),
            86_400
        );
    }
}
