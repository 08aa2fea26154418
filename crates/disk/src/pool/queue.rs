//! The queue of a pool: three bounded lanes, and workers that wake each other in a chain.
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
    /// Creates, writes, renames, closes. All of these together never occupy the last thread of a pool.
    Write,
}

/// While reads wait, one job in this many is a write, so that writes proceed on a busy disk.
const WRITE_TURN: u32 = 8;

/// While shared reads wait, one job in this many is a single read, so that those proceed, too.
const SINGLE_TURN: u32 = 4;

/// Jobs that may wait in the write lane beyond its bound, because they must not be refused: they close descriptors, so
/// as many as a process can have (fs.nr_open).
const BEYOND_MAX: usize = 1 << 20;

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
    /// Workers inside [`JobQueue::next`] that sleep.
    idle: usize,
    /// Is one of them being woken?
    waking: bool,
    running: usize,
    writing: usize,
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
            idle: 0,
            waking: false,
            running: 0,
            writing: 0,
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

    /// Accepts a job that must not be refused (a close), in the write lane, even if that is full. Returns it when
    /// [`BEYOND_MAX`] jobs wait beyond the lane's bound.
    pub(super) fn push_always(&self, job: J) -> Result<Pushed, J> {
        let state = self.state.lock();
        if state.writes.len() >= state.bounds.max_queue.saturating_add(BEYOND_MAX) {
            return Err(job);
        }
        Ok(self.accept(state, Lane::Write, job))
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
            state.running -= 1;
            state.writing -= usize::from(lane == Lane::Write);
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
            if state.closed && state.has_no_reads() && state.writes.is_empty() {
                drop(state);
                // A worker may still sleep from when the only jobs left were writes that it might not take.
                self.work.notify_one();
                return None;
            }
            state.idle += 1;
            state = self.work.wait(state);
            state.idle -= 1;
            state.waking = false;
        }
    }

    /// The numbers of waiting jobs: reads (single and shared), and writes.
    pub(super) fn waiting(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.reads.len() + state.shared.len(), state.writes.len())
    }

    /// Jobs being run.
    pub(super) fn running(&self) -> usize {
        self.state.lock().running
    }

    /// A worker ends behind its last job, without another call of [`JobQueue::next`].
    pub(super) fn leave(&self, finished: Lane) {
        let mut state = self.state.lock();
        state.running -= 1;
        state.writing -= usize::from(finished == Lane::Write);
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
        }
    }

    /// Workers that it has, or could have.
    fn threads(&self) -> usize {
        self.bounds.threads + self.spare
    }

    /// Threads that writes may occupy: all but one; in a pool of one thread, that one.
    fn write_threads(&self) -> usize {
        (self.threads() - 1).max(1)
    }

    fn has_room(&mut self, lane: Lane) -> bool {
        if self.bounds.max_queue > 0 {
            return self.lane(lane).len() < self.bounds.max_queue;
        }
        let busy = self.running + self.reads.len() + self.shared.len() + self.writes.len();
        busy < self.threads()
            && (lane != Lane::Write || self.writing + self.writes.len() < self.write_threads())
    }

    fn has_no_reads(&self) -> bool {
        self.reads.is_empty() && self.shared.is_empty()
    }

    fn can_write(&self) -> bool {
        !self.writes.is_empty() && self.writing < self.write_threads()
    }

    fn can_take(&self) -> bool {
        self.holds == 0 && (!self.has_no_reads() || self.can_write())
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
        self.turn = (self.turn + 1) % WRITE_TURN;
        // Only jobs that cannot be refused are beyond the bound. Writes come first then, or the lane would grow as long
        // as there are reads.
        let is_beyond = self.writes.len() > self.bounds.max_queue;
        let is_turn = self.turn == 0 && self.threads() > 1;
        let write = self.can_write() && (self.has_no_reads() || is_turn || is_beyond);
        let is_single = self.turn % SINGLE_TURN == 1 && !self.reads.is_empty();
        let lane = if write {
            Lane::Write
        } else if self.shared.is_empty() || is_single {
            Lane::Read
        } else {
            Lane::Shared
        };
        let job = self.lane(lane).pop_front()?;
        self.running += 1;
        self.writing += usize::from(write);
        Some((lane, job))
    }
}
