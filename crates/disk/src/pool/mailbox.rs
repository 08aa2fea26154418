//! A loop's mailbox: finished jobs of the pools reach the loop with one wake-up per batch.
//!
//! Waking a task of another thread costs tokio a lock and a write to its eventfd, each time. Here a pool thread puts
//! the task's waker into the mailbox, and only the first of a batch wakes the loop; the loop's own task then wakes the
//! others locally, which costs no system call.
//!
//! Jobs that one thread runs as a batch are posted together, unless that takes long, and the loops are woken behind the
//! last one: a loop on the same core preempts the thread when it is woken, and would do so after each job.
//!
//! Invariant: a posted waker is woken, also when the loop has gone (then directly).

use parking_lot::Mutex;
use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// The time that the first waker of a batch is held back at most, in addition to one job's duration.
const HELD_MAX: Duration = Duration::from_millis(1);

thread_local! {
    /// The mailbox of the loop that runs on this thread.
    static CURRENT: RefCell<Option<Arc<Mailbox>>> = const { RefCell::new(None) };
    /// The wakers that this pool thread holds back during a batch.
    static HELD: RefCell<Option<HeldWakers>> = const { RefCell::new(None) };
}

struct HeldWakers {
    since: Instant,
    /// At most one per job of the batch.
    wakers: Vec<(Arc<Mailbox>, Waker)>,
}

impl HeldWakers {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            wakers: Vec::new(),
        }
    }

    /// Puts all of them into their mailboxes, then wakes the loops.
    fn tell(self) {
        let put = |(mailbox, waker): (Arc<Mailbox>, Waker)| mailbox.put(waker);
        let due: Vec<Waker> = self.wakers.into_iter().filter_map(put).collect();
        due.into_iter().for_each(Waker::wake);
    }
}

/// Runs a batch of jobs and posts their wakers together. Must not be nested.
pub(crate) fn together(work: impl FnOnce()) {
    /// Posts them also when a job panics.
    struct PostsAtEnd;
    impl Drop for PostsAtEnd {
        fn drop(&mut self) {
            if let Some(held) = HELD.take() {
                held.tell();
            }
        }
    }
    HELD.set(Some(HeldWakers::new()));
    let _end = PostsAtEnd;
    work();
}

/// Wakes a task of a loop, by its mailbox. Called by pool threads.
pub(super) fn post(mailbox: &Arc<Mailbox>, waker: Waker) {
    let due = HELD.with_borrow_mut(|held| match held {
        None => Err(waker),
        Some(held) => {
            held.wakers.push((Arc::clone(mailbox), waker));
            let is_due = held.since.elapsed() >= HELD_MAX;
            Ok(is_due.then(|| std::mem::replace(held, HeldWakers::new())))
        }
    });
    match due {
        Err(waker) => mailbox.post(waker),
        Ok(due) => due.into_iter().for_each(HeldWakers::tell),
    }
}

#[derive(Debug)]
pub(crate) struct Mailbox {
    state: Mutex<MailboxState>,
}

#[derive(Debug)]
struct MailboxState {
    /// At most one per job of this loop that a pool has accepted, so limited by the pools' bounds.
    ready: Vec<Waker>,
    owner: Option<Waker>,
    open: bool,
}

impl Mailbox {
    /// The mailbox of this thread's loop, if it has one.
    pub(crate) fn current() -> Option<Arc<Mailbox>> {
        CURRENT.with_borrow(Option::clone)
    }

    /// Called by pool threads.
    pub(crate) fn post(&self, waker: Waker) {
        if let Some(due) = self.put(waker) {
            due.wake();
        }
    }

    /// Puts a waker into the mailbox. Returns what is to be woken for that, if anything: the loop, or the task itself where
    /// the loop has gone.
    fn put(&self, waker: Waker) -> Option<Waker> {
        let mut state = self.state.lock();
        if !state.open {
            return Some(waker);
        }
        let first = state.ready.is_empty();
        state.ready.push(waker);
        if first { state.owner.take() } else { None }
    }
}

/// Opens this thread's mailbox and returns the task that empties it. Dropping the task closes the mailbox.
pub(crate) fn deliver() -> impl Future<Output = ()> + 'static {
    let mailbox = Arc::new(Mailbox {
        state: Mutex::new(MailboxState {
            ready: Vec::new(),
            owner: None,
            open: true,
        }),
    });
    CURRENT.set(Some(mailbox.clone()));
    let open = OpenMailbox(mailbox);
    let mut batch = Vec::new();
    poll_fn(move |context| {
        let mut state = open.0.state.lock();
        std::mem::swap(&mut batch, &mut state.ready);
        match &mut state.owner {
            Some(owner) => owner.clone_from(context.waker()),
            owner => *owner = Some(context.waker().clone()),
        }
        drop(state);
        batch.drain(..).for_each(Waker::wake);
        Poll::Pending
    })
}

/// An open mailbox; closed when the loop's task is dropped.
struct OpenMailbox(Arc<Mailbox>);

impl Drop for OpenMailbox {
    fn drop(&mut self) {
        let _ = CURRENT.try_with(|current| {
            let mut current = current.borrow_mut();
            if current
                .as_ref()
                .is_some_and(|mailbox| Arc::ptr_eq(mailbox, &self.0))
            {
                *current = None;
            }
        });
        let mut state = self.0.state.lock();
        state.open = false;
        let left = std::mem::take(&mut state.ready);
        drop(state);
        left.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::Wake;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn mailbox(owner: Option<Waker>) -> Arc<Mailbox> {
        Arc::new(Mailbox {
            state: Mutex::new(MailboxState {
                ready: Vec::new(),
                owner,
                open: true,
            }),
        })
    }

    /// A loop that empties its mailbox the moment it is woken, as one on the core of the thread that wakes it does.
    struct PreemptingLoop {
        mailbox: Arc<Mailbox>,
        taken: AtomicUsize,
        wakes: AtomicUsize,
    }

    impl Wake for PreemptingLoop {
        fn wake(self: Arc<Self>) {
            self.wakes.fetch_add(1, Relaxed);
            let mut state = self.mailbox.state.lock();
            self.taken.fetch_add(state.ready.len(), Relaxed);
            state.ready.clear();
            state.owner = Some(Arc::clone(&self).into());
        }
    }

    #[test]
    fn a_loop_that_preempts_the_thread_is_woken_once_for_a_batch() {
        let mailbox = mailbox(None);
        let owner = Arc::new(PreemptingLoop {
            mailbox: Arc::clone(&mailbox),
            taken: AtomicUsize::new(0),
            wakes: AtomicUsize::new(0),
        });
        mailbox.state.lock().owner = Some(Arc::clone(&owner).into());
        together(|| (0..10).for_each(|_| post(&mailbox, Waker::noop().clone())));
        let seen = (owner.taken.load(Relaxed), owner.wakes.load(Relaxed));
        assert_eq!(seen, (10, 1));
        // Of the cycle between the two.
        mailbox.state.lock().owner = None;
    }

    #[test]
    fn a_batch_is_posted_together_unless_it_takes_long() {
        let owner = Arc::new(Wakes::default());
        let mailbox = mailbox(Some(owner.clone().into()));
        let end = || post(&mailbox, Waker::noop().clone());
        let told = || (mailbox.state.lock().ready.len(), owner.0.load(Relaxed));
        together(|| {
            end();
            end();
            assert_eq!(told(), (0, 0));
        });
        assert_eq!(told(), (2, 1));
        end();
        assert_eq!(told(), (3, 1));
        together(|| {
            let begun = Instant::now();
            while begun.elapsed() < HELD_MAX {}
            end();
            assert_eq!(told(), (4, 1));
        });
    }
}
