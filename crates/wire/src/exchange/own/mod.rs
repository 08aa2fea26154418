//! An exchange on a connection that it has for itself, and the fate of the connection.
//!
//! Not here: the choice of the server, the content of the request, and the reaction to a failure. Invariants: reads go
//! into the one scratch buffer of the loop, which is lent out with a large piece (`read_buffers`); a response that
//! comes before the request was sent completely is seen at once; [`OwnExchange::finish`] returns the connection only if
//! there is no doubt about its state.

mod sending;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use message::{Framing, Header};

use super::{AnswerHead, AnswerReader, BodyWriter, Exchange, ExchangeError, RequestKind};
use crate::answer::{AnswerFault, Event};
use crate::event_loop::Loop;
use crate::read_buffers::LENT_MIN;
use crate::stream::Stream;
use crate::timers::Timer;
use crate::tls_layer::TlsLayer;
use crate::turn;

/// Maximum of bytes that are read into a buffer of their own: with what the allocator adds they need no mapping
/// (M_MMAP_THRESHOLD).
const APART_MAX: usize = 128 * 1024 - 64;
/// Maximum of bytes of a read for a head while the loop's buffers are all lent out: what comes behind the head is copied
/// then, and the rest of a large body is read to where it stays.
const COPIED_MAX: usize = 32 * 1024;

/// An idle connection to an upstream. It holds the memory of an exchange, which is thus allocated once for all requests
/// on the connection.
pub struct UpstreamConnection(Box<OwnExchange>);

/// A request and its response, and the connection that they use.
pub struct OwnExchange {
    stream: Stream,
    owner: Rc<Loop>,
    timer: Timer,
    opened_ms: u64,
    requests: u64,
    body: BodyWriter,
    is_body_queued: bool,
    /// The head, sent before the queue.
    first: Bytes,
    /// Bytes to send, in order; no element is empty.
    queue: VecDeque<Bytes>,
    reader: AnswerReader,
    /// Bytes received that have not been examined, or not understood yet.
    unread: Vec<u8>,
    /// Bytes received before `unread`, in the buffer that they were read into: data only and what follows it, not
    /// examined yet.
    lent: Bytes,
    /// An error to report once the data before it has been returned.
    fault: Option<AnswerFault>,
    is_closed: bool,
    /// Whether the server takes no more of the request.
    has_stopped: bool,
    /// Whether the timer has been armed: before the head of the response since the last write, behind it since the last
    /// read.
    is_waiting: bool,
    sent: u64,
    received: u64,
}

impl UpstreamConnection {
    pub(crate) fn new(
        stream: Stream,
        owner: &Rc<Loop>,
        timer: Timer,
        opened_ms: u64,
    ) -> UpstreamConnection {
        UpstreamConnection(Box::new(OwnExchange {
            stream,
            owner: owner.clone(),
            timer,
            opened_ms,
            requests: 0,
            body: BodyWriter::new(Framing::None),
            is_body_queued: true,
            first: Bytes::new(),
            queue: VecDeque::new(),
            reader: AnswerReader::new(RequestKind::Plain, 0),
            unread: Vec::new(),
            lent: Bytes::new(),
            fault: None,
            is_closed: false,
            has_stopped: false,
            is_waiting: false,
            sent: 0,
            received: 0,
        }))
    }

    /// Begins a request: `head` was written by [`crate::http1::request_writer::head`] and announced `framing`; the head
    /// of the response has at most `head_bytes_max` bytes (`proxy_buffer_size`). Nothing is sent before
    /// [`OwnExchange::flush`] or a read.
    #[inline]
    pub fn begin(
        self,
        head: Bytes,
        framing: Framing,
        asked: RequestKind,
        head_bytes_max: usize,
    ) -> Exchange {
        let reader = AnswerReader::new(asked, head_bytes_max);
        self.begin_with(head, BodyWriter::new(framing), reader)
    }

    /// As [`UpstreamConnection::begin`], for any protocol: `body` writes what follows `head`, `reader` reads the
    /// response.
    #[inline]
    pub fn begin_with(mut self, head: Bytes, body: BodyWriter, reader: AnswerReader) -> Exchange {
        let exchange = &mut *self.0;
        exchange.requests += 1;
        exchange.is_body_queued = body.is_empty();
        exchange.body = body;
        exchange.first = head;
        exchange.reader = reader;
        exchange.fault = None;
        exchange.has_stopped = false;
        exchange.is_waiting = false;
        (exchange.sent, exchange.received) = (0, 0);
        Exchange::Own(self.0)
    }

    /// Whether the connection is as it was left: open, without unsolicited bytes. Costs a system call only if the
    /// loop's last events say that something came.
    pub fn is_intact(&self) -> bool {
        self.0.is_silent()
    }

    /// The number of requests sent on the connection.
    pub fn requests(&self) -> u64 {
        self.0.requests
    }

    /// The time at which it was opened, on the clock of [`crate::loop_clock::monotonic_ms`].
    pub fn opened_ms(&self) -> u64 {
        self.0.opened_ms
    }

    /// The socket.
    pub fn stream(&self) -> &Stream {
        &self.0.stream
    }

    /// Encrypts from here on, before the first request.
    pub fn begin_tls(&mut self, tls: TlsLayer) {
        self.0.stream.begin_tls(tls);
    }

    /// The socket and its loop, for a connection that requests share.
    pub(in crate::exchange) fn into_parts(self) -> (Stream, Rc<Loop>) {
        (self.0.stream, self.0.owner)
    }

    /// The socket alone, for a protocol other than HTTP.
    pub fn into_stream(self) -> Stream {
        self.0.stream
    }
}

impl OwnExchange {
    /// Waits until the server sends something or closes, even if the request body has not been sent. Sends nothing
    /// itself.
    pub async fn answer_begins(&self) {
        if self.unread.is_empty() {
            self.more_comes().await;
        }
    }

    /// Waits until the server sends more than has been examined, or closes. Sends nothing itself.
    pub async fn more_comes(&self) {
        let stream = &self.stream;
        loop {
            let ready = poll_fn(|cx| stream.poll_readable(cx)).await;
            if ready.is_err() || stream.has_unread() {
                return;
            }
        }
    }

    /// Waits until a part of the response can be read, for as long as [`OwnExchange::head`] would. Reads nothing
    /// itself, or, with TLS, as little as shows that it is one: a session ticket is none.
    ///
    /// # Errors
    /// Nothing was received.
    pub async fn answer_comes(&mut self, timeout: Duration) -> Result<(), ExchangeError> {
        let look = |exchange: &mut OwnExchange| match exchange.stream.may_have_unread() {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        };
        match self.unread.is_empty() && !self.is_closed {
            true => poll_fn(|cx| self.poll_io(cx, timeout, look)).await,
            false => Ok(()),
        }
    }

    /// The next head; sends the queue in the meantime. All heads of a response have `timeout` together, which begins when the
    /// request has been sent (`proxy_read_timeout`; as in nginx, a server that sends a head in drops does not prolong it).
    ///
    /// # Errors
    /// No head was received, or none that can be passed on.
    pub async fn head(&mut self, timeout: Duration) -> Result<AnswerHead, ExchangeError> {
        poll_fn(|cx| self.poll_head(cx, timeout)).await
    }

    /// The next head, or `None` as soon as the queue has been sent and more of the body may be queued. `timeout` as in
    /// [`OwnExchange::flush`].
    ///
    /// # Errors
    /// As [`OwnExchange::head`].
    pub async fn head_or_room(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<AnswerHead>, ExchangeError> {
        poll_fn(|cx| match self.poll_head(cx, timeout) {
            Poll::Ready(outcome) => Poll::Ready(outcome.map(Some)),
            // If only this turn is over, more may have been received than was examined.
            Poll::Pending if self.is_all_written() && !turn::is_over() => {
                self.stop_waiting();
                Poll::Ready(Ok(None))
            }
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        timeout: Duration,
    ) -> Poll<Result<AnswerHead, ExchangeError>> {
        if !self.unread.is_empty() {
            let unread = std::mem::take(&mut self.unread);
            let outcome = self.look(&unread);
            // Rare: bytes after an interim head, or the first part of an incomplete one.
            self.unread = unread;
            let (used, found) = outcome?;
            self.unread.drain(..used);
            if let Some(head) = found {
                if self.reader.has_head() {
                    self.stop_waiting();
                }
                return Poll::Ready(Ok(head));
            }
        }
        loop {
            // More may have been received than this turn may examine.
            ready!(turn::poll_go_on(cx));
            if self.is_closed {
                return Poll::Ready(Err(self.closed()));
            }
            let read = ready!(self.poll_io(cx, timeout, OwnExchange::read_head_once))?;
            if let Some(head) = read? {
                return Poll::Ready(Ok(head));
            }
        }
    }

    /// Looks for a head in the bytes received; returns the number of bytes consumed.
    fn look(&mut self, bytes: &[u8]) -> Result<(usize, Option<AnswerHead>), AnswerFault> {
        match self.reader.advance(bytes)? {
            (used, Event::Interim(head)) => Ok((used, Some(AnswerHead::Interim(head)))),
            (used, Event::Head(head)) => Ok((used, Some(AnswerHead::Final(head)))),
            (used, Event::Partial) => Ok((used, None)),
            (_, Event::Data(_) | Event::End) => {
                debug_assert!(false, "the head has been given out");
                Err(AnswerFault::Closed)
            }
        }
    }

    /// Reads once and looks for a head in the scratch buffer; keeps the bytes after it.
    fn read_head_once(&mut self) -> io::Result<Result<Option<AnswerHead>, AnswerFault>> {
        let owner = Rc::clone(&self.owner);
        let mut scratch = owner.scratch.borrow_mut();
        let len = match owner.read_buffers.has_another() {
            true => scratch.len(),
            false => COPIED_MAX.min(owner.read_buffers.own_max()),
        };
        let count = self.stream.try_read(&mut scratch[..len])?;
        self.received += count as u64;
        self.is_closed |= count == 0;
        if !self.unread.is_empty() {
            self.unread.extend_from_slice(&scratch[..count]);
            let unread = std::mem::take(&mut self.unread);
            let outcome = self.look(&unread);
            self.unread = unread;
            return Ok(outcome.map(|(used, found)| {
                self.unread.drain(..used);
                found
            }));
        }
        let outcome = self.look(&scratch[..count]);
        Ok(outcome.map(|(used, found)| {
            self.keep(&owner, &mut scratch, used..count);
            found
        }))
    }

    /// Keeps bytes that were read but not examined: a large piece of plain data stays in its buffer.
    fn keep(&mut self, owner: &Loop, scratch: &mut Box<[u8]>, came: Range<usize>) {
        if came.len() >= LENT_MIN && self.may_lend() {
            debug_assert!(
                self.lent.is_empty(),
                "what came is given out before more is read"
            );
            if let Some(lent) = owner.read_buffers.lend(scratch, came.clone()) {
                self.lent = lent;
                return;
            }
        }
        self.unread.extend_from_slice(&scratch[came]);
    }

    /// The next piece of the body; `None` at its end. `timeout` applies between two reads; [`OwnExchange::head`] must have
    /// been called.
    ///
    /// # Errors
    /// The body ended early, or is not what its head said. All data before that has been returned.
    pub async fn piece(&mut self, timeout: Duration) -> Result<Option<Bytes>, ExchangeError> {
        poll_fn(|cx| self.poll_piece(cx, timeout)).await
    }

    /// As [`OwnExchange::piece`].
    pub fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
        timeout: Duration,
    ) -> Poll<Result<Option<Bytes>, ExchangeError>> {
        self.poll_piece_of(cx, timeout, usize::MAX)
    }

    /// As [`OwnExchange::poll_piece`], with reads of at most `read_max` bytes (not 0). Bytes read before are not limited.
    #[inline]
    pub fn poll_piece_of(
        &mut self,
        cx: &mut Context<'_>,
        timeout: Duration,
        read_max: usize,
    ) -> Poll<Result<Option<Bytes>, ExchangeError>> {
        loop {
            let data = self.take_data();
            if !data.is_empty() {
                return Poll::Ready(Ok(Some(data)));
            }
            // More may have been received than this turn may examine.
            ready!(turn::poll_go_on(cx));
            if let Some(fault) = self.fault.take() {
                return Poll::Ready(Err(fault.into()));
            }
            if self.reader.is_ended() {
                return Poll::Ready(Ok(None));
            }
            if self.is_closed {
                self.close()?;
                return Poll::Ready(Ok(None));
            }
            let read = |exchange: &mut OwnExchange| exchange.read_once(read_max);
            ready!(self.poll_io(cx, timeout, read))?;
        }
    }

    /// The data of the body received so far, without another read; may be empty.
    pub fn ready_piece(&mut self) -> Bytes {
        self.take_data()
    }

    /// Whether the end of the response has been seen. (It may be seen before the last piece is returned.)
    pub fn is_ended(&self) -> bool {
        self.reader.is_ended()
    }

    /// The trailers, once the body has ended.
    pub fn trailers(&self) -> Vec<Header> {
        self.reader.trailers()
    }

    /// See [`AnswerReader::excess`].
    pub fn excess(&self) -> Option<&'static str> {
        self.reader.excess(self.unread.len() + self.lent.len())
    }

    /// Ends the exchange. Returns the connection if it may be used for another request: the request was sent and the
    /// response read completely, and nothing else was received.
    pub fn finish(mut self: Box<Self>) -> Option<UpstreamConnection> {
        let is_sent = self.is_sent();
        let is_reusable = self.reader.is_reusable(self.unread.len() + self.lent.len());
        let is_clean = is_sent && is_reusable && !self.is_closed;
        if !is_clean || !self.is_silent() {
            self.stream.close_notify();
            return None;
        }
        // An idle connection holds no buffer.
        self.first = Bytes::new();
        self.queue = VecDeque::new();
        self.unread = Vec::new();
        // Nor the receiver of the messages of a response in records, which refers to its request.
        if self.reader.is_in_records() {
            self.reader = AnswerReader::new(RequestKind::Plain, 0);
        }
        Some(UpstreamConnection(self))
    }

    /// After a 101: the socket, and the bytes after the head.
    pub fn into_tunnel(self) -> (Stream, Vec<u8>) {
        (self.stream, self.unread)
    }

    /// Bytes sent (`$upstream_bytes_sent`).
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// See [`AnswerReader::beside_head`].
    pub fn beside_head(&self) -> u64 {
        self.reader.beside_head()
    }

    /// Bytes received (`$upstream_bytes_received`).
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Whether something was received or the server has closed. Asks the kernel only if the loop's last events say so.
    fn has_answer(&self) -> bool {
        !self.unread.is_empty() || !self.lent.is_empty() || !self.is_silent()
    }

    /// Whether the socket is open, without unread bytes.
    fn is_silent(&self) -> bool {
        !self.stream.has_unread()
    }

    /// Waits until `read` has a result, and sends the queue in the meantime.
    fn poll_io<T>(
        &mut self,
        cx: &mut Context<'_>,
        timeout: Duration,
        mut read: impl FnMut(&mut OwnExchange) -> io::Result<T>,
    ) -> Poll<Result<T, ExchangeError>> {
        loop {
            let sent = self.sent;
            if self.write_queue().is_err() {
                self.stop_sending(); // the answer, or the lack of one, says what is wrong
            }
            if self.sent != sent {
                self.stop_waiting();
            }
            match read(self) {
                Ok(found) => {
                    if self.reader.has_head() {
                        self.stop_waiting();
                    }
                    return Poll::Ready(Ok(found));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(ExchangeError::Receive(error))),
            }
            let stream = &self.stream;
            let mut either = stream.poll_readable(cx);
            if either.is_pending() && !self.is_all_written() {
                either = stream.poll_writable(cx);
            }
            if let Poll::Ready(outcome) = either {
                outcome.map_err(ExchangeError::Receive)?;
                continue;
            }
            if !std::mem::replace(&mut self.is_waiting, true) {
                self.stream.acknowledge();
                self.timer.arm(timeout);
            }
            ready!(self.timer.poll_expired(cx));
            return Poll::Ready(Err(ExchangeError::Timeout));
        }
    }

    fn stop_waiting(&mut self) {
        if std::mem::take(&mut self.is_waiting) {
            self.timer.disarm();
        }
    }

    fn read_once(&mut self, max: usize) -> io::Result<()> {
        let owner = Rc::clone(&self.owner);
        let buffers = &owner.read_buffers;
        let is_lent = self.may_lend() && buffers.has_another();
        let max = if is_lent {
            max
        } else {
            max.min(buffers.own_max())
        };
        let apart = self.apart(max);
        if apart >= LENT_MIN && !is_lent {
            return self.read_apart(apart);
        }
        let mut scratch = owner.scratch.borrow_mut();
        let len = scratch.len().min(max);
        let count = self.stream.try_read(&mut scratch[..len])?;
        self.received += count as u64;
        self.is_closed |= count == 0;
        self.keep(&owner, &mut scratch, 0..count);
        Ok(())
    }

    /// Whether a buffer is lent out with what is read into it: it is to be kept as it comes.
    fn may_lend(&self) -> bool {
        self.unread.is_empty() && self.reader.plain_bytes() > 0
    }

    /// Maximum of bytes of the next read if they may get a buffer of their own: they are to be kept as they come.
    fn apart(&self, max: usize) -> usize {
        if !self.unread.is_empty() || self.stream.clear_socket().is_none() {
            return 0;
        }
        let plain = usize::try_from(self.reader.plain_bytes()).unwrap_or(usize::MAX);
        plain.min(max).min(APART_MAX)
    }

    /// Reads into a buffer of its own, where the loop's are all lent out: data that are read to be kept are not copied.
    fn read_apart(&mut self, max: usize) -> io::Result<()> {
        let mut bytes = self.stream.try_read_apart(max)?;
        bytes.shrink_to_fit();
        self.received += bytes.len() as u64;
        self.is_closed |= bytes.is_empty();
        self.unread = bytes;
        Ok(())
    }

    /// All data of the body received so far, in one piece, as far as this turn may examine it.
    fn take_data(&mut self) -> Bytes {
        let lent = std::mem::take(&mut self.lent);
        if !lent.is_empty() {
            match self.reader.advance(&lent) {
                Ok((used, Event::Data(range))) => {
                    self.unread.extend_from_slice(&lent[used..]); // what nobody asked for
                    return lent.slice(range);
                }
                Ok((used, _)) => self.unread.extend_from_slice(&lent[used..]),
                Err(fault) => self.fault = Some(fault),
            }
        }
        let mut data = Vec::new();
        let mut at = 0;
        while self.fault.is_none()
            && !self.reader.is_ended()
            && at < self.unread.len()
            && turn::may_go_on()
        {
            let before = at;
            match self.reader.advance(&self.unread[at..]) {
                Ok((0, _)) => break,
                Ok((used, Event::Data(range))) => {
                    if range.len() == self.unread.len() {
                        // Nothing but data: no copy.
                        return self
                            .owner
                            .read_buffers
                            .own(std::mem::take(&mut self.unread));
                    }
                    data.extend_from_slice(&self.unread[at..][range]);
                    at += used;
                }
                Ok((used, _)) => at += used,
                Err(fault) => self.fault = Some(fault),
            }
            turn::spend_part(at - before);
        }
        self.unread.drain(..at);
        if self.unread.is_empty() {
            // While its reader is slow, an exchange holds no more than what was read.
            self.unread = Vec::new();
        }
        self.owner.read_buffers.own(data)
    }

    fn closed(&mut self) -> ExchangeError {
        let fault = self.close().err();
        fault.unwrap_or(AnswerFault::Closed).into()
    }

    /// Ends the response with the connection. With TLS, an end that its peer has not announced ends no response that has
    /// no other one: it may be an attacker's (RFC 9112, 9.8).
    fn close(&mut self) -> Result<(), AnswerFault> {
        let is_cut_off = self.stream.is_cut_off() && !self.reader.is_tunnel();
        self.reader.close()?;
        match is_cut_off {
            true => Err(AnswerFault::Closed),
            false => Ok(()),
        }
    }
}
