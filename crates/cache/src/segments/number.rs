//! How many segments there may be, and for how many the room is taken.
//!
//! Invariants: the bytes of as many as were paid for are not the room of all else; none is made that is not paid for.

use super::SEGMENTS_MAX;
use super::set::{SegmentSet, SegmentState, Segments};

impl SegmentSet {
    /// Are there as many files as may be, so that more would hold more entries?
    fn wants_more(&self) -> bool {
        let has_all = self.files() >= self.max && self.max < SEGMENTS_MAX;
        // Not while the file system has no room, or those that were given back are still there.
        let is_settled = self.max_now == self.max && self.paid == self.max;
        has_all && is_settled && !self.is_full && !self.is_closed
    }
}

impl Segments {
    /// Sets the maximum number of files, whose bytes nothing else could have.
    pub(crate) fn set_max(&self, max: usize) {
        let mut set = self.set.lock();
        (set.max, set.max_now, set.paid) = (max, max, max);
    }

    /// Sets the maximum number of files, of which those are paid for that are there. `limit` limits all else, and is told
    /// their bytes.
    pub(crate) fn set_max_to_pay(&self, max: usize, limit: impl FnOnce(u64)) {
        let mut set = self.set.lock();
        let paid = match self.is_leftover {
            true => set.files(),
            false => set.files().min(max),
        };
        (set.max, set.max_now, set.paid) = (max, max, paid);
        limit(paid as u64 * self.bytes);
    }

    /// Pays for one more of the files that there may be, if `takes` takes its room from all else.
    pub(crate) fn pay(&self, takes: impl FnOnce() -> bool) -> bool {
        let mut set = self.set.lock();
        let is_due = set.paid < set.max && !self.is_leftover && !set.is_closed;
        let is_paid = is_due && takes();
        set.paid += usize::from(is_paid);
        is_paid
    }

    /// Is another file to be made soon that is not paid for?
    pub(crate) fn lacks_room(&self) -> bool {
        let set = self.set.lock();
        let is_unpaid = set.paid < set.max_now && set.files() >= set.paid;
        if !is_unpaid || self.is_leftover || set.is_closed {
            return false;
        }
        let mut filling = set
            .all()
            .filter(|(_, one)| one.state == SegmentState::Filling);
        let is_half_full = filling.all(|(_, one)| one.live_pages * 2 >= u64::from(self.pages()));
        is_half_full && set.count(SegmentState::Free) == 0
    }

    /// Does without the files that are not paid for. False: all are.
    pub(crate) fn forgo_unpaid(&self) -> bool {
        let mut set = self.set.lock();
        let has_unpaid = set.paid < set.max;
        set.max = set.max.min(set.paid);
        set.max_now = set.max_now.min(set.max);
        has_unpaid
    }

    /// One more file may be made, if there are as many as may be, and `takes`, which is told their number, takes its
    /// room from all else.
    pub(crate) fn raise_max(&self, takes: impl FnOnce(usize) -> bool) -> bool {
        let mut set = self.set.lock();
        let is_raised = set.wants_more() && takes(set.max);
        if is_raised {
            (set.max, set.paid) = (set.max + 1, set.paid + 1);
            set.max_now = set.max;
        }
        is_raised
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
