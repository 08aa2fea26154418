//! Our own mappings of large files, through which PAGEMAP_SCAN (Linux 6.7) tells what is in memory: exact, and never dereferenced.
//!
//! Invariants: only pool threads map and unmap; the mapped total stays below [`MAPPED_MAX`] and [`SEGMENTS_MAX`].
//!
//! Limits: a mapping keeps the blocks of a deleted file until it was idle for [`IDLE`].

use crate::file::Handle;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// One mapping covers so much of a file.
const SEGMENT: u64 = 64 << 20;
/// Bytes of address space in mappings at most (their page tables: a 512th of it).
pub const MAPPED_MAX: usize = 16 << 30;
/// Mappings at most (vm.max_map_count is 65530).
pub(crate) const SEGMENTS_MAX: usize = 8192;
/// Mappings unused for so long are undone.
pub(crate) const IDLE: Duration = Duration::from_secs(30);
/// A fault maps what is in memory of the pages around it, from a multiple of this on (fault_around_bytes, mm/memory.c).
pub(crate) const FAULT_AROUND: usize = 64 << 10;
/// How often, at most, somebody looks for idle mappings.
const SWEEP_EVERY_MS: u64 = 5000;
const SHARDS: usize = 16;

/// A file: device and inode.
pub(crate) type FileKey = (u64, u64);

/// A segment of a file, by its number.
type SegmentKey = (FileKey, u64);

#[derive(Debug)]
struct Segment {
    mapping: sys::Mapping,
    /// Milliseconds since the start of `Mappings`.
    used: AtomicU64,
}

/// What reading a window into memory was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Its use: it has been sent, or many are about to.
    Made,
    /// No use of it: else the one `sendfile` to come would make every window that is sent once as precious to reclaim as
    /// a file that is asked for all the time.
    Coming,
}

#[derive(Debug)]
pub(crate) struct Mappings {
    shards: [Mutex<HashMap<SegmentKey, Arc<Segment>>>; SHARDS],
    /// Segments out of the table that a loop may still be looking at; dropped in a pool.
    retired: Mutex<Vec<Arc<Segment>>>,
    mapped: AtomicUsize,
    segments: AtomicUsize,
    /// Threads that are mapping or unmapping now.
    changing: AtomicUsize,
    swept: AtomicU64,
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
            start: Instant::now(),
            faults_around,
        }
    }

    /// Bytes of address space mapped now.
    pub(crate) fn mapped(&self) -> usize {
        self.mapped.load(Relaxed)
    }

    /// Is a range in memory, as `pagemap` tells? What is not mapped is not. (0.3 to 2.5 µs a window; never waits.)
    pub(crate) fn are_present(
        &self,
        pagemap: BorrowedFd<'_>,
        file: FileKey,
        (offset, len): (u64, u64),
    ) -> bool {
        let number = (file, offset / SEGMENT);
        if (offset + len).saturating_sub(1) / SEGMENT != number.1 {
            // Of two mappings nobody asks at once.
            return false;
        }
        let Some(segment) = self.shard(number).lock().get(&number).cloned() else {
            return false;
        };
        segment.used.store(self.now_ms(), Relaxed);
        let (start, len) = within_segment(offset, len);
        // EINVAL: the file has grown behind the mapping, which the fill makes anew.
        sys::all_present(pagemap, &segment.mapping, start, len).unwrap_or(false)
    }

    /// Is a thread of a pool mapping or unmapping now? Then a look might wait for it: for as long as the thread has no processor, if that was
    /// taken from it meanwhile (seen: 18 ms).
    pub(crate) fn are_changing(&self) -> bool {
        self.changing.load(Relaxed) > 0
    }

    /// Does what changes the process's map of memory.
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
        let (now, swept) = (self.now_ms(), self.swept.load(Relaxed));
        now.saturating_sub(swept) > SWEEP_EVERY_MS
            && self
                .swept
                .compare_exchange(swept, now, Relaxed, Relaxed)
                .is_ok()
    }

    /// Undoes mappings that were idle for long. **Waits.**
    pub(crate) fn sweep(&self) {
        let now = self.now_ms();
        let idle = u64::try_from(IDLE.as_millis()).unwrap_or(u64::MAX);
        self.retire(|segment| now.saturating_sub(segment.used.load(Relaxed)) > idle);
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Maps the segment of a range of one window, if it is not, and the range's pages, which are in memory. What fails here (the file was
    /// truncated) leaves the window unproven, so read into a buffer in the end.
    pub(crate) fn populate(
        &self,
        pagemap: BorrowedFd<'_>,
        file: FileKey,
        file_len: u64,
        handle: &Handle,
        (offset, len): (u64, u64),
        of: Use,
    ) {
        let number = (file, offset / SEGMENT);
        let (start, len) = within_segment(offset, len);
        let known = self.shard(number).lock().get(&number).cloned();
        let segment = match known {
            Some(segment) if start + len <= segment.mapping.len() => segment,
            known => {
                let wanted = SEGMENT.min(file_len.saturating_sub(number.1 * SEGMENT)) as usize;
                drop(known);
                match self.map(number, handle, wanted) {
                    Some(segment) => segment,
                    None => return,
                }
            }
        };
        segment.used.store(self.now_ms(), Relaxed);
        if self.faults_around {
            populate_present(pagemap, &segment.mapping, start, len);
        } else {
            let _ = segment.mapping.populate(start, len);
        }
        if of == Use::Coming {
            let _ = segment.mapping.cool(start, len);
        }
        drop(segment);
        // So that the last reference never falls to a loop.
        self.drop_retired();
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

    /// Takes out of the table what `which` says.
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

    /// Makes room: the eighth that was used longest ago.
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

    /// Unmaps what no loop looks at any more.
    fn drop_retired(&self) {
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

/// Maps the pages of a part that are in memory and are not mapped yet, where faults map their neighbours. (One that is mapped has no fault, so
/// that it is not enough to ask for one of them: evicted and read again, a page would stay unmapped between mapped ones for ever.) A page that
/// is not there any more would be read by itself, behind all that the disk has to do, and so each of its like: with the first it ends, and the
/// part stays unproven.
fn populate_present(pagemap: BorrowedFd<'_>, mapping: &sys::Mapping, start: usize, len: usize) {
    let (before, mut at, end) = (sys::blocks_read(), start, start + len);
    while at < end {
        let Ok(Some(absent)) = sys::first_absent(pagemap, mapping, at, end - at) else {
            return;
        };
        if mapping.populate(absent, 1).is_err() || sys::blocks_read() != before {
            return;
        }
        at = absent + sys::page_size();
    }
}

/// Where a range lies in its segment, from a page's start.
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

    #[test]
    fn a_page_that_came_later_than_those_around_it_is_mapped_too() {
        let len = 4 * FAULT_AROUND;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; len]).unwrap();
        file.sync_all().unwrap();
        let (hole, page) = (5 * sys::page_size(), sys::page_size());
        let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        let punched = rustix::fs::fallocate(&file, punch, hole as u64, page as u64);
        let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
        let mapping = sys::Mapping::new(file.as_fd(), 0, len).unwrap();
        for at in (0..len).step_by(FAULT_AROUND) {
            mapping.populate(at, 1).unwrap();
        }
        let absent = || sys::first_absent(pagemap.as_fd(), &mapping, 0, len);
        if punched.is_err() || !absent().is_ok_and(|absent| absent == Some(hole)) {
            return;
        }
        file.read_at(&mut vec![0; page], hole as u64).unwrap();
        assert_eq!(absent().unwrap(), Some(hole), "its neighbours are mapped");
        populate_present(pagemap.as_fd(), &mapping, 0, len);
        assert_eq!(absent().unwrap(), None);
    }
}
