//! The budget of hedged reads: a share of the requests of the last seconds.

use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

/// Seconds over which requests and races are counted.
const WINDOW_S: usize = 10;
/// The whole, of which shares are parts: hundredths of a percent.
pub(crate) const WHOLE: u64 = 10_000;

/// How many reads of a cache may be raced by the origin.
#[derive(Debug, Default)]
pub(crate) struct HedgeBudget {
    window: Mutex<Window>,
    begun: AtomicU64,
    won: AtomicU64,
}

/// Counts of the last seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Latest {
    /// Requests.
    requests: u64,
    /// Races that began.
    races: u64,
}

impl Add for Latest {
    type Output = Latest;

    fn add(self, other: Latest) -> Latest {
        Latest {
            requests: self.requests.saturating_add(other.requests),
            races: self.races.saturating_add(other.races),
        }
    }
}

/// The last seconds, each in the place of its number modulo [`WINDOW_S`].
#[derive(Debug, Default)]
struct Window {
    /// The number of the latest second.
    second: u64,
    seconds: [Second; WINDOW_S],
}

#[derive(Clone, Copy, Debug, Default)]
struct Second {
    /// All requests at its beginning.
    requests_at: u64,
    /// Races that began in it.
    taken: u64,
}

impl Window {
    fn place(second: u64) -> usize {
        (second % WINDOW_S as u64) as usize
    }

    /// Begins the seconds that have come since the latest one. A loop whose clock is behind changes nothing.
    fn advance(&mut self, now_ms: u64, requests: u64) {
        let now = now_ms / 1000;
        // Those before the first second that is known came with it.
        let requests_at = if self.second == 0 { 0 } else { requests };
        let first = (self.second + 1).max((now + 1).saturating_sub(WINDOW_S as u64));
        for second in first..=now {
            self.seconds[Self::place(second)] = Second {
                requests_at,
                taken: 0,
            };
        }
        self.second = self.second.max(now);
    }

    /// All requests at the beginning of the oldest second.
    fn requests_at(&self) -> u64 {
        self.seconds[Self::place(self.second + 1)].requests_at
    }

    fn latest(&mut self, now_ms: u64, requests: u64) -> Latest {
        self.advance(now_ms, requests);
        Latest {
            requests: requests.saturating_sub(self.requests_at()),
            races: self.seconds.iter().map(|second| second.taken).sum(),
        }
    }
}

impl HedgeBudget {
    /// Notes how many requests there were so far. To be called at least once a second: a race that follows is a share of
    /// those that were counted before.
    pub(crate) fn note(&self, now_ms: u64, requests: u64) {
        self.window.lock().advance(now_ms, requests);
    }

    /// What there was in the last ten seconds, after so many requests in all.
    pub(crate) fn latest(&self, now_ms: u64, requests: u64) -> Latest {
        self.window.lock().latest(now_ms, requests)
    }

    /// Whether one more race may begin, after so many requests in all: races are at most this share (of [`WHOLE`]) of
    /// the requests of the last ten seconds. `others`: those of the cache's other disks, which have the budget together.
    pub(crate) fn take(&self, now_ms: u64, requests: u64, share: u64, others: Latest) -> bool {
        let mut window = self.window.lock();
        let all = window.latest(now_ms, requests) + others;
        let is_in_budget =
            (all.races + 1).saturating_mul(WHOLE) <= all.requests.saturating_mul(share);
        if is_in_budget {
            let latest = Window::place(window.second);
            window.seconds[latest].taken += 1;
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

    /// Milliseconds that the machine has run for when a budget begins.
    const UP: u64 = 1_000_000_000;

    fn taken(budget: &HedgeBudget, now_ms: u64, requests: u64, share: u64) -> usize {
        (0..1000)
            .filter(|_| budget.take(UP + now_ms, requests, share, Latest::default()))
            .count()
    }

    #[test]
    fn races_are_a_share_of_the_requests_of_the_last_seconds() {
        let budget = HedgeBudget::default();
        budget.note(UP, 0);
        // 5 %.
        assert_eq!(taken(&budget, 100, 19, 500), 0);
        assert_eq!(taken(&budget, 200, 1000, 500), 50);
        assert_eq!(taken(&budget, 300, 1000, 500), 0);
        assert_eq!(taken(&budget, 300, 1040, 500), 2);
        assert_eq!(taken(&budget, 9_900, 1040, 500), 0, "all were used");
        assert_eq!(taken(&budget, 9_900, 2000, 0), 0);
        // The requests are forgotten with the races.
        assert_eq!(taken(&budget, 10_100, 1140, 500), 5);
        assert_eq!((budget.begun(), budget.won()), (57, 0));
    }

    #[test]
    fn the_first_race_after_a_long_time_has_the_requests_of_the_last_seconds() {
        let budget = HedgeBudget::default();
        for second in 0..100 {
            budget.note(UP + second * 1000 + 7, second * 100);
        }
        // 950 came since the 91st second began.
        assert_eq!(taken(&budget, 99_500, 9950, 500), 47);
        // Not counted since: no credit but for what came at last.
        assert_eq!(taken(&budget, 500_000, 9990, 500), 0);
        assert_eq!(taken(&budget, 500_100, 10_090, 500), 5);
    }

    #[test]
    fn disks_of_a_cache_have_one_budget() {
        let (sick, other) = (HedgeBudget::default(), HedgeBudget::default());
        sick.note(UP, 0);
        other.note(UP, 0);
        let of_other = || other.latest(UP + 1000, 2000);
        assert_eq!(taken(&other, 1000, 100, 500), 5);
        let taken = (0..1000).filter(|_| sick.take(UP + 1000, 1000, 500, of_other()));
        assert_eq!(taken.count(), 145);
    }

    #[test]
    fn a_loop_that_is_behind_changes_nothing() {
        let budget = HedgeBudget::default();
        budget.note(UP, 0);
        budget.note(UP + 5_000, 1000);
        // Loops count before they ask: another one has counted more.
        assert!(!budget.take(UP + 4_900, 0, 500, Latest::default()));
        assert_eq!(taken(&budget, 4_900, 1000, 500), 50);
        assert_eq!(taken(&budget, 5_100, 1000, 500), 0);
    }
}
