//! The one way to spawn a task on a loop: every poll is timed, every wake is stamped.
//!
//! `event_loop_blocked` is the time from the moment the loop learned of an event (the driver wakes the task right after
//! `epoll_wait`, or another thread does) to the moment the task's poll starts.
//!
//! Not here: what is done with the figures. Invariant: between two polls of one iteration the clock is read once, not
//! twice: the end of a poll is the start of the next one. Only the first wake of an iteration and a wake from another
//! thread cost one reading more. Code inside a poll takes the poll's start for the current time (`wire::loop_clock`),
//! so timing costs no reading but the one at its end. A poll that yields when no other task is ready is counted
//! together with the next one.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use disk::metrics::ARE_COUNTED;
use logs::process_log::{Level, error_log};
use tokio::task::JoinHandle;
use wire::turn;

use super::{Kind, LoopFigures, cpu_wait, current_request, tick_lateness, tsc_clock};
use crate::metrics;
use crate::metrics::stalls::Stall;

/// Time for the log thread to write why the process ends.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// Set in a stamp that another thread made: the loop may have slept since its last reading.
const FROM_ANOTHER_THREAD: u64 = 1 << 63;

/// Set in a stamp that was made during a poll, of another task or its own.
const IN_A_POLL: u64 = 1 << 62;

/// Replaces the stamp of a finished task: a socket that outlived it may still wake it, and no poll will follow.
const GONE: u64 = u64::MAX;

/// The source of the loop thread's last clock reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// The end of a poll. The loop may have slept since.
    PollEnd,
    /// The first wake after `epoll_wait`.
    Turn,
    /// The start of the poll that is running.
    PollStart,
    /// The start of a poll that yields: it counts as ended when another task's poll begins.
    Yielded,
}

/// A task whose poll yields.
struct Yielded {
    stamp: Arc<Stamp>,
    kind: Kind,
    /// The stamp of its wake.
    woken_at: u64,
}

/// A task that another thread woke finds the loop where its last poll ended. If that was longer ago than this, the loop
/// has slept.
const SLEPT_NS: u64 = 100_000;

/// Number of loops so far; a loop's number is the count that includes it.
static LOOPS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static READING: Cell<Reading> = const { Cell::new(Reading::PollEnd) };
    /// The number of this thread's loop; 0: none.
    static LOOP: Cell<u32> = const { Cell::new(0) };
    static AT: Cell<u64> = const { Cell::new(0) };
    /// When the last poll ended.
    static ENDED: Cell<u64> = const { Cell::new(0) };
    /// Total time, since the loop asked for events, of polls of tasks that were woken in polls since then.
    static WITHIN: Cell<u64> = const { Cell::new(0) };
    /// How often the loop has asked for events.
    static ASKED: Cell<u64> = const { Cell::new(0) };
    /// The last tick that is counted.
    static TICK: Cell<u64> = const { Cell::new(0) };
    static MOMENT: Cell<u64> = const { Cell::new(0) };
    /// Tasks that this thread has woken and not polled since.
    static READY: Cell<usize> = const { Cell::new(0) };
    /// The task that yields.
    static YIELDED: RefCell<Option<Yielded>> = const { RefCell::new(None) };
    static FIGURES: RefCell<Option<Arc<LoopFigures>>> = const { RefCell::new(None) };
}

/// Nanoseconds of CLOCK_MONOTONIC.
#[must_use]
pub fn now_ns() -> u64 {
    wire::loop_clock::read_ns()
}

/// When the running poll was woken by its loop, by [`now_ns`]: the event that the driver woke it for had happened by
/// then. 0: another thread woke it, so nothing is known.
#[must_use]
pub fn moment() -> u64 {
    if !ARE_COUNTED {
        return wire::loop_clock::monotonic_ns();
    }
    MOMENT.get()
}

/// Whether tasks are ready besides the one that is polled; where nothing is counted, always.
#[inline]
pub(super) fn are_others_ready() -> bool {
    !ARE_COUNTED || READY.get() > 0
}

/// Makes this thread a loop thread: tasks spawned on it count in `figures`.
pub fn enter(figures: Arc<LoopFigures>) {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    figures.unserved.lock().begin(thread);
    LOOP.set(LOOPS.fetch_add(1, Ordering::Relaxed) + 1);
    let now = tsc_clock::anchor();
    end_poll(now);
    TICK.set(tick_lateness::last(now));
    cpu_wait::enter();
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

/// Times a future that the loop itself drives.
///
/// # Panics
/// Outside of a loop thread.
pub fn timed<F: Future>(kind: Kind, future: F) -> impl Future<Output = F::Output> {
    let figures = FIGURES
        .with_borrow(Option::clone)
        .expect("tasks are spawned on loop threads");
    let owner = LOOP.get();
    READY.set(READY.get() + 1);
    let stamp = Arc::new(Stamp {
        owner,
        woken_at: AtomicU64::new(stamp_of_wake(owner)),
        asked: AtomicU64::new(0),
        took_ns: AtomicU64::new(0),
        task: OnceLock::new(),
    });
    let waker = Waker::from(Arc::clone(&stamp));
    Timed {
        kind,
        figures,
        stamp,
        waker,
        future: Box::pin(future),
    }
}

/// A task's own waker: records the time, then wakes the task.
#[derive(Debug)]
struct Stamp {
    /// The loop that the task lives on.
    owner: u32,
    /// When the task was woken; 0 when it has been polled since; [`GONE`].
    woken_at: AtomicU64,
    /// Value of [`ASKED`] at its last long poll.
    asked: AtomicU64,
    /// Total time of such polls since then.
    took_ns: AtomicU64,
    task: OnceLock<Waker>,
}

impl Stamp {
    /// Total time of the task's long polls since the loop asked for events.
    #[inline]
    fn turn_ns(&self) -> u64 {
        match self.asked.load(Ordering::Relaxed) == ASKED.get() {
            true => self.took_ns.load(Ordering::Relaxed),
            false => 0,
        }
    }

    /// Adds a long poll of this duration.
    #[cold]
    fn took(&self, poll_ns: u64) {
        let turn_ns = self.turn_ns() + poll_ns;
        self.asked.store(ASKED.get(), Ordering::Relaxed);
        self.took_ns.store(turn_ns, Ordering::Relaxed);
    }

    /// How it is woken if it is to be only after the loop has asked for events. Otherwise a task that has had its turn, or
    /// tasks that wake each other, would keep the loop from asking for as many polls as the runtime makes in a row.
    fn put_off(&self) -> Option<fn(&Waker)> {
        let is_in_a_poll = LOOP.get() == self.owner && READING.get() == Reading::PollStart;
        match is_in_a_poll {
            true if self.turn_ns() > turn::share_ns() => Some(turn::put_off),
            true if WITHIN.get() > turn::TURN_NS => Some(turn::wait_for_events),
            _ => None,
        }
    }

    /// Called when the task is woken and was not before.
    #[inline]
    fn set(&self, stamp: u64) {
        if is_own(stamp) {
            self.woken_at.store(stamp, Ordering::Relaxed);
            READY.set(READY.get() + 1);
            return;
        }
        // It replaces no stamp of the loop's own, which is counted. It may get lost against a poll that starts now: that
        // costs one sample.
        let (order, wakes) = (Ordering::Relaxed, &self.woken_at);
        let _ = wakes.compare_exchange(0, stamp, order, order);
    }

    /// Takes the stamp of its last wake; 0: there is none.
    #[inline]
    fn take(&self, next: u64) -> u64 {
        let woken_at = self.woken_at.load(Ordering::Relaxed);
        self.woken_at.store(next, Ordering::Relaxed);
        if is_own(woken_at) {
            READY.set(READY.get().saturating_sub(1));
        }
        woken_at
    }

    fn mark(self: &Arc<Self>) {
        let before = self.woken_at.load(Ordering::Relaxed);
        if before == GONE {
            return;
        }
        turn::woken();
        if before == 0
            && let Some(put_off) = self.put_off()
        {
            return put_off(&Waker::from(Arc::clone(self)));
        }
        let stamp = stamp_of_wake(self.owner);
        if before == 0 {
            self.set(stamp);
        }
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

/// The stamp of a wake of a task of loop `owner`. Another loop's last reading is of no use for this one.
fn stamp_of_wake(owner: u32) -> u64 {
    if LOOP.get() != owner {
        return now_ns() | FROM_ANOTHER_THREAD;
    }
    match READING.get() {
        Reading::Turn => AT.get(),
        Reading::PollStart => AT.get() | IN_A_POLL,
        ended => {
            if ended == Reading::Yielded {
                end_yielded();
            }
            let now = tsc_clock::anchor();
            AT.set(now);
            READING.set(Reading::Turn);
            now
        }
    }
}

/// Whether it is the stamp of a wake by the task's own loop.
fn is_own(stamp: u64) -> bool {
    (1..FROM_ANOTHER_THREAD).contains(&stamp)
}

/// Called when a task's poll begins for which the last poll yielded.
fn end_yielded() {
    let (start, now) = (AT.get(), tsc_clock::now_ns());
    end_poll(now);
    let Some(yielded) = YIELDED.take() else {
        return;
    };
    let poll_ns = now.saturating_sub(start);
    count(&yielded.stamp, yielded.woken_at, poll_ns);
    FIGURES.with_borrow(|figures| {
        if let Some(figures) = figures {
            record(figures, yielded.kind, poll_ns);
        }
    });
}

/// Called when the poll of a task that was woken at `woken_at` has ended.
#[inline]
fn count(stamp: &Stamp, woken_at: u64, poll_ns: u64) {
    if woken_at & IN_A_POLL != 0 {
        WITHIN.set(WITHIN.get() + poll_ns);
    }
    if turn::took(poll_ns) {
        stamp.took(poll_ns);
    }
}

/// Called when a poll begins, for an event at `moment`.
#[inline]
fn begin_poll(figures: &LoopFigures, stamp: &Stamp, start: u64, moment: u64) {
    figures.began_ns.set(start);
    AT.set(start);
    MOMENT.set(moment);
    disk::forget_last_operation();
    wire::loop_clock::remember(start);
    match stamp.turn_ns() {
        0 => turn::begin(start),
        turn_ns => turn::go_on_with(start, turn_ns),
    }
}

fn end_poll(now: u64) {
    AT.set(now);
    ENDED.set(now);
    READING.set(Reading::PollEnd);
}

/// Called by the first poll after the loop has asked for events, which went on at `now`.
#[inline]
fn begin_turn(figures: &LoopFigures, now: u64) {
    TICK.set(tick_lateness::count(
        &figures.ticks,
        TICK.get(),
        ENDED.get(),
        now,
    ));
    WITHIN.set(0);
    ASKED.set(ASKED.get() + 1);
    turn::share();
    cpu_wait::turn(figures, now);
}

/// Guard held while a task is polled, and forgotten at the end of the poll: it is dropped where the task panics. The
/// process ends then if the loop would look alive without the task and serve no request; the master starts another worker
/// on the same sockets. Otherwise the poll has ended, so that the loop does not look held.
struct Panicked<'a> {
    kind: Kind,
    figures: &'a LoopFigures,
}

impl Drop for Panicked<'_> {
    fn drop(&mut self) {
        end_poll(tsc_clock::now_ns());
        self.figures.began_ns.set(0);
        if !self.kind.is_vital() {
            return;
        }
        let name = self.kind.name();
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

#[inline]
fn record(figures: &LoopFigures, kind: Kind, poll_ns: u64) {
    figures.polls.record(poll_ns);
    figures.began_ns.set(0);
    if poll_ns > figures.stalls.look_ns() {
        look_at(figures, kind, poll_ns);
    }
    if poll_ns > figures.longest_ns.get() {
        figures.longest_ns.set(poll_ns);
        *figures.longest.lock() = Some(kind);
    }
}

/// Called after a long poll: it is a stall if the poll itself took longer than the threshold.
#[cold]
fn look_at(figures: &LoopFigures, kind: Kind, poll_ns: u64) {
    let unserved_ns = cpu_wait::of_poll(poll_ns, ENDED.get());
    let threshold_ns = figures.stalls.threshold_ns();
    if threshold_ns == 0 {
        // No threshold is set yet.
    } else if poll_ns - unserved_ns > threshold_ns {
        stalled(figures, kind, poll_ns, unserved_ns);
    } else if poll_ns > threshold_ns {
        figures
            .stalls
            .note_processor_wait(figures.index, unserved_ns);
    }
}

fn stalled(figures: &LoopFigures, kind: Kind, poll_ns: u64, unserved_ns: u64) {
    let (connection, request, phase) = match kind {
        Kind::Connection => current_request::last(),
        _ => (0, String::new(), ""),
    };
    figures.stalls.note(Stall {
        number: 0,
        at_ms: metrics::now_ms(),
        loop_index: figures.index,
        ns: poll_ns - unserved_ns,
        unserved_ns,
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

impl<F> Timed<F> {
    /// Whether this is the task whose poll yielded.
    fn has_yielded(&self) -> bool {
        let is_own = |yielded: &Yielded| Arc::ptr_eq(&yielded.stamp, &self.stamp);
        READING.get() == Reading::Yielded
            && YIELDED.with_borrow(|yielded| yielded.as_ref().is_some_and(is_own))
    }

    /// Called when a poll begins of a task that was woken at `woken_at`.
    #[inline]
    fn begin(&self, woken_at: u64) {
        if !is_own(woken_at) {
            return self.begin_for_another(woken_at);
        }
        let woken_at = woken_at & !IN_A_POLL;
        let start = match READING.get() {
            Reading::Turn => {
                let now = AT.get();
                begin_turn(&self.figures, now);
                now
            }
            Reading::PollEnd => AT.get(),
            Reading::PollStart | Reading::Yielded => tsc_clock::anchor(),
        };
        self.figures.blocked.record(start.saturating_sub(woken_at));
        begin_poll(&self.figures, &self.stamp, start, woken_at);
    }

    /// Called when another thread has woken the task, possibly after a sleep of the loop; 0: its wake got lost.
    #[inline(never)]
    fn begin_for_another(&self, woken_at: u64) {
        let (start, before) = (tsc_clock::anchor(), AT.get());
        match READING.get() {
            Reading::Turn => begin_turn(&self.figures, before),
            Reading::PollEnd if start.saturating_sub(before) > SLEPT_NS => {
                begin_turn(&self.figures, start);
            }
            Reading::PollEnd | Reading::PollStart | Reading::Yielded => {}
        }
        if woken_at != 0 {
            let woken_at = woken_at & !FROM_ANOTHER_THREAD;
            self.figures.blocked.record(start.saturating_sub(woken_at));
        }
        begin_poll(&self.figures, &self.stamp, start, 0);
    }
}

impl<F> Drop for Timed<F> {
    fn drop(&mut self) {
        self.stamp.take(GONE);
        if self.has_yielded() {
            end_yielded();
        }
    }
}

impl<F: Future> Future for Timed<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        if !ARE_COUNTED {
            wire::loop_clock::forget();
            turn::resume(0);
            turn::begin(0);
            let (kind, figures) = (this.kind, &*this.figures);
            let panicked = Panicked { kind, figures };
            let outcome = this.future.as_mut().poll(context);
            std::mem::forget(panicked);
            return outcome;
        }
        let task = this.stamp.task.get_or_init(|| context.waker().clone());
        // The runtime keeps one waker per task: otherwise a wake could go astray.
        debug_assert!(task.will_wake(context.waker()));
        let woken_at = this.stamp.take(0);
        let mut goes_on = false;
        if READING.get() == Reading::Yielded {
            goes_on = this.has_yielded();
            match goes_on {
                true => drop(YIELDED.take()),
                false => end_yielded(),
            }
        }
        if !goes_on {
            this.begin(woken_at);
        }
        turn::resume(READY.get());
        READING.set(Reading::PollStart);
        let (kind, figures) = (this.kind, &*this.figures);
        let panicked = Panicked { kind, figures };
        let own = &mut Context::from_waker(&this.waker);
        let outcome = this.future.as_mut().poll(own);
        std::mem::forget(panicked);
        let has_yielded = is_own(this.stamp.woken_at.load(Ordering::Relaxed));
        // Once: a task that yields again and again delays no other.
        if has_yielded && !goes_on && outcome.is_pending() {
            YIELDED.set(Some(Yielded {
                stamp: Arc::clone(&this.stamp),
                kind: this.kind,
                woken_at,
            }));
            READING.set(Reading::Yielded);
            return outcome;
        }
        let (start, end) = (AT.get(), tsc_clock::now_ns());
        end_poll(end);
        let poll_ns = end.saturating_sub(start);
        count(&this.stamp, woken_at, poll_ns);
        record(&this.figures, this.kind, poll_ns);
        outcome
    }
}

#[cfg(test)]
#[path = "poll_timing_tests.rs"]
mod tests;
