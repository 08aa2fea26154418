//! Limits the work of one task before the event loop goes on. A turn is everything that a task is polled for until the
//! loop's other tasks have been polled and the loop has asked for events: a task that wakes itself, or is woken by
//! another task, continues the same turn.
//!
//! A peer that never stops is always ready; without a limit, a task that reads from it or writes to it would never
//! reach an `await` that waits. Therefore sockets count the bytes that they move ([`crate::Stream`]), and work on bytes
//! without a socket counts itself ([`spend`]). When a turn is over, a socket returns `WouldBlock`, and waiting for it
//! means waiting for the next turn: code that obeys `WouldBlock` needs no rule of its own. The clock is read only now
//! and then, since reading it costs as much as moving a few hundred bytes.
//!
//! Code that polls others again from the outermost to the innermost (bodies around bodies) checks the turn after its
//! work and not before, so that each poll gets as far as the innermost one.
//!
//! Tasks whose turn is over go on one after the other, few at once (`RESUMED_MAX`): however many they are, other tasks wait
//! for these.
//!
//! Not here: the order in which tasks are polled (the runtime, and `runtime::timing::poll_timing`). Invariant: outside of
//! a loop, where no turn begins, none is ever over.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::loop_clock;

/// The time in nanoseconds that all tasks that never stop may take together before other tasks run.
pub const TURN_NS: u64 = 1_000_000;
/// The minimum share of one of many such tasks, in nanoseconds: with less, the time would go into switching between
/// them. A task whose polls take no longer is not one of them.
const SHARE_MIN_NS: u64 = 50_000;
/// The time in nanoseconds that tasks whose turn was over may take together before other tasks run: a task that becomes
/// ready waits for as long, however many of them there are. Less would go into asking for events.
const RESUMED_NS: u64 = 300_000;
/// Number of tasks that are ready besides one until no more go on whose turn was over: each has more than the minimum.
const RESUMED_MAX: usize = (RESUMED_NS / SHARE_MIN_NS / 2) as usize;
/// Maximum number of bytes that a turn may move, however fast.
pub const TURN_BYTES: i64 = 2 << 20;
/// Number of bytes after which the clock is read.
pub const LOOK_BYTES: i64 = 64 << 10;
/// The cost of a system call in bytes, in addition to those that it moves.
pub const CALL_BYTES: i64 = 4 << 10;
/// The cost of a part of the input in bytes, in addition to its length: a chunk, a record, however small.
pub const PART_BYTES: usize = 64;
/// The cost of reporting something, in bytes: a line of a log.
pub const TOLD_BYTES: usize = 1 << 10;
/// The value of `until_look` in a turn that is over.
const OVER: i64 = i64::MIN;

thread_local! {
    static TURN: TaskTurn = const { TaskTurn::new() };
    static PUT_OFF: PutOff = const { PutOff::new() };
}

/// The tasks of this thread whose turn is over, in their order; at most all of them.
struct PutOff {
    waiting: RefCell<Waiting>,
    /// Whether a task has been woken that goes on.
    has_woken: Cell<bool>,
    /// Whether the runtime wakes [`Asked`] when the loop has asked for events.
    is_armed: Cell<bool>,
    /// Whether it has, and no task has been polled since.
    has_asked: Cell<bool>,
    /// Whether tasks of this thread are polled by a loop, which calls [`resume`].
    is_loop: Cell<bool>,
}

/// A queue in which each task stands once.
struct Waiting {
    queue: VecDeque<Waker>,
    /// What identifies those in the queue ([`Waker::data`]).
    tasks: BTreeSet<usize>,
}

impl Waiting {
    fn push(&mut self, waker: &Waker) {
        if self.tasks.insert(waker.data().addr()) {
            self.queue.push_back(waker.clone());
        }
    }

    fn pop(&mut self) -> Option<Waker> {
        let first = self.queue.pop_front()?;
        self.tasks.remove(&first.data().addr());
        Some(first)
    }
}

/// Woken when the loop has asked for events.
struct Asked;

impl Wake for Asked {
    fn wake(self: Arc<Self>) {
        let _ = PUT_OFF.try_with(PutOff::asked);
    }
}

impl PutOff {
    const fn new() -> PutOff {
        PutOff {
            waiting: RefCell::new(Waiting {
                queue: VecDeque::new(),
                tasks: BTreeSet::new(),
            }),
            has_woken: Cell::new(false),
            is_armed: Cell::new(false),
            has_asked: Cell::new(false),
            is_loop: Cell::new(false),
        }
    }

    fn push(&self, waker: &Waker) {
        self.waiting.borrow_mut().push(waker);
        self.arm();
    }

    fn arm(&self) {
        if !self.is_armed.replace(true) {
            wait_for_events(&Waker::from(Arc::new(Asked)));
        }
    }

    /// One task goes on, so that there is a poll, with which others go on: the first that has not ended.
    fn asked(&self) {
        self.is_armed.set(false);
        self.has_asked.set(self.is_loop.get());
        self.has_woken.set(false);
        while !self.has_woken.get() && self.wake_first() {}
    }

    /// The first of the tasks go on, behind those that events are for. `ready`: the number of tasks that are.
    #[cold]
    fn resume(&self, ready: usize) {
        self.has_asked.set(false);
        for _ in ready..RESUMED_MAX {
            self.wake_first();
        }
        if !self.waiting.borrow().queue.is_empty() {
            self.arm();
        }
    }

    /// Returns whether there was one.
    fn wake_first(&self) -> bool {
        let first = self.waiting.borrow_mut().pop();
        let is_some = first.is_some();
        first.into_iter().for_each(Waker::wake);
        is_some
    }
}

/// The current turn of this thread.
struct TaskTurn {
    /// Bytes until the clock is read, or [`OVER`].
    until_look: Cell<i64>,
    /// The value of `until_look` after the clock was last read.
    looked_at: Cell<i64>,
    /// Bytes left in the turn when the clock was last read.
    bytes: Cell<i64>,
    /// The start of the turn; 0: it is set when the clock is first read.
    began_ns: Cell<u64>,
    /// The maximum duration of a turn.
    share_ns: Cell<u64>,
    /// The total duration of the long polls since the loop last asked for events.
    busy_ns: Cell<u64>,
    /// Whether a socket has been read, and none written since.
    has_read: Cell<bool>,
}

impl TaskTurn {
    const fn new() -> TaskTurn {
        TaskTurn {
            until_look: Cell::new(i64::MAX),
            looked_at: Cell::new(i64::MAX),
            bytes: Cell::new(TURN_BYTES),
            began_ns: Cell::new(0),
            share_ns: Cell::new(TURN_NS),
            busy_ns: Cell::new(0),
            has_read: Cell::new(false),
        }
    }

    #[inline]
    fn begin(&self, now_ns: u64) {
        self.until_look.set(LOOK_BYTES);
        self.looked_at.set(LOOK_BYTES);
        self.bytes.set(TURN_BYTES);
        self.began_ns.set(now_ns);
        self.has_read.set(false);
    }

    /// The maximum duration of this turn: less where others have used up the time already, which were not there before.
    fn allowed_ns(&self) -> u64 {
        let left_ns = TURN_NS.saturating_sub(self.busy_ns.get());
        self.share_ns.get().min(left_ns.max(SHARE_MIN_NS))
    }

    #[cold]
    fn look(&self) -> bool {
        if self.until_look.get() == OVER {
            return false;
        }
        let now_ns = loop_clock::read_ns();
        if self.began_ns.get() == 0 {
            self.began_ns.set(now_ns);
        }
        let bytes = self.bytes.get() - (self.looked_at.get() - self.until_look.get());
        self.bytes.set(bytes);
        self.looked_at.set(LOOK_BYTES);
        let took_ns = now_ns.saturating_sub(self.began_ns.get());
        let is_over = bytes <= 0 || took_ns > self.allowed_ns();
        self.until_look.set(LOOK_BYTES);
        if is_over {
            self.until_look.set(OVER);
        }
        !is_over
    }
}

/// For a loop: a turn begins with the poll of a task.
#[inline]
pub fn begin(now_ns: u64) {
    TURN.with(|turn| turn.begin(now_ns));
}

/// For a loop, at each poll: lets tasks go on whose turn was over, if it has asked for events since the last poll.
/// `ready`: the number of tasks that are ready besides the one that is polled.
#[inline]
pub fn resume(ready: usize) {
    PUT_OFF.with(|put_off| {
        put_off.is_loop.set(true);
        if put_off.has_asked.get() {
            put_off.resume(ready);
        }
    });
}

/// For a loop: the poll of a task whose long polls since it last asked for events took `took_ns`. The turn continues.
pub fn go_on_with(now_ns: u64, took_ns: u64) {
    TURN.with(|turn| {
        turn.begin(now_ns.saturating_sub(took_ns));
        if took_ns > turn.share_ns.get() {
            turn.until_look.set(0);
            turn.looked_at.set(0);
        }
    });
}

/// For a loop: reports the duration of a poll; returns whether it was a long one. Short polls do not count.
#[inline]
pub fn took(poll_ns: u64) -> bool {
    let is_long = poll_ns > SHARE_MIN_NS;
    if is_long {
        TURN.with(|turn| turn.busy_ns.set(turn.busy_ns.get() + poll_ns));
    }
    is_long
}

/// For a loop: the current maximum duration of a turn.
#[inline]
pub fn share_ns() -> u64 {
    TURN.with(|turn| turn.share_ns.get())
}

/// For a loop: a task was woken that has not ended. (Also while the thread ends.)
#[inline]
pub fn woken() {
    let _ = PUT_OFF.try_with(|put_off| put_off.has_woken.set(true));
}

/// For a loop that has asked for events. Shortens or lengthens turns by the ratio of the time that the long polls may
/// take together to the time that they took. A lengthening is limited to twice the duration, because tasks that wait
/// for events are not there every time, and by the number of tasks whose turn is over.
#[inline]
pub fn share() {
    let waiting = PUT_OFF.with(|put_off| put_off.waiting.borrow().queue.len());
    TURN.with(|turn| {
        let (busy_ns, share_ns) = (turn.busy_ns.replace(0), turn.share_ns.get());
        if busy_ns != 0 || waiting != 0 || share_ns != TURN_NS {
            let next_ns = next_share(share_ns, busy_ns).min(share_of_resumed(waiting));
            turn.share_ns.set(next_ns);
        }
    });
}

/// `waiting`: the number of tasks whose turn is over besides the one that goes on.
fn share_of_resumed(waiting: usize) -> u64 {
    match waiting.min(RESUMED_MAX) as u64 {
        0 => TURN_NS,
        others => RESUMED_NS / (1 + others),
    }
}

fn next_share(share_ns: u64, busy_ns: u64) -> u64 {
    let fitting_ns = share_ns * TURN_NS / busy_ns.max(1);
    fitting_ns.min(share_ns * 2).clamp(SHARE_MIN_NS, TURN_NS)
}

/// Counts a part of the input, of this number of bytes including its framing.
#[inline]
pub(crate) fn spend_part(bytes: usize) {
    spend(bytes.saturating_add(PART_BYTES));
}

/// Counts work on this number of bytes.
#[inline]
pub fn spend(bytes: usize) {
    let bytes = i64::try_from(bytes).unwrap_or(TURN_BYTES).min(TURN_BYTES);
    TURN.with(|turn| {
        let left = turn.until_look.get();
        if left != OVER {
            turn.until_look.set(left - bytes);
        }
    });
}

/// Counts a system call that moved this number of bytes.
#[inline]
pub(crate) fn spend_call(bytes: usize) {
    spend(bytes.saturating_add(CALL_BYTES as usize));
}

/// Counts a system call that read this number of bytes, which may be passed on in this turn ([`may_write`]).
#[inline]
pub(crate) fn spend_read(bytes: usize) {
    spend_call(bytes);
    TURN.with(|turn| turn.has_read.set(true));
}

/// Whether this turn may write to a socket. It may pass on by one call what it has read, even if the read ended the
/// turn: by the next turn others would have driven the bytes out of the processor's cache, and their buffer would be in
/// use until then.
#[inline]
pub(crate) fn may_write() -> bool {
    let has_read = TURN.with(|turn| turn.has_read.replace(false));
    may_go_on() || has_read
}

/// Counts work that may have taken long, whatever it moved: the clock is read before anything else is done.
#[inline]
pub fn spend_time() {
    TURN.with(|turn| {
        let left = turn.until_look.get();
        if left > 0 {
            turn.looked_at.set(turn.looked_at.get() - left);
            turn.until_look.set(0);
        }
    });
}

/// Whether this turn may do more.
#[inline]
pub fn may_go_on() -> bool {
    TURN.with(|turn| turn.until_look.get() > 0 || turn.look())
}

/// Whether the turn was found to be over; does not read the clock.
#[inline]
pub fn is_over() -> bool {
    TURN.with(|turn| turn.until_look.get() == OVER)
}

/// Ready if this turn may do more; otherwise the task is woken for its next turn, after everything that is ready by
/// then.
#[inline]
pub fn poll_go_on(cx: &mut Context<'_>) -> Poll<()> {
    match may_go_on() {
        true => Poll::Ready(()),
        false => wait_for_next(cx),
    }
}

/// As [`poll_go_on`], after `WouldBlock`: does not read the clock.
#[inline]
pub(crate) fn poll_not_over(cx: &mut Context<'_>) -> Poll<()> {
    match is_over() {
        false => Poll::Ready(()),
        true => wait_for_next(cx),
    }
}

/// Continues in this turn if it may do more, and otherwise in the next one.
pub async fn go_on() {
    poll_fn(poll_go_on).await;
}

#[cold]
fn wait_for_next(cx: &mut Context<'_>) -> Poll<()> {
    put_off(cx.waker());
    Poll::Pending
}

/// Wakes a task whose turn is over, once the loop has asked for events: behind the tasks that these wake, and behind those
/// that were put off before it.
pub fn put_off(waker: &Waker) {
    PUT_OFF.with(|put_off| put_off.push(waker));
}

/// Wakes a task after the loop has asked for events, behind the tasks that these wake. If it woke itself, it would be
/// polled again and again before that: the runtime asks for events when nothing is ready, or after some dozens of
/// polls.
pub fn wait_for_events(waker: &Waker) {
    // The runtime's own way to defer a task; it passes the waker on when it is first polled.
    let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(waker));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_tasks_share_the_time() {
        let (ms, least) = (TURN_NS, SHARE_MIN_NS);
        for (share_ns, busy_ns, next) in [
            (ms, 0, ms),
            (ms, ms / 2, ms),
            // Four tasks took a whole turn each, and then their share.
            (ms, 4 * ms, ms / 4),
            (ms / 4, ms, ms / 4),
            // They took more, because the clock is read only now and then.
            (ms / 4, ms + ms / 4, ms / 5),
            (ms, 1000 * ms, least),
            (least, 1000 * ms, least),
            // No task is busy any more, or the busy ones are waiting for events.
            (ms / 4, 0, ms / 2),
            (ms / 4, ms / 8, ms / 2),
            (ms / 2, 0, ms),
        ] {
            assert_eq!(next_share(share_ns, busy_ns), next, "{share_ns} {busy_ns}");
        }
    }

    /// As many as the runtime polls before it asks for events take four of these times together, and not 61.
    #[test]
    fn tasks_that_have_just_come_have_the_least_share_once_the_time_is_used_up() {
        let turn = TaskTurn::new();
        let mut all_ns = 0;
        for _ in 0..61 {
            let own_ns = turn.allowed_ns();
            all_ns += own_ns;
            turn.busy_ns.set(turn.busy_ns.get() + own_ns);
        }
        assert_eq!(all_ns, TURN_NS + 60 * SHARE_MIN_NS);
    }

    #[test]
    fn tasks_that_go_on_share_less_time() {
        let resumed = [0, 1, 2, 3, 99].map(share_of_resumed);
        assert_eq!(resumed, [TURN_NS, 150_000, 100_000, 75_000, 75_000]);
    }

    #[test]
    fn long_polls_count_whether_or_not_they_were_cut_short() {
        for _ in 0..4 {
            assert!(took(TURN_NS / 2));
        }
        assert!(!took(SHARE_MIN_NS));
        share();
        assert_eq!(share_ns(), TURN_NS / 2);
        share();
        assert_eq!(share_ns(), TURN_NS);
    }
}
