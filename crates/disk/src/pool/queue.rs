//! The queue of a pool: four bounded lanes, and workers that wake each other in a chain.
//!
//! It knows nothing of threads or of what jobs are (its tests run it under loom with numbers for jobs).
//!
//! Invariants: an accepted job is handed out once; while a job waits that may be taken, a worker is awake or being
//! woken; at most one wake-up is under way at any moment, and the woken worker wakes the next only if work is left.
//! (Waking one worker per job costs twelve times the CPU.)

use super::sync::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;

/// The lane of a pool's queue that a job waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Jobs that one request waits for: opens, reads, CPU work.
    Read,
    /// Reads that several requests wait for. They come before those of [`Lane::Read`]: one read serves them all.
    Shared,
    /// Creates, writes, renames. In a pool of `RELEASE_THREADS_MIN` threads they leave one to reads and one to
    /// releases.
    Write,
    /// Values that are dropped: the last `close` of a file. Nobody waits for them, and they are never refused, so they
    /// must keep pace with what opens files. Together with writes they never occupy the last thread of a pool.
    Release,
}

/// While reads wait, one job in this many is a write, so that writes proceed on a busy disk.
const WRITE_TURN: u32 = 8;

/// While shared reads wait, one job in this many is a single read, so that those proceed, too.
const SINGLE_TURN: u32 = 4;

/// While other jobs wait, one job in this many is a release.
const RELEASE_TURN: u32 = 8;

/// Releases that wait from which one job in two is one: each job opens one file at most.
const RELEASES_MANY: usize = 64;

/// Releases that wait from which they come first.
const RELEASES_URGENT: usize = 1024;

/// Releases that may wait at most: as many as a process can have descriptors (fs.nr_open).
const RELEASES_MAX: usize = 1 << 20;

/// Threads of a pool from which writes leave one to releases.
const RELEASE_THREADS_MIN: usize = 4;

/// The bounds of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Workers that call [`JobQueue::next`].
    pub threads: usize,
    /// Jobs that may wait in each lane; 0: only as many as there are free threads.
    pub max_queue: usize,
}

pub(super) struct JobQueue<J> {
    state: Mutex<QueueState<J>>,
    work: Condvar,
}

struct QueueState<J> {
    bounds: Bounds,
    /// Workers beyond the bound, in place of workers that hang.
    spare: usize,
    reads: VecDeque<J>,
    shared: VecDeque<J>,
    writes: VecDeque<J>,
    releases: VecDeque<J>,
    /// Workers inside [`JobQueue::next`] that sleep.
    idle: usize,
    /// Is one of them being woken?
    waking: bool,
    running: usize,
    writing: usize,
    releasing: usize,
    turn: u32,
    holds: usize,
    closed: bool,
}

/// What the caller of [`JobQueue::push`] or [`JobQueue::next`] should do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// Nothing: a worker will take the job.
    Fine,
    /// No worker sleeps: start another one, if fewer than `threads` exist.
    NoneIdle,
}

impl<J> JobQueue<J> {
    pub(super) fn new(bounds: Bounds) -> JobQueue<J> {
        let state = QueueState {
            bounds,
            spare: 0,
            reads: VecDeque::new(),
            shared: VecDeque::new(),
            writes: VecDeque::new(),
            releases: VecDeque::new(),
            idle: 0,
            waking: false,
            running: 0,
            writing: 0,
            releasing: 0,
            turn: 0,
            holds: 0,
            closed: false,
        };
        JobQueue {
            state: Mutex::new(state),
            work: Condvar::new(),
        }
    }

    /// Accepts a job, or returns it with the number of jobs in its lane.
    pub(super) fn push(&self, lane: Lane, job: J) -> Result<Pushed, (J, usize)> {
        let mut state = self.state.lock();
        if !state.has_room(lane) {
            let waiting = state.lane(lane).len();
            drop(state);
            return Err((job, waiting));
        }
        Ok(self.accept(state, lane, job))
    }

    /// Accepts a release. Returns it when [`RELEASES_MAX`] of them wait.
    pub(super) fn push_release(&self, job: J) -> Result<Pushed, J> {
        let state = self.state.lock();
        if state.releases.len() >= RELEASES_MAX {
            return Err(job);
        }
        Ok(self.accept(state, Lane::Release, job))
    }

    fn accept(&self, mut state: MutexGuard<'_, QueueState<J>>, lane: Lane, job: J) -> Pushed {
        state.lane(lane).push_back(job);
        let none_idle = state.idle == 0;
        let wake = state.must_wake();
        drop(state);
        if wake {
            self.work.notify_one();
        }
        if none_idle {
            Pushed::NoneIdle
        } else {
            Pushed::Fine
        }
    }

    /// The next job for a worker. `finished`: the lane of its last job. Sleeps; None: the pool is closed.
    pub(super) fn next(&self, finished: Option<Lane>) -> Option<(Lane, J, Pushed)> {
        let mut state = self.state.lock();
        if let Some(lane) = finished {
            state.end(lane);
        }
        loop {
            if let Some((lane, job)) = state.take() {
                let more = if state.idle == 0 && state.can_take() {
                    Pushed::NoneIdle
                } else {
                    Pushed::Fine
                };
                let wake = state.must_wake();
                drop(state);
                if wake {
                    self.work.notify_one();
                }
                return Some((lane, job, more));
            }
            if state.closed && state.is_empty() {
                drop(state);
                // A worker may still sleep from when the only jobs left were such as it might not take.
                self.work.notify_one();
                return None;
            }
            state.idle += 1;
            state = self.work.wait(state);
            state.idle -= 1;
            state.waking = false;
        }
    }

    /// The numbers of waiting jobs: reads (single and shared), writes, and releases.
    pub(super) fn waiting(&self) -> [usize; 3] {
        let state = self.state.lock();
        let reads = state.reads.len() + state.shared.len();
        [reads, state.writes.len(), state.releases.len()]
    }

    /// Jobs being run.
    pub(super) fn running(&self) -> usize {
        self.state.lock().running
    }

    /// A worker ends behind its last job, without another call of [`JobQueue::next`].
    pub(super) fn leave(&self, finished: Lane) {
        let mut state = self.state.lock();
        state.end(finished);
        let wake = state.must_wake();
        drop(state);
        if wake {
            self.work.notify_one();
        }
    }

    /// Takes a job back that was handed out and not run; it is the next of its lane.
    pub(super) fn put_back(&self, lane: Lane, job: J) {
        let mut state = self.state.lock();
        state.lane(lane).push_front(job);
        let wake = state.must_wake();
        drop(state);
        if wake {
            self.work.notify_one();
        }
    }

    /// Has it count on so many workers beyond its bound.
    pub(super) fn set_spare(&self, spare: usize) {
        let mut state = self.state.lock();
        state.spare = spare;
        let wake = state.must_wake();
        drop(state);
        if wake {
            self.work.notify_one();
        }
    }

    /// Whether a job waits that may be taken, and no worker sleeps.
    pub(super) fn has_work(&self) -> bool {
        let state = self.state.lock();
        state.idle == 0 && state.can_take()
    }

    /// Freezes the queue (`true`: no job is handed out) or undoes one such freeze.
    pub(super) fn hold(&self, held: bool) {
        let mut state = self.state.lock();
        state.holds = if held {
            state.holds + 1
        } else {
            state.holds.saturating_sub(1)
        };
        drop(state);
        self.work.notify_all();
    }

    /// Lets the workers end once all accepted jobs are done.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.holds = 0;
        drop(state);
        self.work.notify_all();
    }
}

impl<J> QueueState<J> {
    fn lane(&mut self, lane: Lane) -> &mut VecDeque<J> {
        match lane {
            Lane::Read => &mut self.reads,
            Lane::Shared => &mut self.shared,
            Lane::Write => &mut self.writes,
            Lane::Release => &mut self.releases,
        }
    }

    /// Notes that a job is not run any more.
    fn end(&mut self, lane: Lane) {
        self.running -= 1;
        self.writing -= usize::from(lane == Lane::Write);
        self.releasing -= usize::from(lane == Lane::Release);
    }

    /// Workers that it has, or could have.
    fn threads(&self) -> usize {
        self.bounds.threads + self.spare
    }

    /// Threads that writes and releases together may occupy: all but one; in a pool of one thread, that one.
    fn threads_beside_reads(&self) -> usize {
        (self.threads() - 1).max(1)
    }

    /// Threads that writes alone may occupy.
    fn write_threads(&self) -> usize {
        match self.threads() >= RELEASE_THREADS_MIN {
            true => self.threads_beside_reads() - 1,
            false => self.threads_beside_reads(),
        }
    }

    fn has_room(&mut self, lane: Lane) -> bool {
        if self.bounds.max_queue > 0 {
            return self.lane(lane).len() < self.bounds.max_queue;
        }
        let reads = self.reads.len() + self.shared.len();
        let busy = self.running + reads + self.writes.len() + self.releases.len();
        busy < self.threads()
            && (lane != Lane::Write || self.writing + self.writes.len() < self.write_threads())
    }

    fn has_no_reads(&self) -> bool {
        self.reads.is_empty() && self.shared.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.has_no_reads() && self.writes.is_empty() && self.releases.is_empty()
    }

    fn can_write(&self) -> bool {
        !self.writes.is_empty() && self.writing < self.write_threads() && self.has_thread()
    }

    fn can_release(&self) -> bool {
        !self.releases.is_empty() && self.has_thread()
    }

    fn has_thread(&self) -> bool {
        self.writing + self.releasing < self.threads_beside_reads()
    }

    fn can_take(&self) -> bool {
        self.holds == 0 && (!self.has_no_reads() || self.can_write() || self.can_release())
    }

    fn must_wake(&mut self) -> bool {
        let wake = self.idle > 0 && !self.waking && self.can_take();
        self.waking |= wake;
        wake
    }

    fn take(&mut self) -> Option<(Lane, J)> {
        if !self.can_take() {
            return None;
        }
        self.turn = self.turn.wrapping_add(1);
        let lane = self.next_lane();
        let job = self.lane(lane).pop_front()?;
        self.running += 1;
        self.writing += usize::from(lane == Lane::Write);
        self.releasing += usize::from(lane == Lane::Release);
        Some((lane, job))
    }

    /// The lane whose turn it is. Releases and writes have their turns in different jobs.
    fn next_lane(&self) -> Lane {
        let has_no_reads = self.has_no_reads();
        let can_write = self.can_write();
        let release_turn = match self.releases.len() {
            RELEASES_URGENT.. => 1,
            RELEASES_MANY.. => 2,
            _ if has_no_reads => 2,
            _ => RELEASE_TURN,
        };
        let is_alone = has_no_reads && !can_write;
        if self.can_release() && (is_alone || self.turn % release_turn == 1 % release_turn) {
            return Lane::Release;
        }
        if can_write && (has_no_reads || self.turn.is_multiple_of(WRITE_TURN)) {
            return Lane::Write;
        }
        let is_single = self.turn % SINGLE_TURN == 2 && !self.reads.is_empty();
        match self.shared.is_empty() || is_single {
            true => Lane::Read,
            false => Lane::Shared,
        }
    }
}
