//! `limit_rate`: how much of a response may be sent now, or else how long to wait. Pure: times are passed in.

use std::time::Duration;

/// Longest wait in milliseconds, after which it is asked again: a day.
const PAUSE_MAX_MS: u64 = 86_400_000;

/// A rate limit of one response, counted from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Bytes per second; 0 means no limit.
    pub per_second: u64,
    /// Bytes sent at full speed first (`limit_rate_after`).
    pub after: u64,
}

/// What the limit allows at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Send up to this number of bytes.
    Bytes(u64),
    /// Send nothing for this long.
    Wait(Duration),
}

impl Rate {
    /// What may be sent after `sent` bytes in `elapsed_ms` since the start of the response. As in nginx, a second that
    /// has begun counts as a whole one.
    pub fn allow(&self, sent: u64, elapsed_ms: u64) -> Allowed {
        if self.per_second == 0 {
            return Allowed::Bytes(u64::MAX);
        }
        let due = self
            .per_second
            .saturating_mul(elapsed_ms / 1000 + 1)
            .saturating_add(self.after);
        if due > sent {
            return Allowed::Bytes(due - sent);
        }
        // In this second more is due for the first time. A wait that ends before it would be one of many.
        let second = (sent - self.after) / self.per_second;
        let pause = second.saturating_mul(1000).saturating_sub(elapsed_ms);
        Allowed::Wait(Duration::from_millis(pause.min(PAUSE_MAX_MS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_at_a_time() {
        let rate = Rate {
            per_second: 1000,
            after: 500,
        };
        assert_eq!(rate.allow(0, 0), Allowed::Bytes(1500));
        assert_eq!(
            rate.allow(1500, 10),
            Allowed::Wait(Duration::from_millis(990))
        );
        assert_eq!(
            rate.allow(2000, 999),
            Allowed::Wait(Duration::from_millis(1))
        );
        assert_eq!(rate.allow(2000, 1000), Allowed::Bytes(500));
        assert_eq!(
            Rate {
                per_second: 0,
                after: 0
            }
            .allow(u64::MAX, 0),
            Allowed::Bytes(u64::MAX)
        );
    }

    #[test]
    fn a_wait_ends_when_more_is_due_and_not_before() {
        for (per_second, after) in [(1, 0), (1000, 0), (1000, 500), (20_480, 7), (u64::MAX, 0)] {
            let rate = Rate { per_second, after };
            let mut waits = 0;
            for sent in (0..70_000).step_by(123) {
                for elapsed_ms in [0, 1, 500, 999, 1000, 1001, 2999] {
                    let Allowed::Wait(pause) = rate.allow(sent, elapsed_ms) else {
                        continue;
                    };
                    waits += 1;
                    let then = elapsed_ms + pause.as_millis() as u64;
                    assert!(pause > Duration::ZERO);
                    assert!(matches!(rate.allow(sent, then - 1), Allowed::Wait(_)));
                    let is_due = matches!(rate.allow(sent, then), Allowed::Bytes(_));
                    assert!(is_due || pause == Duration::from_millis(PAUSE_MAX_MS));
                }
            }
            assert_eq!(waits > 0, per_second < 70_000);
        }
    }
}
