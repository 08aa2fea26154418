//! A queue whose items are taken together by one job of a pool at a time: for work that is cheaper for many than for
//! one, and that must not be done twice at once. Where items come fast, a batch is gathered for a moment (see `arrivals`).
//!
//! Invariants: at most one job works on a queue; while an item waits, one is on its way to it; each item's caller gets
//! its result, or learns that the work was lost ([`BatchQueue::push`]).

use super::arrivals::{Arrivals, gather};
use super::mailbox::{self, Mailbox, together};
use super::queue::Lane;
use super::{Overflow, Pool};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// Batches that one job takes before the pool's other jobs get their turn.
const TURNS_MAX: usize = 4;

/// Bounds of a queue.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Maximum of items of a batch.
    pub items: usize,
    /// Maximum of a batch in bytes, as the callers count them; one item may have more.
    pub bytes: usize,
    /// Maximum of items that wait.
    pub waiting: usize,
}

/// The results of a batch, in the order of its items, and whether there is more to do without any items.
pub(super) type BatchDone<R> = (Vec<R>, bool);

type BatchWork<T, R> = dyn Fn(Vec<T>) -> BatchDone<R> + Send + Sync;

/// A queue, see the module. Cheap to clone.
pub struct BatchQueue<T, R>(Arc<BatchInner<T, R>>);

struct BatchInner<T, R> {
    pool: Pool,
    limits: BatchLimits,
    state: Mutex<BatchState<T, R>>,
    work: Box<BatchWork<T, R>>,
}

struct BatchState<T, R> {
    waiting: VecDeque<BatchItem<T, R>>,
    /// Is the work to be called though nothing waits?
    is_poked: bool,
    is_running: bool,
    arrivals: Arrivals,
}

struct BatchItem<T, R> {
    item: T,
    bytes: usize,
    reply: Reply<R>,
}

/// The sending side of a result.
struct Reply<R>(Arc<ReplySlot<R>>);

struct ReplySlot<R> {
    state: Mutex<ReplyState<R>>,
    mailbox: Option<Arc<Mailbox>>,
}

enum ReplyState<R> {
    Waiting(Option<Waker>),
    Done(R),
    Lost,
}

/// The result of an item, as a future; `None`: the work was lost (it panicked).
struct BatchReply<R>(Arc<ReplySlot<R>>);

impl<T, R> Clone for BatchQueue<T, R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T, R> std::fmt::Debug for BatchQueue<T, R> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} waiting", self.waiting())
    }
}

impl<R> ReplySlot<R> {
    fn end(&self, with: ReplyState<R>) {
        let mut state = self.state.lock();
        let ReplyState::Waiting(waker) = &mut *state else {
            return;
        };
        let waker = waker.take();
        *state = with;
        drop(state);
        match (waker, &self.mailbox) {
            (Some(waker), Some(mailbox)) => mailbox::post(mailbox, waker),
            (Some(waker), None) => waker.wake(),
            (None, _) => {}
        }
    }
}

impl<R> Drop for Reply<R> {
    fn drop(&mut self) {
        self.0.end(ReplyState::Lost);
    }
}

impl<R> Future for BatchReply<R> {
    type Output = Option<R>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<R>> {
        let mut state = self.0.state.lock();
        match std::mem::replace(&mut *state, ReplyState::Lost) {
            ReplyState::Done(result) => Poll::Ready(Some(result)),
            ReplyState::Lost => Poll::Ready(None),
            ReplyState::Waiting(_) => {
                *state = ReplyState::Waiting(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl<T, R> BatchQueue<T, R> {
    /// Items that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.state.lock().waiting.len()
    }
}

impl<T: Send + 'static, R: Send + 'static> BatchQueue<T, R> {
    /// A queue whose batches are worked on by jobs of this pool, in its write lane. `work` may wait; it returns a result
    /// for each item.
    #[must_use]
    pub fn new(
        pool: &Pool,
        limits: BatchLimits,
        work: impl Fn(Vec<T>) -> BatchDone<R> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(BatchInner {
            pool: pool.clone(),
            limits,
            state: Mutex::new(BatchState {
                waiting: VecDeque::new(),
                is_poked: false,
                is_running: false,
                arrivals: Arrivals::default(),
            }),
            work: Box::new(work),
        }))
    }

    /// Adds an item of so many bytes, and waits for its result. If the returned future is dropped, the item is worked on
    /// all the same. `None`: the work was lost.
    ///
    /// # Errors
    /// [`Overflow`]: as many wait as may, or the pool takes no job.
    pub async fn push(&self, item: T, bytes: usize) -> Result<Option<R>, Overflow> {
        let slot = Arc::new(ReplySlot {
            state: Mutex::new(ReplyState::Waiting(None)),
            mailbox: Mailbox::current(),
        });
        let reply = Reply(Arc::clone(&slot));
        self.add(BatchItem { item, bytes, reply })?;
        Ok(BatchReply(slot).await)
    }

    /// Has the work called soon, with whatever waits.
    ///
    /// # Errors
    /// [`Overflow`]: the pool takes no job; the next item does it.
    pub fn poke(&self) -> Result<(), Overflow> {
        let mut state = self.0.state.lock();
        state.is_poked = true;
        if state.is_running {
            return Ok(());
        }
        self.ask()?;
        state.is_running = true;
        Ok(())
    }

    fn add(&self, item: BatchItem<T, R>) -> Result<(), Overflow> {
        let mut state = self.0.state.lock();
        let waiting = state.waiting.len();
        if waiting >= self.0.limits.waiting {
            let pool = self.0.pool.name().clone();
            return Err(Overflow::Queue { pool, waiting });
        }
        if !state.is_running {
            self.ask()?;
            state.is_running = true;
        }
        state.arrivals.note(Instant::now());
        state.waiting.push_back(item);
        Ok(())
    }

    fn ask(&self) -> Result<(), Overflow> {
        let queue = self.clone();
        self.0.pool.spawn(Lane::Write, move || queue.run())
    }

    /// **Waits.**
    fn run(&self) {
        /// After a panic of the work, others go on with what waits.
        struct GoesOn<'a, T: Send + 'static, R: Send + 'static>(&'a BatchQueue<T, R>);
        impl<T: Send + 'static, R: Send + 'static> Drop for GoesOn<'_, T, R> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    let mut state = self.0.0.state.lock();
                    state.is_running = !state.waiting.is_empty() && self.0.ask().is_ok();
                }
            }
        }
        let _goes_on = GoesOn(self);
        for turn in 0.. {
            // The next job goes on; if the pool takes none, this thread does. Only then may this one end: nothing that
            // waits is ever without a job.
            if turn > 0 && turn % TURNS_MAX == 0 && self.ask().is_ok() {
                return;
            }
            if self.is_to_gather() {
                gather();
            }
            match self.next_batch() {
                Some(batch) => self.work_on(batch),
                None => return,
            }
        }
    }

    /// Are more items to be waited for before a batch is taken? Not if they come slowly, half a batch is there, or there is
    /// something else to do, for this job or for its thread.
    fn is_to_gather(&self) -> bool {
        if !self.0.pool.has_spare_thread() {
            return false;
        }
        let (state, limits) = (self.0.state.lock(), &self.0.limits);
        if state.is_poked || !state.arrivals.are_fast() || state.waiting.len() >= limits.items / 2 {
            return false;
        }
        let bytes: usize = state.waiting.iter().map(|item| item.bytes).sum();
        bytes < limits.bytes / 2
    }

    /// The next batch, empty if it was only poked. None: there is nothing to do, and the next item asks for a job.
    fn next_batch(&self) -> Option<Vec<BatchItem<T, R>>> {
        let mut state = self.0.state.lock();
        let limits = &self.0.limits;
        let is_poked = std::mem::take(&mut state.is_poked);
        let (mut batch, mut bytes) = (Vec::new(), 0usize);
        while let Some(next) = state.waiting.front() {
            let sum = bytes.saturating_add(next.bytes);
            if batch.len() == limits.items || !batch.is_empty() && sum > limits.bytes {
                break;
            }
            bytes = sum;
            batch.extend(state.waiting.pop_front());
        }
        if batch.is_empty() && !is_poked {
            state.is_running = false;
            return None;
        }
        Some(batch)
    }

    fn work_on(&self, batch: Vec<BatchItem<T, R>>) {
        let (items, replies): (Vec<T>, Vec<Reply<R>>) = batch
            .into_iter()
            .map(|BatchItem { item, reply, .. }| (item, reply))
            .unzip();
        let (results, is_more) = (self.0.work)(items);
        if is_more {
            self.0.state.lock().is_poked = true;
        }
        together(|| {
            for (reply, result) in replies.into_iter().zip(results) {
                reply.0.end(ReplyState::Done(result));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{block_on, local};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    const LIMITS: BatchLimits = BatchLimits {
        items: 8,
        bytes: 100,
        waiting: 50,
    };

    #[test]
    fn items_are_taken_together_within_the_bounds() {
        block_on(async {
            let (local, pool) = local();
            let sizes = Arc::new(Mutex::new(Vec::new()));
            let seen = Arc::clone(&sizes);
            let queue = BatchQueue::new(&pool, LIMITS, move |items: Vec<usize>| {
                seen.lock().push(items.len());
                (items.iter().map(|item| item * 2).collect(), false)
            });
            let held = pool.hold();
            let mut all = Vec::new();
            for number in 0..LIMITS.waiting {
                let queue = queue.clone();
                // The first ones are small, the others large.
                let bytes = if number < 16 { 1 } else { 60 };
                all.push(tokio::task::spawn_local(async move {
                    queue.push(number, bytes).await.unwrap()
                }));
            }
            while queue.waiting() < LIMITS.waiting {
                tokio::task::yield_now().await;
            }
            assert!(queue.push(1, 1).await.is_err(), "as many wait as may");
            drop(held);
            for (number, one) in all.into_iter().enumerate() {
                assert_eq!(one.await.unwrap(), Some(number * 2));
            }
            let sizes = sizes.lock();
            assert_eq!(sizes[..2], [8, 8]);
            assert!(sizes[2..].iter().all(|size| *size == 1), "{sizes:?}");
            drop(local);
        });
    }

    #[test]
    fn every_item_is_worked_on_however_many_come_while_others_are() {
        block_on(async {
            let (_local, pool) = local();
            let queue = BatchQueue::new(&pool, LIMITS, |items: Vec<usize>| (items, false));
            let tasks: Vec<_> = (0..30)
                .map(|task| {
                    let queue = queue.clone();
                    tokio::task::spawn_local(async move {
                        for number in 0..400 {
                            assert_eq!(
                                queue.push(task + number, 1).await.unwrap(),
                                Some(task + number)
                            );
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
    }

    #[test]
    fn it_is_called_without_items_as_long_as_there_is_more_to_do() {
        block_on(async {
            let (_local, pool) = local();
            let left = Arc::new(AtomicUsize::new(20));
            let rest = Arc::clone(&left);
            let queue = BatchQueue::new(&pool, LIMITS, move |items: Vec<()>| {
                let before = rest.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
                (items, before.is_ok_and(|before| before > 1))
            });
            queue.poke().unwrap();
            while left.load(Relaxed) > 0 {
                tokio::task::yield_now().await;
            }
            assert_eq!(queue.push((), 1).await.unwrap(), Some(()));
        });
    }

    #[test]
    fn lost_work_is_told_and_the_next_goes_on() {
        block_on(async {
            let (_local, pool) = local();
            let queue = BatchQueue::new(&pool, LIMITS, |items: Vec<bool>| {
                assert!(!items.contains(&true), "as the test wants it");
                (items, false)
            });
            assert_eq!(queue.push(true, 1).await.unwrap(), None);
            assert_eq!(queue.push(false, 1).await.unwrap(), Some(false));
        });
    }
}
