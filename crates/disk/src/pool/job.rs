//! One job of a pool, and the future that waits for it.
//!
//! The job owns all that it works on. Invariant: what it owns and what it returns is dropped on a thread of the pool,
//! unless the waiting task takes the result; so the last `close` of a file never falls to a loop because a client left.

use super::mailbox::{self, Mailbox};
use super::queue::Lane;
use super::{Pool, Shared};
use crate::metrics::counters::add_waited;
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// What a worker sees of a job.
pub(crate) trait Run: Send + Sync {
    fn run(&self, begun: Instant);
    fn queued(&self) -> Instant;
}

pub(crate) struct Job<F, T> {
    state: Mutex<JobState<F, T>>,
    mailbox: Option<Arc<Mailbox>>,
    queued: Instant,
    /// Reads are not begun once nobody waits; writes always are.
    lane: Lane,
}

struct JobState<F, T> {
    stage: Stage<F, T>,
    /// In the queue.
    waited: Duration,
    waker: Option<Waker>,
}

enum Stage<F, T> {
    Queued(F),
    Running,
    Done(thread::Result<T>),
    Taken,
    /// Nobody waits any more.
    Abandoned(Option<F>),
}

impl<F, T> Job<F, T> {
    pub(crate) fn new(lane: Lane, work: F) -> Job<F, T> {
        let state = JobState {
            stage: Stage::Queued(work),
            waited: Duration::ZERO,
            waker: None,
        };
        Job {
            state: Mutex::new(state),
            mailbox: Mailbox::current(),
            queued: Instant::now(),
            lane,
        }
    }

    /// A job for whose end nobody waits.
    pub(crate) fn detached(lane: Lane, work: F) -> Job<F, T> {
        let state = JobState {
            stage: Stage::Abandoned(Some(work)),
            waited: Duration::ZERO,
            waker: None,
        };
        Job {
            state: Mutex::new(state),
            mailbox: None,
            queued: Instant::now(),
            lane,
        }
    }
}

impl<F: FnOnce() -> T + Send, T: Send> Run for Job<F, T> {
    fn run(&self, begun: Instant) {
        let mut state = self.state.lock();
        state.waited = begun.saturating_duration_since(self.queued);
        let work = match std::mem::replace(&mut state.stage, Stage::Running) {
            Stage::Queued(work) => work,
            Stage::Abandoned(Some(work)) => {
                state.stage = Stage::Abandoned(None);
                work
            }
            other => {
                state.stage = other;
                return;
            }
        };
        drop(state);
        let result = catch_unwind(AssertUnwindSafe(work));
        let mut state = self.state.lock();
        if matches!(state.stage, Stage::Abandoned(_)) {
            drop(state);
            drop(result);
            return;
        }
        state.stage = Stage::Done(result);
        let waker = state.waker.take();
        drop(state);
        match (waker, &self.mailbox) {
            (Some(waker), Some(mailbox)) => mailbox::post(mailbox, waker),
            (Some(waker), None) => waker.wake(),
            (None, _) => {}
        }
    }

    fn queued(&self) -> Instant {
        self.queued
    }
}

/// A job that a pool has accepted. Ready with what the job returned; a panic of the job goes on in who awaits it.
///
/// Dropping it abandons the job: a read that has not begun never will, anything else is finished in the pool.
pub struct Pending<F: FnOnce() -> T + Send + 'static, T: Send + 'static> {
    job: Arc<Job<F, T>>,
    pool: Arc<Shared>,
}

impl<F: FnOnce() -> T + Send + 'static, T: Send + 'static> Pending<F, T> {
    /// Waits for a job that some thread of the pool runs.
    pub(crate) fn new(job: Arc<Job<F, T>>, pool: &Pool) -> Self {
        let pool = pool.shared().clone();
        Self { job, pool }
    }
}

impl<F: FnOnce() -> T + Send + 'static, T: Send + 'static> Future for Pending<F, T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut state = self.job.state.lock();
        match std::mem::replace(&mut state.stage, Stage::Taken) {
            Stage::Done(Ok(value)) => {
                add_waited(Duration::ZERO, state.waited);
                Poll::Ready(value)
            }
            Stage::Done(Err(panic)) => {
                drop(state);
                resume_unwind(panic)
            }
            Stage::Taken | Stage::Abandoned(_) => unreachable!("polled after it was ready"),
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
        match std::mem::replace(&mut state.stage, Stage::Taken) {
            Stage::Taken => {}
            Stage::Done(result) => {
                drop(state);
                self.pool.release(result);
            }
            Stage::Queued(work) if self.job.lane == Lane::Write => {
                state.stage = Stage::Abandoned(Some(work))
            }
            Stage::Queued(work) => {
                drop(state);
                // The queue still holds the (now empty) job; what it owned goes back through the pool.
                self.pool.release(work);
            }
            Stage::Running | Stage::Abandoned(_) => state.stage = Stage::Abandoned(None),
        }
    }
}
