//! A fill: one window of a file being read into memory, and the tasks that wait for it.
//!
//! Not here: the reading itself (`window`). Invariant: every waiter is woken at the end, also when the fill failed.

use crate::pool::Mailbox;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

/// How a fill ended.
pub(crate) type FillResult = Result<(), FillError>;

/// Why a fill failed.
#[derive(Clone, Debug)]
pub(crate) enum FillError {
    /// The kernel could not read it.
    Read(Errno),
    /// The job that had claimed it ended without a result: another must fill the window.
    Abandoned,
}

#[derive(Debug)]
pub(crate) struct WindowFill {
    state: Mutex<WindowFillState>,
    /// Has it been queued in the lane for shared reads?
    is_hurried: AtomicBool,
}

type FillWaiter = (Waker, Option<Arc<Mailbox>>);

#[derive(Debug)]
enum WindowFillState {
    Running(Waiters),
    Done(FillResult),
}

/// The waiting tasks, one per client, each with its loop's mailbox: as many places as there were at once.
#[derive(Debug, Default)]
struct Waiters {
    places: Vec<Option<FillWaiter>>,
    /// Places of those that have given up.
    free: Vec<usize>,
}

impl Waiters {
    fn take_place(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        })
    }
}

impl WindowFill {
    pub(crate) fn new() -> Arc<WindowFill> {
        Arc::new(WindowFill {
            state: Mutex::new(WindowFillState::Running(Waiters::default())),
            is_hurried: AtomicBool::new(false),
        })
    }

    /// Ends it, unless it has ended.
    pub(crate) fn finish(&self, outcome: FillResult) {
        let mut state = self.state.lock();
        let WindowFillState::Running(waiting) = &mut *state else {
            return;
        };
        let waiting = std::mem::take(waiting);
        *state = WindowFillState::Done(outcome);
        drop(state);
        for (waker, mailbox) in waiting.places.into_iter().flatten() {
            match mailbox {
                Some(mailbox) => mailbox.post(waker),
                None => waker.wake(),
            }
        }
    }

    pub(crate) fn is_awaited(&self) -> bool {
        match &*self.state.lock() {
            WindowFillState::Running(waiting) => waiting.places.len() > waiting.free.len(),
            WindowFillState::Done(_) => false,
        }
    }

    /// Marks it as wanted by many; true for the first caller, who queues it in the shared lane.
    pub(crate) fn hurry(&self) -> bool {
        !self.is_hurried.swap(true, Relaxed)
    }

    pub(crate) fn wait(self: Arc<WindowFill>) -> Wait {
        Wait {
            fill: self,
            place: None,
        }
    }
}

/// A future that waits for a fill.
pub(crate) struct Wait {
    fill: Arc<WindowFill>,
    place: Option<usize>,
}

impl Future for Wait {
    type Output = FillResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<FillResult> {
        let fill = self.fill.clone();
        let mut state = fill.state.lock();
        match &mut *state {
            WindowFillState::Done(outcome) => Poll::Ready(outcome.clone()),
            WindowFillState::Running(waiting) => {
                let place = *self.place.get_or_insert_with(|| waiting.take_place());
                waiting.places[place] = Some((context.waker().clone(), Mailbox::current()));
                Poll::Pending
            }
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(place) = self.place
            && let WindowFillState::Running(waiting) = &mut *self.fill.state.lock()
        {
            waiting.places[place] = None;
            waiting.free.push(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_give_up_leave_their_places_to_others() {
        let fill = WindowFill::new();
        let mut context = Context::from_waker(Waker::noop());
        let mut stays = Box::pin(Arc::clone(&fill).wait());
        assert!(stays.as_mut().poll(&mut context).is_pending());
        for _ in 0..1000 {
            let mut wait = Box::pin(Arc::clone(&fill).wait());
            assert!(wait.as_mut().poll(&mut context).is_pending());
        }
        match &*fill.state.lock() {
            WindowFillState::Running(waiting) => assert_eq!(waiting.places.len(), 2),
            WindowFillState::Done(_) => unreachable!("nothing has ended it"),
        }
        assert!(fill.is_awaited());
        drop(stays);
        assert!(!fill.is_awaited());
    }
}
