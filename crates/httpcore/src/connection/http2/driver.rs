//! The driver of a connection: reads what its client sends, writes what its requests have to say, and ends it.
//!
//! Invariants: the loop's scratch buffer is never borrowed across an `await`; an idle connection holds no buffer, and has
//! no unsent output.

use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use runtime::timing::{current_request, poll_timing};
use runtime::{Idle, InFlight, Waiting};
use wire::http2::limits::MALFORMED_MAX;
use wire::http2::{Reason, Session};
use wire::{Timer, call_failed, loop_clock, turn};

use crate::client::Client;
use crate::http_loop::generation::Generation;
use crate::responder::Responder;
use crate::settings::{Location, Server};
use crate::transport::http2::Http2Connection;

use super::events::{self, Input, Pause};
use super::figures::Http2Counters;
use super::request::{self, Opened};
use super::send_ahead::SendAhead;

mod waiting;

use waiting::Wait;

/// Bytes of unsent output from which on nothing is read: the client does not take its answers.
const UNSENT_MAX: usize = 512 << 10;
/// Bytes of a connection's first reads: what a turn leaves of them is copied. A body's are larger: each full read doubles the
/// next one.
const READ_FIRST: usize = 16 << 10;
/// The cost of a request that is answered in the turn of its connection, in bytes: the clock is read after some of them.
const REQUEST_COST: usize = turn::LOOK_BYTES as usize / 2;
/// How long the end of a request may follow its answer before the stream is reset.
const UNENDED_WAIT: Duration = Duration::from_millis(200);
/// Maximum time in which requests that cross the first GOAWAY of two are taken. Where the loop ends, also the time for which
/// a client's next request is waited for after a response, and between two pieces of what it still sends after GOAWAY.
const LEAVING_WAIT: Duration = Duration::from_secs(1);
/// Maximum number of bytes that are read and dropped of a client that has broken the connection, so that it sees why:
/// a flood does not end with that.
const BROKEN_REST_MAX: u64 = 1 << 20;
/// The log's sentence for a client that does not send or take what it should.
const TIMED_OUT: &str = "client timed out (110: Connection timed out)";

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finish {
    /// After all that was to be sent.
    Orderly,
    /// Whatever is to be sent.
    AtOnce,
}

pub(super) fn default_server<'a>(
    client: &Client,
    generation: &'a Generation,
) -> Option<&'a Server> {
    let server = client.default_server(generation)?;
    Some(generation.settings.server(server))
}

pub(super) fn default_location<'a>(
    client: &Client,
    generation: &'a Generation,
) -> Option<&'a Location> {
    let server = default_server(client, generation)?;
    Some(generation.settings.location(server.location))
}

/// The wait for the socket to take something.
struct WriteWait<'a> {
    timer: Timer,
    /// The end of a response that is not written is one that goes on.
    _unwritten: InFlight<'a>,
}

pub(super) struct Driver<'a> {
    connection: &'a Rc<Http2Connection>,
    client: &'a Rc<Client>,
    /// Bytes that were read and not used: the beginning of a frame, or what waits for the next turn.
    unread: Bytes,
    /// Maximum number of bytes of a read.
    read_max: usize,
    /// Number of bytes of the next one.
    read_len: usize,
    /// Whether `unread` has more than the beginning of a frame.
    has_paused: bool,
    /// Whether what came last begins a message, or a frame, and does not end it.
    awaits_rest: bool,
    /// Whether a fault has ended the session.
    is_broken: bool,
    /// For what the client is waited for.
    timer: Timer,
    waits: Wait,
    /// Whether requests were begun since then: some may have been answered already.
    has_begun: bool,
    /// When that began, in milliseconds of the loop's clock.
    waits_since: u64,
    /// Whether the timer is that of [`Driver::rest`].
    is_resting: bool,
    /// While the socket takes nothing.
    write_wait: Option<WriteWait<'a>>,
    ahead: SendAhead,
    /// For the ends of requests that are answered, while some are missing.
    unended_timer: Option<Timer>,
    /// Whether the client has had several requests open at a time: it does not wait for a response before the next.
    has_had_several: bool,
    /// Whether GOAWAY was sent.
    is_leaving: bool,
    /// For the client to have read the first GOAWAY of two.
    goaway_timer: Option<Timer>,
    /// Requests that were opened and not begun, since the turn was over; at most those of one turn.
    opened: VecDeque<Opened>,
    /// The configuration of the last requests, and the entry in its listening table; an idle connection has none.
    generation: Option<(Rc<Generation>, usize)>,
}

impl<'a> Driver<'a> {
    pub(super) fn new(
        connection: &'a Rc<Http2Connection>,
        client: &'a Rc<Client>,
        unread: Vec<u8>,
        read_max: usize,
    ) -> Self {
        Self {
            connection,
            client,
            // What was read with the preface may be all that comes.
            has_paused: !unread.is_empty(),
            unread: unread.into(),
            read_max,
            read_len: READ_FIRST.min(read_max),
            awaits_rest: false,
            is_broken: false,
            timer: connection.owner.wheel.timer(),
            waits: Wait::Nothing,
            has_begun: false,
            waits_since: 0,
            is_resting: false,
            write_wait: None,
            ahead: SendAhead::default(),
            unended_timer: None,
            has_had_several: false,
            is_leaving: false,
            goaway_timer: None,
            opened: VecDeque::new(),
            generation: None,
        }
    }

    pub(super) fn poll<R: Responder>(
        &mut self,
        idle: &mut Option<Idle<'a>>,
        context: &mut Context<'_>,
    ) -> Poll<Finish> {
        let finish = ready!(self.poll_finish::<R>(idle, context));
        // These end as soon as they notice, and are logged.
        self.begin_requests::<R>(|| true);
        Poll::Ready(finish)
    }

    fn poll_finish<R: Responder>(
        &mut self,
        idle: &mut Option<Idle<'a>>,
        context: &mut Context<'_>,
    ) -> Poll<Finish> {
        self.connection.set_driver(context);
        if self.connection.is_closed() {
            return Poll::Ready(Finish::AtOnce);
        }
        if let Some(finish) = self.read::<R>(context) {
            return Poll::Ready(finish);
        }
        self.leave_if_due();
        self.finish_goaway(context);
        self.reset_unended(context);
        let was_full = self.is_full();
        // Streams that wait for room get it once before the driver waits for the socket.
        if let Err(finish) = self.write(context) {
            return Poll::Ready(finish);
        }
        if was_full && !self.is_full() {
            // Nothing was read, so nothing that comes would wake the driver.
            turn::put_off(context.waker());
        }
        self.connection.grant();
        let (is_done, is_written, live) = self.connection.with_session(|session| {
            let is_written = session.output().is_empty();
            (session.is_done(), is_written, session.live())
        });
        if is_done && is_written {
            return Poll::Ready(Finish::Orderly);
        }
        // The next request may be held back behind SETTINGS or WINDOW_UPDATE, to which nothing is said.
        if self.awaits_rest || live == 0 {
            self.connection.stream.acknowledge();
        }
        self.wait(idle, context)
    }

    /// Reads until there is nothing more, or the turn is over. `Some`: the connection is over.
    fn read<R: Responder>(&mut self, context: &mut Context<'_>) -> Option<Finish> {
        let now_ms = loop_clock::monotonic_ms();
        self.connection
            .with_session(|session| session.begin_turn(now_ms));
        self.begin_requests::<R>(turn::may_go_on);
        if self.opened.is_empty() && std::mem::take(&mut self.has_paused) {
            let mut bytes = std::mem::take(&mut self.unread);
            let used = self.take_events(&bytes, now_ms);
            bytes.advance(used);
            self.unread = match self.has_paused {
                // Not copied: many turns may use a part of them each.
                true => bytes,
                false => Bytes::copy_from_slice(&bytes),
            };
            self.begin_requests::<R>(turn::may_go_on);
        }
        while !self.is_behind() && !self.is_broken && !self.is_full() {
            match self.connection.stream.poll_readable(context) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => return Some(self.lost(&error)),
                Poll::Ready(Ok(())) => {}
            }
            match self.read_once::<R>(now_ms) {
                Ok(0) => return Some(self.left()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Some(self.lost(&error)),
            }
        }
        if self.is_behind() {
            turn::put_off(context.waker());
        }
        None
    }

    /// Whether there is something of the client's to be done in the next turn.
    fn is_behind(&self) -> bool {
        self.has_paused || !self.opened.is_empty()
    }

    /// Reads once, and takes in what came; returns the number of bytes.
    fn read_once<R: Responder>(&mut self, now_ms: u64) -> io::Result<usize> {
        let owner = Rc::clone(&self.connection.owner);
        let kept = std::mem::take(&mut self.unread);
        let outcome = owner.with_scratch(|scratch| {
            let most = scratch.len().min(self.read_max.max(kept.len() + 1));
            let max = most.min(kept.len() + self.read_len);
            scratch[..kept.len()].copy_from_slice(&kept);
            let count = self
                .connection
                .stream
                .try_read(&mut scratch[kept.len()..max])?;
            self.connection.with_session(|session| session.begin_read());
            let bytes = &scratch[..kept.len() + count];
            let used = self.take_events(bytes, now_ms);
            self.unread = Bytes::copy_from_slice(&bytes[used..]);
            self.read_len = match self.has_paused {
                true => READ_FIRST.min(self.read_max),
                false if bytes.len() == max => self.read_max.min(2 * self.read_len),
                false => self.read_len,
            };
            Ok(count)
        });
        match outcome {
            Ok(_) => self.begin_requests::<R>(turn::may_go_on),
            Err(_) => self.unread = kept,
        }
        outcome
    }

    /// Takes in what was read; returns the number of bytes used: all of them once the session is broken.
    fn take_events(&mut self, bytes: &[u8], now_ms: u64) -> usize {
        let generation = self.generation();
        let chosen = generation.and_then(|(generation, entry)| {
            let default = self.client.default_server(&generation)?;
            Some((generation, entry, default))
        });
        let Some((generation, entry, default)) = chosen else {
            self.is_broken = true;
            self.connection
                .with_session(|session| session.finish_goaway());
            return bytes.len();
        };
        let mut opened = std::mem::take(&mut self.opened);
        let mut input = Input {
            connection: self.connection,
            client: self.client,
            generation: &generation,
            entry,
            default,
            now_ms,
            moment: poll_timing::now_ns(),
            opened: &mut opened,
            awaits_rest: false,
        };
        let (used, pause) = input.take(bytes);
        self.has_had_several |= self.connection.with_session(|session| session.live()) > 1;
        let awaits_rest = input.awaits_rest || used < bytes.len();
        self.awaits_rest = awaits_rest && pause == Pause::Partial;
        self.opened = opened;
        match pause {
            Pause::Partial => {}
            Pause::Turn => self.has_paused = true,
            Pause::Broken => self.is_broken = true,
        }
        match self.is_broken {
            true => bytes.len(),
            false => used,
        }
    }

    /// The configuration for what begins now, and the connection's entry in its listening table: where a reload has taken
    /// its address away, the one before, for what is going on.
    fn generation(&mut self) -> Option<(Rc<Generation>, usize)> {
        // As over HTTP/1, the first request is answered all the same.
        let has_asked = self.client.requests.get() > 0;
        if has_asked && !self.is_leaving && self.client.is_removed() {
            self.leave();
        }
        let generation = self.client.generation();
        match self.client.entry(&generation) {
            Some(entry) => self.generation = Some((generation, entry)),
            None => self.leave(),
        }
        self.generation.clone()
    }

    /// Has the requests answered that were opened, as a part of this poll: what they have to say is then written by it,
    /// too, and none waits behind those of others. What the turn leaves is for the next one.
    fn begin_requests<R: Responder>(&mut self, may_go_on: fn() -> bool) {
        if self.opened.is_empty() {
            return;
        }
        let Some((generation, _)) = self.generation.clone() else {
            return;
        };
        self.has_begun = true;
        let waker = self.connection.take_driver();
        while may_go_on()
            && let Some(opened) = self.opened.pop_front()
        {
            request::begin::<R>(self.connection, self.client, &generation, opened);
            turn::spend(REQUEST_COST);
            current_request::another();
        }
        current_request::none();
        self.connection.put_driver(waker);
    }

    /// Whether so much is unsent that nothing more is read.
    fn is_full(&self) -> bool {
        self.connection
            .with_session(|session| session.output().len() >= UNSENT_MAX)
    }

    /// The client has closed its side.
    fn left(&self) -> Finish {
        let live = self.connection.with_session(|session| session.live());
        if live > 0 {
            events::log_end(self.client, "client prematurely closed connection");
        }
        Finish::AtOnce
    }

    fn lost(&self, error: &io::Error) -> Finish {
        events::log_end(self.client, &call_failed("recv", error));
        Finish::AtOnce
    }

    /// Begins to end the connection where the loop ends, the client has had all requests that it may have, or a request
    /// has retired it.
    fn leave_if_due(&mut self) {
        if self.is_broken {
            return;
        }
        let (live, malformed) = self
            .connection
            .with_session(|session| (session.live(), session.malformed_count()));
        if malformed > MALFORMED_MAX {
            self.leave_a_flood(malformed);
        }
        if self.is_leaving {
            return;
        }
        let is_ending = self.client.loop_.is_leaving() && live > 0;
        if is_ending || self.connection.is_retired() || self.has_had_its_requests() {
            self.leave();
        }
    }

    /// Begins to end a connection with that many malformed requests; one that goes on takes none at all.
    fn leave_a_flood(&mut self, malformed: u32) {
        if self.is_leaving {
            if malformed > 2 * MALFORMED_MAX {
                self.leave_at_once();
            }
            return;
        }
        self.is_leaving = true;
        let reason = Reason::TooManyMalformed;
        let counters = self.client.loop_.figures.of::<Http2Counters>();
        counters.faults[reason as usize].add(1);
        events::log_end(self.client, &format!("client {reason}"));
        self.leave();
    }

    fn has_had_its_requests(&self) -> bool {
        let requests = self.client.requests.get();
        if requests == 0 {
            return false;
        }
        let generation = self.client.generation();
        default_location(self.client, &generation).is_some_and(|location| {
            let keepalive = &location.settings.keepalive;
            keepalive.keepalive_timeout.timeout_ms == 0
                || requests >= keepalive.keepalive_requests.0
                || self.client.age_ms() > keepalive.keepalive_time.0
        })
    }

    /// Begins to end the connection. A client that has several requests open at a time may have others on their way, which it
    /// need not be able to send again: it is told first, and what comes until it has read that is taken (RFC 9113, 6.8). Any
    /// other waits for its response.
    fn leave(&mut self) {
        if !self.has_had_several {
            return self.leave_at_once();
        }
        self.note_leaving();
        self.connection.with_session(Session::goaway);
        let mut timer = self.connection.owner.wheel.timer();
        timer.arm(LEAVING_WAIT);
        self.goaway_timer = Some(timer);
    }

    /// Takes no more streams. Those that were on their way the client may open elsewhere.
    fn leave_at_once(&mut self) {
        self.note_leaving();
        self.goaway_timer = None;
        self.connection.with_session(Session::finish_goaway);
    }

    /// Notes that GOAWAY is sent, and counts the connection once.
    fn note_leaving(&mut self) {
        if !std::mem::replace(&mut self.is_leaving, true) {
            self.client.loop_.figures.of::<Http2Counters>().goaways[0].add(1);
        }
    }

    /// Takes no more streams of a client that has not said in time that it read the first GOAWAY.
    fn finish_goaway(&mut self, context: &mut Context<'_>) {
        let timer = self.goaway_timer.as_mut();
        if timer.is_some_and(|timer| timer.poll_expired(context).is_ready()) {
            self.leave_at_once();
        }
    }

    /// Resets streams whose requests have not ended, once their answers had time to arrive.
    fn reset_unended(&mut self, context: &mut Context<'_>) {
        let has_unended = || {
            self.connection
                .with_session(|session| session.has_unended())
        };
        if !has_unended() {
            self.unended_timer = None;
            return;
        }
        let waits = self.unended_timer.as_mut();
        if waits.is_some_and(|timer| timer.poll_expired(context).is_pending()) {
            return;
        }
        // Those that have come since the timer was armed wait as long.
        self.connection.with_session(Session::age_unended);
        self.unended_timer = has_unended().then(|| {
            let mut timer = self.connection.owner.wheel.timer();
            timer.arm(UNENDED_WAIT);
            let _ = timer.poll_expired(context);
            timer
        });
    }

    /// Writes until all is written, or the socket is full.
    fn write(&mut self, context: &mut Context<'_>) -> Result<(), Finish> {
        let stream = &self.connection.stream;
        loop {
            let outcome = self.connection.with_session(|session| {
                if session.output().is_empty() {
                    return Ok(false);
                }
                let count = stream.try_write(session.output())?;
                session.sent(count);
                Ok(true)
            });
            match outcome {
                Ok(false) => break,
                Ok(true) => self.write_wait = None,
                Err(error) if is_would_block(&error) => match stream.poll_writable(context) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(_)) => return Err(Finish::AtOnce),
                    Poll::Pending => {
                        self.limit_ahead();
                        return self.wait_to_write(context);
                    }
                },
                Err(_) => return Err(Finish::AtOnce),
            }
        }
        self.write_wait = None;
        Ok(())
    }

    /// Has no more handed to the socket than keeps it busy, so that a response which is more urgent, or small, gets
    /// out soon.
    fn limit_ahead(&mut self) {
        let now_ms = loop_clock::monotonic_ms();
        let live = self.connection.with_session(|session| session.live());
        let stream = &self.connection.stream;
        if let Some(max) = self.ahead.measure(stream, live, now_ms) {
            self.connection
                .with_session(|session| session.limit_output(max));
        }
    }

    fn wait_to_write(&mut self, context: &mut Context<'_>) -> Result<(), Finish> {
        let connection = self.connection;
        let wait = self.write_wait.get_or_insert_with(|| {
            let generation = self.client.generation();
            let location = default_location(self.client, &generation);
            let timeout = location.map_or(Duration::ZERO, |location| {
                location.settings.sending.send_timeout.duration()
            });
            let mut timer = connection.owner.wheel.timer();
            timer.arm(timeout);
            WriteWait {
                timer,
                _unwritten: connection.place.begin_request(),
            }
        });
        match wait.timer.poll_expired(context) {
            Poll::Pending => Ok(()),
            Poll::Ready(()) => {
                events::log_end(self.client, TIMED_OUT);
                self.reset_if_wanted();
                Err(Finish::AtOnce)
            }
        }
    }

    fn reset_if_wanted(&self) {
        let generation = self.client.generation();
        let location = default_location(self.client, &generation);
        if location.is_some_and(|it| it.settings.closing.reset_timedout_connection) {
            let _ = self.connection.stream.set_reset_on_close();
        }
    }

    /// Reads and drops what the client still sends, so that it sees GOAWAY and no reset.
    pub(super) async fn linger(&mut self) {
        let generation = self.client.generation();
        let Some(location) = default_location(self.client, &generation) else {
            return;
        };
        let closing = &location.settings.closing;
        let between = match self.client.loop_.is_leaving() {
            true => closing.lingering_timeout.duration().min(LEAVING_WAIT),
            false => closing.lingering_timeout.duration(),
        };
        let total = closing.lingering_time.duration();
        let bytes_max = match self.is_broken {
            true => BROKEN_REST_MAX,
            false => u64::MAX,
        };
        let connection = self.connection;
        let timer = &mut self.timer;
        let stream = &connection.stream;
        let lingering = pin!(stream.linger(&connection.owner, timer, total, between, bytes_max));
        let waiting = connection.place.wait_for(Waiting::Lingering, lingering);
        // It is at its end, also where its place is wanted for another one.
        let _end: Option<()> = waiting.await;
    }
}

fn is_would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}
