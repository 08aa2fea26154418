//! How far ahead windows of files are filled whose bytes a loop transforms (TLS, HTTP/2, filters): as far as they are
//! still in memory when the loop gets to them.
//!
//! Each request alone cannot tell: that its windows are gone when it reaches them is due to those of all others. So the
//! limit is one of the process. It is halved for each window that was evicted soon after it had been filled, and grows
//! slowly with those that were sent. (A window that is evicted after long had a slow client: that says nothing of others.)

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Windows filled ahead at most, whatever `read_ahead` says.
pub(crate) const AHEAD_MAX: u64 = 16;
/// The windows that must be sent before one more is filled ahead.
const USES: u64 = 64;
/// Nanoseconds after which it is the client that was slow.
const SOON_NS: u64 = 1_000_000_000;

/// The limit, in parts of a window.
#[derive(Debug)]
pub(crate) struct AheadLimit(AtomicU64);

impl AheadLimit {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(AHEAD_MAX * USES))
    }

    /// Windows that may be filled ahead of the one that is to be sent.
    pub(crate) fn windows(&self) -> u64 {
        self.0.load(Relaxed) / USES
    }

    fn note_evicted(&self) {
        self.0.update(Relaxed, Relaxed, |parts| parts / 2);
    }

    fn note_sent(&self) {
        self.0
            .update(Relaxed, Relaxed, |parts| (parts + 1).min(AHEAD_MAX * USES));
    }
}

/// What became of the window that a request sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowState {
    /// It was not filled for this request.
    Found,
    /// It was filled for this request.
    Filled,
    /// It was, and was evicted before it was sent.
    Evicted,
}

impl WindowState {
    /// The state of the next window, when this one was sent; `is_filled`: the next one has been filled ahead.
    pub(crate) fn next(self, limit: &AheadLimit, is_filled: bool) -> Self {
        if self == Self::Filled {
            limit.note_sent();
        }
        match is_filled {
            true => Self::Filled,
            false => Self::Found,
        }
    }

    /// The state when it is filled, since it is not in memory; `ago_ns`: since the last fill for this request.
    pub(crate) fn filled(self, limit: &AheadLimit, ago_ns: u64) -> Self {
        if self == Self::Found {
            return Self::Filled;
        }
        if ago_ns < SOON_NS {
            limit.note_evicted();
        }
        Self::Evicted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_falls_fast_to_nothing_and_grows_slowly() {
        let limit = AheadLimit::new();
        assert_eq!(limit.windows(), AHEAD_MAX);
        limit.note_sent();
        limit.note_evicted();
        assert_eq!(limit.windows(), AHEAD_MAX / 2);
        (0..3).for_each(|_| limit.note_evicted());
        assert_eq!(limit.windows(), 1);
        (0..9).for_each(|_| limit.note_evicted());
        assert_eq!(limit.windows(), 0);
        (0..2 * USES).for_each(|_| limit.note_sent());
        assert_eq!(limit.windows(), 2);
    }

    #[test]
    fn windows_that_are_missing_soon_after_they_were_filled_are_counted_as_evicted() {
        let limit = AheadLimit::new();
        let parts = || limit.0.load(Relaxed);
        let full = AHEAD_MAX * USES;
        let filled = WindowState::Found.filled(&limit, 0);
        assert_eq!((filled, parts()), (WindowState::Filled, full));
        let ahead = filled.next(&limit, true);
        assert_eq!((ahead, parts()), (WindowState::Filled, full));
        let evicted = ahead.filled(&limit, SOON_NS - 1);
        assert_eq!((evicted, parts()), (WindowState::Evicted, full / 2));
        assert_eq!(evicted.filled(&limit, 1), WindowState::Evicted);
        assert_eq!(evicted.filled(&limit, SOON_NS), WindowState::Evicted);
        assert_eq!(evicted.next(&limit, false), WindowState::Found);
        assert_eq!(parts(), full / 4);
        assert_eq!(WindowState::Filled.next(&limit, false), WindowState::Found);
        assert_eq!(parts(), full / 4 + 1);
    }
}
