//! How many segments there may be.
//!
//! Invariant: the bytes of as many as were paid for are not the room of all else.

use super::SEGMENTS_MAX;
use super::set::Segments;

impl Segments {
    /// Sets the maximum number of files.
    pub(crate) fn set_max(&self, max: usize) {
        let mut set = self.set.lock();
        (set.max, set.max_now, set.paid) = (max, max, max);
    }

    /// Are there as many files as may be, so that more would hold more entries?
    pub(crate) fn wants_more(&self) -> bool {
        let set = self.set.lock();
        let has_all = set.files() >= set.max && set.max < SEGMENTS_MAX;
        // Not while the file system has no room, or those that were given back are still there.
        has_all && set.max_now == set.max && set.paid == set.max && !set.is_full && !set.is_closed
    }

    /// One more file may be made, whose bytes are paid for.
    pub(crate) fn raise_max(&self) {
        let mut set = self.set.lock();
        (set.max, set.paid) = (set.max + 1, set.paid + 1);
        set.max_now = set.max;
    }

    /// One file less may be there, but for the `share` of segments.
    pub(crate) fn lower_max(&self, share: usize) {
        let mut set = self.set.lock();
        if set.max > share {
            set.max -= 1;
            set.max_now = set.max_now.min(set.max);
        }
    }

    /// Is the room of a file that was removed free for all else?
    pub(crate) fn give_back(&self) -> bool {
        let mut set = self.set.lock();
        let is_free = set.paid > set.max;
        set.paid -= usize::from(is_free);
        is_free
    }

    /// Takes one file less than there are, or (once there is room again) as many as may be: for a file system that other
    /// programs fill.
    pub(crate) fn set_short(&self, is_short: bool) {
        let mut set = self.set.lock();
        set.max_now = match is_short {
            true => set.files().saturating_sub(1).max(1),
            false => set.max,
        };
    }
}
