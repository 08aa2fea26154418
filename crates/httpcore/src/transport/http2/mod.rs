//! HTTP/2: a request on a stream, one of several of its connection (RFC 9113).
//!
//! The mark of a response's end is decided here. Not here: frames (`wire::http2`), the socket
//! ([`crate::connection`]). Invariant: when it is dropped, its stream is closed.

mod connection;
mod encoded;
mod other_streams;
mod stream_body;
mod stream_tunnel;

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::os::fd::BorrowedFd;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use disk::{Access, Local, OpenFile, Sink};
use message::{Body, Framing, Header, RequestHead};
use runtime::Waiting;
use wire::http2::flow::INITIAL_WINDOW;
use wire::http2::frame::PAYLOAD_MAX;
use wire::http2::{ErrorCode, Session, StreamKey, head_writer};
use wire::{Elapsed, Timer, loop_clock, turn};

use crate::Response;

use super::{BodyStop, ClientSide, ClientStream, DiskLimit, Extent, FileWaits, Piece, Unsent};

pub use connection::Http2Connection;
pub(crate) use connection::Rest;
pub(crate) use other_streams::OtherStreams;
pub(crate) use stream_body::StreamBody;
pub use stream_tunnel::StreamTunnel;

/// The status of a response that HTTP/2 does not have.
const SWITCHING: u16 = 101;
/// The status for an extended CONNECT that nothing switches protocols for: a 2xx would say that it did (RFC 8441, 5).
const NOT_SWITCHED: u16 = 501;
/// The field of a 101 that a client of HTTP/2 does not ask for.
const WEBSOCKET_ACCEPT: &[u8] = b"sec-websocket-accept";

/// The mark of the end of a response's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It goes with the last of this many bytes.
    After(u64),
    /// It is sent by itself.
    Explicit,
    /// It was sent.
    Sent,
}

/// How a stream ends when its request is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Behind its response.
    Whole,
    /// It has ended before.
    Gone,
    /// It is reset: the client was too slow.
    TimedOut,
    /// It is reset: there is no response, on purpose (444).
    Refused,
    /// It is reset: the response broke off.
    Broken,
}

/// A stream that carries one request.
pub struct Http2 {
    connection: Rc<Http2Connection>,
    key: StreamKey,
    timer: Timer,
    body: Rc<StreamBody>,
    /// Whether `100 Continue` was sent, or is not to be any more.
    is_invited: bool,
    is_persistent: bool,
    /// Whether it is an extended CONNECT (RFC 8441).
    asks_protocol: bool,
    /// Maximum payload of a frame of the body, in bytes.
    frame_max: usize,
    end: Cell<End>,
    /// Whether the client did not take the response, or did not send the body, in time.
    has_timed_out: Cell<bool>,
    /// Whether there is no response, on purpose.
    is_refused: Cell<bool>,
    /// Bytes of frames sent, without the payload of files.
    sent: Cell<u64>,
    /// Those of them behind the head that are no payload.
    framing: Cell<u64>,
}

impl Http2 {
    /// The stream of a request whose head was read.
    #[must_use]
    pub(crate) fn new(connection: Rc<Http2Connection>, key: StreamKey, head: &RequestHead) -> Self {
        let length = match head.framing {
            Framing::Length(length) => Some(length),
            Framing::None | Framing::Chunked => None,
        };
        Self {
            timer: connection.owner.wheel.timer(),
            body: StreamBody::new(Rc::clone(&connection), key, length),
            connection,
            key,
            is_invited: false,
            is_persistent: true,
            asks_protocol: head.connect_protocol.len > 0,
            frame_max: PAYLOAD_MAX,
            end: Cell::new(End::Explicit),
            has_timed_out: Cell::new(false),
            is_refused: Cell::new(false),
            sent: Cell::new(0),
            framing: Cell::new(0),
        }
    }

    pub(super) fn tcp_socket(&self) -> Option<BorrowedFd<'_>> {
        self.connection.stream.tcp_socket()
    }

    pub(super) async fn peer_closed(&self) {
        // Once the response is sent, the stream is closed, and its slot another's.
        let is_gone = || match self.end.get() {
            End::Sent => self.connection.is_closed(),
            End::After(_) | End::Explicit => self.connection.is_gone(self.key),
        };
        poll_fn(|context| match is_gone() {
            true => Poll::Ready(()),
            false => {
                self.connection.watch(self.key, context);
                Poll::Pending
            }
        })
        .await;
    }

    pub(super) fn is_body_over(&self) -> bool {
        self.body.is_over()
    }

    pub(super) fn is_body_whole(&self) -> bool {
        self.body.is_whole()
    }

    pub(super) fn body_bytes(&self) -> u64 {
        self.body.received()
    }

    pub(super) fn limit_body(&mut self, limit: u64) {
        self.body.limit(limit);
    }

    /// Its body, to be read while the response is sent.
    pub(super) fn body_apart(&self) -> Rc<StreamBody> {
        Rc::clone(&self.body)
    }

    pub(super) fn try_read_body(&mut self, out: &mut Vec<u8>) -> Result<bool, wire::Error> {
        let before = out.len();
        self.body.read_into(out)?;
        Ok(out.len() > before)
    }

    pub(super) async fn read_body(
        &mut self,
        timeout: Duration,
        out: &mut Vec<u8>,
    ) -> Result<(), BodyStop> {
        turn::go_on().await;
        let connection = Rc::clone(&self.connection);
        let mut is_armed = false;
        let reading = pin!(poll_fn(|context| {
            if let Poll::Ready(outcome) = self.body.poll_read(out, context) {
                return Poll::Ready(outcome);
            }
            if !std::mem::replace(&mut is_armed, true) {
                self.timer.arm(timeout);
            }
            let expired = self.timer.poll_expired(context);
            expired.map(|()| Err(wire::Error::Timeout))
        }));
        let outcome = connection.place.wait_for(Waiting::Body, reading).await;
        self.timer.disarm();
        match outcome {
            Some(outcome) => {
                let is_late = matches!(outcome, Err(wire::Error::Timeout));
                self.has_timed_out.set(is_late);
                outcome.map_err(BodyStop::Failed)
            }
            None => {
                // Its place is wanted for another connection.
                connection.close();
                Err(BodyStop::GaveWay)
            }
        }
    }

    /// Has the rest of the body dropped as it comes.
    pub(super) fn discard_body(&mut self) {
        self.connection
            .with_session(|session| session.discard(self.key));
    }

    pub(super) fn is_persistent(&self) -> bool {
        self.is_persistent
    }

    /// The connection goes on, as in nginx: see [`Http2::retire_connection`].
    pub(super) fn close_after_response(&mut self) {
        self.is_persistent = false;
    }

    /// Has the connection end behind the requests that have begun.
    pub(crate) fn retire_connection(&self) {
        self.connection.retire();
    }

    /// Not before a response to a body that is not wanted: that only ends the stream.
    pub(super) fn invite(&mut self) -> Result<(), wire::Error> {
        if std::mem::replace(&mut self.is_invited, true) {
            return Ok(());
        }
        self.interim(100, &[])
    }

    pub(super) fn interim(&mut self, status: u16, lines: &[Header]) -> Result<(), wire::Error> {
        let key = self.key;
        let write = |out: &mut Vec<u8>| head_writer::interim(out, status, lines);
        self.connection
            .send(|session| session.interim(key, write))
            .map(|((), count)| self.add_sent(count))
            .map_err(|_| wire::Error::Closed)
    }

    fn add_sent(&self, count: u64) {
        self.sent.set(self.sent.get() + count);
    }

    fn add_framing(&self, count: u64) {
        self.framing.set(self.framing.get() + count);
    }

    /// The end of a body goes with its last byte, where its length is known, else with an empty frame or trailers.
    pub(super) fn frame(&mut self, response: &mut Response, extent: &Extent) -> bool {
        self.is_invited = true;
        self.frame_max = extent.frame_max;
        if self.asks_protocol {
            switch(response);
        }
        if matches!(response.body, Body::Tunnel) {
            self.end.set(End::Explicit);
            return true;
        }
        let length = match (&response.body, response.content_length) {
            _ if extent.has_trailers => None,
            (Body::Empty, _) => Some(0),
            (_, length) => length,
        };
        let end = match length {
            _ if !extent.has_body => End::After(0),
            Some(length) => End::After(length),
            None => End::Explicit,
        };
        self.end.set(end);
        end == End::Explicit
    }

    pub(super) fn send_now(&mut self, piece: &Piece<'_>) -> Result<Unsent, wire::Error> {
        let mut unsent = Unsent::default();
        if let Some(head) = &piece.head {
            if head.response.status == SWITCHING {
                // RFC 9113, 8.6: there is no such response.
                return Err(wire::Error::Closed);
            }
            let is_all = self.end.get() == End::After(0);
            let key = self.key;
            let sent = self.connection.send(|session| {
                session.respond(key, is_all, |out| {
                    encoded::with_context(head.server_line, &self.connection.owner, |context| {
                        head_writer::response(out, head.response, context);
                    });
                })
            });
            let ((), count) = sent.map_err(|_| wire::Error::Closed)?;
            unsent.head_len = count;
            self.add_sent(count);
            if is_all {
                self.end.set(End::Sent);
            }
        }
        if piece.is_last && self.end.get() == End::Explicit {
            self.end.set(End::After(piece.body.len() as u64));
        }
        unsent.gone = self.put(piece.body).map_err(|_| wire::Error::Closed)?;
        Ok(unsent)
    }

    /// Sends bytes of the body as far as they may be sent now. What is above the announced length is dropped.
    fn put(&self, bytes: &[u8]) -> Result<usize, Gone> {
        let (bytes, dropped, is_last) = match self.end.get() {
            End::Sent => return Ok(bytes.len()),
            End::Explicit => (bytes, 0, false),
            End::After(left) => {
                let len = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                (&bytes[..len], bytes.len() - len, len as u64 == left)
            }
        };
        if bytes.is_empty() && !is_last {
            return Ok(dropped);
        }
        let sent = self
            .connection
            .send_data(self.key, bytes, is_last, self.frame_max);
        let (taken, count) = sent.map_err(|_| Gone)?;
        self.add_sent(count);
        self.add_framing(count.saturating_sub(taken as u64));
        if let End::After(left) = self.end.get() {
            self.end.set(match left - taken as u64 {
                0 if is_last => End::Sent,
                left => End::After(left),
            });
        }
        Ok(if taken == bytes.len() {
            taken + dropped
        } else {
            taken
        })
    }

    /// The other streams of the connection.
    pub(super) fn other_streams(&self) -> OtherStreams {
        OtherStreams::of(&self.connection, self.key)
    }

    pub(super) async fn send_bytes(
        &mut self,
        timeout: Duration,
        bytes: &[u8],
    ) -> Result<(), wire::Error> {
        let mut gone = 0;
        let mut timer = None;
        while gone < bytes.len() {
            gone += self.put(&bytes[gone..]).map_err(|_| wire::Error::Closed)?;
            if gone < bytes.len() {
                let timer = timer.get_or_insert_with(|| self.connection.owner.wheel.timer());
                let waited = self.wait_to_send(timer, timeout).await;
                waited.map_err(|Elapsed| wire::Error::Timeout)?;
            }
        }
        Ok(())
    }

    /// Waits until data may be sent, or the stream is closed. Only time in which the client keeps a window closed counts:
    /// a stream that others go before waits for as long as they send.
    async fn wait_to_send(&self, timer: &mut Timer, timeout: Duration) -> Result<(), Elapsed> {
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        loop {
            let wait = pin!(wait_for_turn(&self.connection, self.key));
            if timer.guard(timeout, wait).await.is_ok() {
                return Ok(());
            }
            let now_ms = loop_clock::monotonic_ms();
            let is_stalled =
                |session: &mut Session| session.is_stalled(self.key, now_ms, timeout_ms);
            if self.connection.with_session(is_stalled) {
                self.has_timed_out.set(true);
                return Err(Elapsed);
            }
        }
    }

    /// How the stream ends, as far as it has come.
    pub(crate) fn ending(&self) -> Ending {
        match self.end.get() {
            End::Sent => Ending::Whole,
            _ if self.connection.is_gone(self.key) => Ending::Gone,
            _ if self.has_timed_out.get() => Ending::TimedOut,
            _ if self.is_refused.get() => Ending::Refused,
            End::After(_) | End::Explicit => Ending::Broken,
        }
    }

    /// Lets the stream end without a response, on purpose.
    pub(crate) fn refuse(&self) {
        self.is_refused.set(true);
    }

    pub(super) async fn send_file(
        &mut self,
        disk: &Local,
        file: &Rc<OpenFile>,
        (offset, end): (&mut u64, u64),
        waits: FileWaits,
        access: &Access<'_>,
    ) -> Result<(), disk::Error> {
        let timer = Cell::new(Some(self.connection.owner.wheel.timer()));
        let sink = ToStream {
            stream: self,
            timer,
            waits,
        };
        disk.send(file, offset, end, &sink, access).await
    }

    pub(super) fn end(&mut self, trailers: &[Header]) -> Result<(), wire::Error> {
        if self.end.replace(End::Sent) == End::Sent {
            return Ok(());
        }
        let key = self.key;
        let sent = match trailers {
            [] => self.connection.send_data(key, &[], true, PAYLOAD_MAX),
            trailers => self.connection.send(|session| {
                session.trailers(key, |out| head_writer::fields(out, trailers))?;
                Ok(0)
            }),
        };
        let (_, count) = sent.map_err(|_| wire::Error::Closed)?;
        self.add_sent(count);
        self.add_framing(count);
        Ok(())
    }

    /// See [`super::Transport::tunnel`].
    pub(super) fn tunnel(&mut self, patience: Duration) -> ClientSide<'_> {
        // It may have had no room before; what it needs more it gets as it is read.
        self.connection.widen(self.key, u64::from(INITIAL_WINDOW));
        ClientSide {
            early: Vec::new(),
            owner: Rc::clone(&self.connection.owner),
            stream: ClientStream::Http2(StreamTunnel {
                connection: &self.connection,
                key: self.key,
                frame_max: self.frame_max,
            }),
            timer: &mut self.timer,
            patience,
        }
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// Bytes sent that are neither head nor body.
    pub(crate) fn framing(&self) -> u64 {
        self.framing.get()
    }
}

/// The response to an extended CONNECT: 200 where a 101 came, and no 2xx else.
fn switch(response: &mut Response) {
    match (response.status, &response.body) {
        (SWITCHING, Body::Tunnel) => {
            response.status = 200;
            let is_accept = |name: &[u8]| name.eq_ignore_ascii_case(WEBSOCKET_ACCEPT);
            response.headers.retain(|header| !is_accept(&header.name));
        }
        (200..=299, _) => response.status = NOT_SWITCHED,
        _ => {}
    }
}

impl Drop for Http2 {
    fn drop(&mut self) {
        // As nginx.
        let code = match self.ending() {
            Ending::Whole | Ending::Gone => ErrorCode::NO_ERROR,
            Ending::TimedOut | Ending::Refused => ErrorCode::PROTOCOL_ERROR,
            Ending::Broken => ErrorCode::INTERNAL_ERROR,
        };
        self.connection.finish_stream(self.key, code);
    }
}

/// The stream is closed.
struct Gone;

/// Waits until a stream may send data, or is closed.
async fn wait_for_turn(connection: &Http2Connection, key: StreamKey) {
    struct Wait<'a>(&'a Http2Connection, StreamKey);
    impl Drop for Wait<'_> {
        fn drop(&mut self) {
            self.0.end_wait(self.1);
        }
    }
    let _wait = Wait(connection, key);
    turn::go_on().await;
    poll_fn(|context| match connection.may_send(key, context) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

/// A stream as the disk layer writes to it.
struct ToStream<'a> {
    stream: &'a Http2,
    /// Taken out only while it waits.
    timer: Cell<Option<Timer>>,
    waits: FileWaits,
}

impl Sink for ToStream<'_> {
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn try_io<R>(&self, operation: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        operation()
    }

    fn room(&self) -> usize {
        self.stream.connection.room(self.stream.key)
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        if !turn::may_go_on() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let sent = self.stream.sent.get();
        let taken = self
            .stream
            .put(bytes)
            .map_err(|Gone| io::Error::from(io::ErrorKind::ConnectionReset))?;
        // The payload is counted by its caller.
        let count = self.stream.sent.get().saturating_sub(taken as u64);
        self.stream.sent.set(count.max(sent));
        match taken {
            0 if !bytes.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }

    fn disk_limit(&self) -> impl Future<Output = Duration> {
        DiskLimit::reached(self.waits.disk.as_ref())
    }

    async fn writable(&self) -> io::Result<()> {
        let mut timer = self.timer.take().ok_or(io::ErrorKind::Other)?;
        let outcome = self
            .stream
            .wait_to_send(&mut timer, self.waits.client)
            .await;
        self.timer.set(Some(timer));
        outcome.map_err(|Elapsed| io::Error::from(io::ErrorKind::TimedOut))
    }
}
