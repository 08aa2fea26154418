//! The budget of hedged reads: a share of the requests of the last seconds.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

/// Milliseconds over which requests and races are counted.
const WINDOW_MS: u64 = 10_000;
/// The whole, of which shares are parts: hundredths of a percent.
pub(crate) const WHOLE: u64 = 10_000;

/// How many reads of a cache may be raced by the origin.
#[derive(Debug, Default)]
pub(crate) struct HedgeBudget {
    window: Mutex<Window>,
    begun: AtomicU64,
    won: AtomicU64,
}

#[derive(Debug, Default)]
struct Window {
    begun_ms: u64,
    /// All requests at its beginning.
    requests_at: u64,
    /// Requests of the window before.
    before: u64,
    taken: u64,
}

impl HedgeBudget {
    /// Whether one more race may begin, after so many requests in all: races are at most this share (of [`WHOLE`]) of
    /// the requests of this window or the last one. Another loop that counted later may have come first.
    pub(crate) fn take(&self, now_ms: u64, requests: u64, share: u64) -> bool {
        let mut window = self.window.lock();
        let age = now_ms.saturating_sub(window.begun_ms);
        if age >= WINDOW_MS {
            let own = requests.saturating_sub(window.requests_at);
            *window = Window {
                begun_ms: now_ms,
                requests_at: requests,
                // Of a longer time, a part.
                before: own.saturating_mul(WINDOW_MS) / age,
                taken: 0,
            };
        }
        let counted = window
            .before
            .max(requests.saturating_sub(window.requests_at));
        let is_in_budget =
            (window.taken + 1).saturating_mul(WHOLE) <= counted.saturating_mul(share);
        if is_in_budget {
            window.taken += 1;
            self.begun.fetch_add(1, Relaxed);
        }
        is_in_budget
    }

    /// Counts a race that the origin has won.
    pub(crate) fn win(&self) {
        self.won.fetch_add(1, Relaxed);
    }

    /// Races begun.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Relaxed)
    }

    /// Races that the origin has won.
    pub(crate) fn won(&self) -> u64 {
        self.won.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn races_are_a_share_of_the_requests_of_the_last_seconds() {
        let budget = HedgeBudget::default();
        let taken = |now, requests, share| {
            (0..1000)
                .filter(|_| budget.take(now, requests, share))
                .count()
        };
        // 5 %.
        assert_eq!(taken(100, 19, 500), 0);
        assert_eq!(taken(200, 1000, 500), 50);
        assert_eq!(taken(300, 1000, 500), 0);
        // What was not needed long ago is no credit: 2000 requests in 100 s are 199 in 10 s.
        assert_eq!(taken(100_200, 2000, 500), 9);
        assert_eq!(taken(100_300, 2000, 0), 0);
        assert_eq!((budget.begun(), budget.won()), (59, 0));
        // Loops count before they ask.
        assert!(!budget.take(100_400, 1990, 500), "no more than before");
        assert!(
            !budget.take(200_500, 1999, 500),
            "a window without a request"
        );
    }
}
