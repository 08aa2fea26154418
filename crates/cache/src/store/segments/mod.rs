//! The store's small entries, which lie in segments: appended by one writer, emptied in the order of writing.
//!
//! Not here: the state of the segments ([`crate::segments`]). Invariants: one job at a time writes to the segments of a
//! cache; the index knows an entry only after its bytes and its record in the journal were written; whatever a segment
//! holds is read with the entry's key and tag compared, since a place may have got another entry meanwhile.

mod append;
mod balance;
mod convert;
mod emptying;
mod kept;
mod on_device;
mod reading;
mod start;
mod upkeep;
mod walk;
mod writer;

pub(super) use append::{AppendKind, SegmentAppend};
pub use convert::Conversion;
use emptying::Emptying;
use start::FoundSegments;
pub(in crate::store) use start::LostEntries;
pub(super) use walk::SegmentsWalk;
use writer::{Filling, SegmentWriter};

use super::{Store, StoreInner, StoreSettings};
use crate::error::Error;
use crate::index::{Displaced, Index, KnownKey};
use crate::journal::Recovered;
use crate::segments::{ENTRY_BYTES_MAX, SegmentCounts, Segments};
use disk::{BatchLimits, BatchQueue, FreeSpace, Local};
use message::date::Seconds;
use parking_lot::Mutex;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

/// Maximum of entries that one write takes, and of their bytes.
const BATCH_ENTRIES_MAX: usize = 64;
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Maximum of entries that wait to be written; further ones are not stored. (Fills wait earlier, for what is not
/// written yet.)
const WAITING_MAX: usize = 16_384;

/// Maximum of seconds by which the moments differ that callers take for the present one.
const CLOCK_SPREAD: Seconds = 60;

/// The segments of a store, and what writes them.
#[derive(Debug)]
pub(super) struct SegmentStore {
    /// Differs from that of every other store of this process.
    id: u64,
    pub set: Segments,
    queue: BatchQueue<SegmentAppend, Appended>,
    /// Used by the queue's job, and at times without one.
    writer: Mutex<SegmentWriter>,
    /// The present moment, by the callers' clocks.
    now: AtomicI64,
    /// Has a file, or the journal, found no room since a sweep looked?
    has_lacked: AtomicBool,
    /// When a sweep saw that last, in seconds since 1970.
    lacked_at: AtomicI64,
    emptied: AtomicU64,
    readmitted: AtomicU64,
    readmitted_bytes: AtomicU64,
    failed: AtomicU64,
    /// On a device: maximum of bytes of the directory beside it.
    pub files_bytes: AtomicU64,
    /// Bytes beyond that of small files from before there was a device.
    kept_bytes: AtomicU64,
    /// Lives while entries are moved into segments, or out of them.
    conversion: Mutex<Weak<()>>,
}

/// An entry that is stored: what the index knows of it, and what had to give way.
#[derive(Debug)]
pub(super) struct Stored {
    pub known: KnownKey,
    pub displaced: Displaced,
}

type Appended = Result<Stored, Error>;

/// Totals of the segments since the start, and their present numbers, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentMetrics {
    /// Present numbers.
    pub counts: SegmentCounts,
    /// Length of a segment in bytes.
    pub segment_bytes: u64,
    /// Segments that were emptied.
    pub emptied: u64,
    /// Entries that were written again when their segment was emptied, since they had been used.
    pub readmitted: u64,
    /// Their bytes.
    pub readmitted_bytes: u64,
    /// Writes to segments that failed.
    pub failed: u64,
}

/// Opens the segments of a directory, or of the device beside it ([`FoundSegments::find`]).
pub(super) async fn find(
    local: &Local,
    settings: &StoreSettings,
    index: &Index,
    recovered: &Recovered,
    room: &FreeSpace,
) -> Result<(Option<FoundSegments>, LostEntries), Error> {
    match &settings.device {
        Some(device) => on_device::find(local, settings, device, index, recovered).await,
        None => FoundSegments::find(local, settings, index, recovered, room).await,
    }
}

impl SegmentStore {
    /// What a start found, for the store that is being made.
    pub(super) fn new(
        found: FoundSegments,
        store: Weak<StoreInner>,
        settings: &StoreSettings,
    ) -> Self {
        let device = settings.device.as_ref();
        let limits = BatchLimits {
            items: BATCH_ENTRIES_MAX,
            bytes: BATCH_BYTES_MAX,
            waiting: WAITING_MAX,
        };
        let work = move |items: Vec<SegmentAppend>| match store.upgrade() {
            Some(inner) => Store(inner).write_segments(items),
            None => (items.iter().map(|_| Err(Error::InUse)).collect(), false),
        };
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT_ID.fetch_add(1, Relaxed),
            set: found.set,
            queue: BatchQueue::new(&settings.pool, limits, work),
            writer: Mutex::new(SegmentWriter::new(found.filling)),
            now: AtomicI64::new(0),
            has_lacked: AtomicBool::new(false),
            lacked_at: AtomicI64::new(0),
            emptied: AtomicU64::new(0),
            readmitted: AtomicU64::new(0),
            readmitted_bytes: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            files_bytes: AtomicU64::new(device.map_or(0, |device| device.files_bytes)),
            kept_bytes: AtomicU64::new(0),
            conversion: Mutex::default(),
        }
    }

    /// Is an entry of this length stored in a segment, if it comes whole?
    pub(super) fn takes(&self, entry_len: u64) -> bool {
        entry_len <= ENTRY_BYTES_MAX && !self.set.is_leftover
    }

    /// Notes the present moment, as the caller's clock has it.
    pub(super) fn note_now(&self, now: Seconds) {
        let noted = self.now.load(Relaxed);
        // Loops share it: it is written once a second. Of callers that differ the latest counts; a clock that was put
        // back further than that is followed.
        if noted < now || noted > now.saturating_add(CLOCK_SPREAD) {
            self.now.store(now, Relaxed);
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    fn metrics(&self) -> SegmentMetrics {
        SegmentMetrics {
            counts: self.set.counts(),
            segment_bytes: self.set.bytes,
            emptied: self.emptied.load(Relaxed),
            readmitted: self.readmitted.load(Relaxed),
            readmitted_bytes: self.readmitted_bytes.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }
}

impl Store {
    /// The metrics of its segments; None: every entry has a file of its own.
    #[must_use]
    pub fn segment_metrics(&self) -> Option<SegmentMetrics> {
        Some(self.0.segments.as_ref()?.metrics())
    }

    /// Frees the place of an entry that is out of the index.
    pub(super) fn leave_segment(&self, known: &KnownKey) {
        if let Some(segments) = &self.0.segments
            && known.extent.is_in_segment()
        {
            segments.set.leave(&known.extent);
        }
    }

    /// The same, of one whose place another entry has.
    pub(super) fn leave_place(&self, known: &KnownKey) {
        if let Some(segments) = &self.0.segments
            && known.extent.is_in_segment()
        {
            segments.set.move_away(&known.extent);
        }
    }
}
