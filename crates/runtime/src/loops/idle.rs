//! The connections of one loop that wait for their client, the longest waiting first. Any of them can be told to close
//! when `worker_connections` or descriptors run out: first those between two requests and those that only linger, then
//! those whose first request has not come as a whole, at last those whose request body stands still. When the loop is
//! to end, only those between two requests are told: on any other one the client may have asked already.
//!
//! A connection may carry several requests at a time ([`IdleEntry::begin_request`]): it is in the list while all of them
//! wait. With one at a time there is nothing to announce.
//!
//! Not here: sockets and timeouts. Invariants: an entry is in the list at most once, and only while it has an [`Idle`];
//! entering and leaving cost the same, however many connections are in the list.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

const NONE: u32 = u32::MAX;
/// A body counts as stalled after this time without a byte.
const STALLED_MS: u64 = 1000;
/// A connection counts as unused after waiting this long for its next request.
const UNUSED_MS: u64 = 5000;

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// The next request.
    Kept,
    /// The rest of what its client sends, which is thrown away.
    Lingering,
    /// The first byte of its first request.
    New,
    /// The rest of a head.
    Head,
    /// More of a body.
    Body,
}

impl Waiting {
    /// Index of its queue.
    fn rank(self) -> usize {
        match self {
            Self::Kept | Self::Lingering => 0,
            Self::New | Self::Head => 1,
            Self::Body => 2,
        }
    }
}

/// Queues whose connections may be told to close at any time.
const FREE_RANKS: [usize; 2] = [0, 1];
/// The queue of bodies.
const BODIES: usize = 2;
const RANKS: usize = 3;

#[derive(Debug)]
struct Entry {
    previous: u32,
    next: u32,
    /// Requests that were announced and have not ended.
    requests: u32,
    /// Waits now.
    waits: u32,
    is_listed: bool,
    is_told: bool,
    /// Of the last wait.
    waiting: Waiting,
    /// When the wait began.
    since_ms: u64,
    waker: Option<Waker>,
}

/// Verdict on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judgement {
    Goes,
    Stays,
    /// It stays, and so do all behind it in the queue.
    IsLast,
}

#[derive(Debug, Clone, Copy)]
struct Queue {
    oldest: u32,
    newest: u32,
}

const EMPTY: Queue = Queue {
    oldest: NONE,
    newest: NONE,
};

#[derive(Debug)]
struct List {
    /// Slots; free ones are chained through `next`.
    entries: Vec<Entry>,
    free: u32,
    queues: [Queue; RANKS],
    /// Connections in the list, without those that wait for a body.
    length: usize,
    /// Connections that were told to close and are not gone yet.
    leaving: usize,
    is_closed: bool,
}

/// The idle connections of a loop.
#[derive(Debug, Clone)]
pub struct IdleList(Rc<RefCell<List>>);

/// A connection's entry, kept for its whole life: its waker stays there from one request to the next.
#[derive(Debug)]
pub struct IdleEntry {
    list: IdleList,
    slot: u32,
}

/// A wait of a connection, which is in the list meanwhile unless another of its requests goes on.
#[derive(Debug)]
pub struct Idle<'a> {
    entry: &'a IdleEntry,
    waiting: Waiting,
}

/// One of several requests that a connection carries at a time.
#[derive(Debug)]
pub struct InFlight<'a>(&'a IdleEntry);

impl Default for IdleList {
    fn default() -> Self {
        Self(Rc::new(RefCell::new(List {
            entries: Vec::new(),
            free: NONE,
            queues: [EMPTY; RANKS],
            length: 0,
            leaving: 0,
            is_closed: false,
        })))
    }
}

/// Judges the connections that have waited this long in a queue. Those behind a later one have not, and there may be as
/// many as `worker_connections`.
fn waits_since(ms: u64) -> impl Fn(&Entry) -> Judgement {
    let until_ms = wire::loop_clock::monotonic_ms().saturating_sub(ms);
    move |entry| match entry.since_ms <= until_ms {
        true => Judgement::Goes,
        false => Judgement::IsLast,
    }
}

impl IdleList {
    /// An entry for a connection, which is not in the list yet.
    #[must_use]
    pub fn place(&self) -> IdleEntry {
        let slot = self.0.borrow_mut().take_slot();
        IdleEntry {
            list: self.clone(),
            slot,
        }
    }

    /// Number of waiting connections, without those that wait for a body.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.borrow().length
    }

    /// Number of connections that were told to close and have not yet: their places are as good as free.
    #[must_use]
    pub fn leaving(&self) -> usize {
        self.0.borrow().leaving
    }

    /// Whether no connection waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tells up to `count` of the longest waiting connections to close, kept and lingering ones first. Returns how many
    /// were told.
    pub fn close_oldest(&self, count: usize) -> usize {
        let mut told = 0;
        for rank in FREE_RANKS {
            told += self.tell(rank, count - told, |_| Judgement::Goes);
        }
        told
    }

    /// [`IdleList::close_oldest`] for connections whose body is stalled.
    pub fn close_stalled(&self, count: usize) -> usize {
        self.tell(BODIES, count, waits_since(STALLED_MS))
    }

    /// [`IdleList::close_oldest`] for connections that have been unused for a while, when memory is scarce. A
    /// connection that only paused is spared: its client may be sending the next request.
    pub fn close_unused(&self, count: usize) -> usize {
        self.tell(Waiting::Kept.rank(), count, waits_since(UNUSED_MS))
    }

    fn tell(&self, rank: usize, count: usize, judge: impl Fn(&Entry) -> Judgement) -> usize {
        let mut told = 0;
        let mut slot = self.0.borrow().queues[rank].oldest;
        while told < count && slot != NONE {
            let (waker, next, is_due) = {
                let list = &mut *self.0.borrow_mut();
                let entry = &mut list.entries[slot as usize];
                let judgement = judge(entry);
                let is_due = !entry.is_told && judgement == Judgement::Goes;
                entry.is_told |= is_due;
                list.leaving += usize::from(is_due);
                let waker = if is_due { entry.waker.clone() } else { None };
                let next = match judgement {
                    Judgement::IsLast => NONE,
                    Judgement::Goes | Judgement::Stays => entry.next,
                };
                (waker, next, is_due)
            };
            told += usize::from(is_due);
            if let Some(waker) = waker {
                waker.wake();
            }
            slot = next;
        }
        told
    }

    /// Tells all connections between two requests to close, and every one that enters from now on.
    pub fn close_all(&self) {
        self.0.borrow_mut().is_closed = true;
        let rank = Waiting::Kept.rank();
        self.tell(rank, usize::MAX, |entry| match entry.waiting {
            Waiting::Kept => Judgement::Goes,
            _ => Judgement::Stays,
        });
    }
}

impl IdleEntry {
    /// Enters the list as the newest of its kind, unless another request of the connection goes on.
    #[must_use]
    pub fn enter(&self, waiting: Waiting) -> Idle<'_> {
        self.list.0.borrow_mut().begin_wait(self.slot, waiting);
        Idle {
            entry: self,
            waiting,
        }
    }

    /// Announces one of several requests at a time: the connection is not idle before each of them waits. No wait for
    /// the next one ([`Waiting::Kept`]) goes on meanwhile.
    #[must_use]
    pub fn begin_request(&self) -> InFlight<'_> {
        self.list
            .0
            .borrow_mut()
            .change(self.slot, |entry| entry.requests += 1);
        InFlight(self)
    }

    /// Runs `work`; the connection is in the list while that waits. `None`: the connection is to close.
    pub async fn wait_for<T>(
        &self,
        waiting: Waiting,
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        let mut idle = None;
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => {
                let idle = idle.get_or_insert_with(|| self.enter(waiting));
                idle.poll_close(context).map(|()| None)
            }
        })
        .await
    }
}

impl Drop for IdleEntry {
    fn drop(&mut self) {
        self.list.0.borrow_mut().free_slot(self.slot);
    }
}

impl Idle<'_> {
    /// Waits until the connection is told to close.
    pub async fn told(&self) {
        poll_fn(|context| self.poll_close(context)).await;
    }

    /// Ready when the connection is told to close.
    pub fn poll_close(&self, context: &mut Context<'_>) -> Poll<()> {
        let list = &mut *self.entry.list.0.borrow_mut();
        let entry = &mut list.entries[self.entry.slot as usize];
        if entry.is_told || (list.is_closed && self.waiting == Waiting::Kept) {
            return Poll::Ready(());
        }
        // Of several waits the last one polled is woken; it ends the connection, and so the others.
        match &entry.waker {
            Some(waker) if waker.will_wake(context.waker()) => {}
            _ => entry.waker = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        let list = &mut *self.entry.list.0.borrow_mut();
        list.change(self.entry.slot, |entry| entry.waits -= 1);
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let list = &mut *self.0.list.0.borrow_mut();
        list.change(self.0.slot, |entry| entry.requests -= 1);
    }
}

impl List {
    fn take_slot(&mut self) -> u32 {
        let entry = Entry {
            previous: NONE,
            next: NONE,
            requests: 0,
            waits: 0,
            is_listed: false,
            is_told: false,
            waiting: Waiting::Kept,
            since_ms: 0,
            waker: None,
        };
        if self.free == NONE {
            self.entries.push(entry);
            return u32::try_from(self.entries.len() - 1).expect("fewer connections than 2^32");
        }
        let slot = self.free;
        self.free = self.entries[slot as usize].next;
        self.entries[slot as usize] = entry;
        slot
    }

    fn free_slot(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        entry.waker = None;
        entry.next = self.free;
        self.free = slot;
    }

    fn begin_wait(&mut self, slot: u32, waiting: Waiting) {
        let entry = &self.entries[slot as usize];
        if entry.is_listed {
            self.remove(slot);
        }
        self.change(slot, |entry| {
            entry.waits += 1;
            entry.waiting = waiting;
        });
    }

    /// Changes the numbers of an entry, which enters the list, or leaves it, accordingly.
    fn change(&mut self, slot: u32, change: impl FnOnce(&mut Entry)) {
        let entry = &mut self.entries[slot as usize];
        change(entry);
        let is_idle = entry.waits > 0 && entry.waits >= entry.requests;
        match (entry.is_listed, is_idle) {
            (false, true) => self.push(slot),
            (true, false) => self.remove(slot),
            _ => {}
        }
    }

    fn push(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        let rank = entry.waiting.rank();
        let queue = &mut self.queues[rank];
        entry.is_listed = true;
        entry.since_ms = wire::loop_clock::monotonic_ms();
        self.length += usize::from(rank != BODIES);
        entry.previous = queue.newest;
        entry.next = NONE;
        match std::mem::replace(&mut queue.newest, slot) {
            NONE => queue.oldest = slot,
            newest => self.entries[newest as usize].next = slot,
        }
    }

    fn remove(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        entry.is_listed = false;
        self.leaving -= usize::from(std::mem::take(&mut entry.is_told));
        let (previous, next, rank) = (entry.previous, entry.next, entry.waiting.rank());
        let queue = &mut self.queues[rank];
        match previous {
            NONE => queue.oldest = next,
            previous => self.entries[previous as usize].next = next,
        }
        match next {
            NONE => queue.newest = previous,
            next => self.entries[next as usize].previous = previous,
        }
        self.length -= usize::from(rank != BODIES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_told(idle: &Idle<'_>) -> bool {
        idle.poll_close(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    #[test]
    fn the_longest_waiting_are_told_first() {
        let list = IdleList::default();
        let places = [(); 4].map(|()| list.place());
        let (a, b, c) = (
            places[0].enter(Waiting::Kept),
            places[1].enter(Waiting::Kept),
            places[2].enter(Waiting::Kept),
        );
        drop(a);
        let d = places[3].enter(Waiting::Kept);
        assert_eq!(list.close_oldest(2), 2);
        assert_eq!([&b, &c, &d].map(is_told), [true, true, false]);
        assert_eq!(list.len(), 3);
    }

    #[test]
    fn one_who_was_told_is_not_counted_again() {
        let list = IdleList::default();
        let place = list.place();
        let told = place.enter(Waiting::Kept);
        assert_eq!((list.close_oldest(1), list.close_oldest(1)), (1, 0));
        assert_eq!(list.leaving(), 1);
        drop(told);
        assert_eq!(list.leaving(), 0);
    }

    #[test]
    fn after_close_all_newcomers_are_told_at_once() {
        let list = IdleList::default();
        let (first, second) = (list.place(), list.place());
        let a = first.enter(Waiting::Kept);
        list.close_all();
        let b = second.enter(Waiting::Kept);
        assert!(is_told(&a) && is_told(&b));
    }

    #[test]
    fn who_waits_for_the_first_request_goes_only_when_places_run_out() {
        let list = IdleList::default();
        let places = [(); 3].map(|()| list.place());
        let (old, new) = (
            places[0].enter(Waiting::Kept),
            places[1].enter(Waiting::New),
        );
        list.close_all();
        assert!(is_told(&old) && !is_told(&new) && !is_told(&places[2].enter(Waiting::New)));
        assert_eq!(list.close_oldest(2), 1);
        assert!(is_told(&new));
    }

    #[test]
    fn a_place_is_told_again_after_another_request() {
        let list = IdleList::default();
        let place = list.place();
        let idle = place.enter(Waiting::Kept);
        assert_eq!(list.close_oldest(1), 1);
        drop(idle);
        let idle = place.enter(Waiting::Kept);
        assert!(!is_told(&idle));
        assert_eq!((list.close_oldest(1), is_told(&idle)), (1, true));
        drop(idle);
        drop(place);
        assert_eq!(list.place().slot, 0, "freed places are used again");
    }

    #[test]
    fn those_that_nobody_would_miss_go_first_and_bodies_only_if_they_stand_still() {
        let list = IdleList::default();
        let places = [(); 5].map(|()| list.place());
        let kinds = [
            Waiting::Body,
            Waiting::Head,
            Waiting::New,
            Waiting::Lingering,
            Waiting::Kept,
        ];
        let waiting: Vec<_> = places.iter().zip(kinds).map(|(p, k)| p.enter(k)).collect();
        let told = |waiting: &[Idle<'_>]| waiting.iter().map(is_told).collect::<Vec<_>>();
        assert_eq!(list.close_oldest(1), 1);
        assert_eq!(told(&waiting), [false, false, false, true, false]);
        assert_eq!(list.close_oldest(2), 2);
        assert_eq!(told(&waiting), [false, true, false, true, true]);
        assert_eq!((list.close_oldest(9), list.close_stalled(9)), (1, 0));
        list.0.borrow_mut().entries[0].since_ms = 0;
        assert_eq!((list.close_stalled(9), list.leaving()), (1, 5));
        drop(waiting);
        assert_eq!((list.len(), list.leaving()), (0, 0));
    }

    #[test]
    fn where_memory_is_scarce_only_those_go_that_were_not_used_for_a_while() {
        let list = IdleList::default();
        let places = [(); 3].map(|()| list.place());
        let kinds = [Waiting::Kept, Waiting::Kept, Waiting::Head];
        let waiting: Vec<_> = places.iter().zip(kinds).map(|(p, k)| p.enter(k)).collect();
        assert_eq!(list.close_unused(9), 0);
        for slot in [0, 2] {
            list.0.borrow_mut().entries[slot].since_ms = 0;
        }
        assert_eq!(list.close_unused(9), 1);
        let told: Vec<_> = waiting.iter().map(is_told).collect();
        assert_eq!(told, [true, false, false]);
    }

    #[test]
    fn a_connection_with_several_requests_is_idle_when_all_of_them_wait() {
        let list = IdleList::default();
        let entry = list.place();
        let (one, other) = (entry.begin_request(), entry.begin_request());
        let body = entry.enter(Waiting::Body);
        list.0.borrow_mut().entries[0].since_ms = 0;
        assert_eq!(list.close_stalled(9), 0, "the other one goes on");
        let more = entry.enter(Waiting::Body);
        list.0.borrow_mut().entries[0].since_ms = 0;
        assert_eq!((list.close_stalled(9), list.leaving()), (1, 1));
        assert!(is_told(&body) && is_told(&more));
        drop((body, more));
        drop(one);
        assert_eq!((list.len(), list.leaving()), (0, 0));
        drop(other);
        let kept = entry.enter(Waiting::Kept);
        assert_eq!(list.len(), 1);
        drop(kept);
        assert_eq!((list.len(), list.close_oldest(9)), (0, 0));
    }

    #[test]
    fn bodies_that_go_on_are_not_all_looked_at() {
        let list = IdleList::default();
        let places = [(); 100].map(|()| list.place());
        let waiting = places.each_ref().map(|place| place.enter(Waiting::Body));
        list.0.borrow_mut().entries[0].since_ms = 0;
        assert_eq!(list.close_stalled(9), 1);
        // It was told, and is not gone yet.
        let last = list.0.borrow().entries.len() - 1;
        list.0.borrow_mut().entries[last].since_ms = 0;
        assert_eq!(
            list.close_stalled(9),
            0,
            "behind one that goes on nobody stands still"
        );
        drop(waiting);
    }
}
