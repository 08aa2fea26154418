//! What a task may do in one turn: then the loop's other tasks go first, and events are asked for. A turn is all that a task is polled for
//! until then: who wakes himself, or is woken by others, goes on in it.
//!
//! A peer that never stops is always ready: without a bound, whoever reads or writes it would never come to an `await` that waits. So
//! sockets count what they move ([`crate::Stream`]), and work on bytes without a socket counts itself ([`spend`]). When a turn is over, a
//! socket says that it would block, and waiting for it is waiting for the next turn: whoever obeys `WouldBlock` needs no rule of
//! its own. The clock is looked at only now and then, since reading it costs as much as moving a few hundred bytes.
//!
//! Whoever polls others again from the outermost to the innermost (bodies around bodies) asks behind what it does, so that each poll gets as far as
//! the innermost one.
//!
//! Not here: in which order tasks are polled (the runtime, and `server::loops::poll_timing`). Invariant: outside of a loop, which says when a
//! turn begins, none is ever over.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::loop_clock;

/// What all tasks that never stop may take together before others go first, in nanoseconds.
pub const TURN_NS: u64 = 1_000_000;
/// What one of many such tasks has at least, in nanoseconds: less would go into changing between them. Whose polls take no more is not one
/// of them.
const SHARE_MIN_NS: u64 = 50_000;
/// Bytes that a turn may move, however fast.
pub const TURN_BYTES: i64 = 2 << 20;
/// Bytes after which the clock is looked at.
pub const LOOK_BYTES: i64 = 64 << 10;
/// What a call for the kernel counts as, beside what it moves.
pub const CALL_BYTES: i64 = 4 << 10;
/// What finding a part of what came counts as, beside its bytes: a chunk, a record, however small.
pub const PART_BYTES: usize = 64;
/// What telling somebody of it counts as: a line of a log.
pub const TOLD_BYTES: usize = 1 << 10;
/// In place of the bytes until the next look: the turn is over.
const OVER: i64 = i64::MIN;

thread_local! {
    static TURN: Turn = const { Turn::new() };
}

/// The turn that runs on this thread.
struct Turn {
    /// Bytes until the clock is looked at, or [`OVER`].
    until_look: Cell<i64>,
    /// What that was at the last look.
    looked_at: Cell<i64>,
    /// Bytes that are left of the turn, as of the last look.
    bytes: Cell<i64>,
    /// When it began; 0: at the first look.
    began_ns: Cell<u64>,
    /// How long it may be.
    share_ns: Cell<u64>,
    /// What those polls took together, since the loop last asked for events, that were long.
    busy_ns: Cell<u64>,
    /// A socket was read, and none written since.
    has_read: Cell<bool>,
}

impl Turn {
    const fn new() -> Turn {
        Turn {
            until_look: Cell::new(i64::MAX),
            looked_at: Cell::new(i64::MAX),
            bytes: Cell::new(TURN_BYTES),
            began_ns: Cell::new(0),
            share_ns: Cell::new(TURN_NS),
            busy_ns: Cell::new(0),
            has_read: Cell::new(false),
        }
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
        let is_over =
            bytes <= 0 || now_ns.saturating_sub(self.began_ns.get()) > self.share_ns.get();
        self.until_look.set(LOOK_BYTES);
        if is_over {
            self.until_look.set(OVER);
        }
        !is_over
    }
}

/// For a loop: the poll of a task begins.
#[inline]
pub fn begin(now_ns: u64) {
    TURN.with(|turn| {
        turn.until_look.set(LOOK_BYTES);
        turn.looked_at.set(LOOK_BYTES);
        turn.bytes.set(TURN_BYTES);
        turn.began_ns.set(now_ns);
        turn.has_read.set(false);
    });
}

/// For a loop: a poll begins of a task whose long polls took `took_ns` since it asked for events. The turn goes on.
pub fn go_on_with(now_ns: u64, took_ns: u64) {
    begin(now_ns.saturating_sub(took_ns));
    TURN.with(|turn| {
        if took_ns > turn.share_ns.get() {
            turn.until_look.set(0);
            turn.looked_at.set(0);
        }
    });
}

/// For a loop: a poll took so long. Was it a long one? Others count for nothing.
#[inline]
pub fn took(poll_ns: u64) -> bool {
    let is_long = poll_ns > SHARE_MIN_NS;
    if is_long {
        TURN.with(|turn| turn.busy_ns.set(turn.busy_ns.get() + poll_ns));
    }
    is_long
}

/// For a loop: how long a turn may be now.
#[inline]
pub fn share_ns() -> u64 {
    TURN.with(|turn| turn.share_ns.get())
}

/// For a loop: it has asked for events. By how much the long polls before took more or less time than they may together, turns are shorter or
/// longer from now on; a longer one is not trusted at once, since those that wait for events are not there each time.
#[inline]
pub fn share() {
    TURN.with(|turn| {
        let (busy_ns, share_ns) = (turn.busy_ns.replace(0), turn.share_ns.get());
        if busy_ns != 0 || share_ns != TURN_NS {
            turn.share_ns.set(next_share(share_ns, busy_ns));
        }
    });
}

fn next_share(share_ns: u64, busy_ns: u64) -> u64 {
    let fitting_ns = share_ns * TURN_NS / busy_ns.max(1);
    fitting_ns.min(share_ns * 2).clamp(SHARE_MIN_NS, TURN_NS)
}

/// Counts the finding of a part of what came, of so many bytes with what frames it.
#[inline]
pub fn spend_part(bytes: usize) {
    spend(bytes.saturating_add(PART_BYTES));
}

/// Counts work on so many bytes.
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

/// Counts a call that moved so many bytes.
#[inline]
pub(crate) fn spend_call(bytes: usize) {
    spend(bytes.saturating_add(CALL_BYTES as usize));
}

/// Counts a call that read so many bytes: they may be passed on in this turn ([`may_write`]).
#[inline]
pub(crate) fn spend_read(bytes: usize) {
    spend_call(bytes);
    TURN.with(|turn| turn.has_read.set(true));
}

/// May this turn write to a socket? What it has read it may pass on by one call, even if the read was its end: by the next turn others
/// would have driven it out of the processor's cache, and its buffer would be away until then.
#[inline]
pub(crate) fn may_write() -> bool {
    let has_read = TURN.with(|turn| turn.has_read.replace(false));
    may_go_on() || has_read
}

/// Counts work that may have taken long, whatever it moved: the clock is looked at before more is done.
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

/// May this turn do more?
#[inline]
pub fn may_go_on() -> bool {
    TURN.with(|turn| turn.until_look.get() > 0 || turn.look())
}

/// Was it said that this turn may do no more?
#[inline]
pub fn is_over() -> bool {
    TURN.with(|turn| turn.until_look.get() == OVER)
}

/// Ready where this turn may do more; else the task is woken for its next one, behind all that is ready by then.
#[inline]
pub fn poll_go_on(cx: &mut Context<'_>) -> Poll<()> {
    match may_go_on() {
        true => Poll::Ready(()),
        false => wait_for_next(cx),
    }
}

/// The same for who has been told `WouldBlock`: does not look.
#[inline]
pub(crate) fn poll_not_over(cx: &mut Context<'_>) -> Poll<()> {
    match is_over() {
        false => Poll::Ready(()),
        true => wait_for_next(cx),
    }
}

/// Goes on in this turn if it may do more, else in the next one.
pub async fn go_on() {
    poll_fn(poll_go_on).await;
}

#[cold]
fn wait_for_next(cx: &mut Context<'_>) -> Poll<()> {
    put_off(cx.waker());
    Poll::Pending
}

/// Wakes a task when the loop has asked for events, behind those that they are for. A task that wakes itself would be polled again and
/// again before: the runtime asks for events when nothing is ready, or after some dozens of polls.
pub fn put_off(waker: &Waker) {
    // The runtime's own way to do that; it hands the waker on when it is first polled.
    let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(waker));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_are_busy_share_the_time() {
        let (ms, least) = (TURN_NS, SHARE_MIN_NS);
        for (share_ns, busy_ns, next) in [
            (ms, 0, ms),
            (ms, ms / 2, ms),
            // Four took a whole turn each, then what they may.
            (ms, 4 * ms, ms / 4),
            (ms / 4, ms, ms / 4),
            // Looking at the clock now and then, they took more.
            (ms / 4, ms + ms / 4, ms / 5),
            (ms, 1000 * ms, least),
            (least, 1000 * ms, least),
            // Nobody is busy any more, or those wait for events.
            (ms / 4, 0, ms / 2),
            (ms / 4, ms / 8, ms / 2),
            (ms / 2, 0, ms),
        ] {
            assert_eq!(next_share(share_ns, busy_ns), next, "{share_ns} {busy_ns}");
        }
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
