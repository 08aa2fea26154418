//! Mappings of large files through which the page map tells exactly which pages are in memory. They are never
//! dereferenced.
//!
//! Invariants: only pool threads map and unmap; the total stays below [`MAPPED_MAX`] and [`SEGMENTS_MAX`].
//!
//! Limits: a mapping keeps the blocks of a deleted file allocated until it has been idle for [`IDLE`].

use crate::files::open_file::Handle;
use crate::residency::pagemap::PageMap;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Bytes of a file that one mapping covers.
const SEGMENT: u64 = 64 << 20;
/// Bytes of address space in mappings at most (their page tables take a 512th of that).
pub const MAPPED_MAX: usize = 16 << 30;
/// Bytes mapped between two checks that no page had to be read; at least a page.
const POPULATE_PART: usize = 16 << 10;
/// Mappings at most (vm.max_map_count is 65530).
pub(crate) const SEGMENTS_MAX: usize = 8192;
/// Mappings that have been idle for this long are unmapped.
pub(crate) const IDLE: Duration = Duration::from_secs(30);
/// Bytes of an aligned block in which a fault also maps the pages that are in memory (fault_around_bytes, mm/memory.c).
pub(crate) const FAULT_AROUND: usize = 64 << 10;
/// Milliseconds between two sweeps for idle mappings, at least.
const SWEEP_EVERY_MS: u64 = 5000;
/// Milliseconds between two mappings that are made before a window is filled, at least.
const AHEAD_EVERY_MS: u64 = 1;
const SHARDS: usize = 16;

/// A file, by device and inode.
pub(crate) type FileKey = (u64, u64);

/// A segment of a file, by its number (offset / [`SEGMENT`]).
type SegmentKey = (FileKey, u64);

#[derive(Debug)]
pub(crate) struct Segment {
    mapping: sys::Mapping,
    /// Last use, in milliseconds since the start of `Mappings`.
    used: AtomicU64,
}

/// Whether reading a window into memory counts as a use of its pages for the kernel's reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MappingUse {
    /// It does: the window has been sent, or is about to be sent to many clients.
    Made,
    /// It does not: with the one `sendfile` that follows, every window that is sent once would otherwise look as hot to
    /// reclaim as a file that is requested all the time.
    Coming,
}

#[derive(Debug)]
pub(crate) struct Mappings {
    shards: [Mutex<HashMap<SegmentKey, Arc<Segment>>>; SHARDS],
    /// Segments taken out of the table that a loop may still be scanning; dropped in a pool.
    retired: Mutex<Vec<Arc<Segment>>>,
    mapped: AtomicUsize,
    segments: AtomicUsize,
    /// Threads that are mapping or unmapping now.
    changing: AtomicUsize,
    swept: AtomicU64,
    /// When a mapping was last made before a window is filled.
    ahead: AtomicU64,
    start: Instant,
    /// Does a fault map the pages around its own that are in memory?
    faults_around: bool,
}

impl Mappings {
    pub(crate) fn new(faults_around: bool) -> Mappings {
        Mappings {
            shards: Default::default(),
            retired: Mutex::default(),
            mapped: AtomicUsize::new(0),
            segments: AtomicUsize::new(0),
            changing: AtomicUsize::new(0),
            swept: AtomicU64::new(0),
            ahead: AtomicU64::new(0),
            start: Instant::now(),
            faults_around,
        }
    }

    /// Bytes of address space mapped now.
    pub(crate) fn mapped(&self) -> usize {
        self.mapped.load(Relaxed)
    }

    /// Is a range in memory, according to `pagemap`? An unmapped range counts as absent. Never waits; costs 0.3 to 2.5
    /// µs a window.
    pub(crate) fn are_present(
        &self,
        pagemap: &PageMap,
        file: FileKey,
        (offset, len): (u64, u64),
    ) -> bool {
        self.ask(file, (offset, len), |mapping, start, len| {
            pagemap.are_present(mapping, start, len)
        })
    }

    /// The same, according to mincore(2), for an own file; costs 36 ns a page.
    pub(crate) fn are_in_core(&self, file: FileKey, range: (u64, u64)) -> bool {
        self.ask(file, range, sys::Mapping::is_in_core)
    }

    fn ask(
        &self,
        file: FileKey,
        (offset, len): (u64, u64),
        about: impl FnOnce(&sys::Mapping, usize, usize) -> std::io::Result<bool>,
    ) -> bool {
        let number = (file, offset / SEGMENT);
        if (offset + len).saturating_sub(1) / SEGMENT != number.1 {
            // No caller asks for a range over two mappings.
            return false;
        }
        let Some(segment) = self.shard(number).lock().get(&number).cloned() else {
            return false;
        };
        segment.used.store(self.now_ms(), Relaxed);
        let (start, len) = within_segment(offset, len);
        // EINVAL: the file has grown past the mapping, which the next fill replaces.
        about(&segment.mapping, start, len).unwrap_or(false)
    }

    /// Is a pool thread mapping or unmapping now? A scan might then wait for it, and for as long as that thread is off
    /// its processor if it is preempted meanwhile (seen: 18 ms).
    pub(crate) fn are_changing(&self) -> bool {
        self.changing.load(Relaxed) > 0
    }

    /// Runs work that changes the process's memory map.
    pub(crate) fn change<R>(&self, work: impl FnOnce() -> R) -> R {
        self.changing.fetch_add(1, Relaxed);
        let outcome = work();
        self.changing.fetch_sub(1, Relaxed);
        outcome
    }

    fn shard(&self, key: SegmentKey) -> &Mutex<HashMap<SegmentKey, Arc<Segment>>> {
        &self.shards[(key.0.1 ^ key.1) as usize % SHARDS]
    }

    /// True for one caller every [`SWEEP_EVERY_MS`].
    pub(crate) fn takes_turn_to_sweep(&self) -> bool {
        self.takes_turn(&self.swept, SWEEP_EVERY_MS)
    }

    /// True for one caller every [`AHEAD_EVERY_MS`].
    pub(crate) fn takes_turn_to_prepare(&self) -> bool {
        self.takes_turn(&self.ahead, AHEAD_EVERY_MS)
    }

    /// Is there a mapping of the part of a file around an offset?
    pub(crate) fn is_mapped(&self, file: FileKey, offset: u64) -> bool {
        let number = (file, offset / SEGMENT);
        self.shard(number).lock().contains_key(&number)
    }

    fn takes_turn(&self, last: &AtomicU64, every_ms: u64) -> bool {
        let (now, before) = (self.now_ms(), last.load(Relaxed));
        let swap = || last.compare_exchange(before, now, Relaxed, Relaxed);
        now.saturating_sub(before) > every_ms && swap().is_ok()
    }

    /// Unmaps segments that have been idle for [`IDLE`]. **Waits.**
    pub(crate) fn sweep(&self) {
        let now = self.now_ms();
        let idle = u64::try_from(IDLE.as_millis()).unwrap_or(u64::MAX);
        self.retire(|segment| now.saturating_sub(segment.used.load(Relaxed)) > idle);
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The segment of a range inside one window; it is mapped unless it is already. None: it cannot be (there is no room, or
    /// the file was truncated).
    pub(crate) fn segment(
        &self,
        file: FileKey,
        file_len: u64,
        handle: &Handle,
        (offset, len): (u64, u64),
    ) -> Option<Arc<Segment>> {
        let number = (file, offset / SEGMENT);
        let (start, len) = within_segment(offset, len);
        let known = self.shard(number).lock().get(&number).cloned();
        let segment = match known {
            Some(segment) if start + len <= segment.mapping.len() => segment,
            known => {
                let wanted = SEGMENT.min(file_len.saturating_sub(number.1 * SEGMENT)) as usize;
                drop(known);
                self.map(number, handle, wanted)?
            }
        };
        segment.used.store(self.now_ms(), Relaxed);
        Some(segment)
    }

    /// Maps the pages of a range inside one window, which are in memory. A failure (the file was truncated) leaves the window
    /// unproven, so that it is read into a buffer in the end.
    pub(crate) fn populate(
        &self,
        pagemap: &PageMap,
        segment: &Segment,
        (offset, len): (u64, u64),
        of: MappingUse,
    ) {
        let (start, len) = within_segment(offset, len);
        if self.faults_around {
            populate_present(pagemap, &segment.mapping, start, len);
        } else {
            populate_by_parts(&segment.mapping, start, len);
        }
        if of == MappingUse::Coming {
            let _ = segment.mapping.cool(start, len);
        }
    }

    fn map(&self, number: SegmentKey, handle: &Handle, wanted: usize) -> Option<Arc<Segment>> {
        let wanted = wanted.next_multiple_of(sys::page_size());
        if self.mapped() + wanted > MAPPED_MAX || self.segments.load(Relaxed) >= SEGMENTS_MAX {
            self.retire_oldest();
        }
        if self.mapped() + wanted > MAPPED_MAX {
            return None;
        }
        let begin = number.1 * SEGMENT;
        let mapping = self.change(|| sys::Mapping::new(handle.as_fd(), begin, wanted));
        let mapping = mapping.ok()?;
        let segment = Arc::new(Segment {
            mapping,
            used: AtomicU64::new(self.now_ms()),
        });
        self.mapped.fetch_add(wanted, Relaxed);
        self.segments.fetch_add(1, Relaxed);
        let before = self.shard(number).lock().insert(number, segment.clone());
        if let Some(before) = before {
            self.discount(&before);
            self.retired.lock().push(before);
        }
        Some(segment)
    }

    fn discount(&self, segment: &Segment) {
        self.mapped.fetch_sub(segment.mapping.len(), Relaxed);
        self.segments.fetch_sub(1, Relaxed);
    }

    /// Takes the segments that match `which` out of the table.
    fn retire(&self, which: impl Fn(&Segment) -> bool) {
        for shard in &self.shards {
            let out: Vec<_> = shard
                .lock()
                .extract_if(|_, segment| which(segment))
                .map(|(_, s)| s)
                .collect();
            out.iter().for_each(|segment| self.discount(segment));
            self.retired.lock().extend(out);
        }
        self.drop_retired();
    }

    /// Makes room: takes out the least recently used eighth.
    fn retire_oldest(&self) {
        let mut used: Vec<u64> = Vec::new();
        for shard in &self.shards {
            used.extend(
                shard
                    .lock()
                    .values()
                    .map(|segment| segment.used.load(Relaxed)),
            );
        }
        let eighth = used.len() / 8;
        if let Some((_, limit, _)) = (eighth < used.len()).then(|| used.select_nth_unstable(eighth))
        {
            let limit = *limit;
            self.retire(|segment| segment.used.load(Relaxed) <= limit);
        }
    }

    /// Unmaps the retired segments that no loop is scanning any more.
    pub(crate) fn drop_retired(&self) {
        let mut retired = self.retired.lock();
        let unmapped: Vec<_> = retired
            .extract_if(.., |segment| Arc::strong_count(segment) == 1)
            .collect();
        drop(retired);
        if !unmapped.is_empty() {
            self.change(|| drop(unmapped));
        }
    }
}

/// Maps the pages of a part that are in memory but not mapped, on a kernel whose faults map the neighbouring pages,
/// too.
///
/// Touching one page of a block is not enough: a mapped page has no fault, so a neighbour that was evicted and read
/// again would stay unmapped between mapped ones for ever. A page that has been evicted meanwhile would be read by
/// itself, at the end of the disk's queue, and so would each one after it: the first ends this, and the part stays
/// unproven.
fn populate_present(pagemap: &PageMap, mapping: &sys::Mapping, start: usize, len: usize) {
    let (before, mut at, end) = (sys::blocks_read(), start, start + len);
    while at < end {
        let Ok(Some(absent)) = pagemap.first_absent(mapping, at, end - at) else {
            return;
        };
        if mapping.populate(absent, 1).is_err() || sys::blocks_read() != before {
            return;
        }
        at = absent + sys::page_size();
    }
}

/// Maps the pages of a part that is in memory, on a kernel whose faults map one page each. It ends as soon as one had been
/// evicted and was read again, for the same reason: of 512 KiB in one call, each page waited for the disk's queue, four
/// seconds in all.
fn populate_by_parts(mapping: &sys::Mapping, start: usize, len: usize) {
    let (before, end) = (sys::blocks_read(), start + len);
    let part = POPULATE_PART.max(sys::page_size());
    for at in (start..end).step_by(part) {
        let is_mapped = mapping.populate(at, part.min(end - at)).is_ok();
        if !is_mapped || sys::blocks_read() != before {
            return;
        }
    }
}

/// Offset and length of a range within its segment, extended down to the start of a page.
fn within_segment(offset: u64, len: u64) -> (usize, usize) {
    let page = sys::page_size() as u64;
    let start = offset % SEGMENT;
    let down = start - start % page;
    ((down) as usize, (start - down + len) as usize)
}

#[cfg(test)]
impl Mappings {
    pub(crate) fn unmap_all(&self) {
        self.retire(|_| true);
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    /// None: a profile forbids it.
    fn own_pagemap() -> Option<PageMap> {
        let file = std::fs::File::open("/proc/self/pagemap").unwrap();
        PageMap::new(file.into())
    }

    #[test]
    fn a_page_that_came_later_than_those_around_it_is_mapped_too() {
        let Some(pagemap) = own_pagemap() else { return };
        let len = 4 * FAULT_AROUND;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; len]).unwrap();
        file.sync_all().unwrap();
        let (hole, page) = (5 * sys::page_size(), sys::page_size());
        let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        let punched = rustix::fs::fallocate(&file, punch, hole as u64, page as u64);
        let mapping = sys::Mapping::new(file.as_fd(), 0, len).unwrap();
        for at in (0..len).step_by(FAULT_AROUND) {
            mapping.populate(at, 1).unwrap();
        }
        let absent = || pagemap.first_absent(&mapping, 0, len);
        if punched.is_err() || !absent().is_ok_and(|absent| absent == Some(hole)) {
            return;
        }
        file.read_at(&mut vec![0; page], hole as u64).unwrap();
        assert_eq!(absent().unwrap(), Some(hole), "its neighbours are mapped");
        populate_present(&pagemap, &mapping, 0, len);
        assert_eq!(absent().unwrap(), None);
    }

    #[test]
    fn mapping_ends_with_the_part_of_which_a_page_had_to_be_read() {
        let Some(pagemap) = own_pagemap() else { return };
        let part = POPULATE_PART.max(sys::page_size());
        let len = 4 * part;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; len]).unwrap();
        file.sync_all().unwrap();
        let mapping = sys::Mapping::new(file.as_fd(), 0, len).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let before = sys::blocks_read();
        populate_by_parts(&mapping, 0, len);
        if sys::blocks_read() == before {
            return; // This file is never out of memory.
        }
        let absent = pagemap.first_absent(&mapping, 0, len);
        assert!(absent.is_ok_and(|at| at.is_some_and(|at| at <= part)));
        file.read_at(&mut vec![0; len], 0).unwrap();
        populate_by_parts(&mapping, 0, len);
        let absent = pagemap.first_absent(&mapping, 0, len);
        assert_eq!(absent.unwrap(), None);
    }
}
