//! How much of `max_size` the segments have: their share, and what the files leave. They give it back when files need it.
//! What files took before there were segments they give up as segments are made.
//!
//! Not here: which segment is emptied then, and when it is removed. Invariant: the room of the segments and that of all
//! else are together `max_size`.

use super::SegmentStore;
use crate::segments::{SEGMENTS_MAX, segments_share};
use crate::store::Store;
use message::date::Seconds;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What the segments leave to all else beyond what that takes: one in so many bytes of `max_size`.
const SPARE_SHARE: u64 = 16;
/// Seconds after files have lacked room in which the segments take none of it.
const PAUSE: Seconds = 60;

impl SegmentStore {
    /// Notes that a file, or the journal, found no room.
    pub(in crate::store) fn note_lack(&self) {
        self.has_lacked.store(true, Relaxed);
    }

    /// Notes that entries are moved, for as long as this lives.
    pub(super) fn note_conversion(&self, mark: &Arc<()>) {
        *self.conversion.lock() = Arc::downgrade(mark);
    }

    pub(super) fn is_converting(&self) -> bool {
        self.conversion.lock().strong_count() > 0
    }

    /// Bytes that the segments give back at most, if files lack them. `max_bytes`: `max_size`, where that alone holds
    /// files back.
    pub(in crate::store) fn could_give(&self, max_bytes: Option<u64>) -> u64 {
        let set = &self.set;
        let share = |max| segments_share(max, set.bytes).map_or(0, |(_, bytes)| bytes);
        match max_bytes {
            _ if set.device.is_some() => 0,
            Some(max) if !set.is_leftover => set.bytes_max().saturating_sub(share(max)),
            _ => set.bytes_made(),
        }
    }

    /// The number of segments for this `max_size`, beside files of so many bytes: those that are there may stay, as far as
    /// they leave some room.
    fn number_for(&self, max_bytes: u64, of_files: u64) -> u64 {
        // Less than three are never left: the configuration's check is for new caches.
        let (share, _) = segments_share(max_bytes, self.set.bytes).unwrap_or((3, 0));
        let has = self.set.bytes_made();
        let needed = has.saturating_add(of_files);
        match needed.saturating_add(max_bytes / SPARE_SHARE) <= max_bytes {
            true => share.max(has / self.set.bytes),
            false => share,
        }
    }
}

impl Store {
    /// Sets the number of segments for another `max_size`, and limits all else to what they leave. Those that are too
    /// many are emptied and removed.
    pub(in crate::store) fn limit_segments(&self, segments: &SegmentStore, max_bytes: Option<u64>) {
        let (set, space) = (&segments.set, &self.0.space);
        if let Some(device) = &set.device {
            set.set_max(device.count_for(max_bytes));
            return self.limit_files(segments);
        }
        let Some(max_bytes) = max_bytes else {
            set.set_max(SEGMENTS_MAX);
            return space.set_max(None);
        };
        let of_files = space.used().saturating_mul(space.block_bytes());
        let count = segments.number_for(max_bytes, of_files);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        set.set_max_to_pay(count, |paid| {
            space.set_max(Some(max_bytes.saturating_sub(paid)));
        });
    }

    /// Takes the room of the segments that there may be, as far as files leave it. What these have may not be known yet:
    /// then each segment is paid for when it is made.
    pub(in crate::store) fn pay_for_segments(&self) {
        let Some(SegmentStore { set, .. }) = &self.0.segments else {
            return;
        };
        // Terminates: each turn pays for one of them.
        while !self.is_cold() && set.pay(|| self.0.space.lower_max(set.bytes, 0)) {}
    }

    /// Takes the room of the next segment: of one that there may be, or, while entries are moved into segments, of one
    /// more. False: files leave none.
    pub(super) fn take_room_for_segment(&self, segments: &SegmentStore) -> bool {
        let set = &segments.set;
        set.pay(|| self.0.space.lower_max(set.bytes, 0)) || self.raise_while_converting(segments)
    }

    /// One more segment may be made, if entries are being moved into segments: they leave their room behind.
    pub(super) fn raise_while_converting(&self, segments: &SegmentStore) -> bool {
        segments.is_converting() && self.raise_segments(segments)
    }

    /// One more segment may be made, if all are there and files leave its room.
    fn raise_segments(&self, segments: &SegmentStore) -> bool {
        let set = &segments.set;
        let Some(max_bytes) = self.max_bytes() else {
            return false;
        };
        // A device is no room that files could have.
        if set.is_leftover || set.device.is_some() {
            return false;
        }
        let (share, _) = segments_share(max_bytes, set.bytes).unwrap_or_default();
        set.raise_max(|max| {
            let spare = match (max as u64) < share {
                true => 0,
                false => max_bytes / SPARE_SHARE,
            };
            self.0.space.lower_max(set.bytes, spare)
        })
    }

    /// Blocks that files are to give up for the next segment, below the number that there may be.
    pub(in crate::store) fn lacking_for_segment(&self) -> u64 {
        self.pay_for_segments();
        match &self.0.segments {
            Some(SegmentStore { set, .. }) if set.lacks_room() => {
                self.0.space.lacking_below_max(set.bytes)
            }
            _ => 0,
        }
    }

    /// No file is left to give way: the segments do with what they have. False: they have all that they may.
    pub(in crate::store) fn forgo_segments(&self) -> bool {
        let segments = self.0.segments.as_ref();
        segments.is_some_and(|segments| segments.set.forgo_unpaid())
    }

    /// Takes room for one more segment from what files do not use, or gives that of one back, if files lacked some. To be
    /// called about once a second.
    pub(in crate::store) fn balance_segments(&self, now: Seconds) {
        let Some(segments) = &self.0.segments else {
            return;
        };
        let set = &segments.set;
        if set.device.is_some() {
            return self.lower_kept(segments);
        }
        let Some(max_bytes) = self.max_bytes() else {
            return;
        };
        // What files lack while they are moved is not theirs.
        if set.is_leftover || segments.is_converting() {
            return;
        }
        if segments.has_lacked.swap(false, Relaxed) {
            segments.lacked_at.store(now, Relaxed);
            let share = segments_share(max_bytes, set.bytes);
            set.lower_max(share.map_or(usize::MAX, |(count, _)| count as usize));
            return;
        }
        let since = now.saturating_sub(segments.lacked_at.load(Relaxed));
        // Not in it either: the clock was put back.
        let is_over = !(0..PAUSE).contains(&since);
        if is_over {
            self.raise_segments(segments);
        }
    }

    /// Beside a device: what a time without it has left in files that are small enough for it may stay until it is moved,
    /// replaced or evicted. `small`: bytes of such files that a start found.
    pub(in crate::store) fn keep_small_files(&self, small: u64) {
        if let Some(segments) = &self.0.segments
            && segments.set.device.is_some()
        {
            segments.kept_bytes.store(small, Relaxed);
            self.limit_files(segments);
            self.lower_kept(segments);
        }
    }

    /// Lowers the limit of a device's directory, as what it had gets less.
    fn lower_kept(&self, segments: &SegmentStore) {
        let kept = segments.kept_bytes.load(Relaxed);
        let used = self
            .0
            .space
            .used()
            .saturating_mul(self.0.space.block_bytes());
        let over = used.saturating_sub(segments.files_bytes.load(Relaxed));
        if over < kept {
            segments.kept_bytes.store(over, Relaxed);
            self.limit_files(segments);
        }
    }

    fn limit_files(&self, segments: &SegmentStore) {
        let own = segments.files_bytes.load(Relaxed);
        let kept = segments.kept_bytes.load(Relaxed);
        self.0.space.set_max(Some(own.saturating_add(kept)));
    }
}
