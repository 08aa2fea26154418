//! An HTTP/2 connection as its streams see it: the session, the bodies that arrive, and who may send next.
//!
//! Not here: reading and writing the socket, which only the connection's driver does ([`crate::connection`]). Invariants:
//! the session is never borrowed across an `await`; a stream that waits is woken when anything of it changes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};

use disk::memory::{Charge, Holder, MemoryLevel, charge, level::level};
use runtime::IdleEntry;
use wire::http2::flow::{BODY_WINDOW, GrowingWindow, INITIAL_WINDOW};
use wire::http2::priority::SLOTS_MAX;
use wire::http2::session::StreamGone;
use wire::http2::{ErrorCode, Session, SessionConfig, StreamKey};
use wire::{Stream, turn};

/// Bytes of an idle connection: its tasks, the session, the driver (`bench/memory` over HTTP/2).
const CONNECTION_BYTES: usize = 2 << 10;
/// The window in bytes of a stream whose body is read while memory is scarce, where it had less.
const SCARCE_WINDOW: u32 = 16 << 10;
/// Capacity in bytes that the buffer of a body keeps for the next stream in its slot.
const BODY_KEPT: usize = 4 << 10;

/// The part of a request's body that has not come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Rest {
    /// More is to come.
    #[default]
    More,
    /// Nothing.
    Nothing,
    /// What came is malformed.
    Malformed,
}

/// A stream as its connection and its request see it.
#[derive(Debug, Default)]
struct Slot {
    /// The stream; `None`: closed.
    key: Option<StreamKey>,
    /// The task of its request.
    waker: Option<Waker>,
    /// The bytes of its body that were not read.
    body: Vec<u8>,
    /// The room that its client has, as far as it is read.
    window: GrowingWindow,
    rest: Rest,
}

struct State {
    session: Session,
    slots: Vec<Slot>,
    /// The waiting stream whose turn to send it is: no other one sends before.
    granted: Option<StreamKey>,
    /// The task of the driver.
    driver: Option<Waker>,
    charge: Charge,
}

/// An HTTP/2 connection as its streams see it.
pub struct Http2Connection {
    /// The socket.
    pub(crate) stream: Stream,
    /// Its entry in the list of idle connections.
    pub(crate) place: IdleEntry,
    /// The state of its loop for connections.
    pub(crate) owner: Rc<wire::Loop>,
    state: RefCell<State>,
    /// Whether it is at its end, so that every stream is, too.
    is_closed: Cell<bool>,
    /// Whether it is to end behind the requests that have begun.
    is_retired: Cell<bool>,
}

impl Http2Connection {
    /// The server's side of a new connection.
    pub(crate) fn new(
        stream: Stream,
        place: IdleEntry,
        owner: Rc<wire::Loop>,
        config: SessionConfig,
    ) -> Rc<Self> {
        Rc::new(Self {
            stream,
            place,
            owner,
            state: RefCell::new(State {
                session: Session::server(config),
                slots: Vec::new(),
                granted: None,
                driver: None,
                charge: charge(Holder::Http2, CONNECTION_BYTES),
            }),
            is_closed: Cell::new(false),
            is_retired: Cell::new(false),
        })
    }

    /// Uses the session, which nothing else may do meanwhile.
    pub(crate) fn with_session<T>(&self, use_it: impl FnOnce(&mut Session) -> T) -> T {
        use_it(&mut self.state.borrow_mut().session)
    }

    /// Frees what an idle connection needs not.
    pub(crate) fn release_buffers(&self) {
        let state = &mut *self.state.borrow_mut();
        state.session.release_buffers();
        let is_free = |slot: &Slot| slot.key.is_none() && slot.waker.is_none();
        if state.slots.iter().all(is_free) {
            state.slots = Vec::new();
        }
    }

    /// Counts the memory of the connection.
    pub(crate) fn count(&self) {
        let state = &mut *self.state.borrow_mut();
        let slots = state.slots.capacity() * size_of::<Slot>();
        let held = state.session.held() + slots;
        state.charge.set(CONNECTION_BYTES + held);
    }

    /// Notes the driver's task.
    pub(crate) fn set_driver(&self, context: &Context<'_>) {
        let driver = &mut self.state.borrow_mut().driver;
        if !driver
            .as_ref()
            .is_some_and(|waker| waker.will_wake(context.waker()))
        {
            *driver = Some(context.waker().clone());
        }
    }

    /// The driver's task, which is not woken until it is put back: it works, and looks at everything behind that.
    pub(crate) fn take_driver(&self) -> Option<Waker> {
        self.state.borrow_mut().driver.take()
    }

    /// Puts the driver's task back.
    pub(crate) fn put_driver(&self, waker: Option<Waker>) {
        self.state.borrow_mut().driver = waker;
    }

    /// Has the driver look at the output.
    fn wake_driver(&self) {
        let waker = self.state.borrow().driver.clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes in a stream that was opened; whether it has no body to come.
    pub(crate) fn open(&self, key: StreamKey, is_whole: bool) {
        let before = {
            let state = &mut *self.state.borrow_mut();
            if state.slots.len() <= key.slot() {
                let slots = (key.slot() + 1).min(SLOTS_MAX);
                state.slots.resize_with(slots, Slot::default);
            }
            let slot = &mut state.slots[key.slot()];
            slot.body.clear();
            slot.body.shrink_to(BODY_KEPT);
            slot.key = Some(key);
            slot.window = GrowingWindow::of(INITIAL_WINDOW);
            slot.rest = if is_whole { Rest::Nothing } else { Rest::More };
            slot.waker.take()
        };
        // The stream that had the slot before is closed.
        if let Some(waker) = before {
            waker.wake();
        }
    }

    /// Takes in data of a stream's body.
    pub(crate) fn take_data(&self, key: StreamKey, data: &[u8], is_last: bool) {
        self.change(key, |slot| {
            slot.body.extend_from_slice(data);
            if is_last {
                slot.rest = Rest::Nothing;
            }
        });
    }

    /// Ends a stream's body.
    pub(crate) fn end_body(&self, key: StreamKey, rest: Rest) {
        self.change(key, |slot| slot.rest = rest);
    }

    /// Notes that a stream is closed.
    pub(crate) fn close_stream(&self, key: StreamKey) {
        self.change(key, |slot| {
            slot.key = None;
            slot.body = Vec::new();
        });
        let state = &mut *self.state.borrow_mut();
        if state.granted == Some(key) {
            state.granted = None;
        }
    }

    /// Notes that the connection is at its end, and with it all streams.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        let wakers: Vec<Waker> = {
            let state = &mut *self.state.borrow_mut();
            let slots = state.slots.iter_mut();
            slots.filter_map(|slot| slot.waker.take()).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
        self.wake_driver();
    }

    /// Whether it is at its end.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// Has it end behind the requests that have begun.
    pub(super) fn retire(&self) {
        self.is_retired.set(true);
        self.wake_driver();
    }

    /// Whether it is to end behind the requests that have begun.
    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.get()
    }

    /// Changes a stream that is open, and wakes its task.
    fn change(&self, key: StreamKey, change: impl FnOnce(&mut Slot)) {
        let waker = {
            let state = &mut *self.state.borrow_mut();
            let Some(slot) = state.slots.get_mut(key.slot()) else {
                return;
            };
            if slot.key != Some(key) {
                return;
            }
            change(slot);
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether a stream is closed, before its response was sent.
    pub(super) fn is_gone(&self, key: StreamKey) -> bool {
        let state = self.state.borrow();
        let slot = state.slots.get(key.slot());
        self.is_closed.get() || slot.is_none_or(|slot| slot.key != Some(key))
    }

    /// Has the current task woken when something of a stream changes.
    pub(super) fn watch(&self, key: StreamKey, context: &Context<'_>) {
        let state = &mut *self.state.borrow_mut();
        let Some(slot) = state.slots.get_mut(key.slot()) else {
            return;
        };
        if slot.key == Some(key)
            && !slot
                .waker
                .as_ref()
                .is_some_and(|waker| waker.will_wake(context.waker()))
        {
            slot.waker = Some(context.waker().clone());
        }
    }

    /// Whether a stream is open, all of its body has been read, and nothing is to come.
    pub(super) fn is_body_over(&self, key: StreamKey) -> bool {
        let state = self.state.borrow();
        let slot = state.slots.get(key.slot());
        let slot = slot.filter(|slot| slot.key == Some(key));
        slot.is_some_and(|slot| slot.body.is_empty() && slot.rest == Rest::Nothing)
    }

    /// Appends the bytes of a body that have come to `out`, and gives the client room for as many again; what is to
    /// come. `None`: the stream is closed.
    pub(super) fn read(&self, key: StreamKey, out: &mut Vec<u8>) -> Option<Rest> {
        let state = &mut *self.state.borrow_mut();
        let slot = state.slots.get_mut(key.slot())?;
        if slot.key != Some(key) || self.is_closed.get() {
            return None;
        }
        let count = slot.body.len();
        if count > 0 {
            turn::spend(count);
            match count > BODY_KEPT && out.is_empty() {
                // Not copied: a window may have been filled meanwhile.
                true => *out = std::mem::take(&mut slot.body),
                false => out.extend_from_slice(&slot.body),
            }
            slot.body.clear();
            slot.body.shrink_to(BODY_KEPT);
            state.session.consume(key, count);
            // What is read as fast as it comes may come from far away.
            if let Some(width) = slot.window.take(count) {
                state.session.widen(key, width);
            }
        }
        let rest = slot.rest;
        let driver = state.driver.clone().filter(|_| count > 0);
        if let Some(driver) = driver {
            driver.wake();
        }
        Some(rest)
    }

    /// Gives the client the room of a body that is read, if it has less than for so many bytes; while memory is scarce no
    /// more than a little. Returns whether it has it now.
    pub(super) fn widen(&self, key: StreamKey, wanted: u64) -> bool {
        let is_scarce = level() >= MemoryLevel::Windows;
        let window = if is_scarce {
            SCARCE_WINDOW
        } else {
            BODY_WINDOW
        };
        let is_wider = {
            let state = &mut *self.state.borrow_mut();
            let slot = state.slots.get_mut(key.slot());
            let Some(slot) = slot.filter(|slot| slot.key == Some(key)) else {
                return true;
            };
            let is_wider =
                u64::from(state.session.window(key)) < wanted && state.session.widen(key, window);
            if is_wider {
                slot.window = GrowingWindow::of(window);
            }
            is_wider
        };
        if is_wider {
            self.wake_driver();
        }
        !is_scarce
    }

    /// Uses the session to send; returns the number of bytes that the output grew by.
    pub(super) fn send<T>(
        &self,
        send: impl FnOnce(&mut Session) -> Result<T, StreamGone>,
    ) -> Result<(T, u64), StreamGone> {
        if self.is_closed.get() {
            return Err(StreamGone);
        }
        let (outcome, grown) = {
            let session = &mut self.state.borrow_mut().session;
            let before = session.output().len();
            let outcome = send(session);
            (outcome, session.output().len().saturating_sub(before))
        };
        if grown > 0 {
            turn::spend(grown);
            self.wake_driver();
        }
        Ok((outcome?, grown as u64))
    }

    /// Whether a stream may send data now, as far as other streams are concerned.
    fn has_turn(&self, key: StreamKey) -> bool {
        let granted = self.state.borrow().granted;
        granted.is_none_or(|granted| granted == key)
    }

    /// Sends data of a stream as far as it may be sent. Returns how many bytes were taken, and those of the frames. A stream
    /// that is closed is an error also where another has the turn: its wait would end at once, again and again.
    pub(super) fn send_data(
        &self,
        key: StreamKey,
        data: &[u8],
        is_last: bool,
        frame_max: usize,
    ) -> Result<(usize, u64), StreamGone> {
        if !data.is_empty() && !self.has_turn(key) {
            return match self.is_gone(key) {
                true => Err(StreamGone),
                false => Ok((0, 0)),
            };
        }
        self.send(|session| session.data_in_frames(key, data, is_last, frame_max))
    }

    /// Number of bytes of data that a stream may send now. Where it is closed there is no limit, so that the next write
    /// finds out.
    pub(super) fn room(&self, key: StreamKey) -> usize {
        if self.is_gone(key) {
            return usize::MAX;
        }
        match self.has_turn(key) {
            true => self.with_session(|session| session.sendable(key)),
            false => 0,
        }
    }

    /// Whether a stream may send something now. If not, it waits for its turn, and the task is woken then; see
    /// [`Http2Connection::end_wait`].
    pub(super) fn may_send(&self, key: StreamKey, context: &Context<'_>) -> bool {
        if self.is_gone(key) {
            return true;
        }
        if self.has_turn(key) && self.with_session(|session| session.sendable(key)) > 0 {
            return true;
        }
        self.watch(key, context);
        self.with_session(|session| session.set_ready(key, true));
        false
    }

    /// Ends a stream's wait for its turn to send.
    pub(super) fn end_wait(&self, key: StreamKey) {
        let had_turn = {
            let state = &mut *self.state.borrow_mut();
            state.session.set_ready(key, false);
            let had_turn = state.granted == Some(key);
            if had_turn {
                state.granted = None;
            }
            had_turn
        };
        if had_turn {
            self.wake_driver();
        }
    }

    /// For the driver: gives the turn to send to the stream that is to have it, by priority.
    pub(crate) fn grant(&self) {
        let waker = {
            let state = &mut *self.state.borrow_mut();
            let kept = state.granted.filter(|key| state.session.sendable(*key) > 0);
            state.granted = kept.or_else(|| state.session.next_sender());
            let slot = state.granted.and_then(|key| {
                let slot = state.slots.get_mut(key.slot())?;
                (slot.key == Some(key)).then_some(slot)
            });
            match slot {
                Some(slot) => slot.waker.take(),
                None => {
                    state.granted = None;
                    None
                }
            }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends a stream whose request is over: resets it, unless its end was sent.
    pub(super) fn finish_stream(&self, key: StreamKey, code: ErrorCode) {
        self.with_session(|session| session.reset(key, code));
        self.close_stream(key);
        self.wake_driver();
    }
}
