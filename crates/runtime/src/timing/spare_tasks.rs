//! Tasks that have ended their work and wait for more. What begins in one of them costs no new task, whose memory is
//! aligned and so the most expensive there is, and no second poll to register a waker.
//!
//! Not here: timing ([`super::poll_timing`]). Invariant: a spare task is in the list of its loop's thread, or at work, or
//! gone with its runtime; work is polled by its own task, its first poll excepted.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use disk::in_place;

use super::Kind;
use super::poll_timing::timed;

/// Maximum of tasks of a loop that wait for work, as many as a connection of HTTP/2 has requests at a time; more than that
/// end with theirs. (Half a KiB each.)
const SPARE_MAX: usize = 128;

type Work = Pin<Box<dyn Future<Output = ()>>>;

/// A task that may get more work.
struct SpareTask {
    kind: Kind,
    waker: Waker,
    work: RefCell<Option<Work>>,
    /// Whether its runtime has dropped it.
    is_gone: Cell<bool>,
}

/// The task's own reference.
struct Own(Rc<SpareTask>);

impl Drop for Own {
    fn drop(&mut self) {
        self.0.is_gone.set(true);
    }
}

thread_local! {
    static SPARE: RefCell<Vec<Rc<SpareTask>>> = const { RefCell::new(Vec::new()) };
}

/// [`super::spawn`] for work that must not wait behind all that is ready now: the first poll of the future that `make`
/// returns runs at once, as a part of its caller's.
///
/// # Panics
/// Outside of a loop thread.
pub fn spawn_begun<F>(kind: Kind, make: impl FnOnce() -> F)
where
    F: Future<Output = ()> + 'static,
{
    let mut work: Work = in_place::boxed(make).into_pin();
    if let Some(task) = take(kind) {
        match work.as_mut().poll(&mut Context::from_waker(&task.waker)) {
            Poll::Pending => drop(task.work.replace(Some(work))),
            Poll::Ready(()) => SPARE.with_borrow_mut(|spare| spare.push(task)),
        }
        return;
    }
    // The task's own waker is registered by its next poll, which is sure to come.
    let mut nobody = Context::from_waker(Waker::noop());
    if work.as_mut().poll(&mut nobody).is_pending() {
        drop(tokio::task::spawn_local(timed(kind, run(kind, work))));
    }
}

/// A spare task of this kind.
fn take(kind: Kind) -> Option<Rc<SpareTask>> {
    SPARE.with_borrow_mut(|spare| {
        while let Some(at) = spare.iter().rposition(|task| task.kind == kind) {
            let task = spare.swap_remove(at);
            if !task.is_gone.get() {
                return Some(task);
            }
        }
        None
    })
}

/// Keeps a task for more work, unless there are enough.
fn keep(task: &Rc<SpareTask>) -> bool {
    SPARE.with_borrow_mut(|spare| {
        let is_kept = spare.len() < SPARE_MAX;
        if is_kept {
            spare.push(Rc::clone(task));
        }
        is_kept
    })
}

/// The task: its first work, then what else it gets.
async fn run(kind: Kind, first: Work) {
    let (mut first, mut own) = (Some(first), None);
    poll_fn(|context| {
        let Own(task) = own.get_or_insert_with(|| {
            Own(Rc::new(SpareTask {
                kind,
                waker: context.waker().clone(),
                work: RefCell::new(first.take()),
                is_gone: Cell::new(false),
            }))
        });
        // Without work it was woken for what it did before.
        let Some(mut work) = task.work.take() else {
            return Poll::Pending;
        };
        if work.as_mut().poll(context).is_pending() {
            task.work.replace(Some(work));
            return Poll::Pending;
        }
        drop(work);
        match keep(task) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::oneshot;

    use super::super::poll_timing::enter;
    use super::*;

    /// Runs a loop of its own.
    fn on_a_loop<F: Future>(future: F) -> F::Output {
        enter(Arc::default());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build_local(Default::default())
            .unwrap();
        runtime.block_on(future)
    }

    fn spare() -> usize {
        SPARE.with_borrow(Vec::len)
    }

    const KIND: Kind = Kind::Module("test");

    /// Begins work that waits for `go` and then adds one to `done`.
    fn begin(done: &Rc<Cell<usize>>) -> oneshot::Sender<()> {
        let (go, waits) = oneshot::channel();
        let done = Rc::clone(done);
        spawn_begun(KIND, || async move {
            let _ = waits.await;
            done.set(done.get() + 1);
        });
        go
    }

    /// Lets all tasks run that are ready.
    async fn others() {
        for _ in 0..4 * SPARE_MAX {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn a_task_does_one_work_after_the_other() {
        on_a_loop(async {
            let done = Rc::default();
            for round in 1..5 {
                let go = begin(&done);
                assert_eq!(spare(), 0, "the spare one is at work");
                others().await;
                go.send(()).unwrap();
                others().await;
                assert_eq!((done.get(), spare()), (round, 1));
            }
            // Work that is done at once needs none.
            let also = Rc::clone(&done);
            spawn_begun(KIND, || async move { also.set(0) });
            assert_eq!((done.get(), spare()), (0, 1));
        });
    }

    #[test]
    fn work_that_is_woken_in_its_first_poll_goes_on() {
        on_a_loop(async {
            let done = Rc::new(Cell::new(0));
            for round in 1..4 {
                let done = Rc::clone(&done);
                let work = Rc::clone(&done);
                spawn_begun(KIND, || async move {
                    tokio::task::yield_now().await;
                    work.set(round);
                });
                others().await;
                assert_eq!(done.get(), round);
            }
        });
    }

    #[test]
    fn not_more_tasks_are_kept_than_there_is_room_for() {
        on_a_loop(async {
            let done = Rc::default();
            let all: Vec<_> = (0..SPARE_MAX + 5).map(|_| begin(&done)).collect();
            others().await;
            drop(all);
            others().await;
            assert_eq!((done.get(), spare()), (SPARE_MAX + 5, SPARE_MAX));
        });
    }

    #[test]
    fn a_task_whose_runtime_is_gone_gets_no_work() {
        for _ in 0..2 {
            on_a_loop(async {
                let done = Rc::default();
                let go = begin(&done);
                others().await;
                go.send(()).unwrap();
                others().await;
                assert_eq!((done.get(), spare()), (1, 1));
            });
        }
    }
}
