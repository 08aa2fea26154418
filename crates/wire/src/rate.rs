//! `limit_rate`: how much of a response may be sent now, or else how long to wait. Pure: times are passed in.

use std::time::Duration;

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
        Allowed::Wait(Duration::from_millis(self.ms_for(sent - due) + 1))
    }

    /// How long to pause after a write that raised the total from `before` to `now` bytes, to keep the rate smooth.
    pub fn pause(&self, before: u64, now: u64) -> Duration {
        if self.per_second == 0 {
            return Duration::ZERO;
        }
        let limited = now.saturating_sub(before.max(self.after));
        Duration::from_millis(self.ms_for(limited))
    }

    fn ms_for(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * 1000 / u128::from(self.per_second)).min(u128::from(u64::MAX >> 1))
            as u64
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
            Allowed::Wait(Duration::from_millis(1))
        );
        assert_eq!(
            rate.allow(2000, 999),
            Allowed::Wait(Duration::from_millis(501))
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
    fn pauses_count_what_is_limited() {
        let rate = Rate {
            per_second: 1000,
            after: 500,
        };
        assert_eq!(rate.pause(0, 500), Duration::ZERO);
        assert_eq!(rate.pause(0, 600), Duration::from_millis(100));
        assert_eq!(rate.pause(600, 1600), Duration::from_millis(1000));
    }
}
