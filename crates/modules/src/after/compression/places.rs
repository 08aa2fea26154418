//! The memory that compressors may take together: a response is compressed only where there is room for its compressor.
//!
//! A compressor lives as long as its response, which a slow client makes long, so that none can wait for another's end.
//! The bytes of each are an estimate, made before it is: what it takes is known only when others have begun meanwhile.
//! Invariant: one compressor may always work, whatever it takes.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use disk::memory;

/// All compressors together take at most one part in this many of the budget.
const SHARE: u64 = 4;

/// Bytes of all places that are taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The place of a compressor, until this is dropped.
#[derive(Debug)]
pub struct Place {
    bytes: usize,
}

impl Place {
    /// A place for a compressor of about this many bytes; `None`: the others take all that there is.
    pub(super) fn take(bytes: usize) -> Option<Place> {
        let max = usize::try_from(memory::budget() / SHARE).unwrap_or(usize::MAX);
        let with = |taken: usize| {
            let sum = taken.saturating_add(bytes);
            (taken == 0 || sum <= max).then_some(sum)
        };
        let taken = TAKEN.try_update(Relaxed, Relaxed, with);
        taken.is_ok().then_some(Place { bytes })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.bytes, Relaxed);
    }
}
