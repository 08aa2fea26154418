//! The memory that compressors may take together: a response is compressed only where there is room for its compressor.
//!
//! A compressor lives as long as its response, which a slow client makes long, so that none can wait for another's end.
//! The bytes of each are an estimate, made before it is: what it takes is known only when others have begun meanwhile.
//! Invariant: one compressor may always work, whatever it takes.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use disk::memory;

/// All compressors together take at most one part in this many of the budget.
const SHARE: u64 = 3;

/// Bytes of all places that are taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The place of a compressor, until this is dropped.
#[derive(Debug)]
pub struct Place {
    all: &'static AtomicUsize,
    bytes: usize,
}

impl Place {
    /// A place for a compressor of about this many bytes; `None`: the others take all that there is.
    pub(super) fn take(bytes: usize) -> Option<Place> {
        let max = usize::try_from(memory::budget() / SHARE).unwrap_or(usize::MAX);
        Place::of(&TAKEN, bytes, max)
    }

    fn of(all: &'static AtomicUsize, bytes: usize, max: usize) -> Option<Place> {
        let with = |taken: usize| {
            let sum = taken.saturating_add(bytes);
            (taken == 0 || sum <= max).then_some(sum)
        };
        all.try_update(Relaxed, Relaxed, with).ok()?;
        Some(Place { all, bytes })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_as_many_as_have_room_and_one_at_least() {
        static ALL: AtomicUsize = AtomicUsize::new(0);
        let take = |bytes| Place::of(&ALL, bytes, 10);
        let first = take(6).unwrap();
        for _ in 0..3 {
            assert!(take(6).is_none(), "what was refused took nothing");
        }
        let second = take(4).unwrap();
        assert!(take(1).is_none());
        drop(first);
        assert!(take(7).is_none());
        drop((take(6).unwrap(), second));
        let large = take(99).unwrap();
        assert!(take(1).is_none());
        drop(large);
        assert_eq!(ALL.load(Relaxed), 0);
    }
}
