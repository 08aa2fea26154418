//! Which windows of large files are in memory, proven, and who is bringing the others.
//!
//! Shared by all loops of a process. Two proofs: our own mapping, asked through PAGEMAP_SCAN (Linux 6.7), which is exact and
//! never dereferenced; where that is not to be had, cachestat(2), if the kernel permits the question; else none, and the
//! range is read into buffers.
//!
//! Invariants: only pool threads map, unmap and fill; a window that we are filling counts as absent, whatever cachestat
//! says of it; the mapped total stays below [`MAPPED_MAX`] and [`SEGMENTS_MAX`].
//!
//! Limits: between proof and `sendfile` lie some milliseconds at most (see `proofs`), in which it could evict a
//! page only if it took one that was just used; pages that *another* process
//! is just reading count as present for cachestat. A mapping keeps the blocks of a deleted file until it was idle for
//! [`IDLE`].

use crate::access::Access;
use crate::calls;
use crate::count::Operation;
use crate::disk::Disk;
use crate::file::{Handle, Meta, OpenFile};
use crate::fill::{Failure, Fill, Outcome};
use crate::mount::Filesystem;
use crate::pool::{Lane, Pool};
use crate::read;
use hashbrown::HashMap;
use parking_lot::Mutex;
use rustix::fs::{Advice, Mode, OFlags, fadvise};
use rustix::io::Errno;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Files are proven, filled and sent in windows of this size.
pub const WINDOW: u64 = 512 << 10;
/// One mapping covers so much of a file.
const SEGMENT: u64 = 64 << 20;
/// Bytes of address space in mappings at most (their page tables: a 512th of it).
pub const MAPPED_MAX: usize = 16 << 30;
/// Mappings at most (vm.max_map_count is 65530).
pub const SEGMENTS_MAX: usize = 8192;
/// Mappings unused for so long are undone.
pub const IDLE: Duration = Duration::from_secs(30);
/// A fault maps what is in memory of the pages around it, from a multiple of this on (fault_around_bytes, mm/memory.c).
pub(crate) const FAULT_AROUND: usize = 64 << 10;
/// How often, at most, somebody looks for idle mappings.
const SWEEP_EVERY_MS: u64 = 5000;
const SHARDS: usize = 16;

/// What is known of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Residency {
    /// In memory: sendfile does not wait.
    Present,
    /// Not, or not known to be.
    Absent,
    /// Nobody can tell for this file.
    Unprovable,
}

/// A window of a file, or a segment: device, inode, number.
type Key = (u64, u64, u64);

#[derive(Debug)]
struct Segment {
    mapping: sys::Mapping,
    /// Milliseconds since the start of `Windows`.
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

#[derive(Debug, Default)]
struct Shard {
    fills: HashMap<Key, Arc<Fill>>,
    segments: HashMap<Key, Arc<Segment>>,
}

#[derive(Debug)]
pub(crate) struct Windows {
    shards: [Mutex<Shard>; SHARDS],
    /// Segments out of the table that a loop may still be looking at; dropped in a pool.
    retired: Mutex<Vec<Arc<Segment>>>,
    mapped: AtomicUsize,
    segments: AtomicUsize,
    swept: AtomicU64,
    start: Instant,
    /// Does a fault map the pages around its own that are in memory?
    faults_around: bool,
    /// /dev/null: where a window is "sent" to bring it into memory without a copy.
    null: Option<OwnedFd>,
}

impl Windows {
    /// Opens /dev/null: before the loops run.
    pub fn new(faults_around: bool) -> Windows {
        #[expect(
            clippy::disallowed_methods,
            reason = "a device without a disk, before the loops run"
        )]
        let null =
            rustix::fs::open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).ok();
        Windows {
            shards: Default::default(),
            retired: Mutex::default(),
            mapped: AtomicUsize::new(0),
            segments: AtomicUsize::new(0),
            swept: AtomicU64::new(0),
            start: Instant::now(),
            faults_around,
            null,
        }
    }

    /// Bytes of address space mapped now.
    pub fn mapped(&self) -> usize {
        self.mapped.load(Relaxed)
    }

    fn shard(&self, key: Key) -> &Mutex<Shard> {
        &self.shards[(key.1 ^ key.2) as usize % SHARDS]
    }

    /// True for one caller every [`SWEEP_EVERY_MS`].
    fn takes_turn_to_sweep(&self) -> bool {
        let (now, swept) = (self.now_ms(), self.swept.load(Relaxed));
        now.saturating_sub(swept) > SWEEP_EVERY_MS
            && self
                .swept
                .compare_exchange(swept, now, Relaxed, Relaxed)
                .is_ok()
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Maps the pages of a part that are in memory, where faults map their neighbours. One that is not there any more would be
/// read by itself, behind all that the disk has to do, and so each of its like: with the first it ends, and the part stays
/// unproven.
pub(crate) fn populate_present(mapping: &sys::Mapping, start: usize, len: usize) {
    let (before, last) = (
        sys::blocks_read(),
        (start + len - 1) / sys::page_size() * sys::page_size(),
    );
    for at in (start..last).step_by(FAULT_AROUND).chain([last]) {
        let _ = mapping.populate(at, 1);
        if sys::blocks_read() != before {
            return;
        }
    }
}

fn key(file: &OpenFile, number: u64) -> Key {
    (file.meta().dev, file.meta().ino, number)
}

impl Disk {
    /// Is this range in memory? (0.3 to 2.5 µs a window; never waits.)
    pub(crate) fn residency(&self, file: &OpenFile, offset: u64, len: u64) -> Residency {
        match file.filesystem() {
            Filesystem::Memory => return Residency::Present,
            Filesystem::Foreign => return Residency::Unprovable,
            Filesystem::Native | Filesystem::Overlay => {}
        }
        let end = offset + len;
        let windows = offset / WINDOW..=end.saturating_sub(1) / WINDOW;
        let is_filling = windows.clone().any(|number| {
            let window = key(file, number);
            let shard = self.windows.shard(window).lock();
            shard.fills.contains_key(&window)
        });
        if is_filling {
            return Residency::Absent;
        }
        let proofs = file.proofs();
        if proofs.hold(windows.clone()) {
            return Residency::Present;
        }
        match self.ask(file, offset, len) {
            Some(true) => {
                // Of a window of which only a part was looked at nothing is remembered.
                let whole = offset.div_ceil(WINDOW);
                let behind = if end >= file.meta().len {
                    end.div_ceil(WINDOW)
                } else {
                    end / WINDOW
                };
                if whole < behind {
                    proofs.learn(whole..=behind - 1, true);
                }
                Residency::Present
            }
            Some(false) => {
                proofs.learn(windows, false);
                Residency::Absent
            }
            None => Residency::Unprovable,
        }
    }

    fn ask(&self, file: &OpenFile, offset: u64, len: u64) -> Option<bool> {
        // The pool reads ahead where this proof is to be had, and what is on its way counts as cached for cachestat.
        let Some(pagemap) = &self.abilities.pagemap else {
            return read::all_cached(file, offset, len);
        };
        let windows = &self.windows;
        let number = key(file, offset / SEGMENT);
        if (offset + len).saturating_sub(1) / SEGMENT != number.2 {
            // Of two mappings nobody asks at once.
            return Some(false);
        }
        let Some(segment) = windows.shard(number).lock().segments.get(&number).cloned() else {
            return Some(false);
        };
        segment.used.store(windows.now_ms(), Relaxed);
        let (start, len) = within_segment(offset, len);
        // EINVAL: the file has grown behind the mapping, which the fill makes anew.
        Some(sys::all_present(pagemap.as_fd(), &segment.mapping, start, len).unwrap_or(false))
    }

    /// The fill of window `first`, begun now unless it is under way: everyone who asks meanwhile waits for the same one.
    /// With it, in one job and (where the disk takes that) one request, the windows behind it up to `last`.
    pub(crate) fn fill(
        self: &Arc<Self>,
        file: &OpenFile,
        first: u64,
        last: u64,
        access: &Access<'_>,
    ) -> Arc<Fill> {
        let fill = match self.claim(file, first) {
            Ok(job) => job,
            Err(running) => return running,
        };
        let answer = fill.fill.clone();
        let mut jobs = vec![fill];
        jobs.extend((first + 1..=last).map_while(|number| self.claim(file, number).ok()));
        let handle = file.handle.clone();
        let begun = access
            .pool
            .spawn(Lane::Read, move || run(jobs, &handle, Use::Coming));
        if let Err(overflow) = begun {
            // The refused jobs have ended the fills already, with a failure that says less.
            answer.finish(Err(Failure::Overflow(overflow)));
        }
        answer
    }

    /// Takes it on to bring a window in; or the fill that somebody else has begun.
    pub(crate) fn claim(self: &Arc<Self>, file: &OpenFile, number: u64) -> Result<Job, Arc<Fill>> {
        let window = key(file, number);
        let mut shard = self.windows.shard(window).lock();
        if let Some(running) = shard.fills.get(&window) {
            return Err(running.clone());
        }
        let fill = Fill::new();
        shard.fills.insert(window, fill.clone());
        Ok(self.job(file.meta(), number, fill, Claim::Own))
    }

    pub(crate) fn job(
        self: &Arc<Self>,
        meta: &Meta,
        number: u64,
        fill: Arc<Fill>,
        claim: Claim,
    ) -> Job {
        Job {
            disk: self.clone(),
            fill,
            window: (meta.dev, meta.ino, number),
            file_len: meta.len,
            claim,
            done: false,
        }
    }

    /// Says that the first window of a file is being read, until the result is dropped. (If somebody else says so already,
    /// his word holds.)
    pub(crate) fn begin_first_fill(self: &Arc<Self>, meta: &Meta) -> FirstFill {
        let window = (meta.dev, meta.ino, 0);
        let mut shard = self.windows.shard(window).lock();
        if shard.fills.contains_key(&window) {
            return FirstFill(None);
        }
        let fill = Fill::new();
        shard.fills.insert(window, fill.clone());
        FirstFill(Some(self.job(meta, 0, fill, Claim::Own)))
    }

    /// Has the pool undo mappings that were idle for long, unless that was just done. Fills do it too; this is for when
    /// there are none.
    pub(crate) fn sweep_in(self: &Arc<Self>, pool: &Pool) {
        if self.mapped() > 0 && self.windows.takes_turn_to_sweep() {
            let disk = self.clone();
            // Refused: there is traffic, so there will be fills.
            let _ = pool.spawn(Lane::Read, move || disk.sweep());
        }
    }

    /// Undoes mappings that were idle for long. **Waits.**
    fn sweep(&self) {
        let windows = &self.windows;
        let now = windows.now_ms();
        let idle = u64::try_from(IDLE.as_millis()).unwrap_or(u64::MAX);
        windows.retire(|segment| now.saturating_sub(segment.used.load(Relaxed)) > idle);
    }
}

/// Where a range lies in its segment, from a page's start.
fn within_segment(offset: u64, len: u64) -> (usize, usize) {
    let page = sys::page_size() as u64;
    let start = offset % SEGMENT;
    let down = start - start % page;
    ((down) as usize, (start - down + len) as usize)
}

/// Who has taken it on to bring a window in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// This job: whatever happens to it (a panic too), those who wait are woken.
    Own,
    /// Another one, which waits in the pool: what this one cannot bring is left to it.
    Another,
}

/// One fill, in the pool.
pub(crate) struct Job {
    disk: Arc<Disk>,
    pub(crate) fill: Arc<Fill>,
    window: Key,
    file_len: u64,
    pub(crate) claim: Claim,
    done: bool,
}

/// The first bytes of a file on their way, with its open.
pub(crate) struct FirstFill(Option<Job>);

impl Drop for FirstFill {
    fn drop(&mut self) {
        if let Some(job) = &mut self.0 {
            job.finish(Ok(()));
        }
    }
}

/// Brings windows in, in a pool.
pub(crate) fn run(jobs: Vec<Job>, handle: &Handle, of: Use) {
    // Explicit ranges only: a page with a readahead marker would start I/O on a loop.
    let _ = fadvise(handle, 0, None, Advice::Random);
    // Each by itself, since the kernel cuts one such wish at the device's largest request or its readahead; all of them before the first
    // is waited for.
    for job in &jobs {
        let (start, len) = (job.window.2 * WINDOW, NonZeroU64::new(WINDOW));
        let _ = fadvise(handle, start, len, Advice::WillNeed);
    }
    for job in jobs {
        job.run(handle, of);
    }
}

impl Job {
    fn run(mut self, handle: &Handle, of: Use) {
        let offset = self.window.2 * WINDOW;
        let len = WINDOW.min(self.file_len.saturating_sub(offset));
        let begun = Instant::now();
        let outcome = self.touch(handle, offset, len);
        let errno = match &outcome {
            Err(Failure::Read(errno)) => Some(*errno),
            _ => None,
        };
        calls::done_on(Operation::Send, begun, handle.as_fd(), len, errno);
        if outcome.is_ok() {
            self.map(handle, offset, len, of);
        }
        self.finish(outcome);
        if self.disk.windows.takes_turn_to_sweep() {
            self.disk.sweep();
        }
    }

    /// Does somebody else wait for this window?
    pub(crate) fn is_awaited(&self) -> bool {
        self.fill.is_awaited()
    }

    /// Maps a range of the window that is in memory now: a page that had to be read here might be waited for under the
    /// process's mapping lock, for which the loops' scans wait in turn.
    pub(crate) fn map(&self, handle: &Handle, offset: u64, len: u64, of: Use) {
        if self.disk.abilities.pagemap.is_none() {
            return;
        }
        let windows = &self.disk.windows;
        windows.populate(self.window, self.file_len, handle, (offset, len), of);
    }

    /// Waits until all of a range is in memory, without copying it: `sendfile` to /dev/null.
    pub(crate) fn touch(&self, handle: &Handle, offset: u64, len: u64) -> Outcome {
        let Some(null) = &self.disk.windows.null else {
            return Err(Failure::Read(Errno::NODEV));
        };
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let left = (end - at) as usize;
            match rustix::fs::sendfile(null, handle, Some(&mut at), left) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(Failure::Read(errno)),
            }
        }
        Ok(())
    }

    /// Says how it ended, unless that is known by now, or another job's to say.
    pub(crate) fn finish(&mut self, outcome: Outcome) {
        self.done = true;
        if self.claim == Claim::Another && outcome.is_err() {
            return;
        }
        let mut shard = self.disk.windows.shard(self.window).lock();
        // Where another job was faster, the next fill of this window may have begun.
        let is_ours = |fill: &Arc<Fill>| Arc::ptr_eq(fill, &self.fill);
        if shard.fills.get(&self.window).is_some_and(is_ours) {
            shard.fills.remove(&self.window);
        }
        drop(shard);
        self.fill.finish(outcome);
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if !self.done {
            self.finish(Err(Failure::Abandoned));
        }
    }
}

impl Windows {
    /// Maps the window's segment, if it is not, and the window's pages. What fails here (the file was truncated) leaves the
    /// window unproven, so read into a buffer in the end.
    fn populate(
        &self,
        window: Key,
        file_len: u64,
        handle: &Handle,
        (offset, len): (u64, u64),
        of: Use,
    ) {
        let number = (window.0, window.1, offset / SEGMENT);
        let (start, len) = within_segment(offset, len);
        let known = self.shard(number).lock().segments.get(&number).cloned();
        let segment = match known {
            Some(segment) if start + len <= segment.mapping.len() => segment,
            known => {
                let wanted = SEGMENT.min(file_len.saturating_sub(number.2 * SEGMENT)) as usize;
                drop(known);
                match self.map(number, handle, wanted) {
                    Some(segment) => segment,
                    None => return,
                }
            }
        };
        segment.used.store(self.now_ms(), Relaxed);
        if self.faults_around {
            populate_present(&segment.mapping, start, len);
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

    fn map(&self, number: Key, handle: &Handle, wanted: usize) -> Option<Arc<Segment>> {
        let wanted = wanted.next_multiple_of(sys::page_size());
        if self.mapped() + wanted > MAPPED_MAX || self.segments.load(Relaxed) >= SEGMENTS_MAX {
            self.retire_oldest();
        }
        if self.mapped() + wanted > MAPPED_MAX {
            return None;
        }
        let mapping = sys::Mapping::new(handle.as_fd(), number.2 * SEGMENT, wanted).ok()?;
        let segment = Arc::new(Segment {
            mapping,
            used: AtomicU64::new(self.now_ms()),
        });
        self.mapped.fetch_add(wanted, Relaxed);
        self.segments.fetch_add(1, Relaxed);
        let before = self
            .shard(number)
            .lock()
            .segments
            .insert(number, segment.clone());
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
                .segments
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
                    .segments
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
        drop(unmapped);
    }
}

#[cfg(test)]
impl Windows {
    pub fn unmap_all(&self) {
        self.retire(|_| true);
    }
}
