//! The state of each segment of a cache: which are free, which is being filled, which are read.

use super::device::DeviceSegments;
use super::layout::{DeadMap, PAGE, SegmentHeader};
use super::{DRAINING_MAX, SEGMENTS_MAX};
use crate::index::EntryExtent;
use disk::{OpenFile, SegmentFile};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sealed segments that are looked through for one without readers, before the oldest is emptied all the same.
const PASSED_OVER_MAX: usize = 64;
/// A sealed segment with less than this percentage of its bytes in the index is emptied before older ones.
const SPARSE_PERCENT: u64 = 10;

/// Number of states.
const STATES: usize = 6;

/// What a segment is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentState {
    /// Nothing: it is clear.
    Free,
    /// Entries are appended to it.
    Filling,
    /// It is full; its entries are found.
    Sealed,
    /// Its entries are leaving the index.
    Emptying,
    /// None of its entries is in the index. It is cleared when the last reader has left.
    Draining,
    /// The same, of one that could not be read, or whose first page could not be written: it is cleared once it can be
    /// written and read again.
    Retired,
}

/// The segments of a cache. Shared by all loops; its lock is held for well under a microsecond by readers.
#[derive(Debug)]
pub(crate) struct Segments {
    /// The directory, with a slash at its end.
    pub directory: Vec<u8>,
    /// Length of each.
    pub bytes: u64,
    /// Are they left from a time with segments (`store=files`)? None is filled, none is made, and one without entries is
    /// removed.
    pub is_leftover: bool,
    /// The device that they lie on; None: they are files of the directory.
    pub device: Option<DeviceSegments>,
    pub(super) set: Mutex<SegmentSet>,
}

#[derive(Debug)]
pub(super) struct SegmentSet {
    /// By number; None: there is no file of this number.
    pub segments: Vec<Option<Segment>>,
    /// Numbers of files, by state.
    counts: [usize; STATES],
    /// Reads, and writes of first pages, that failed, of all that were not forgotten.
    pub(super) read_errors: u32,
    /// Maximum number of files, and what it is for now.
    pub(super) max: usize,
    pub(super) max_now: usize,
    /// Files whose bytes are not the room of all else: more than `max` until those that are too many are removed, less
    /// while what is in other files takes their room.
    pub(super) paid: usize,
    /// The number of the segment that was begun last, in the order of writing.
    sequence: u64,
    /// Could the file system not take another one?
    pub(super) is_full: bool,
    /// Do they belong to another process now?
    pub(super) is_closed: bool,
}

#[derive(Debug)]
pub(crate) struct Segment {
    pub file: Arc<SegmentFile>,
    pub state: SegmentState,
    pub sequence: u64,
    /// Pages of entries in the index.
    pub live_pages: u64,
    pub dead: DeadMap,
    /// Has the map changed since it was written?
    pub is_dead_changed: bool,
    /// May its first page not be on the disk yet as it was written?
    pub is_unsynced: bool,
    /// Reads of it, and writes of its first page, that failed since it was begun.
    pub read_errors: u32,
    /// If it is retired, and is not being tried: when it is tried again, and the pause before that.
    pub proof: Option<(Instant, Duration)>,
}

/// A segment that a caller works on.
#[derive(Clone, Debug)]
pub(crate) struct SegmentUse {
    pub number: u32,
    pub file: Arc<SegmentFile>,
    pub header: SegmentHeader,
}

/// Where an entry is read from.
#[derive(Debug)]
pub(crate) struct SegmentSource {
    pub file: Arc<SegmentFile>,
    /// Where the entry begins in it, in bytes.
    pub at: u64,
    /// The file of the segment, which is not cleared while this lives.
    pub view: OpenFile,
    /// Where the entry begins in that, in bytes.
    pub base: u64,
    /// The segment's number in the order of writing, which stays the same while the view lives.
    pub sequence: u64,
}

/// A drained segment that no reader of this process has.
#[derive(Debug)]
pub(crate) struct Drained {
    pub number: u32,
    pub file: Arc<SegmentFile>,
    /// Is it one too many?
    pub is_surplus: bool,
}

/// Numbers of segments, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// All files.
    pub all: u64,
    /// Clear ones.
    pub free: u64,
    /// Emptied ones that wait for their last readers.
    pub held: u64,
    /// Ones that could not be read, and wait for a proof that they can.
    pub retired: u64,
    /// Bytes of entries in the index.
    pub live_bytes: u64,
}

impl Segment {
    pub(crate) fn new(
        file: SegmentFile,
        state: SegmentState,
        sequence: u64,
        dead: DeadMap,
    ) -> Self {
        Self {
            file: Arc::new(file),
            state,
            sequence,
            live_pages: 0,
            dead,
            is_dead_changed: false,
            is_unsynced: false,
            read_errors: 0,
            proof: None,
        }
    }

    fn forget_pages(&mut self, extent: &EntryExtent) {
        let pages = u64::from(extent.blocks);
        self.live_pages = self.live_pages.saturating_sub(pages);
    }

    /// Is it full, without an entry in the index?
    fn has_nothing(&self) -> bool {
        self.state == SegmentState::Sealed && self.live_pages == 0
    }

    pub(super) fn is_read_from(&self) -> bool {
        use SegmentState::{Emptying, Filling, Sealed};
        matches!(self.state, Filling | Sealed | Emptying)
    }
}

impl SegmentSet {
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, &Segment)> {
        let numbered = self.segments.iter().enumerate();
        numbered.filter_map(|(number, segment)| Some((number as u32, segment.as_ref()?)))
    }

    pub(super) fn count(&self, state: SegmentState) -> usize {
        self.counts[state as usize]
    }

    /// Number of files.
    pub(super) fn files(&self) -> usize {
        self.counts.iter().sum()
    }

    /// Files that are too many.
    fn surplus(&self) -> usize {
        self.files().saturating_sub(self.max_now)
    }

    pub(super) fn set_state(&mut self, number: u32, state: SegmentState) {
        let place = self.segments.get_mut(number as usize);
        if let Some(segment) = place.and_then(Option::as_mut) {
            self.counts[segment.state as usize] -= 1;
            segment.state = state;
            self.counts[state as usize] += 1;
        }
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Segment> {
        self.segments.get_mut(number as usize)?.as_mut()
    }

    fn can_make(&self) -> bool {
        !self.is_full && !self.is_closed && self.files() < self.max_now.min(SEGMENTS_MAX)
    }
}

impl Segments {
    /// The segments that a start found, by number, in a directory whose path ends with a slash; there may be `max`.
    pub(crate) fn new(
        directory: Vec<u8>,
        bytes: u64,
        max: usize,
        segments: Vec<Option<Segment>>,
    ) -> Self {
        let sequences = segments.iter().flatten().map(|one| one.sequence);
        let mut counts = [0; STATES];
        let states = segments.iter().flatten().map(|one| one.state);
        states.for_each(|state| counts[state as usize] += 1);
        let set = SegmentSet {
            sequence: sequences.max().unwrap_or_default(),
            segments,
            counts,
            read_errors: 0,
            max,
            max_now: max,
            paid: max,
            is_full: false,
            is_closed: false,
        };
        Self {
            directory,
            bytes,
            is_leftover: false,
            device: None,
            set: Mutex::new(set),
        }
    }

    /// Pages of a segment.
    pub(crate) fn pages(&self) -> u32 {
        (self.bytes / PAGE) as u32
    }

    /// The path of a segment.
    pub(crate) fn path(&self, number: u32) -> Vec<u8> {
        [&self.directory[..], number.to_string().as_bytes()].concat()
    }

    /// The segment of a place, and the page in it.
    pub(crate) fn place(&self, offset: u32) -> (u32, u32) {
        (offset / self.pages(), offset % self.pages())
    }

    /// Where to read the entry at a place; None: the segment was emptied meanwhile.
    pub(crate) fn source(&self, extent: &EntryExtent) -> Option<SegmentSource> {
        let (number, page) = self.place(extent.offset);
        let set = self.set.lock();
        let segment = set.segments.get(number as usize)?.as_ref()?;
        segment.is_read_from().then(|| SegmentSource {
            file: Arc::clone(&segment.file),
            at: u64::from(page) * PAGE,
            view: segment.file.view(),
            base: segment.file.view_base() + u64::from(page) * PAGE,
            sequence: segment.sequence,
        })
    }

    /// Counts an entry that the index has from now on.
    pub(crate) fn enter(&self, extent: &EntryExtent) {
        let (number, _) = self.place(extent.offset);
        if let Some(segment) = self.set.lock().get_mut(number) {
            segment.live_pages += u64::from(extent.blocks);
        }
    }

    /// Counts an entry that the index has at another place from now on.
    pub(crate) fn move_away(&self, extent: &EntryExtent) {
        let (number, _) = self.place(extent.offset);
        if let Some(segment) = self.set.lock().get_mut(number) {
            segment.forget_pages(extent);
        }
    }

    /// Counts an entry that is out of the index, and is not to be found again.
    pub(crate) fn leave(&self, extent: &EntryExtent) {
        let (number, page) = self.place(extent.offset);
        if let Some(segment) = self.set.lock().get_mut(number) {
            segment.forget_pages(extent);
            segment.dead.set(page);
            segment.is_dead_changed = true;
        }
    }

    /// Does the index have entries in a segment?
    pub(crate) fn has_live(&self, number: u32) -> bool {
        let mut set = self.set.lock();
        set.get_mut(number).is_some_and(|one| one.live_pages > 0)
    }

    /// Is a segment free?
    pub(crate) fn has_free(&self) -> bool {
        self.set.lock().count(SegmentState::Free) > 0
    }

    /// Takes a free segment to be filled. None: there is none.
    pub(crate) fn take_free(&self) -> Option<SegmentUse> {
        let mut set = self.set.lock();
        let free = |(_, one): &(u32, &Segment)| one.state == SegmentState::Free;
        let number = set.all().find(free)?.0;
        set.sequence += 1;
        let sequence = set.sequence;
        let bytes = self.bytes;
        set.set_state(number, SegmentState::Filling);
        let segment = set.get_mut(number)?;
        segment.sequence = sequence;
        segment.live_pages = 0;
        segment.dead = DeadMap::default();
        segment.is_dead_changed = false;
        let file = Arc::clone(&segment.file);
        set.forget_read_errors(number);
        Some(SegmentUse {
            number,
            file,
            header: SegmentHeader { sequence, bytes },
        })
    }

    /// The number for another file. None: there are as many as may be, or as were paid for.
    pub(crate) fn next_number(&self) -> Option<u32> {
        let set = self.set.lock();
        if self.is_leftover || !set.can_make() || set.files() >= set.paid {
            return None;
        }
        let hole = set.segments.iter().position(Option::is_none);
        Some(hole.unwrap_or(set.segments.len()) as u32)
    }

    /// Adds a file, which is clear.
    pub(crate) fn add(&self, number: u32, file: SegmentFile) {
        let mut set = self.set.lock();
        let place = number as usize;
        if set.segments.len() <= place {
            set.segments.resize_with(place + 1, || None);
        }
        let segment = Segment::new(file, SegmentState::Free, 0, DeadMap::default());
        set.segments[place] = Some(segment);
        set.counts[SegmentState::Free as usize] += 1;
    }

    /// Notes whether the file system can take another file.
    pub(crate) fn set_full(&self, is_full: bool) {
        self.set.lock().is_full = is_full;
    }

    pub(crate) fn set_state(&self, number: u32, state: SegmentState) {
        self.set.lock().set_state(number, state);
    }

    /// Is a segment to be emptied, because none is free and none can be made, or because there are too many? (Drained
    /// ones have been cleared before, unless they are still read.)
    pub(crate) fn is_emptying_due(&self) -> bool {
        use SegmentState::{Draining, Free};
        let set = self.set.lock();
        let (draining, free) = (set.count(Draining), set.count(Free));
        if draining >= DRAINING_MAX || set.is_closed {
            return false;
        }
        let is_short = match self.is_leftover {
            true => set.all().any(|(_, one)| one.has_nothing()),
            false => free == 0 && !set.can_make(),
        };
        is_short || set.surplus() > draining + free || set.unreadable().is_some()
    }

    /// Is there anything for the writer to do beside appending?
    pub(crate) fn is_upkeep_due(&self) -> bool {
        let set = self.set.lock();
        let is_left = set.count(SegmentState::Draining) + set.count(SegmentState::Retired) > 0;
        let is_surplus = set.surplus() > 0 && set.count(SegmentState::Free) > 0;
        drop(set);
        is_left || is_surplus || self.is_emptying_due()
    }

    /// Has the map of a segment changed since it was written, or (if that is asked for) may one not be on the disk yet?
    pub(crate) fn has_changed_maps(&self, is_to_sync: bool) -> bool {
        let set = self.set.lock();
        let mut all = set.segments.iter().flatten();
        all.any(|one| one.is_dead_changed || is_to_sync && one.is_unsynced)
    }

    /// The segment to be emptied next: nearly empty ones come first, then the oldest that has no readers. It is marked
    /// as being emptied.
    pub(crate) fn begin_emptying(&self) -> Option<SegmentUse> {
        let mut sealed = self.sealed();
        // Not while readers wait for the lock. Only the writer, which this is, takes one from among the sealed ones.
        sealed.sort_unstable();
        let unread = sealed.iter().take(PASSED_OVER_MAX).find(|one| !one.3);
        let unread = unread.or(sealed.first()).map(|one| one.2);
        let bytes = self.bytes;
        let mut set = self.set.lock();
        let number = set.unreadable().or(unread)?;
        set.set_state(number, SegmentState::Emptying);
        let segment = set.get_mut(number)?;
        let sequence = segment.sequence;
        Some(SegmentUse {
            number,
            file: Arc::clone(&segment.file),
            header: SegmentHeader { sequence, bytes },
        })
    }

    /// Of each sealed segment: whether it is not nearly empty, its place in the order of writing, its number, whether it
    /// is read.
    fn sealed(&self) -> Vec<(bool, u64, u32, bool)> {
        let set = self.set.lock();
        // Those that are left stay while there is room.
        let has_all = !self.is_leftover || set.surplus() > 0;
        let sealed = set
            .all()
            .filter(|(_, one)| one.has_nothing() || has_all && one.state == SegmentState::Sealed);
        sealed
            .map(|(number, one)| {
                let live = one.live_pages * PAGE * 100;
                let is_sparse = live < self.bytes * SPARSE_PERCENT;
                (!is_sparse, one.sequence, number, one.file.is_viewed())
            })
            .collect()
    }

    /// The drained segments that no reader of this process has, and free ones that are too many.
    pub(crate) fn drained(&self) -> Vec<Drained> {
        use SegmentState::{Draining, Free};
        let set = self.set.lock();
        let mut surplus = match self.is_leftover {
            true => set.files(),
            false => set.surplus(),
        };
        if set.count(Draining) == 0 && (surplus == 0 || set.count(Free) == 0) {
            return Vec::new();
        }
        let mut found = Vec::new();
        for (number, one) in set.all() {
            let is_free = one.state == Free && surplus > 0;
            if !is_free && (one.state != Draining || one.file.is_viewed()) {
                continue;
            }
            found.push(Drained {
                number,
                file: Arc::clone(&one.file),
                is_surplus: surplus > 0,
            });
            surplus = surplus.saturating_sub(1);
        }
        found
    }

    /// Removes a file from the list.
    pub(crate) fn remove(&self, number: u32) {
        let set = &mut *self.set.lock();
        set.forget_read_errors(number);
        let place = set.segments.get_mut(number as usize);
        if let Some(gone) = place.and_then(Option::take) {
            set.counts[gone.state as usize] -= 1;
        }
    }

    /// Numbers of sealed segments and of the one that is filled, the newest first.
    pub(crate) fn readable(&self) -> Vec<SegmentUse> {
        let set = self.set.lock();
        let mut readable: Vec<_> = set
            .all()
            .filter(|(_, one)| one.is_read_from())
            .map(|(number, one)| SegmentUse {
                number,
                file: Arc::clone(&one.file),
                header: SegmentHeader {
                    sequence: one.sequence,
                    bytes: self.bytes,
                },
            })
            .collect();
        readable.sort_unstable_by_key(|one| std::cmp::Reverse(one.header.sequence));
        readable
    }

    /// The first page of the next segment whose map has changed, from this number on; from now on it counts as written.
    pub(crate) fn next_changed_map(&self, from: u32) -> Option<(SegmentUse, bytes::Bytes)> {
        let mut set = self.set.lock();
        let numbered = set.segments.iter_mut().enumerate().skip(from as usize);
        let mut changed = numbered.filter_map(|(number, segment)| {
            let segment = segment.as_mut()?;
            let is_changed = std::mem::take(&mut segment.is_dead_changed);
            (is_changed && segment.is_read_from()).then_some((number as u32, segment))
        });
        let (number, segment) = changed.next()?;
        segment.is_unsynced = true;
        let header = SegmentHeader {
            sequence: segment.sequence,
            bytes: self.bytes,
        };
        let (file, dead) = (Arc::clone(&segment.file), segment.dead.clone());
        drop(set);
        let of = SegmentUse {
            number,
            file,
            header,
        };
        Some((of, header.page(&dead)))
    }

    /// The segments whose first pages may not be on the disk yet; from now on they count as if they were.
    pub(crate) fn unsynced(&self) -> Vec<(u32, Arc<SegmentFile>)> {
        let mut set = self.set.lock();
        let mut found = Vec::new();
        for (number, segment) in set.segments.iter_mut().enumerate() {
            if let Some(segment) = segment
                && std::mem::take(&mut segment.is_unsynced)
            {
                found.push((number as u32, Arc::clone(&segment.file)));
            }
        }
        found
    }

    /// The first page of a segment may not be on the disk yet.
    pub(crate) fn set_unsynced(&self, number: u32) {
        if let Some(segment) = self.set.lock().get_mut(number) {
            segment.is_unsynced = true;
        }
    }

    /// The map of a segment changed, and could not be written.
    pub(crate) fn set_changed(&self, number: u32) {
        if let Some(segment) = self.set.lock().get_mut(number) {
            segment.is_dead_changed = true;
        }
    }

    /// Gives up all files: nothing is read from them any more but by the views that are there. Returns those that have
    /// some.
    pub(crate) fn close(&self) -> Vec<Arc<SegmentFile>> {
        let mut set = self.set.lock();
        set.is_closed = true;
        set.counts = [0; STATES];
        let segments = std::mem::take(&mut set.segments);
        let files = segments.into_iter().flatten().map(|one| one.file);
        files.filter(|file| file.is_viewed()).collect()
    }

    /// Bytes that all files may have together.
    pub(crate) fn bytes_max(&self) -> u64 {
        let set = self.set.lock();
        let files = match self.is_leftover {
            true => set.files(),
            false => set.paid,
        };
        (files as u64).saturating_mul(self.bytes)
    }

    /// Bytes of all files.
    pub(crate) fn bytes_made(&self) -> u64 {
        self.set.lock().files() as u64 * self.bytes
    }

    pub(crate) fn counts(&self) -> SegmentCounts {
        let set = self.set.lock();
        let live: u64 = set.all().map(|(_, one)| one.live_pages).sum();
        SegmentCounts {
            all: set.files() as u64,
            free: set.count(SegmentState::Free) as u64,
            held: set.count(SegmentState::Draining) as u64,
            retired: set.count(SegmentState::Retired) as u64,
            live_bytes: live * PAGE,
        }
    }
}
