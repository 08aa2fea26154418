//! The one way to spawn a task on a loop: every poll is timed, every wake is stamped.
//!
//! `event_loop_blocked` is the time from the moment the loop learned of an event (the driver wakes
//! the task right after `epoll_wait`, or another thread does) to the moment the task's poll starts.
//!
//! Not here: what is done with the figures. Invariant: between two polls of one turn the clock is
//! read once, not twice: the end of a poll is the start of the next one. Only the first wake of a
//! turn and a wake from another thread cost a reading more.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use disk::figures::ARE_COUNTED;
use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinHandle;

use super::{culprit, ticks};
use crate::figures::stalls::Stall;
use crate::figures::{self, LoopFigures};
use crate::process::report::{Level, error_log};

/// Time for the log thread to write why the process ends.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// Set in a stamp that another thread made: the loop may have slept since its last reading.
const FROM_ANOTHER_THREAD: u64 = 1 << 63;

/// What a task is for; names the culprit of a long poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Takes connections from one listening socket.
    Accept,
    /// Serves one connection.
    Connection,
    /// Asks an origin for a cache.
    Fill,
    /// Obeys the worker: new settings, shutdown, figures.
    Control,
    /// The timeout wheel.
    Timers,
    /// Hands lines to the log thread.
    Log,
    /// Looks after idle connections to upstreams.
    Upstream,
    /// Mirrors one request.
    Mirror,
    /// Stores one answer as a file.
    Store,
    /// Of a module built outside of this crate.
    Module(&'static str),
}

impl Kind {
    /// Whether the loop is lost without it.
    fn is_vital(self) -> bool {
        match self {
            Self::Accept | Self::Control | Self::Timers | Self::Log => true,
            Self::Connection
            | Self::Fill
            | Self::Upstream
            | Self::Mirror
            | Self::Store
            | Self::Module(_) => false,
        }
    }

    /// The word in log lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Connection => "connection",
            Self::Fill => "fill",
            Self::Control => "control",
            Self::Upstream => "upstream",
            Self::Mirror => "mirror",
            Self::Store => "store",
            Self::Timers => "timers",
            Self::Log => "log",
            Self::Module(name) => name,
        }
    }
}

/// Where the loop thread's last reading of the clock comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// The end of a poll. The loop may have slept since.
    PollEnd,
    /// The first wake after `epoll_wait`.
    Turn,
    /// The start of the poll that is running.
    PollStart,
}

/// A task that another thread woke finds the loop where its last poll ended; if that is longer ago than this, it has slept.
const SLEPT_NS: u64 = 100_000;

/// Loops so far; a loop's number is how many there were with it.
static LOOPS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static READING: Cell<Reading> = const { Cell::new(Reading::PollEnd) };
    /// Which loop this thread is; 0: none.
    static LOOP: Cell<u32> = const { Cell::new(0) };
    static AT: Cell<u64> = const { Cell::new(0) };
    /// When the turn began that is running.
    static TURN: Cell<u64> = const { Cell::new(0) };
    static MOMENT: Cell<u64> = const { Cell::new(0) };
    static FIGURES: RefCell<Option<Arc<LoopFigures>>> = const { RefCell::new(None) };
}

/// Nanoseconds of CLOCK_MONOTONIC.
#[must_use]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec as u64)
}

/// When the poll that is running was last woken by its loop, by [`now_ns`]: what the driver woke it for had happened by
/// then. 0: another thread woke it last, so nothing is known.
#[must_use]
pub fn moment() -> u64 {
    MOMENT.get()
}

/// Makes this thread a loop thread: tasks spawned on it count in `figures`.
pub fn enter(figures: Arc<LoopFigures>) {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    figures.unserved.lock().begin(thread);
    LOOP.set(LOOPS.fetch_add(1, Ordering::Relaxed) + 1);
    AT.set(now_ns());
    TURN.set(AT.get());
    READING.set(Reading::PollEnd);
    FIGURES.with_borrow_mut(|slot| *slot = Some(figures));
}

/// Spawns a task on the loop of this thread; the only way to do it.
///
/// # Panics
/// Outside of a loop thread.
pub fn spawn<F>(kind: Kind, future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    tokio::task::spawn_local(timed(kind, future))
}

/// The same for what is not to wait behind everybody who is ready now: it has its first turn at once, as a part of its caller's.
///
/// # Panics
/// Outside of a loop thread.
pub fn spawn_begun<F>(kind: Kind, future: F)
where
    F: Future<Output = ()> + 'static,
{
    let mut future = Box::pin(future);
    // Whom to wake is learned by its next turn, which is sure to come.
    let mut nobody = Context::from_waker(Waker::noop());
    if future.as_mut().poll(&mut nobody).is_pending() {
        drop(tokio::task::spawn_local(timed_box(kind, future)));
    }
}

/// Times a future that the loop itself drives.
///
/// # Panics
/// Outside of a loop thread.
pub fn timed<F: Future>(kind: Kind, future: F) -> impl Future<Output = F::Output> {
    timed_box(kind, Box::pin(future))
}

fn timed_box<F: Future>(kind: Kind, future: Pin<Box<F>>) -> impl Future<Output = F::Output> {
    let figures = FIGURES
        .with_borrow(Option::clone)
        .expect("tasks are spawned on loop threads");
    let owner = LOOP.get();
    let stamp = Arc::new(Stamp {
        owner,
        woken_at: AtomicU64::new(stamp_of_wake(owner)),
        last: AtomicU64::new(0),
        task: OnceLock::new(),
    });
    let waker = Waker::from(Arc::clone(&stamp));
    Timed {
        kind,
        figures,
        stamp,
        waker,
        future,
    }
}

/// A task's own waker: notes when, then wakes the task.
#[derive(Debug)]
struct Stamp {
    /// The loop that the task lives on.
    owner: u32,
    /// When the task was woken; 0 when it has been polled since.
    woken_at: AtomicU64,
    /// When the loop itself last woke it; 0 when another thread did.
    last: AtomicU64,
    task: OnceLock<Waker>,
}

impl Stamp {
    fn mark(&self) {
        // A wake by another thread may get lost against a poll that starts now: that is one sample.
        let stamp = stamp_of_wake(self.owner);
        if self.woken_at.load(Ordering::Relaxed) == 0 {
            self.woken_at.store(stamp, Ordering::Relaxed);
        }
        let is_foreign = stamp & FROM_ANOTHER_THREAD != 0;
        let last = if is_foreign { 0 } else { stamp };
        self.last.store(last, Ordering::Relaxed);
        if let Some(task) = self.task.get() {
            task.wake_by_ref();
        }
    }
}

impl Wake for Stamp {
    fn wake(self: Arc<Self>) {
        self.mark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.mark();
    }
}

/// The time of a wake of a task of loop `owner`. Another loop's last reading says nothing of this one.
fn stamp_of_wake(owner: u32) -> u64 {
    if LOOP.get() != owner {
        return now_ns() | FROM_ANOTHER_THREAD;
    }
    match READING.get() {
        Reading::Turn | Reading::PollStart => AT.get(),
        Reading::PollEnd => {
            let now = now_ns();
            begin_turn(now);
            AT.set(now);
            READING.set(Reading::Turn);
            now
        }
    }
}

/// The loop has asked for events, and goes on at `now`.
fn begin_turn(now: u64) {
    let (began, ended) = (TURN.replace(now), AT.get());
    FIGURES.with_borrow(|figures| {
        if let Some(figures) = figures {
            ticks::count(&figures.ticks, began, ended, now);
        }
    });
}

/// Stands while a task is polled, and ends the process when that panics: without the task the loop would look alive and serve
/// nobody. The master starts another worker on the same sockets.
struct Vital(Kind);

impl Drop for Vital {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let name = self.0.name();
        error_log(
            Level::Alert,
            format_args!("the task \"{name}\" of a loop has failed, the process ends"),
        );
        #[expect(
            clippy::disallowed_methods,
            reason = "the loop is lost; the log thread is to write why"
        )]
        std::thread::sleep(LAST_WORDS);
        std::process::abort();
    }
}

fn record(figures: &LoopFigures, kind: Kind, blocked_ns: Option<u64>, poll_ns: u64) {
    if let Some(ns) = blocked_ns {
        figures.blocked.record(ns);
    }
    figures.polls.record(poll_ns);
    let threshold_ns = figures.stalls.threshold_ns.get();
    if poll_ns > threshold_ns && threshold_ns > 0 {
        stalled(figures, kind, poll_ns);
    }
    if poll_ns > figures.longest_ns.get() {
        figures.longest_ns.set(poll_ns);
        *figures.longest.lock() = Some(kind);
    }
}

#[cold]
fn stalled(figures: &LoopFigures, kind: Kind, ns: u64) {
    let (connection, request, phase) = match kind {
        Kind::Connection => culprit::last(),
        _ => (0, String::new(), ""),
    };
    figures.stalls.note(Stall {
        number: 0,
        at_ms: figures::now_ms(),
        loop_index: figures.index,
        ns,
        task: kind.name(),
        connection,
        request,
        phase,
        operation: disk::last_operation(),
    });
}

struct Timed<F> {
    kind: Kind,
    figures: Arc<LoopFigures>,
    stamp: Arc<Stamp>,
    waker: Waker,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Timed<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let _vital = this.kind.is_vital().then_some(Vital(this.kind));
        if !ARE_COUNTED {
            return this.future.as_mut().poll(context);
        }
        let task = this.stamp.task.get_or_init(|| context.waker().clone());
        // The runtime keeps one waker per task: were it not so, a wake could go astray.
        debug_assert!(task.will_wake(context.waker()));
        let woken_at = this.stamp.woken_at.load(Ordering::Relaxed);
        this.stamp.woken_at.store(0, Ordering::Relaxed);
        let is_foreign = woken_at & FROM_ANOTHER_THREAD != 0;
        let start = match READING.get() {
            Reading::Turn | Reading::PollEnd if !is_foreign => AT.get(),
            _ => now_ns(),
        };
        if is_foreign && READING.get() == Reading::PollEnd && start - AT.get() > SLEPT_NS {
            begin_turn(start);
        }
        AT.set(start);
        READING.set(Reading::PollStart);
        MOMENT.set(this.stamp.last.load(Ordering::Relaxed));
        disk::forget_last_operation();
        wire::clock::forget();
        let outcome = this
            .future
            .as_mut()
            .poll(&mut Context::from_waker(&this.waker));
        let end = now_ns();
        AT.set(end);
        READING.set(Reading::PollEnd);
        let blocked =
            (woken_at != 0).then(|| start.saturating_sub(woken_at & !FROM_ANOTHER_THREAD));
        record(&this.figures, this.kind, blocked, end.saturating_sub(start));
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    /// The runtime's waker, always the same one.
    struct Runtime;

    impl Wake for Runtime {
        fn wake(self: Arc<Self>) {}
    }

    /// A task of this loop that notes the moment of each poll.
    fn noting(
        moments: &Rc<RefCell<Vec<u64>>>,
        runtime: &Waker,
    ) -> (Pin<Box<impl Future<Output = ()>>>, Waker) {
        let seen = Rc::new(RefCell::new(None));
        let (notes, slot) = (Rc::clone(moments), Rc::clone(&seen));
        let mut task = Box::pin(timed(
            Kind::Connection,
            std::future::poll_fn(move |context| {
                notes.borrow_mut().push(moment());
                *slot.borrow_mut() = Some(context.waker().clone());
                Poll::<()>::Pending
            }),
        ));
        let _ = task.as_mut().poll(&mut Context::from_waker(runtime));
        let waker = seen.borrow_mut().take().unwrap();
        (task, waker)
    }

    #[test]
    fn the_moment_is_that_of_the_own_loop_alone() {
        enter(Arc::default());
        let moments = Rc::default();
        let runtime = Waker::from(Arc::new(Runtime));
        let (mut task, waker) = noting(&moments, &runtime);
        let mut poll = || task.as_mut().poll(&mut Context::from_waker(&runtime));
        waker.wake_by_ref();
        assert!(poll().is_pending());
        // Threads that are no loop, or another one, whose last reading may be old.
        for is_loop in [false, true] {
            let waker = waker.clone();
            let other = std::thread::spawn(move || {
                if is_loop {
                    enter(Arc::default());
                }
                waker.wake_by_ref();
            });
            other.join().unwrap();
            assert!(poll().is_pending());
        }
        let moments = moments.borrow();
        assert!(moments[1] > 0);
        assert_eq!((moments[0], moments[2], moments[3]), (0, 0, 0));
    }
}
