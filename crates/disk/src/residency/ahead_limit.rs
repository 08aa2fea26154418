//! How far ahead windows of files are filled whose bytes a loop transforms (TLS, HTTP/2, filters): as far as they are
//! still in memory when the loop gets to them.
//!
//! Each request alone cannot tell: that its windows are gone when it reaches them is due to those of all others. So the
//! limit is one of the process. It is halved for each window that was evicted unused, and grows slowly with those that were
//! used. At its lower end windows are not filled at all: their bytes are read into buffers, which nothing evicts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Windows filled ahead at most, whatever `read_ahead` says.
pub(crate) const AHEAD_MAX: u64 = 16;
/// The windows that must be used before one more is filled ahead.
const USES: u64 = 64;

/// The limit, in parts of a window.
#[derive(Debug)]
pub(crate) struct AheadLimit(AtomicU64);

impl AheadLimit {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(AHEAD_MAX * USES))
    }

    /// Windows that may be filled ahead. None: not even the one that is to be sent.
    pub(crate) fn windows(&self) -> Option<u64> {
        match self.0.load(Relaxed) {
            0 => None,
            parts => Some(parts / USES),
        }
    }

    /// Counts a window that was evicted after it had been filled, and before it was sent.
    pub(crate) fn note_evicted(&self) {
        self.0.update(Relaxed, Relaxed, |parts| parts / 2);
    }

    /// Counts a window that was sent after it had been filled once, or without that.
    pub(crate) fn note_used(&self) {
        self.0
            .update(Relaxed, Relaxed, |parts| (parts + 1).min(AHEAD_MAX * USES));
    }
}

/// What became of the window that a request sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowState {
    /// It was in memory without this request, or nothing was read into memory for it.
    Found,
    /// It was filled for this request.
    Filled,
    /// It was, and was evicted before it was sent.
    Evicted,
}

impl WindowState {
    /// The state of the next window, when this one was sent; `is_ahead`: the next one has been filled ahead.
    pub(crate) fn next(self, limit: &AheadLimit, is_ahead: bool) -> Self {
        if self == Self::Filled {
            limit.note_used();
        }
        match is_ahead {
            true => Self::Filled,
            false => Self::Found,
        }
    }

    /// The state when it is filled, since it is not in memory.
    pub(crate) fn filled(self, limit: &AheadLimit) -> Self {
        if self == Self::Found {
            return Self::Filled;
        }
        limit.note_evicted();
        Self::Evicted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_falls_fast_to_nothing_and_grows_slowly() {
        let limit = AheadLimit::new();
        assert_eq!(limit.windows(), Some(AHEAD_MAX));
        limit.note_used();
        limit.note_evicted();
        assert_eq!(limit.windows(), Some(AHEAD_MAX / 2));
        (0..3).for_each(|_| limit.note_evicted());
        assert_eq!(limit.windows(), Some(1));
        limit.note_evicted();
        assert_eq!(limit.windows(), Some(0));
        (0..6).for_each(|_| limit.note_evicted());
        assert_eq!(limit.windows(), None);
        limit.note_used();
        assert_eq!(limit.windows(), Some(0));
        (0..2 * USES).for_each(|_| limit.note_used());
        assert_eq!(limit.windows(), Some(2));
    }

    #[test]
    fn windows_that_are_missing_where_they_were_filled_are_counted_as_evicted() {
        let limit = AheadLimit::new();
        let parts = || limit.0.load(Relaxed);
        let full = AHEAD_MAX * USES;
        let filled = WindowState::Found.filled(&limit);
        assert_eq!((filled, parts()), (WindowState::Filled, full));
        let ahead = filled.next(&limit, true);
        assert_eq!((ahead, parts()), (WindowState::Filled, full));
        let evicted = ahead.filled(&limit);
        assert_eq!((evicted, parts()), (WindowState::Evicted, full / 2));
        assert_eq!(evicted.filled(&limit), WindowState::Evicted);
        assert_eq!(evicted.next(&limit, false), WindowState::Found);
        assert_eq!(parts(), full / 4);
        assert_eq!(WindowState::Filled.next(&limit, false), WindowState::Found);
        assert_eq!(parts(), full / 4 + 1);
    }
}
