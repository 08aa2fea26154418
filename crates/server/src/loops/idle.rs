//! The connections of one loop that wait for a request, longest waiting first; any of them can be told
//! to close. Those that wait for their first one are told only when places run out, not when the loop
//! is to end: their client may have asked already.
//!
//! Not here: sockets and timeouts. Invariant: a place is in the list exactly as long as its [`Idle`]
//! lives.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Entry {
    previous: u32,
    next: u32,
    is_told: bool,
    /// It waits for its first request.
    is_new: bool,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct List {
    /// Slots; those that are free are chained through `next`.
    entries: Vec<Entry>,
    free: u32,
    oldest: u32,
    newest: u32,
    length: usize,
    /// Of these, told to close and not gone yet.
    leaving: usize,
    is_closed: bool,
}

/// The list of a loop.
#[derive(Debug, Clone)]
pub struct IdleList(Rc<RefCell<List>>);

/// A connection's place, which it has for life: its waker stays there from one request to the next.
#[derive(Debug)]
pub struct Place {
    list: IdleList,
    slot: u32,
}

/// A connection is in the list; dropping this takes it out.
#[derive(Debug)]
pub struct Idle<'a>(&'a Place);

impl Default for IdleList {
    fn default() -> Self {
        Self(Rc::new(RefCell::new(List {
            entries: Vec::new(),
            free: NONE,
            oldest: NONE,
            newest: NONE,
            length: 0,
            leaving: 0,
            is_closed: false,
        })))
    }
}

impl IdleList {
    /// A place for a connection, which is not in the list yet.
    #[must_use]
    pub fn place(&self) -> Place {
        let slot = self.0.borrow_mut().take_slot();
        Place {
            list: self.clone(),
            slot,
        }
    }

    /// How many connections are idle.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.borrow().length
    }

    /// How many of them were told to close: their places are as good as free.
    #[must_use]
    pub fn leaving(&self) -> usize {
        self.0.borrow().leaving
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tells up to `count` of those that wait longest to close; returns how many were told.
    pub fn close_oldest(&self, count: usize) -> usize {
        self.tell(count, |_| true)
    }

    fn tell(&self, count: usize, is_meant: impl Fn(&Entry) -> bool) -> usize {
        let mut told = 0;
        let mut slot = self.0.borrow().oldest;
        while told < count && slot != NONE {
            let (waker, next, is_due) = {
                let list = &mut *self.0.borrow_mut();
                let entry = &mut list.entries[slot as usize];
                let is_due = !entry.is_told && is_meant(entry);
                entry.is_told |= is_due;
                list.leaving += usize::from(is_due);
                let waker = if is_due { entry.waker.clone() } else { None };
                (waker, entry.next, is_due)
            };
            told += usize::from(is_due);
            if let Some(waker) = waker {
                waker.wake();
            }
            slot = next;
        }
        told
    }

    /// Tells all that wait between two requests to close, and everyone who enters so from now on.
    pub fn close_all(&self) {
        self.0.borrow_mut().is_closed = true;
        self.tell(usize::MAX, |entry| !entry.is_new);
    }
}

impl Place {
    /// Enters the list as its newest, between two requests.
    #[must_use]
    pub fn enter(&self) -> Idle<'_> {
        self.enter_as(false)
    }

    /// Enters the list as its newest, before the first request.
    #[must_use]
    pub fn enter_new(&self) -> Idle<'_> {
        self.enter_as(true)
    }

    fn enter_as(&self, is_new: bool) -> Idle<'_> {
        self.list.0.borrow_mut().push(self.slot, is_new);
        Idle(self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.list.0.borrow_mut().free_slot(self.slot);
    }
}

impl Idle<'_> {
    /// Waits until the connection is to close.
    pub async fn told(&self) {
        std::future::poll_fn(|context| self.poll_close(context)).await;
    }

    /// Ready when the connection is to close.
    pub fn poll_close(&self, context: &mut Context<'_>) -> Poll<()> {
        let list = &mut *self.0.list.0.borrow_mut();
        let entry = &mut list.entries[self.0.slot as usize];
        if entry.is_told || (list.is_closed && !entry.is_new) {
            return Poll::Ready(());
        }
        match &entry.waker {
            Some(waker) if waker.will_wake(context.waker()) => {}
            _ => entry.waker = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.0.list.0.borrow_mut().remove(self.0.slot);
    }
}

impl List {
    fn take_slot(&mut self) -> u32 {
        let entry = Entry {
            previous: NONE,
            next: NONE,
            is_told: false,
            is_new: false,
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

    fn push(&mut self, slot: u32, is_new: bool) {
        let entry = &mut self.entries[slot as usize];
        entry.is_new = is_new;
        entry.previous = self.newest;
        entry.next = NONE;
        match self.newest {
            NONE => self.oldest = slot,
            newest => self.entries[newest as usize].next = slot,
        }
        self.newest = slot;
        self.length += 1;
    }

    fn remove(&mut self, slot: u32) {
        let (previous, next) = {
            let entry = &mut self.entries[slot as usize];
            self.leaving -= usize::from(std::mem::take(&mut entry.is_told));
            (entry.previous, entry.next)
        };
        match previous {
            NONE => self.oldest = next,
            previous => self.entries[previous as usize].next = next,
        }
        match next {
            NONE => self.newest = previous,
            next => self.entries[next as usize].previous = previous,
        }
        self.length -= 1;
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
        let (a, b, c) = (places[0].enter(), places[1].enter(), places[2].enter());
        drop(a);
        let d = places[3].enter();
        assert_eq!(list.close_oldest(2), 2);
        assert_eq!([&b, &c, &d].map(is_told), [true, true, false]);
        assert_eq!(list.len(), 3);
    }

    #[test]
    fn one_who_was_told_is_not_counted_again() {
        let list = IdleList::default();
        let place = list.place();
        let told = place.enter();
        assert_eq!((list.close_oldest(1), list.close_oldest(1)), (1, 0));
        assert_eq!(list.leaving(), 1);
        drop(told);
        assert_eq!(list.leaving(), 0);
    }

    #[test]
    fn after_close_all_newcomers_are_told_at_once() {
        let list = IdleList::default();
        let (first, second) = (list.place(), list.place());
        let a = first.enter();
        list.close_all();
        let b = second.enter();
        assert!(is_told(&a) && is_told(&b));
    }

    #[test]
    fn who_waits_for_the_first_request_goes_only_when_places_run_out() {
        let list = IdleList::default();
        let places = [(); 3].map(|()| list.place());
        let (old, new) = (places[0].enter(), places[1].enter_new());
        list.close_all();
        assert!(is_told(&old) && !is_told(&new) && !is_told(&places[2].enter_new()));
        assert_eq!(list.close_oldest(2), 1);
        assert!(is_told(&new));
    }

    #[test]
    fn a_place_is_told_again_after_another_request() {
        let list = IdleList::default();
        let place = list.place();
        let idle = place.enter();
        assert_eq!(list.close_oldest(1), 1);
        drop(idle);
        let idle = place.enter();
        assert!(!is_told(&idle));
        assert_eq!((list.close_oldest(1), is_told(&idle)), (1, true));
        drop(idle);
        drop(place);
        assert_eq!(list.place().slot, 0, "freed places are used again");
    }
}
