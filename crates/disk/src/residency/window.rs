//! Which windows of large files are in memory, proven, and who is bringing the others.
//!
//! Shared by all loops of a process. Two proofs: our own mapping (see `mappings`); where that is not to be had, cachestat(2), if the kernel
//! permits the question; else none, and the range is read into buffers.
//!
//! Invariants: only pool threads fill; a window that we are filling counts as absent, whatever cachestat says of it.
//!
//! Limits: between proof and `sendfile` lie some milliseconds at most (see `proofs`). A page that was just used is not evicted in them, but
//! one that nobody used for long may be, while the kernel takes memory back as fast as a disk fills it: see [`Residency::Fleeting`]. Pages
//! that *another* process is just reading count as present for cachestat.

use crate::access::Access;
use crate::call_times;
use crate::disk::Disk;
use crate::file::{Handle, Meta, OpenFile};
use crate::metrics::counters::Operation;
use crate::mount::Filesystem;
use crate::pool::{Lane, Pool};
use crate::reading::read;
use crate::residency::eviction_pressure::EvictionPressure;
use crate::residency::fill::{Fill, FillError, FillResult};
use crate::residency::mappings::{FileKey, Mappings, Use};
use hashbrown::HashMap;
use parking_lot::Mutex;
use rustix::fs::{Advice, Mode, OFlags, fadvise};
use rustix::io::Errno;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// Files are proven, filled and sent in windows of this size.
pub const WINDOW: u64 = 512 << 10;
/// Bytes after which it is seen whether what was asked for is coming.
pub(crate) const STEP: u64 = 64 << 10;
const SHARDS: usize = 16;

/// What is known of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Residency {
    /// In memory: sendfile does not wait.
    Present,
    /// In memory, but so much is being read that it may be evicted before sendfile comes to it (seen: waits of 99 to 895 ms); or it was there, and
    /// just now nobody can look.
    Fleeting,
    /// Not, or not known to be.
    Absent,
    /// Nobody can tell for this file.
    Unprovable,
}

/// A window of a file, by its number.
type WindowKey = (FileKey, u64);

#[derive(Debug)]
pub(crate) struct Windows {
    fills: [Mutex<HashMap<WindowKey, Arc<Fill>>>; SHARDS],
    pub mappings: Mappings,
    pub pressure: EvictionPressure,
    /// /dev/null: where a window is "sent" to bring it into memory without a copy.
    null: Option<OwnedFd>,
}

impl Windows {
    /// Opens /dev/null: before the loops run.
    pub(crate) fn new(faults_around: bool) -> Windows {
        #[expect(
            clippy::disallowed_methods,
            reason = "a device without a disk, before the loops run"
        )]
        let null =
            rustix::fs::open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).ok();
        Windows {
            fills: Default::default(),
            mappings: Mappings::new(faults_around),
            pressure: EvictionPressure::new(),
            null,
        }
    }

    fn fills(&self, key: WindowKey) -> &Mutex<HashMap<WindowKey, Arc<Fill>>> {
        &self.fills[(key.0.1 ^ key.1) as usize % SHARDS]
    }
}

fn key(meta: &Meta, number: u64) -> WindowKey {
    ((meta.dev, meta.ino), number)
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
            let window = key(file.meta(), number);
            self.windows.fills(window).lock().contains_key(&window)
        });
        if is_filling {
            return Residency::Absent;
        }
        let proofs = file.proofs();
        if proofs.hold(windows.clone()) {
            return Residency::Present;
        }
        if self.windows.mappings.are_changing() {
            return match proofs.remember(windows) {
                true => Residency::Fleeting,
                false => Residency::Absent,
            };
        }
        // Whole windows, which can be remembered, wherever in them a socket stopped; only if something of them is missing, what was asked for.
        let start = windows.start() * WINDOW;
        let until = ((windows.end() + 1) * WINDOW).min(file.meta().len).max(end);
        let is_part = (start, until) != (offset, end);
        let are_whole = self.ask(file, start, until - start);
        let is_there = match are_whole {
            Some(false) if is_part => self.ask(file, offset, len),
            answer => answer,
        };
        match is_there {
            Some(true) if self.windows.pressure.is_high() && !file.is_sent_to_many() => {
                Residency::Fleeting
            }
            Some(true) => {
                if are_whole == Some(true) {
                    proofs.learn(windows, true);
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
        let (of, _) = key(file.meta(), 0);
        let mappings = &self.windows.mappings;
        Some(mappings.are_present(pagemap.as_fd(), of, (offset, len)))
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
            answer.finish(Err(FillError::Overflow(overflow)));
        }
        answer
    }

    /// Takes it on to bring a window in; or the fill that somebody else has begun.
    pub(crate) fn claim(
        self: &Arc<Self>,
        file: &OpenFile,
        number: u64,
    ) -> Result<FillJob, Arc<Fill>> {
        let window = key(file.meta(), number);
        let mut fills = self.windows.fills(window).lock();
        if let Some(running) = fills.get(&window) {
            return Err(running.clone());
        }
        let fill = Fill::new();
        fills.insert(window, fill.clone());
        Ok(self.job(file.meta(), number, fill, Claim::Own))
    }

    pub(crate) fn job(
        self: &Arc<Self>,
        meta: &Meta,
        number: u64,
        fill: Arc<Fill>,
        claim: Claim,
    ) -> FillJob {
        FillJob {
            disk: self.clone(),
            fill,
            window: key(meta, number),
            file_len: meta.len,
            claim,
            done: false,
        }
    }

    /// Says that the first window of a file is being read, until the result is dropped. (If somebody else says so already,
    /// his word holds.)
    pub(crate) fn begin_first_fill(self: &Arc<Self>, meta: &Meta) -> FirstFill {
        let window = key(meta, 0);
        let mut fills = self.windows.fills(window).lock();
        if fills.contains_key(&window) {
            return FirstFill(None);
        }
        let fill = Fill::new();
        fills.insert(window, fill.clone());
        FirstFill(Some(self.job(meta, 0, fill, Claim::Own)))
    }

    /// Has the pool undo mappings that were idle for long, unless that was just done. Fills do it too; this is for when
    /// there are none.
    pub(crate) fn sweep_in(self: &Arc<Self>, pool: &Pool) {
        let mappings = &self.windows.mappings;
        if mappings.mapped() > 0 && mappings.takes_turn_to_sweep() {
            let disk = self.clone();
            // Refused: there is traffic, so there will be fills.
            let _ = pool.spawn(Lane::Read, move || disk.windows.mappings.sweep());
        }
    }
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
pub(crate) struct FillJob {
    disk: Arc<Disk>,
    pub(crate) fill: Arc<Fill>,
    window: WindowKey,
    file_len: u64,
    pub(crate) claim: Claim,
    done: bool,
}

/// The first bytes of a file on their way, with its open.
pub(crate) struct FirstFill(Option<FillJob>);

impl Drop for FirstFill {
    fn drop(&mut self) {
        if let Some(job) = &mut self.0 {
            job.finish(Ok(()));
        }
    }
}

/// Has the kernel begin to read a range.
pub(crate) fn will_need(file: &Handle, from: u64, until: u64) {
    let len = NonZeroU64::new(until.saturating_sub(from));
    if len.is_some() {
        let _ = fadvise(file, from, len, Advice::WillNeed);
    }
}

/// Brings windows in, in a pool.
pub(crate) fn run(jobs: Vec<FillJob>, handle: &Handle, of: Use) {
    // Explicit ranges only: a page with a readahead marker would start I/O on a loop.
    let _ = fadvise(handle, 0, None, Advice::Random);
    // Each by itself, since the kernel cuts one such wish at the device's largest request or its readahead; all of them before the first
    // is waited for.
    for job in &jobs {
        let start = job.window.1 * WINDOW;
        will_need(handle, start, start + WINDOW);
    }
    for job in jobs {
        job.run(handle, of);
    }
}

impl FillJob {
    fn run(mut self, handle: &Handle, of: Use) {
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
        let mappings = &self.disk.windows.mappings;
        if mappings.takes_turn_to_sweep() {
            mappings.sweep();
        }
    }

    /// Does somebody else wait for this window?
    pub(crate) fn is_awaited(&self) -> bool {
        self.fill.is_awaited()
    }

    /// Maps a range of the window that is in memory now: a page that had to be read here might be waited for under the
    /// process's mapping lock, for which the loops' scans wait in turn.
    pub(crate) fn map(&self, handle: &Handle, offset: u64, len: u64, of: Use) {
        let Some(pagemap) = &self.disk.abilities.pagemap else {
            return;
        };
        let (file, _) = self.window;
        let mappings = &self.disk.windows.mappings;
        mappings.populate(
            pagemap.as_fd(),
            file,
            self.file_len,
            handle,
            (offset, len),
            of,
        );
    }

    /// Waits until all of a range is in memory, without copying it: `sendfile` to /dev/null. Where the kernel has given up reading ahead, or has
    /// evicted again what it brought, it is asked anew: else each step would be a request of its own, behind all that the disk has to do.
    pub(crate) fn touch(&self, handle: &Handle, offset: u64, len: u64) -> FillResult {
        let Some(null) = &self.disk.windows.null else {
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

    /// Says how it ended, unless that is known by now, or another job's to say.
    pub(crate) fn finish(&mut self, outcome: FillResult) {
        self.done = true;
        if self.claim == Claim::Another && outcome.is_err() {
            return;
        }
        let mut fills = self.disk.windows.fills(self.window).lock();
        // Where another job was faster, the next fill of this window may have begun.
        let is_ours = |fill: &Arc<Fill>| Arc::ptr_eq(fill, &self.fill);
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
