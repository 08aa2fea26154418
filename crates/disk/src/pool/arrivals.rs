//! How fast work comes to a thread that takes much of it at once, and a short wait for more.
//!
//! Where work comes fast, taking each piece as it comes is dear: the thread and the loops that share its core take turns
//! for each, and what is done once for all of a batch is done for one. Work that comes alone is taken at once.

use std::time::{Duration, Instant};

/// The time that a thread waits for more, if the last two pieces came within it.
const GATHERING: Duration = Duration::from_millis(1);

/// When work came.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    last: Option<Instant>,
    are_fast: bool,
}

impl Arrivals {
    /// Notes that a piece comes now.
    pub(crate) fn note(&mut self, now: Instant) {
        let last = self.last.replace(now);
        self.are_fast = last.is_some_and(|last| now - last < GATHERING);
    }

    /// Whether another piece is likely to come soon.
    pub(crate) fn are_fast(&self) -> bool {
        self.are_fast
    }
}

/// Lets more work come. **Waits.**
#[expect(clippy::disallowed_methods, reason = "on a pool thread")]
pub(crate) fn gather() {
    std::thread::sleep(GATHERING);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_comes_fast_if_the_last_two_pieces_came_soon_after_each_other() {
        let (mut arrivals, begin) = (Arrivals::default(), Instant::now());
        assert!(!arrivals.are_fast());
        for (after, are_fast) in [(0, false), (900, true), (1800, true), (2800, false)] {
            arrivals.note(begin + Duration::from_micros(after));
            assert_eq!(arrivals.are_fast(), are_fast, "{after}");
        }
    }
}
