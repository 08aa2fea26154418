//! How much of `max_size` the segments have: their share, and what the files leave. They give it back when files need it.
//!
//! Not here: which segment is emptied then, and when it is removed. Invariant: the room of the segments and that of all
//! else are together `max_size`.

use super::SegmentStore;
use crate::segments::segments_share;
use crate::store::Store;
use message::date::Seconds;
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
    pub(super) fn number_for(&self, max_bytes: u64, of_files: u64) -> u64 {
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
    /// Takes room for one more segment from what files do not use, or gives that of one back, if files lacked some. To be
    /// called about once a second.
    pub(in crate::store) fn balance_segments(&self, now: Seconds) {
        let (Some(segments), Some(max_bytes)) = (&self.0.segments, self.max_bytes()) else {
            return;
        };
        let set = &segments.set;
        // A device is no room that files could have.
        if set.is_leftover || set.device.is_some() {
            return;
        }
        if segments.has_lacked.swap(false, Relaxed) {
            segments.lacked_at.store(now, Relaxed);
            let share = segments_share(max_bytes, set.bytes);
            set.lower_max(share.map_or(usize::MAX, |(count, _)| count as usize));
            return;
        }
        let since = now.saturating_sub(segments.lacked_at.load(Relaxed));
        let spare = max_bytes / SPARE_SHARE;
        // Not in it either: the clock was put back.
        let is_over = !(0..PAUSE).contains(&since);
        if is_over && set.wants_more() && self.0.space.lower_max(set.bytes, spare) {
            set.raise_max();
        }
    }
}
