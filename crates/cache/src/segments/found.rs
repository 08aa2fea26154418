//! What a start or a walk finds in segments: what of it counts, and what is over.
//!
//! Invariant: an entry that was read in an earlier use of its segment does not count.

use super::layout::SegmentHeader;
use super::set::{Segment, SegmentSet, SegmentState, Segments};
use crate::index::EntryExtent;
use bytes::Bytes;

impl Segments {
    /// Counts an entry that a start has found in the journal. False: it cannot be there.
    pub(crate) fn enter_known(&self, extent: &EntryExtent) -> bool {
        let set = &mut *self.set.lock();
        let segment = self.living(set, extent);
        segment.map(|segment| count(segment, extent)).is_some()
    }

    /// Whether an entry that was read in a segment with this number in the order of writing may still be found there.
    pub(crate) fn has_found(&self, extent: &EntryExtent, sequence: u64) -> bool {
        let set = &mut *self.set.lock();
        self.found(set, extent, sequence).is_some()
    }

    /// Counts such an entry. False: it may not be found any more.
    pub(crate) fn enter_found(&self, extent: &EntryExtent, sequence: u64) -> bool {
        let set = &mut *self.set.lock();
        let segment = self.found(set, extent, sequence);
        segment.map(|segment| count(segment, extent)).is_some()
    }

    /// Notes that such an entry, which the index does not have, is not to be found again. (What is in a segment that is
    /// still being filled may be on its way into the index.)
    pub(crate) fn leave_found(&self, extent: &EntryExtent, sequence: u64) {
        let (_, page) = self.place(extent.offset);
        let set = &mut *self.set.lock();
        let segment = self.found(set, extent, sequence);
        if let Some(segment) = segment.filter(|segment| segment.state == SegmentState::Sealed) {
            segment.dead.set(page);
            segment.is_dead_changed = true;
        }
    }

    fn found<'s>(
        &self,
        set: &'s mut SegmentSet,
        extent: &EntryExtent,
        sequence: u64,
    ) -> Option<&'s mut Segment> {
        use SegmentState::{Filling, Sealed};
        let segment = self.living(set, extent)?;
        // One that is being emptied gets no more; with another number it is used for other entries by now.
        let is_same = matches!(segment.state, Filling | Sealed) && segment.sequence == sequence;
        is_same.then_some(segment)
    }

    /// The segment of a place that is read from, if an entry that is not dead can be there.
    fn living<'s>(&self, set: &'s mut SegmentSet, extent: &EntryExtent) -> Option<&'s mut Segment> {
        let (number, page) = self.place(extent.offset);
        let is_inside = page > 0 && page + extent.blocks <= self.pages();
        let segment = set.get_mut(number)?;
        let may_be_there = is_inside && segment.is_read_from() && !segment.dead.has(page);
        may_be_there.then_some(segment)
    }

    /// Notes that nothing from a page on is to be found again.
    pub(crate) fn leave_from(&self, number: u32, page: u32) {
        let all = self.pages();
        if let Some(segment) = self.set.lock().get_mut(number) {
            (page..all).for_each(|page| segment.dead.set(page));
            segment.is_dead_changed = true;
        }
    }

    /// Notes that pages from the second one on are to be written anew: none of them is dead. What is before them, from
    /// the first one on, is not to be found again. Returns the segment's first page, if that has changed.
    pub(crate) fn reuse_from(&self, number: u32, (end, page): (u32, u32)) -> Option<Bytes> {
        let mut set = self.set.lock();
        let segment = set.get_mut(number)?;
        let before = segment.dead.clone();
        (end..page).for_each(|page| segment.dead.set(page));
        (page..self.pages()).for_each(|page| segment.dead.unset(page));
        let is_changed = segment.dead != before;
        segment.is_unsynced |= is_changed;
        let header = SegmentHeader {
            sequence: segment.sequence,
            bytes: self.bytes,
        };
        is_changed.then(|| header.page(&segment.dead))
    }
}

/// Counts an entry's pages, which the index has from now on.
fn count(segment: &mut Segment, extent: &EntryExtent) {
    segment.live_pages += u64::from(extent.blocks);
}
