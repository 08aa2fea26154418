//! One job of a pool, and the future that waits for it.
//!
//! A job owns everything that it works on. Invariant: what it owns and what it returns is dropped on a thread of the
//! pool, unless the waiting task takes the result; so a loop never makes the last `close` of a file because a client
//! left.

use super::mailbox::{self, Mailbox};
use super::queue::Lane;
use super::{Pool, PoolShared};
use crate::health::disk_health::{DiskHealth, JobTicket};
use crate::metrics::counters::add_waited;
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// A job as a worker sees it.
pub(crate) trait RunJob: Send + Sync {
    fn run(&self, begun: Instant);
    fn queued(&self) -> Instant;
    /// Whether so many threads hang in jobs as this one.
    fn would_hang(&self, threads: usize) -> bool;
}

pub(crate) struct PoolJob<F, T> {
    state: Mutex<JobState<F, T>>,
    mailbox: Option<Arc<Mailbox>>,
    queued: Instant,
    /// Where its work is counted, if its disk is watched; until it has ended.
    ticket: Mutex<Option<JobTicket>>,
    /// An abandoned read is not begun; an abandoned write is.
    lane: Lane,
}

struct JobState<F, T> {
    stage: JobStage<F, T>,
    /// Time in the queue.
    waited: Duration,
    waker: Option<Waker>,
}

enum JobStage<F, T> {
    Queued(F),
    Running,
    Done(thread::Result<T>),
    Taken,
    /// The waiting future was dropped.
    Abandoned(Option<F>),
    /// It was dropped before this read had begun: the work is dropped in its place in the queue.
    Left(F),
}

impl<F, T> PoolJob<F, T> {
    /// A job that is handed over at `queued`.
    pub(crate) fn new(lane: Lane, queued: Instant, work: F) -> PoolJob<F, T> {
        let state = JobState {
            stage: JobStage::Queued(work),
            waited: Duration::ZERO,
            waker: None,
        };
        PoolJob {
            state: Mutex::new(state),
            mailbox: Mailbox::current(),
            queued,
            ticket: Mutex::new(None),
            lane,
        }
    }

    /// A job without a waiting future.
    pub(crate) fn detached(lane: Lane, work: F) -> PoolJob<F, T> {
        let state = JobState {
            stage: JobStage::Abandoned(Some(work)),
            waited: Duration::ZERO,
            waker: None,
        };
        PoolJob {
            state: Mutex::new(state),
            mailbox: None,
            queued: Instant::now(),
            ticket: Mutex::new(None),
            lane,
        }
    }

    /// The same, counted by a disk.
    pub(crate) fn with(mut self, ticket: Option<JobTicket>) -> Self {
        self.ticket = Mutex::new(ticket);
        self
    }
}

impl<F: FnOnce() -> T + Send, T: Send> RunJob for PoolJob<F, T> {
    fn run(&self, begun: Instant) {
        let ticket = self.ticket.lock().take();
        let mut state = self.state.lock();
        state.waited = begun.saturating_duration_since(self.queued);
        let work = match std::mem::replace(&mut state.stage, JobStage::Running) {
            JobStage::Queued(work) => work,
            JobStage::Abandoned(Some(work)) => {
                state.stage = JobStage::Abandoned(None);
                work
            }
            JobStage::Left(work) => {
                state.stage = JobStage::Abandoned(None);
                drop(state);
                drop(work);
                return;
            }
            other => {
                state.stage = other;
                return;
            }
        };
        drop(state);
        let work = AssertUnwindSafe(work);
        let result = match &ticket {
            None => catch_unwind(work),
            Some(ticket) => catch_unwind(AssertUnwindSafe(|| ticket.run(move || work.0()))),
        };
        drop(ticket);
        let mut state = self.state.lock();
        if matches!(state.stage, JobStage::Abandoned(_)) {
            drop(state);
            drop(result);
            return;
        }
        state.stage = JobStage::Done(result);
        let waker = state.waker.take();
        drop(state);
        match (waker, &self.mailbox) {
            (Some(waker), Some(mailbox)) => mailbox::post(mailbox, waker),
            (Some(waker), None) => waker.wake(),
            (None, _) => {}
        }
    }

    fn would_hang(&self, threads: usize) -> bool {
        let ticket = self.ticket.lock();
        ticket.as_ref().is_some_and(|it| it.would_hang(threads))
    }

    fn queued(&self) -> Instant {
        self.queued
    }
}

/// The result of an accepted job, as a future. A panic of the job resumes in the awaiting task.
///
/// Dropping it abandons the job: a read that has not begun is not run; anything else is finished in the pool.
pub struct Pending<F: FnOnce() -> T + Send + 'static, T: Send + 'static> {
    job: Arc<PoolJob<F, T>>,
    pool: Arc<PoolShared>,
    disk: Option<Arc<DiskHealth>>,
}

impl<F: FnOnce() -> T + Send + 'static, T: Send + 'static> Pending<F, T> {
    /// The future of a job that a thread of the pool runs.
    pub(crate) fn new(job: Arc<PoolJob<F, T>>, pool: &Pool) -> Self {
        let disk = pool.disk_health().cloned();
        let pool = pool.shared().clone();
        Self { job, pool, disk }
    }
}

impl<F: FnOnce() -> T + Send + 'static, T: Send + 'static> Future for Pending<F, T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut state = self.job.state.lock();
        match std::mem::replace(&mut state.stage, JobStage::Taken) {
            JobStage::Done(Ok(value)) => {
                add_waited(Duration::ZERO, state.waited);
                Poll::Ready(value)
            }
            JobStage::Done(Err(panic)) => {
                drop(state);
                resume_unwind(panic)
            }
            JobStage::Taken | JobStage::Abandoned(_) | JobStage::Left(_) => {
                unreachable!("polled after it was ready")
            }
            stage => {
                state.stage = stage;
                match &mut state.waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    waker => *waker = Some(context.waker().clone()),
                }
                Poll::Pending
            }
        }
    }
}

impl<F: FnOnce() -> T + Send + 'static, T: Send + 'static> Drop for Pending<F, T> {
    fn drop(&mut self) {
        let mut state = self.job.state.lock();
        match std::mem::replace(&mut state.stage, JobStage::Taken) {
            JobStage::Taken => {}
            JobStage::Done(result) => {
                drop(state);
                self.pool.release(result, self.disk.as_ref());
            }
            JobStage::Queued(work) if self.job.lane == Lane::Write => {
                state.stage = JobStage::Abandoned(Some(work))
            }
            // As a job of its own it would wait for its turn among the releases, and keep what it has claimed.
            JobStage::Queued(work) => state.stage = JobStage::Left(work),
            JobStage::Running | JobStage::Abandoned(_) | JobStage::Left(_) => {
                state.stage = JobStage::Abandoned(None)
            }
        }
    }
}
