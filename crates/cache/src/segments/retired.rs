//! Segments that cannot be read, or whose first page cannot be written: which they are, and when they are tried again.

use super::set::{Segment, SegmentSet, SegmentState, Segments};
use crate::index::EntryExtent;
use disk::SegmentFile;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Reads of a segment, and writes of its first page, that may fail before it is retired, if they are more than half of
/// all that failed: otherwise it is the disk that fails.
const READ_ERRORS_MAX: u32 = 3;
/// Pause before a retired segment is tried again; each try in vain doubles it.
const PROOF_FIRST: Duration = Duration::from_secs(2);
const PROOF_MAX: Duration = Duration::from_secs(600);

impl SegmentSet {
    /// Have reads of a segment, or writes of its first page, failed because of itself?
    fn is_unreadable(&self, one: &Segment) -> bool {
        let is_most = one.read_errors > self.read_errors / 2;
        is_most && one.read_errors >= READ_ERRORS_MAX && one.is_read_from()
    }

    /// The full segment that is to be retired.
    pub(super) fn unreadable(&self) -> Option<u32> {
        // Hits wait for the lock: no segment is looked at where none can be found.
        if self.read_errors < READ_ERRORS_MAX {
            return None;
        }
        let mut full = self
            .all()
            .filter(|(_, one)| one.state == SegmentState::Sealed);
        Some(full.find(|(_, one)| self.is_unreadable(one))?.0)
    }

    /// Forgets the calls of a segment that failed.
    pub(super) fn forget_read_errors(&mut self, number: u32) {
        if let Some(segment) = self.get_mut(number) {
            let forgotten = std::mem::take(&mut segment.read_errors);
            self.read_errors -= forgotten;
        }
    }
}

impl Segments {
    /// Notes that the entry at a place could not be read.
    pub(crate) fn note_read_error(&self, extent: &EntryExtent) {
        let (number, _) = self.place(extent.offset);
        self.note_error_in(number);
    }

    /// Notes that something of a segment could not be read, or its first page could not be written.
    pub(crate) fn note_error_in(&self, number: u32) {
        let set = &mut *self.set.lock();
        // The sum of them is to be right.
        if set.read_errors < u32::MAX
            && let Some(segment) = set.get_mut(number)
        {
            segment.read_errors += 1;
            set.read_errors += 1;
        }
    }

    /// Is a segment one whose reads fail?
    pub(crate) fn is_unreadable(&self, number: u32) -> bool {
        let set = self.set.lock();
        let segment = set.segments.get(number as usize);
        let segment = segment.and_then(Option::as_ref);
        segment.is_some_and(|one| set.is_unreadable(one))
    }

    /// Forgets the calls that failed: the disk has come back.
    pub(crate) fn forget_read_errors(&self) {
        let set = &mut *self.set.lock();
        let all = set.segments.iter_mut().flatten();
        all.for_each(|segment| segment.read_errors = 0);
        set.read_errors = 0;
    }

    /// Notes that none of a segment's entries is in the index.
    pub(crate) fn end_emptying(&self, number: u32) {
        if self.is_unreadable(number) {
            return self.retire(number);
        }
        let mut set = self.set.lock();
        set.set_state(number, SegmentState::Draining);
        set.forget_read_errors(number);
    }

    /// Has a segment without entries wait for a proof.
    pub(crate) fn retire(&self, number: u32) {
        let mut set = self.set.lock();
        set.set_state(number, SegmentState::Retired);
        if let Some(segment) = set.get_mut(number) {
            segment.proof = Some((Instant::now() + PROOF_FIRST, PROOF_FIRST));
        }
        // The errors of a retired one say nothing of others.
        set.forget_read_errors(number);
    }

    /// Takes the retired segment that is to be tried now, if there is one: from now on it is nobody else's. Also returns
    /// the pause before the next try.
    pub(crate) fn next_proof(&self) -> Option<(u32, Arc<SegmentFile>, Duration)> {
        let set = &mut *self.set.lock();
        if set.count(SegmentState::Retired) == 0 {
            return None;
        }
        let now = Instant::now();
        let mut numbered = set.segments.iter_mut().enumerate();
        numbered.find_map(|(number, segment)| {
            let segment = segment.as_mut()?;
            let is_retired = segment.state == SegmentState::Retired && !segment.file.is_viewed();
            let (_, pause) = segment.proof.take_if(|(at, _)| is_retired && *at <= now)?;
            let pause = (pause * 2).min(PROOF_MAX);
            Some((number as u32, Arc::clone(&segment.file), pause))
        })
    }

    /// Notes that a retired segment was tried in vain, and is to be tried again after a pause.
    pub(crate) fn try_again(&self, number: u32, pause: Duration) {
        if let Some(segment) = self.set.lock().get_mut(number) {
            segment.proof = Some((Instant::now() + pause, pause));
        }
    }

    /// Has another file in the place of a segment's.
    #[cfg(test)]
    pub(crate) fn set_file(&self, number: u32, file: SegmentFile) {
        if let Some(segment) = self.set.lock().get_mut(number) {
            segment.file = Arc::new(file);
        }
    }

    /// Whether they belong to another process now.
    pub(crate) fn is_closed(&self) -> bool {
        self.set.lock().is_closed
    }
}
