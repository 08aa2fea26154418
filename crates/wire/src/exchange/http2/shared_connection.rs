//! A connection of HTTP/2 to a server, which carries several requests at a time (RFC 9113, 5.1.2).
//!
//! Requests and their responses meet here: an exchange opens a stream and takes what came on it, the driver (`driver`)
//! moves the bytes of all streams. Not here: which connection a request takes. Invariants: what an exchange has to send
//! leaves with what the others have, in the driver's next poll; once [`SharedConnection::has_room`] said no for good,
//! the connection ends with its last stream.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use disk::memory::{Charge, Holder, charge};
use message::Framing;

use super::Http2Exchange;
use super::driver::SharedDriver;
use super::stream_state::StreamState;
use crate::event_loop::Loop;
use crate::exchange::{Exchange, ExchangeError, RequestKind, UpstreamConnection};
use crate::http1::request_parser::HeadLimits;
use crate::http2::flow::BODY_WINDOW;
use crate::http2::frame::PAYLOAD_MAX;
use crate::http2::limits::Periodic;
use crate::http2::priority::SLOTS_MAX;
use crate::http2::{ErrorCode, Event, ResetCause, Session, SessionConfig, StreamKey};
use crate::loop_clock;

/// Maximum number of requests at a time on a connection.
pub const STREAMS_MAX: usize = SLOTS_MAX;
/// Minimum of the connection's window, in bytes, with which a request begins whose body is as long, or of unknown length:
/// a frame. (Servers widen a window when about a half of it is used, of 64 KiB at least.)
const WINDOW_MIN: usize = PAYLOAD_MAX;
/// The time in milliseconds in which the window of an idle connection comes back, if it does: some round trips.
const WINDOW_AWAITED_MS: u64 = 2000;
/// Maximum number of streams that we reset on a connection in a period ([`crate::http2::limits::PERIOD_MS`]) before it takes
/// no more requests; those that it has go on. Servers end connections for resets (CVE-2023-44487), Netty's from 200 in
/// 30 seconds on: four periods, and all requests that the connection has then, are fewer.
const OWN_RESETS_MAX: u32 = 16;
/// Bytes of a connection beside its buffers.
const CONNECTION_BYTES: usize = 3 << 10;
/// Minimum of the limit of a head or of trailers, decoded, in bytes: trailers may carry an error's details.
const BLOCK_MIN: usize = 64 * 1024;
/// How many times larger than `grpc_buffer_size` a head may be once it is decoded: that limits the encoded one, and
/// HPACK's code and tables make it shorter.
pub(super) const DECODED_FACTOR: usize = 2;

/// A connection for several requests at a time. Dropped, it takes no more of them, and ends with the last one.
#[derive(Debug)]
pub struct SharedConnection(Rc<Shared>);

/// What the exchanges and the driver of a connection share.
pub(super) struct Shared {
    pub(super) owner: Rc<Loop>,
    opened_ms: u64,
    pub(super) state: RefCell<State>,
}

/// The state of a connection.
pub(super) struct State {
    pub(super) session: Session,
    /// The exchange of each live stream, by its slot.
    streams: Vec<Option<(StreamKey, Rc<RefCell<StreamState>>)>>,
    driver: Option<Waker>,
    /// Whether exchanges may wait for room to send.
    has_senders: bool,
    /// The slot behind that of the exchange that had the room first when there was some last.
    next_sender: usize,
    pub(super) is_closed: bool,
    pub(super) is_leaving: bool,
    /// Whether a request has told its end as a failure of the server.
    is_failure_told: bool,
    requests: u64,
    /// Streams that we reset.
    resets: Periodic,
    /// Number of reads that brought something.
    reads: u64,
    /// The time of the last of them.
    read_ms: u64,
    idle_since_ms: u64,
    /// The code of the server's GOAWAY.
    goaway: ErrorCode,
    charge: Charge,
}

impl SharedConnection {
    /// A new connection, and the task that it needs. The heads of responses have at most about `head_bytes_max` bytes
    /// (`grpc_buffer_size`), and at most `streams_max` (up to [`STREAMS_MAX`]) requests share it at a time.
    #[must_use]
    pub fn new(
        connection: UpstreamConnection,
        head_bytes_max: usize,
        streams_max: usize,
    ) -> (SharedConnection, SharedDriver) {
        let opened_ms = connection.opened_ms();
        let (stream, owner) = connection.into_parts();
        let block_max = head_bytes_max.saturating_mul(DECODED_FACTOR).max(BLOCK_MIN);
        let shared = Rc::new(Shared {
            owner,
            opened_ms,
            state: RefCell::new(State {
                session: Session::client(config(block_max, streams_max.clamp(1, STREAMS_MAX))),
                streams: Vec::new(),
                driver: None,
                has_senders: false,
                next_sender: 0,
                is_closed: false,
                is_leaving: false,
                is_failure_told: false,
                requests: 0,
                resets: Periodic::default(),
                reads: 0,
                read_ms: 0,
                idle_since_ms: loop_clock::monotonic_ms(),
                goaway: ErrorCode::NO_ERROR,
                charge: charge(Holder::Http2, CONNECTION_BYTES),
            }),
        });
        let driver = SharedDriver::new(Rc::clone(&shared), stream);
        (SharedConnection(shared), driver)
    }

    /// Whether another request may be begun on it now, whose body is framed so. Before the server has said how many it
    /// takes, it has one. A body needs a part of the connection's window that no other one waits for: all share it, and
    /// one that the server does not read keeps it.
    #[must_use]
    pub fn has_room(&self, framing: Framing) -> bool {
        let state = self.0.state.borrow();
        let is_known = state.session.is_settled() || state.session.live() == 0;
        is_known
            && state.takes_requests()
            && state.session.openable() > 0
            && state.takes_body(framing)
    }

    /// Whether it is of no use for bodies any more: its server has not given the window back, though all requests have
    /// ended some time ago.
    #[must_use]
    pub fn is_used_up(&self, now_ms: u64) -> bool {
        let is_over = |since_ms| now_ms.saturating_sub(since_ms) >= WINDOW_AWAITED_MS;
        self.idle_since_ms().is_some_and(is_over)
            && self.0.state.borrow().session.send_window() < WINDOW_MIN
    }

    /// Whether it may have room now or later.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.0.state.borrow().takes_requests()
    }

    /// Whether it is known how many requests the server takes, or that it takes none.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let state = self.0.state.borrow();
        state.session.is_settled() || state.is_closed
    }

    /// Begins a request: `head` are its encoded fields ([`crate::http2::head_writer::request`]), and `framing` tells
    /// whether a body follows. The head of the response has at most about `head_bytes_max` bytes. Nothing is sent
    /// before [`Exchange::flush`] or a read.
    #[must_use]
    pub fn begin(
        &self,
        asked: RequestKind,
        head: &[u8],
        framing: Framing,
        head_bytes_max: usize,
    ) -> Exchange {
        let begun = Http2Exchange::begin(&self.0, asked, head, framing, head_bytes_max);
        Exchange::Http2(begun)
    }

    /// Number of requests begun on it.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.0.state.borrow().requests
    }

    /// The time at which it was opened, on the clock of [`crate::loop_clock::monotonic_ms`].
    #[must_use]
    pub fn opened_ms(&self) -> u64 {
        self.0.opened_ms
    }

    /// The time since which it carries no request; `None`: it carries one.
    #[must_use]
    pub fn idle_since_ms(&self) -> Option<u64> {
        let state = self.0.state.borrow();
        (state.session.live() == 0).then_some(state.idle_since_ms)
    }
}

impl Drop for SharedConnection {
    fn drop(&mut self) {
        let mut state = self.0.state.borrow_mut();
        state.is_leaving = true;
        state.wake_driver();
    }
}

fn config(block_max: usize, streams_max: usize) -> SessionConfig {
    SessionConfig {
        streams_max: streams_max as u32,
        stream_window: BODY_WINDOW,
        limits: HeadLimits {
            large_buffers: 1,
            large_buffer_size: block_max,
            ..HeadLimits::default()
        },
        allows_protocol: false,
    }
}

impl State {
    fn takes_requests(&self) -> bool {
        !self.is_closed && !self.is_leaving && !self.session.is_going()
    }

    fn takes_body(&self, framing: Framing) -> bool {
        let needed = match framing {
            Framing::None | Framing::Length(0) => return true,
            Framing::Length(bytes) => {
                usize::try_from(bytes).map_or(WINDOW_MIN, |it| it.min(WINDOW_MIN))
            }
            Framing::Chunked => WINDOW_MIN,
        };
        let mut streams = self.streams.iter().flatten();
        self.session.send_window() >= needed && !streams.any(|(_, one)| one.borrow().is_starved)
    }

    /// Opens a stream for an exchange. Nothing where the connection has no room for it.
    pub(super) fn open(
        &mut self,
        method: &[u8],
        is_end: bool,
        head: &[u8],
        stream: &Rc<RefCell<StreamState>>,
    ) -> Option<StreamKey> {
        if self.is_closed {
            return None;
        }
        self.session.begin_turn(loop_clock::monotonic_ms());
        self.requests += 1;
        let opened = self
            .session
            .open(method, is_end, |out| out.extend_from_slice(head));
        let key = opened.ok()?;
        if self.streams.len() <= key.slot() {
            self.streams.resize(key.slot() + 1, None);
        }
        self.streams[key.slot()] = Some((key, Rc::clone(stream)));
        Some(key)
    }

    /// Has the driver write what was queued.
    pub(super) fn wake_driver(&mut self) {
        if let Some(driver) = &self.driver {
            driver.wake_by_ref();
        }
    }

    /// Notes the task of the driver.
    pub(super) fn set_driver(&mut self, context: &Context<'_>) {
        let is_same = |waker: &Waker| waker.will_wake(context.waker());
        if !self.driver.as_ref().is_some_and(is_same) {
            self.driver = Some(context.waker().clone());
        }
    }

    /// Notes that an exchange waits for room to send.
    pub(super) fn note_sender(&mut self) {
        self.has_senders = true;
    }

    /// Wakes the exchanges that wait for room to send and have it. The first one may take all of it, and is another one each
    /// time: an upload that has always more to send holds up no other.
    pub(super) fn wake_senders(&mut self) {
        if !std::mem::take(&mut self.has_senders) {
            return;
        }
        let at = self.next_sender.min(self.streams.len());
        let (before, behind) = self.streams.split_at(at);
        let mut first = None;
        for (key, stream) in behind.iter().chain(before).flatten() {
            let stream = &mut *stream.borrow_mut();
            if !stream.wants_room {
                continue;
            }
            match self.session.sendable(*key) {
                0 => self.has_senders = true,
                _ => {
                    stream.wake();
                    first.get_or_insert(key.slot());
                }
            }
        }
        if let Some(slot) = first {
            self.next_sender = slot + 1;
        }
    }

    /// Forgets an exchange that has ended or was given up; its stream is reset unless it has ended.
    pub(super) fn leave_stream(&mut self, key: StreamKey, code: ErrorCode) {
        let entry = self.streams.get_mut(key.slot());
        if let Some(entry) = entry.filter(|entry| entry.as_ref().is_some_and(|it| it.0 == key)) {
            *entry = None;
        }
        let was_idle = self.session.live() == 0;
        if !self.is_closed && self.session.is_open(key) {
            self.session.reset(key, code);
            self.note_reset();
        }
        self.note_idle(was_idle);
        self.wake_driver();
    }

    /// Notes that we have reset a stream. A server that ends the connection for resets ends the requests of others with it.
    fn note_reset(&mut self) {
        if self.resets.note(loop_clock::monotonic_ms(), 1) >= OWN_RESETS_MAX {
            self.is_leaving = true;
        }
    }

    /// Notes that it carries no request, where that is so. What comes on an idle connection (a server's PINGs) does not make
    /// it idle anew.
    fn note_idle(&mut self, was_idle: bool) {
        if self.session.live() > 0 {
            return;
        }
        if !was_idle {
            self.idle_since_ms = loop_clock::monotonic_ms();
        }
        self.session.release_buffers();
    }

    /// Number of reads so far.
    pub(super) fn reads(&self) -> u64 {
        self.reads
    }

    /// A request has waited in vain, since so many reads. Where nothing has come since, on any stream, the connection may
    /// be dead, though TCP does not say so yet: it takes no more requests.
    pub(super) fn note_timeout(&mut self, reads: u64) {
        if self.reads == reads {
            self.is_leaving = true;
            self.wake_driver();
        }
    }

    /// What is left of the time for which a request may wait, whose response has begun, and which began to wait at so many
    /// reads. A server that sends PINGs keeps its quiet streams alive by them, and sends none while others are not quiet
    /// (gRPC's keepalive): whatever it sends on the connection counts. (nginx, with a connection for each request,
    /// counts any frame.)
    pub(super) fn left_by_pings(&self, timeout: Duration, reads: u64) -> Option<Duration> {
        if !self.session.has_pinged() || self.reads == reads {
            return None;
        }
        let quiet_ms = loop_clock::monotonic_ms().saturating_sub(self.read_ms);
        let left = timeout.checked_sub(Duration::from_millis(quiet_ms))?;
        (!left.is_zero()).then_some(left)
    }

    /// Takes frames, and hands each event to its exchange; returns the number of bytes used.
    pub(super) fn take(&mut self, input: &[u8]) -> usize {
        let now_ms = loop_clock::monotonic_ms();
        self.session.begin_turn(now_ms);
        self.session.begin_read();
        self.reads += 1;
        self.read_ms = now_ms;
        let was_idle = self.session.live() == 0;
        let mut used = 0;
        while !self.is_closed {
            let (taken, event) = self.session.receive(&input[used..], now_ms, &mut |_| None);
            used += taken;
            if matches!(event, Event::Partial | Event::TurnEnds) {
                break;
            }
            self.note(event, taken);
        }
        self.note_idle(was_idle);
        used
    }

    fn note(&mut self, event: Event<'_>, bytes: usize) {
        let key = match &event {
            Event::Response(key, ..) | Event::Data(key, ..) | Event::Trailers(key, _) => *key,
            Event::Reset(key, cause) => {
                if matches!(cause, ResetCause::Fault(_)) {
                    self.note_reset();
                }
                *key
            }
            Event::GoAway(_, code) => return self.goaway = *code,
            Event::Closed(reason) => {
                self.is_closed = true;
                return self.end_all(|stream| stream.break_connection(*reason));
            }
            _ => return,
        };
        let Some(entry) = self.streams.get_mut(key.slot()) else {
            return;
        };
        let Some((_, stream)) = entry.as_ref().filter(|entry| entry.0 == key) else {
            return;
        };
        let has_ended = {
            let stream = &mut *stream.borrow_mut();
            stream.note(event, bytes, self.goaway);
            stream.wake();
            stream.has_ended()
        };
        // A request that is still sent needs its entry.
        if has_ended && !self.session.is_open(key) {
            *entry = None;
        }
    }

    /// The connection is over: no stream goes on.
    pub(super) fn end(&mut self, error: impl Fn() -> ExchangeError) {
        self.is_closed = true;
        self.end_all(|stream| stream.end(error()));
    }

    fn end_all(&mut self, end: impl Fn(&mut StreamState)) {
        for (_, stream) in self.streams.drain(..).flatten() {
            let stream = &mut *stream.borrow_mut();
            end(stream);
            stream.is_broken_off = true;
            stream.wake();
        }
    }

    /// Whether the end of the connection, for which a request asks, was not told as a failure before.
    pub(super) fn claim_failure(&mut self) -> bool {
        !std::mem::replace(&mut self.is_failure_told, true)
    }

    /// Counts the memory of the connection.
    pub(super) fn count(&mut self) {
        self.charge.set(CONNECTION_BYTES + self.session.held());
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}
