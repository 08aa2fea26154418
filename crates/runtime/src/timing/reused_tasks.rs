//! Tasks that run one short future after the other: the requests of HTTP/2, thousands a second on a loop.
//!
//! A task of the runtime costs an aligned allocation, places in two lists and a waker of its own, a tenth of such a request.
//! Not here: what a future is ([`super::spawn`]). Invariant: a task that waits for its next future holds nothing of the last
//! one, and at most [`WAITING_MAX`] of a loop wait.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

use super::{Kind, spawn};

/// Maximum number of tasks of a loop that wait for a future: as many as one connection has requests at a time.
const WAITING_MAX: usize = 128;

type Boxed = Pin<Box<dyn Future<Output = ()>>>;

/// What a task does next.
#[derive(Default)]
struct Next {
    future: Cell<Option<Boxed>>,
    /// Its task, while it waits.
    waker: Cell<Option<Waker>>,
}

thread_local! {
    static WAITING: RefCell<Vec<Rc<Next>>> = const { RefCell::new(Vec::new()) };
}

/// [`spawn`] for a request of a connection that has many at a time: by a task that has run another one before, where one
/// waits. A panic in the future ends the task.
///
/// # Panics
/// Outside of a loop thread.
pub fn spawn_reusing(future: Pin<Box<dyn Future<Output = ()>>>) {
    match WAITING.with_borrow_mut(Vec::pop) {
        Some(next) => {
            next.future.set(Some(future));
            if let Some(waker) = next.waker.take() {
                waker.wake();
            }
        }
        None => {
            let next = Rc::new(Next::default());
            next.future.set(Some(future));
            drop(spawn(Kind::Connection, run(next)));
        }
    }
}

async fn run(next: Rc<Next>) {
    while let Some(future) = next.future.take() {
        // It is dropped before the task waits.
        future.await;
        let waits = WAITING.with_borrow_mut(|waiting| {
            let has_room = waiting.len() < WAITING_MAX;
            if has_room {
                waiting.push(Rc::clone(&next));
            }
            has_room
        });
        if !waits {
            return;
        }
        poll_fn(|context| {
            let future = next.future.take();
            let has_come = future.is_some();
            next.future.set(future);
            if has_come {
                return Poll::Ready(());
            }
            next.waker.set(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::timing::{LoopFigures, poll_timing};

    /// Runs `begin` on a loop, and then what it has spawned.
    fn on_a_loop(begin: impl FnOnce()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime.expect("a runtime"), async {
            poll_timing::enter(Arc::new(LoopFigures::default()));
            begin();
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        });
    }

    fn count(ran: &Rc<Cell<usize>>) -> Boxed {
        let ran = Rc::clone(ran);
        Box::pin(async move { ran.set(ran.get() + 1) })
    }

    #[test]
    fn futures_run_in_tasks_that_have_run_others() {
        let ran = Rc::new(Cell::new(0));
        let again = Rc::clone(&ran);
        on_a_loop(|| {
            for _ in 0..WAITING_MAX + 10 {
                spawn_reusing(count(&again));
            }
            drop(spawn(Kind::Connection, async move {
                tokio::task::yield_now().await;
                let waiting = || WAITING.with_borrow(Vec::len);
                assert_eq!((again.get(), waiting()), (WAITING_MAX + 10, WAITING_MAX));
                spawn_reusing(count(&again));
                spawn_reusing(count(&again));
                assert_eq!(waiting(), WAITING_MAX - 2);
                tokio::task::yield_now().await;
                tokio::task::yield_now().await;
                assert_eq!((again.get(), waiting()), (WAITING_MAX + 12, WAITING_MAX));
            }));
        });
        assert_eq!(ran.get(), WAITING_MAX + 12);
    }
}
