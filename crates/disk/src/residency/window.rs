//! Proofs that windows of large files are in memory, and the fills that bring in the others. Shared by all loops of a
//! process.
//!
//! There are three proofs: a mapping of our own (see `mappings`), whose pages the page map shows, or, of the server's own
//! files, mincore(2); and where the page map does not tell of mappings, cachestat(2), if it permits the call. Without any,
//! the range is read into buffers.
//!
//! Invariants: only pool threads fill; a window that is being filled counts as absent, whatever cachestat says of it;
//! what our page table shows is sent, whoever fills the rest of its window.
//!
//! Limits: a few milliseconds at most lie between proof and `sendfile` (see `files::residency_memo`). A page used just
//! before is not evicted in that time. One that has not been used for long may be, while the kernel reclaims memory as
//! fast as a disk fills it: see [`Residency::Fleeting`]. cachestat counts pages that *another* process is reading in as
//! present.

use crate::files::mount::Filesystem;
use crate::files::open_file::{Handle, Meta, OpenFile};
use crate::metrics::call_times;
use crate::metrics::counters::Operation;
use crate::pool::{Lane, Overflow, Pool};
use crate::residency::ahead_limit::AheadLimit;
use crate::residency::cached::all_cached;
use crate::residency::eviction_pressure::EvictionPressure;
use crate::residency::fill::{FillError, FillResult, WindowFill};
use crate::residency::in_core::InCore;
use crate::residency::mappings::{FileKey, MappingUse, Mappings};
use crate::residency::pagemap::PageMap;
use hashbrown::HashMap;
use parking_lot::Mutex;
use rustix::fs::{Advice, Mode, OFlags, fadvise};
use rustix::io::Errno;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// Bytes of a window: the unit in which files are proven, filled and sent.
pub const WINDOW: u64 = 512 << 10;
/// Windows requested from a disk at once: as many as it takes in one request (1 MiB without large folios). So many are also
/// read and sent in one job, unless `read_ahead` wants more; with all threads at work they stay few enough not to evict
/// each other.
pub(crate) const PART_WINDOWS: u64 = 2;
/// Bytes read between two checks that the kernel's readahead is still ahead.
pub(crate) const STEP: u64 = 64 << 10;
const SHARDS: usize = 16;

/// What is known about the presence of a range in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Residency {
    /// In memory: `sendfile` does not wait.
    Present,
    /// In memory, but so much is being read that it may be evicted before `sendfile` gets to it (seen: waits of 99 to
    /// 895 ms). Or it was in memory at the last look, and the page map cannot be scanned now. Or (while sending) it is
    /// of xfs, and `sendfile` may wait for who writes to the file.
    Fleeting,
    /// Not in memory, or not known to be.
    Absent,
    /// There is no proof for this file.
    Unprovable,
}

/// A window of a file, by its number (offset / [`WINDOW`]).
type WindowKey = (FileKey, u64);

#[derive(Debug)]
pub(crate) struct Windows {
    fills: [Mutex<HashMap<WindowKey, Arc<WindowFill>>>; SHARDS],
    pub mappings: Mappings,
    pub pressure: EvictionPressure,
    pub ahead: AheadLimit,
    /// None: it does not tell of mappings here.
    pub pagemap: Option<PageMap>,
    pub in_core: InCore,
    /// /dev/null: a window is "sent" there to bring it into memory without a copy.
    null: Option<OwnedFd>,
}

impl Windows {
    /// Proofs by this descriptor of /proc/self/pagemap, if it tells of mappings. Opens /dev/null, so it must be called
    /// before the loops run.
    pub(crate) fn new(pagemap: Option<OwnedFd>) -> Arc<Windows> {
        let pagemap = pagemap.and_then(PageMap::new);
        let faults_around = pagemap.as_ref().is_some_and(PageMap::faults_around);
        #[expect(
            clippy::disallowed_methods,
            reason = "a device without a disk, before the loops run"
        )]
        let null =
            rustix::fs::open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).ok();
        Arc::new(Windows {
            fills: Default::default(),
            mappings: Mappings::new(faults_around),
            pressure: EvictionPressure::new(),
            ahead: AheadLimit::new(),
            pagemap,
            in_core: InCore::new(),
            null,
        })
    }

    fn fills_of(&self, key: WindowKey) -> &Mutex<HashMap<WindowKey, Arc<WindowFill>>> {
        &self.fills[(key.0.1 ^ key.1) as usize % SHARDS]
    }
}

fn key(meta: &Meta, number: u64) -> WindowKey {
    ((meta.dev, meta.ino), number)
}

impl Windows {
    /// Is this range in memory? Never waits; costs 0.3 to 2.5 µs a window, of an own file 5.
    pub(crate) fn residency(&self, file: &OpenFile, offset: u64, len: u64) -> Residency {
        match file.filesystem() {
            Filesystem::Memory => return Residency::Present,
            Filesystem::Foreign => return Residency::Unprovable,
            Filesystem::Native | Filesystem::Xfs | Filesystem::Overlay => {}
        }
        let end = offset + len;
        let windows = offset / WINDOW..=end.saturating_sub(1) / WINDOW;
        // A page in our page table is up to date; cachestat counts those that are on their way, too.
        if self.pagemap.is_none() && self.are_filling(file, windows.clone()) {
            return Residency::Absent;
        }
        let proofs = file.proofs();
        if proofs.hold(windows.clone()) || proofs.hold_range(offset, end) {
            return Residency::Present;
        }
        if self.mappings.are_changing() {
            return match proofs.remember(windows) {
                true => Residency::Fleeting,
                false => Residency::Absent,
            };
        }
        if self.is_told_in_core(&file.handle, file.meta().uid) {
            let (of, _) = key(file.meta(), 0);
            let found = self.found(file, self.mappings.are_in_core(of, (offset, len)));
            match found {
                Residency::Present => proofs.learn_range(offset, end),
                Residency::Absent => proofs.learn(windows, false),
                Residency::Fleeting | Residency::Unprovable => {}
            }
            return found;
        }
        // Whole windows first, wherever in them a socket stopped: their answer can be remembered. If a part of them is
        // missing, only the range itself.
        let start = windows.start() * WINDOW;
        let until = ((windows.end() + 1) * WINDOW).min(file.meta().len).max(end);
        let is_part = (start, until) != (offset, end);
        let are_whole = self.ask(file, start, until - start);
        let is_there = match are_whole {
            Some(false) if is_part => self.ask(file, offset, len),
            answer => answer,
        };
        let Some(is_there) = is_there else {
            return Residency::Unprovable;
        };
        let found = self.found(file, is_there);
        if !is_there || found == Residency::Present && are_whole == Some(true) {
            proofs.learn(windows, is_there);
        }
        found
    }

    /// What an answer comes to while memory is as it is now.
    fn found(&self, file: &OpenFile, is_there: bool) -> Residency {
        match is_there {
            true if self.pressure.is_high() && !file.is_sent_to_many() => Residency::Fleeting,
            true => Residency::Present,
            false => Residency::Absent,
        }
    }

    /// Does mincore(2) tell what is in memory of a mapping of this user's file?
    fn is_told_in_core(&self, handle: &Handle, uid: u32) -> bool {
        self.pagemap.is_some() && self.in_core.tells_of(handle, uid)
    }

    fn are_filling(&self, file: &OpenFile, mut windows: RangeInclusive<u64>) -> bool {
        windows.any(|number| {
            let window = key(file.meta(), number);
            self.fills_of(window).lock().contains_key(&window)
        })
    }

    fn ask(&self, file: &OpenFile, offset: u64, len: u64) -> Option<bool> {
        // With a page map the pool reads ahead, and cachestat counts pages that are on their way as cached.
        let Some(pagemap) = &self.pagemap else {
            return all_cached(file, offset, len);
        };
        let (of, _) = key(file.meta(), 0);
        let mappings = &self.mappings;
        Some(mappings.are_present(pagemap, of, (offset, len)))
    }

    /// The fill of window `first`, begun now unless one is under way: concurrent callers share it. The windows behind
    /// it up to `last` that are not in memory come with it, in one job and (where the disk takes that) one request.
    ///
    /// # Errors
    /// The pool refuses the job. Others that wait for these windows already learn that they must ask themselves.
    pub(crate) fn fill(
        self: &Arc<Self>,
        file: &OpenFile,
        first: u64,
        last: u64,
        pool: &Pool,
    ) -> Result<Arc<WindowFill>, Overflow> {
        let fill = match self.claim(file, first) {
            Ok(job) => job,
            Err(running) => return Ok(running),
        };
        let answer = fill.fill.clone();
        let mut jobs = vec![fill];
        jobs.extend((first + 1..=last).map_while(|number| self.claim_absent(file, number)));
        let handle = file.handle.clone();
        pool.spawn(Lane::Read, move || run(jobs, &handle, MappingUse::Coming))?;
        Ok(answer)
    }

    /// Claims a window, unless it is in memory or being filled: what others may send at once must not wait for a job
    /// that begins elsewhere.
    pub(crate) fn claim_absent(self: &Arc<Self>, file: &OpenFile, number: u64) -> Option<FillJob> {
        let start = number * WINDOW;
        let len = WINDOW.min(file.meta().len.saturating_sub(start));
        let is_absent = self.residency(file, start, len) == Residency::Absent;
        is_absent.then(|| self.claim(file, number).ok()).flatten()
    }

    /// Claims a window for a new fill. Err: the fill of it that is under way.
    pub(crate) fn claim(
        self: &Arc<Self>,
        file: &OpenFile,
        number: u64,
    ) -> Result<FillJob, Arc<WindowFill>> {
        let window = key(file.meta(), number);
        let mut fills = self.fills_of(window).lock();
        if let Some(running) = fills.get(&window) {
            return Err(running.clone());
        }
        let fill = WindowFill::new();
        fills.insert(window, fill.clone());
        Ok(self.job(file.meta(), number, fill, Claim::Own))
    }

    pub(crate) fn job(
        self: &Arc<Self>,
        meta: &Meta,
        number: u64,
        fill: Arc<WindowFill>,
        claim: Claim,
    ) -> FillJob {
        FillJob {
            windows: self.clone(),
            fill,
            window: key(meta, number),
            file_len: meta.len,
            owner: meta.uid,
            claim,
            done: false,
        }
    }

    /// Marks a window of a file, in which a job reads, as being filled until the result is dropped. (Does nothing if a
    /// fill of it is under way.)
    pub(crate) fn begin_read(self: &Arc<Self>, meta: &Meta, number: u64) -> WindowRead {
        let window = key(meta, number);
        let mut fills = self.fills_of(window).lock();
        if fills.contains_key(&window) {
            return WindowRead(None);
        }
        let fill = WindowFill::new();
        fills.insert(window, fill.clone());
        WindowRead(Some(self.job(meta, number, fill, Claim::Own)))
    }

    /// Marks the first and the last window of a range that a job reads, which has no others.
    pub(crate) fn begin_reads(
        self: &Arc<Self>,
        meta: &Meta,
        offset: u64,
        len: usize,
    ) -> (WindowRead, Option<WindowRead>) {
        let end = (offset + len as u64).min(meta.len);
        let (first, last) = (offset / WINDOW, end.saturating_sub(1) / WINDOW);
        let read = |number| self.begin_read(meta, number);
        (read(first), (last > first).then(|| read(last)))
    }

    /// Has the file's pool prepare that [`Windows::residency`] can tell of the window around `offset`: of an own file, of
    /// which mincore(2) tells then, it is mapped; of another one that `is_used_again`, its pages are, too.
    pub(crate) fn prepare(self: &Arc<Self>, file: &OpenFile, offset: u64, is_used_again: bool) {
        // Of a part of a file that was read, the metadata is that of the whole, but for the length.
        let is_on_disk = file.body().is_none() && file.copy().is_none();
        if self.pagemap.is_none() || !is_on_disk {
            return;
        }
        let pool = file.handle.pool();
        // If the job is refused, a later use asks again.
        if self.is_told_in_core(&file.handle, file.meta().uid) {
            self.map_ahead(file, offset, pool);
        } else if is_used_again
            && self.mappings.takes_turn_to_prepare()
            && let Some(job) = self.claim_absent(file, offset / WINDOW)
        {
            let handle = file.handle.clone();
            let fill = move || run(vec![job], &handle, MappingUse::Made);
            let _ = pool.spawn(Lane::Read, fill);
        }
    }

    fn map_ahead(self: &Arc<Self>, file: &OpenFile, offset: u64, pool: &Pool) {
        let (meta, (of, _)) = (*file.meta(), key(file.meta(), 0));
        let mappings = &self.mappings;
        if mappings.is_mapped(of, offset) || !mappings.takes_turn_to_prepare() {
            return;
        }
        let (windows, handle) = (self.clone(), file.handle.clone());
        let _ = pool.spawn(Lane::Read, move || {
            let mappings = &windows.mappings;
            drop(mappings.segment(of, meta.len, &handle, (offset, 1)));
            mappings.drop_retired();
        });
    }

    /// Has the pool unmap segments that have been idle for long, unless that was done just before. Fills sweep, too;
    /// this is for times without fills.
    pub(crate) fn sweep_in(self: &Arc<Self>, pool: &Pool) {
        let mappings = &self.mappings;
        if mappings.mapped() > 0 && mappings.takes_turn_to_sweep() {
            let windows = self.clone();
            // If it is refused there is traffic, so there will be fills.
            let _ = pool.spawn(Lane::Read, move || windows.mappings.sweep());
        }
    }
}

/// Which job is responsible for ending a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// This job: it wakes the waiters whatever happens to it, a panic included.
    Own,
    /// Another job, which is queued in the pool: this one reports success only.
    Another,
}

/// The part of a pool job that fills one window.
pub(crate) struct FillJob {
    windows: Arc<Windows>,
    pub(crate) fill: Arc<WindowFill>,
    window: WindowKey,
    file_len: u64,
    owner: u32,
    pub(crate) claim: Claim,
    done: bool,
}

/// Marks a window of a file as being filled while a job reads in it.
pub(crate) struct WindowRead(Option<FillJob>);

impl Drop for WindowRead {
    fn drop(&mut self) {
        if let Some(job) = &mut self.0 {
            job.finish(Ok(()));
        }
    }
}

/// Asks the kernel to start reading a range (POSIX_FADV_WILLNEED).
pub(crate) fn will_need(file: &Handle, from: u64, until: u64) {
    let len = NonZeroU64::new(until.saturating_sub(from));
    if len.is_some() {
        let _ = fadvise(file, from, len, Advice::WillNeed);
    }
}

/// Fills windows. **Waits.**
pub(crate) fn run(jobs: Vec<FillJob>, handle: &Handle, of: MappingUse) {
    // Explicit ranges only: a page with a readahead marker would start I/O on a loop.
    let _ = fadvise(handle, 0, None, Advice::Random);
    // One call for as many adjacent windows as a disk takes in one request, since the kernel cuts each at the device's
    // largest request or its readahead; all of them before the first wait.
    let adjacent = jobs.chunk_by(|a, b| a.window.1 + 1 == b.window.1);
    for part in adjacent.flat_map(|jobs| jobs.chunks(PART_WINDOWS as usize)) {
        let (first, last) = (part[0].window.1, part[part.len() - 1].window.1);
        will_need(handle, first * WINDOW, (last + 1) * WINDOW);
    }
    for job in jobs {
        job.run(handle, of);
    }
}

impl FillJob {
    fn run(mut self, handle: &Handle, of: MappingUse) {
        let offset = self.window.1 * WINDOW;
        let len = WINDOW.min(self.file_len.saturating_sub(offset));
        let begun = Instant::now();
        let outcome = self.touch(handle, offset, len);
        let errno = match &outcome {
            Err(FillError::Read(errno)) => Some(*errno),
            _ => None,
        };
        call_times::done_on(Operation::Send, begun, handle.as_fd(), len, errno);
        if outcome.is_ok() {
            self.map(handle, offset, len, of);
        }
        self.finish(outcome);
        let mappings = &self.windows.mappings;
        if mappings.takes_turn_to_sweep() {
            mappings.sweep();
        }
    }

    /// Does another task wait for this window?
    pub(crate) fn is_awaited(&self) -> bool {
        self.fill.is_awaited()
    }

    /// Maps a range of the window, or of an own file the segment alone. The range must be in memory: a page that had to be
    /// read would be waited for under the process's mapping lock, which the loops' scans need.
    pub(crate) fn map(&self, handle: &Handle, offset: u64, len: u64, of: MappingUse) {
        let Some(pagemap) = &self.windows.pagemap else {
            return;
        };
        let (file, _) = self.window;
        let mappings = &self.windows.mappings;
        let segment = mappings.segment(file, self.file_len, handle, (offset, len));
        if let Some(segment) = segment
            && !self.windows.in_core.tells_of(handle, self.owner)
        {
            mappings.populate(pagemap, &segment, (offset, len), of);
        }
        // A loop must never hold the last reference.
        mappings.drop_retired();
    }

    /// Waits until a whole range is in memory, without a copy: `sendfile` to /dev/null. Where the kernel has given up
    /// its readahead, or has evicted what it read, it is asked again: otherwise each step would be a request of its
    /// own, at the end of the disk's queue.
    pub(crate) fn touch(&self, handle: &Handle, offset: u64, len: u64) -> FillResult {
        if let Some(errno) = call_times::fault(Operation::Send) {
            return Err(FillError::Read(errno));
        }
        let Some(null) = &self.windows.null else {
            return Err(FillError::Read(Errno::NODEV));
        };
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let before = sys::blocks_read();
            let step = (end - at).min(STEP) as usize;
            match rustix::fs::sendfile(null, handle, Some(&mut at), step) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(FillError::Read(errno)),
            }
            if sys::blocks_read() != before {
                will_need(handle, at, end);
            }
        }
        Ok(())
    }

    /// Reports the result, unless it is known already or another job has to report it.
    pub(crate) fn finish(&mut self, outcome: FillResult) {
        self.done = true;
        if self.claim == Claim::Another && outcome.is_err() {
            return;
        }
        let mut fills = self.windows.fills_of(self.window).lock();
        // If another job was faster, the next fill of this window may have begun.
        let is_ours = |fill: &Arc<WindowFill>| Arc::ptr_eq(fill, &self.fill);
        if fills.get(&self.window).is_some_and(is_ours) {
            fills.remove(&self.window);
        }
        drop(fills);
        self.fill.finish(outcome);
    }
}

impl Drop for FillJob {
    fn drop(&mut self) {
        if !self.done {
            self.finish(Err(FillError::Abandoned));
        }
    }
}
