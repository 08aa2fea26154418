//! A client connection: waits, reads heads and bodies, sends, lingers, each with a timeout.
//!
//! Not here: what a request means, and whether a connection is kept (`server`). Invariants: reads go into the one
//! scratch buffer of the loop, so that an idle connection holds none, and only bytes received too early are kept
//! (`unread`); the scratch buffer and the out buffer are never borrowed across an `await`.

mod input;
mod prologue;

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use message::RequestHead;

use crate::call_error::call_failed;
use crate::event_loop::Loop;
use crate::http1::body_decoder::{BodyFault, Decoder};
use crate::http1::request_parser::{Choose, HeadLimits, HeadRefusal, ParsedRequest, RequestParser};
use crate::loop_clock;
use crate::stream::Stream;
use crate::timers::Timer;
use crate::turn;

pub use self::input::Input;
use self::input::ReadProgress;

/// Maximum length in bytes of a body that is copied behind its head; a longer one is sent from its own memory, in the
/// same system call.
pub(crate) const BODY_COPIED_MAX: usize = 4096;
/// Capacity in bytes that the out buffer keeps between responses.
const OUT_KEPT: usize = 64 * 1024;

/// Why a connection cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The timeout of this wait expired.
    #[error("client timed out (110: Connection timed out)")]
    Timeout,
    /// The peer closed the connection; between requests that is the normal end.
    #[error("client prematurely closed connection")]
    Closed,
    /// A head that is refused, or incomplete (`is_silent`).
    #[error("{}", .0.why)]
    Refused(Box<HeadRefusal>),
    /// A refused body.
    #[error(transparent)]
    Body(#[from] BodyFault),
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A client connection.
pub struct Connection {
    /// The socket.
    pub stream: Stream,
    input: Input,
    timer: Timer,
    sent: u64,
    /// Whether the current request came whole with the event that `wait` waited for.
    is_prompt: bool,
    /// Whether the next bytes sent shall wait for those that follow.
    holds_next: bool,
}

impl Connection {
    /// A connection on this loop.
    pub fn new(stream: Stream, owner: &Rc<Loop>) -> Connection {
        Connection {
            stream,
            input: Input::new(owner),
            timer: owner.wheel.timer(),
            sent: 0,
            is_prompt: false,
            holds_next: false,
        }
    }

    /// The loop that the connection belongs to.
    pub fn owner(&self) -> &Rc<Loop> {
        &self.input.owner
    }

    /// Bytes read from the socket.
    pub fn received(&self) -> u64 {
        self.input.received
    }

    /// Bytes written to the socket.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether the last head came whole with the event that [`Connection::wait`] waited for. If so, its first byte was
    /// there when the loop was last woken; otherwise some of it may have come later.
    pub fn is_prompt(&self) -> bool {
        self.is_prompt
    }

    /// Whether bytes of the next request have been received already.
    pub fn has_unread(&self) -> bool {
        !self.input.unread.is_empty()
    }

    /// Whether the socket may have unread bytes, or the client's Finished is still to come. Consults the loop's last
    /// events, not the kernel.
    pub fn may_have_more(&self) -> bool {
        self.stream.may_be_readable() || self.stream.is_early()
    }

    /// Waits for the first byte of a request. `Closed` and `Timeout` are not errors to report here.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Timeout`]; [`Error::Io`] if the socket failed.
    pub async fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        self.is_prompt = false;
        if self.has_unread() {
            return Ok(());
        }
        self.arm(timeout);
        let mut has_waited = false;
        let outcome = poll_fn(|cx| {
            let outcome = self.poll_readable(cx);
            has_waited |= outcome.is_pending();
            outcome
        })
        .await;
        self.timer.disarm();
        self.is_prompt = has_waited;
        outcome
    }

    /// Reads a head; `timeout` applies to the whole of it. `choose` gets the host once it is known. `Closed` means that
    /// the peer left before its first byte.
    ///
    /// # Errors
    /// [`Error::Refused`], also for an incomplete head and a timeout; before its first byte those of
    /// [`Connection::wait`].
    pub async fn read_head(
        &mut self,
        limits: &HeadLimits,
        timeout: Duration,
        choose: Choose<'_>,
    ) -> Result<Box<RequestHead>, Error> {
        let mut parser = RequestParser::new(limits);
        let mut is_armed = false;
        if self.has_unread()
            && let Some(outcome) = advance(&mut parser, &[], &mut self.input.unread, choose)
        {
            return outcome;
        }
        let outcome = loop {
            let outcome = self.input.read_once(&self.stream, |bytes, unread| {
                if bytes.is_empty() {
                    Some(Err(Error::Closed))
                } else {
                    advance(&mut parser, bytes, unread, choose)
                }
            });
            match outcome {
                Ok(Some(outcome)) => break outcome,
                Ok(None) => continue,
                Err(error) if is_would_block(&error) && !is_armed => {
                    self.arm(timeout);
                    is_armed = true;
                }
                Err(error) if is_would_block(&error) => {}
                Err(error) => break Err(error.into()),
            }
            self.is_prompt = false;
            if let Err(error) = poll_fn(|cx| self.poll_readable(cx)).await {
                break Err(error);
            }
        };
        if is_armed {
            self.timer.disarm();
        }
        outcome.map_err(|error| self.broken_off(parser, error))
    }

    /// Appends the next bytes of a body to `out`, none only at its end; `timeout` applies to this piece. Trailers stay
    /// in the decoder.
    ///
    /// # Errors
    /// [`Error::Body`] if the framing is invalid, and those of [`Connection::wait`].
    pub async fn read_body_into(
        &mut self,
        decoder: &mut Decoder,
        timeout: Duration,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        loop {
            turn::go_on().await;
            match self
                .input
                .try_next_piece(&self.stream, decoder, Some(out))?
            {
                ReadProgress::Data => return Ok(()),
                ReadProgress::Framing => {}
                ReadProgress::Nothing => self.wait_readable(timeout).await?,
            }
        }
    }

    /// As [`Connection::read_body_into`], but only bytes received already; false: there are none.
    ///
    /// # Errors
    /// As [`Connection::read_body_into`], except [`Error::Timeout`].
    pub fn try_read_body_into(
        &mut self,
        decoder: &mut Decoder,
        out: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        let before = out.len();
        while turn::may_go_on()
            && self
                .input
                .try_next_piece(&self.stream, decoder, Some(out))?
                == ReadProgress::Framing
        {}
        Ok(out.len() > before)
    }

    /// Reads and discards the rest of a body, for at most `total`, with at most `between` from one read to the next
    /// (`lingering_time`, `lingering_timeout`).
    ///
    /// # Errors
    /// As [`Connection::read_body_into`].
    pub async fn discard_body(
        &mut self,
        decoder: &mut Decoder,
        total: Duration,
        between: Duration,
    ) -> Result<(), Error> {
        let until = loop_clock::monotonic_ms() + total.as_millis() as u64;
        while !decoder.is_end() {
            turn::go_on().await;
            // Also between two parts of a framing, which may have any number.
            let left = until.saturating_sub(loop_clock::monotonic_ms());
            if left == 0 {
                return Err(Error::Timeout);
            }
            let progress = self.input.try_next_piece(&self.stream, decoder, None)?;
            if progress == ReadProgress::Nothing {
                self.wait_readable(between.min(Duration::from_millis(left)))
                    .await?;
            }
        }
        Ok(())
    }

    /// As [`Stream::linger`]; what was received already is dropped, too.
    pub async fn linger(&mut self, total: Duration, between: Duration) {
        self.input.unread = Vec::new();
        let owner = &self.input.owner;
        self.stream
            .linger(owner, &mut self.timer, total, between, u64::MAX)
            .await;
    }

    /// Sends the bytes that `write` appends to the loop's out buffer, with one call if the socket takes them; `timeout`
    /// applies between two writes (`send_timeout`).
    ///
    /// # Errors
    /// [`Error::Timeout`] if the peer takes nothing; [`Error::Io`] if it is gone.
    pub async fn send(
        &mut self,
        timeout: Duration,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Error> {
        self.send_with_body(timeout, write, &[]).await
    }

    /// As [`Connection::send`], followed by a body.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub async fn send_with_body(
        &mut self,
        timeout: Duration,
        write: impl FnOnce(&mut Vec<u8>),
        body: &[u8],
    ) -> Result<(), Error> {
        let (unsent, gone, _) = self.send_now(write, body, &[])?;
        if !unsent.is_empty() {
            self.send_bytes(timeout, &unsent).await?;
        }
        if gone < body.len() {
            self.send_bytes(timeout, &body[gone..]).await?;
        }
        Ok(())
    }

    /// Sends bytes; `timeout` applies between two writes.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub async fn send_bytes(&mut self, timeout: Duration, bytes: &[u8]) -> Result<(), Error> {
        let mut gone = 0;
        while gone < bytes.len() {
            gone += self
                .write_once(timeout, |stream| stream.try_write(&bytes[gone..]))
                .await?;
        }
        Ok(())
    }

    /// Lets the next head wait in the kernel for the bytes that follow it (head and small file in one packet, without
    /// another system call). Nothing else is delayed: whatever follows is sent at once, and the kernel waits 200 ms at
    /// most.
    pub fn hold_next(&mut self, holds: bool) {
        self.holds_next = holds;
    }

    /// Writes once, without waiting; `WouldBlock`: the socket is full.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]; the error of `write`.
    pub fn try_send_by(
        &mut self,
        write: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let count = self.stream.try_write_with(write)?;
        self.sent += count as u64;
        Ok(count)
    }

    /// As [`Connection::try_send_by`], of bytes.
    ///
    /// # Errors
    /// As there.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.stream.try_write(bytes)?;
        self.sent += count as u64;
        Ok(count)
    }

    /// Waits until the socket can take something.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub async fn wait_writable(&mut self, timeout: Duration) -> Result<(), Error> {
        self.arm(timeout);
        let outcome = poll_fn(|cx| {
            if let Poll::Ready(outcome) = self.stream.poll_writable(cx) {
                return Poll::Ready(outcome.map_err(Error::Io));
            }
            self.timer.poll_expired(cx).map(|()| Err(Error::Timeout))
        })
        .await;
        self.timer.disarm();
        outcome
    }

    /// The socket and the timer, for a caller that writes by itself and waits at the same time.
    pub fn halves(&mut self) -> (&Stream, &mut Timer) {
        (&self.stream, &mut self.timer)
    }

    /// The same, and what has been read, for a caller that goes on reading meanwhile.
    pub fn parts(&mut self) -> (&Stream, &mut Timer, &mut Input) {
        (&self.stream, &mut self.timer, &mut self.input)
    }

    /// Takes the bytes received too early, for a caller that reads the socket directly from here on.
    pub fn take_unread(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.input.unread)
    }

    fn arm(&mut self, timeout: Duration) {
        self.timer.arm(timeout);
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if let Poll::Ready(outcome) = self.stream.poll_readable(cx) {
            return Poll::Ready(outcome.map_err(Error::Io));
        }
        self.stream.acknowledge();
        ready!(self.timer.poll_expired(cx));
        Poll::Ready(Err(Error::Timeout))
    }

    async fn wait_readable(&mut self, timeout: Duration) -> Result<(), Error> {
        self.arm(timeout);
        let outcome = poll_fn(|cx| self.poll_readable(cx)).await;
        self.timer.disarm();
        outcome
    }

    /// The error for an incomplete head: only `error` if it had not begun.
    fn broken_off(&mut self, parser: RequestParser, error: Error) -> Error {
        let (status, why) = match &error {
            Error::Timeout => (408, error.to_string()),
            Error::Closed => (400, error.to_string()),
            Error::Io(cause) => (400, call_failed("recv", cause).to_string()),
            _ => return error,
        };
        let begun = std::mem::take(&mut self.input.unread);
        if parser.is_untouched() {
            return error;
        }
        Error::Refused(Box::new(parser.broken_off(&begun, status, why)))
    }

    /// Reads until data arrives, or the end.
    /// Writes once, without waiting: the bytes that `write` appends, `body`, and a few bytes `behind` it. Returns the
    /// unsent rest of the first, and how much of the other two was sent.
    ///
    /// # Errors
    /// [`Error::Io`] if the peer is gone.
    pub fn send_now(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>),
        body: &[u8],
        behind: &[u8],
    ) -> Result<(Vec<u8>, usize, usize), Error> {
        let mut out = self.input.owner.out.borrow_mut();
        out.clear();
        out.shrink_to(OUT_KEPT);
        write(&mut out);
        let head = out.len();
        if body.len() <= BODY_COPIED_MAX {
            out.extend_from_slice(body);
            out.extend_from_slice(behind);
        }
        let holds = std::mem::take(&mut self.holds_next);
        let outcome = if out.is_empty() || body.len() <= BODY_COPIED_MAX {
            if out.is_empty() {
                Ok(0)
            } else if holds {
                self.stream.try_write_more(&out)
            } else {
                self.stream.try_write(&out)
            }
        } else {
            let parts = [IoSlice::new(&out), IoSlice::new(body), IoSlice::new(behind)];
            let count = if behind.is_empty() { 2 } else { 3 };
            self.stream.try_write_vectored(&parts[..count])
        };
        let count = match outcome {
            Ok(count) => count,
            Err(error) if is_would_block(&error) => 0,
            Err(error) => return Err(error.into()),
        };
        self.sent += count as u64;
        let unsent = out[count.min(head)..head].to_vec();
        let gone = count.saturating_sub(head);
        let behind_gone = gone.saturating_sub(body.len());
        Ok((unsent, gone.min(body.len()), behind_gone))
    }

    async fn write_once(
        &mut self,
        timeout: Duration,
        mut write: impl FnMut(&Stream) -> io::Result<usize>,
    ) -> Result<usize, Error> {
        loop {
            match write(&self.stream) {
                Ok(count) => {
                    self.sent += count as u64;
                    return Ok(count);
                }
                Err(error) if is_would_block(&error) => self.wait_writable(timeout).await?,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn is_would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Parses `unread` followed by `bytes`; keeps unused bytes in `unread`. `None`: more bytes are needed.
fn advance(
    parser: &mut RequestParser,
    bytes: &[u8],
    unread: &mut Vec<u8>,
    choose: Choose<'_>,
) -> Option<Result<Box<RequestHead>, Error>> {
    let was_empty = unread.is_empty();
    if !was_empty {
        unread.extend_from_slice(bytes);
    }
    match parser.advance(if was_empty { bytes } else { unread }, choose) {
        ParsedRequest::Complete(head, used) if was_empty => {
            unread.extend_from_slice(&bytes[used..]);
            Some(Ok(head))
        }
        ParsedRequest::Complete(head, used) => {
            unread.drain(..used);
            if unread.is_empty() {
                *unread = Vec::new(); // an idle connection holds no buffer
            }
            Some(Ok(head))
        }
        ParsedRequest::Partial => {
            if was_empty {
                unread.extend_from_slice(bytes);
            }
            None
        }
        ParsedRequest::Refused(refusal) => Some(Err(Error::Refused(refusal))),
    }
}
