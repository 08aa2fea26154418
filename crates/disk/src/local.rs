//! [`Local`]: the disk layer of one loop, everything that needs no lock.

use crate::disk::Disk;
use crate::files::open_file::OpenFile;
use crate::keeping::open_files::OpenFiles;
use crate::keeping::path_guards::PathGuards;
use crate::memory::{self, MemoryLevel};
use crate::metrics::counters::{LoopCounters, OPERATIONS, Operation, OperationCount};
use crate::pool;
use crate::sending::writers::FoundWriters;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// One loop's handle on the disk layer; cheap to clone, bound to its thread.
#[derive(Clone, Debug)]
pub struct Local(pub(crate) Rc<LocalInner>);

#[derive(Debug)]
pub(crate) struct LocalInner {
    pub disk: Arc<Disk>,
    pub counters: Arc<LoopCounters>,
    pub files: RefCell<OpenFiles>,
    pub guards: RefCell<PathGuards>,
    /// The moment for which inotify events were last read.
    events_at: Cell<u64>,
    /// The last seen generation of the table of mounts.
    mounts: Cell<u64>,
    /// The process's count of descriptor shortages when this loop last closed files for one.
    pub scarcity: Cell<u32>,
    /// A buffer for bytes that are sent on at once; at most [`crate::READ_MAX`] bytes.
    pub passing: RefCell<Vec<u8>>,
    /// Files that others write to.
    pub writers: FoundWriters,
}

/// How often a loop drops what it kept and no request asked for.
pub const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// Kept files that a sweep checks (an `fstat` each, 0.3 µs) before the loop's other tasks get their turn.
const SWEEP_STEP: usize = 64;

/// Files that a loop closes at most when descriptors have run out: about half a millisecond.
const CLOSED_AT_ONCE: usize = 1024;

impl Local {
    /// Makes a loop's part, and starts the task that delivers the wake-ups from the pools. Call it once per loop, inside
    /// the loop's `LocalRuntime` (or a `LocalSet`), and then [`Local::sweep`] at intervals.
    #[must_use]
    pub fn new(disk: &Arc<Disk>) -> Local {
        tokio::task::spawn_local(pool::deliver());
        let descriptors = disk.descriptors;
        let inner = Rc::new(LocalInner {
            disk: disk.clone(),
            counters: disk.begin_counters(),
            files: RefCell::new(OpenFiles::new(descriptors, disk.copier.clone())),
            guards: RefCell::new(PathGuards::new(descriptors)),
            events_at: Cell::new(0),
            mounts: Cell::new(disk.mounts.generation()),
            scarcity: Cell::new(disk.scarcity()),
            passing: RefCell::default(),
            writers: FoundWriters::default(),
        });
        Local(inner)
    }

    /// Drops files that were not requested since the last sweep or have changed, guards without an open file, and idle
    /// mappings. To be called every [`SWEEP_EVERY`].
    pub async fn sweep(&self) {
        self.0.sweep().await;
    }

    /// The part that all loops share.
    #[must_use]
    pub fn disk(&self) -> &Arc<Disk> {
        &self.0.disk
    }

    /// Was an open file still what its path names, and unchanged, at `moment` ([`Access::moment`](crate::Access))?
    /// False for a file that this loop does not keep: [`Local::open`] finds out.
    #[must_use]
    pub fn is_current(&self, file: &OpenFile, moment: u64) -> bool {
        let Some(place) = file.place.get() else {
            return false;
        };
        self.0.take_events(moment);
        let is_current = self.0.files.borrow_mut().is_current(place, moment);
        if is_current {
            self.0.counters.cached(Operation::Open);
        }
        is_current
    }

    /// This loop's counts, in the order of [`OPERATIONS`].
    #[must_use]
    pub fn counts(&self) -> [OperationCount; OPERATIONS.len()] {
        self.0.counters.get()
    }

    /// Closes half of the kept files (a thousand at most), and the guards that none needs, because descriptors have run out,
    /// and has the other loops do so at their next open. False: there is nothing to close.
    pub fn give_descriptors(&self) -> bool {
        self.0.scarcity.set(self.0.disk.tell_scarcity());
        self.halve()
    }

    /// Has the body of a file that was read whole, a [piece](crate::SegmentFile::piece), put into a copy that `sendfile`
    /// takes pages from; its last `unsent` bytes are never sent. False: it stays where it is.
    pub fn copy_body(&self, piece: &OpenFile, unsent: usize) -> bool {
        piece.unsent.set(unsent);
        let body = piece.body();
        body.is_some_and(|body| self.0.files.borrow_mut().place_body(piece, &body))
    }

    /// Notes a use of a file whose copy is sent without a look whether the file is current: it is not among the first to go.
    pub fn note_use(&self, file: &OpenFile) {
        if let Some(place) = file.place.get() {
            self.0.files.borrow_mut().note_use(place);
        }
    }

    /// Has the file a copy of its body, or will it have one if it is used on? Then its bytes leave the heap.
    #[must_use]
    pub fn awaits_copy(&self, file: &OpenFile) -> bool {
        file.gets_copy() || file.wants_copy() || self.0.files.borrow().wants_copy(file)
    }

    /// Drops what memory is too short for: up to `count` bodies, and up to `count` files where none may be kept open.
    /// False: there is nothing more to drop. For a loop that is told that memory is short, a little at a time.
    pub fn shed(&self, count: usize) -> bool {
        let mut files = self.0.files.borrow_mut();
        let has_bodies = files.shed_bodies(count);
        if memory::level::level() < MemoryLevel::Files {
            return has_bodies;
        }
        let kept = files.len();
        files.shrink(kept.saturating_sub(count));
        self.0.passing.take();
        kept > 0
    }

    fn halve(&self) -> bool {
        let mut files = self.0.files.borrow_mut();
        let kept = files.len();
        files.shrink(kept.saturating_sub(CLOSED_AT_ONCE).max(kept / 2));
        drop(files);
        let pool = self.0.disk.any_pool();
        let has_guards = pool.is_some_and(|pool| self.0.guards.borrow_mut().let_go(&pool));
        kept > 0 || has_guards
    }

    /// Closes as many of the kept files, and what guards none, if another loop has reported that descriptors ran out.
    pub(crate) fn heed_scarcity(&self) {
        let now = self.0.disk.scarcity();
        if self.0.scarcity.replace(now) != now {
            self.halve();
        }
    }
}

impl LocalInner {
    async fn sweep(&self) {
        let mut from = 0;
        while self.files.borrow_mut().sweep(from, SWEEP_STEP) {
            from += SWEEP_STEP;
            tokio::task::yield_now().await;
        }
        let Some(pool) = self.disk.any_pool() else {
            return;
        };
        self.take_events(0);
        self.guards.borrow_mut().let_go(&pool);
        self.disk.windows.sweep_in(&pool);
    }

    /// Looks a path up in the table of open files, after reading the events of its directories up to `moment`
    /// ([`Access::moment`](crate::Access)).
    pub(crate) fn look_up(&self, path: &[u8], moment: u64) -> Option<Rc<OpenFile>> {
        self.take_events(moment);
        self.files.borrow_mut().look_up(path, moment)
    }

    /// Reads the queued events: after this, a valid guard was valid at `moment`.
    pub(crate) fn take_events(&self, moment: u64) {
        let generation = self.disk.mounts.generation();
        if self.mounts.replace(generation) != generation {
            self.guards.borrow_mut().distrust_all();
        }
        if moment == 0 || self.events_at.get() < moment {
            self.events_at.set(moment);
            self.guards.borrow_mut().take_events();
        }
    }
}
