//! An exchange on a stream of HTTP/2 (RFC 9113), on a connection that carries one stream at a time, as nginx's do.
//!
//! The connection stays that of the exchange; what HTTP/2 adds to it (`http2::Session`) is boxed, and lies with the idle
//! connection between two requests. Not here: frames and windows (`http2`), the content of head and body. Invariants:
//! bytes are read only when a part of the response is asked for, so that a slow reader holds the server back by TCP; an
//! exchange that is dropped before its end resets its stream; [`Http2Exchange::finish`] returns the connection only if
//! there is no doubt about its state.

mod running;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use message::{Framing, Header};

use self::running::{AnswerState, Running};
use super::UpstreamConnection;
use crate::answer::AnswerFault;
use crate::exchange::{AnswerHead, BodyWriter, Exchange, ExchangeError, Flushed, RequestKind};
use crate::http1::request_parser::HeadLimits;
use crate::http1::request_writer::RequestFault;
use crate::http2::{ErrorCode, Session, SessionConfig};
use crate::loop_clock;
use crate::stream::Stream;
use crate::turn;

/// The window of a stream in bytes: the widest that a session has. Nothing is read ahead of the response's reader, so
/// that it costs no memory; a narrower one would only slow a distant server down.
const STREAM_WINDOW: u32 = 1 << 24;
/// Minimum of the limit of a head or of trailers, decoded, in bytes: trailers may carry an error's details.
const BLOCK_MIN: usize = 64 * 1024;
/// How many times larger than `grpc_buffer_size` a head may be once it is decoded: that limits the encoded one, and
/// HPACK's code and tables make it shorter.
const DECODED_FACTOR: usize = 2;

/// A request and its response on a stream.
pub struct Http2Exchange(Option<Box<Running>>);

/// Invariant of an exchange, for `expect`.
const RUNS: &str = "only finish ends it";

impl UpstreamConnection {
    /// Begins a request on a stream: `head` are its encoded fields ([`crate::http2::head_writer::request`]), and
    /// `framing` tells whether a body follows. The head of the response has at most about
    /// `head_bytes_max` bytes (`grpc_buffer_size`). Nothing is sent before [`Exchange::flush`] or a read.
    pub fn begin_http2(
        self,
        asked: RequestKind,
        head: &[u8],
        framing: Framing,
        head_bytes_max: usize,
    ) -> Exchange {
        let mut own = self.0;
        own.requests += 1;
        own.body = BodyWriter::new(framing);
        own.is_body_queued = own.body.is_empty();
        own.fault = None;
        own.has_stopped = false;
        own.is_waiting = false;
        (own.sent, own.received) = (0, 0);
        let head_max = head_bytes_max.saturating_mul(DECODED_FACTOR);
        let session = own.session.take();
        let mut session =
            session.unwrap_or_else(|| Box::new(Session::client(config(head_max.max(BLOCK_MIN)))));
        session.begin_turn(loop_clock::monotonic_ms());
        let is_end = own.is_body_queued;
        // Only whether it is HEAD counts.
        let method: &[u8] = match asked {
            RequestKind::Head => b"HEAD",
            RequestKind::Plain | RequestKind::Upgrade => b"POST",
        };
        let opened = session.open(method, is_end, |out| out.extend_from_slice(head));
        if opened.is_err() {
            own.fault = Some(AnswerFault::Closed);
        }
        Exchange::Http2(Http2Exchange(Some(Box::new(Running {
            own,
            session,
            key: opened.ok(),
            asked,
            head_max,
            is_end_given: is_end,
            interim_heads: 0,
            state: AnswerState::Head,
            head: None,
            data: Vec::new(),
            trailers: Vec::new(),
            goaway: ErrorCode::NO_ERROR,
        }))))
    }
}

fn config(block_max: usize) -> SessionConfig {
    SessionConfig {
        streams_max: 1,
        stream_window: STREAM_WINDOW,
        limits: HeadLimits {
            large_buffers: 1,
            large_buffer_size: block_max,
            ..HeadLimits::default()
        },
        allows_protocol: false,
    }
}

impl Http2Exchange {
    fn running(&mut self) -> &mut Running {
        self.0.as_mut().expect(RUNS)
    }

    fn now(&self) -> &Running {
        self.0.as_ref().expect(RUNS)
    }

    /// See [`Exchange::answer_begins`]. Any frame is a beginning.
    pub(in crate::exchange) async fn answer_begins(&self) {
        self.now().own.answer_begins().await;
    }

    /// See [`Exchange::more_comes`].
    pub(in crate::exchange) async fn more_comes(&self) {
        self.now().own.more_comes().await;
    }

    /// See [`Exchange::answer_comes`].
    pub(in crate::exchange) async fn answer_comes(
        &mut self,
        timeout: Duration,
    ) -> Result<(), ExchangeError> {
        let running = self.running();
        poll_fn(|cx| running.poll_until(cx, timeout, usize::MAX, Running::has_head)).await
    }

    /// See [`Exchange::head`].
    pub(in crate::exchange) async fn head(
        &mut self,
        timeout: Duration,
    ) -> Result<AnswerHead, ExchangeError> {
        let running = self.running();
        poll_fn(|cx| running.poll_head(cx, timeout)).await
    }

    /// See [`Exchange::head_or_room`].
    pub(in crate::exchange) async fn head_or_room(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<AnswerHead>, ExchangeError> {
        let running = self.running();
        poll_fn(|cx| match running.poll_head(cx, timeout) {
            Poll::Ready(outcome) => Poll::Ready(outcome.map(Some)),
            // If only this turn is over, more may have been received than was examined.
            Poll::Pending if running.is_all_written() && !turn::is_over() => {
                running.stop_waiting();
                Poll::Ready(Ok(None))
            }
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// See [`Exchange::poll_piece_of`].
    pub(in crate::exchange) fn poll_piece_of(
        &mut self,
        cx: &mut Context<'_>,
        timeout: Duration,
        read_max: usize,
    ) -> Poll<Result<Option<Bytes>, ExchangeError>> {
        let running = self.running();
        ready!(running.poll_until(cx, timeout, read_max, Running::has_piece))?;
        Poll::Ready(Ok(match running.data.is_empty() {
            true => None,
            false => Some(std::mem::take(&mut running.data).into()),
        }))
    }

    /// See [`Exchange::ready_piece`].
    pub(in crate::exchange) fn ready_piece(&mut self) -> Bytes {
        let running = self.running();
        running.examine();
        std::mem::take(&mut running.data).into()
    }

    /// See [`Exchange::is_ended`].
    pub(in crate::exchange) fn is_ended(&self) -> bool {
        let now = self.now();
        now.state == AnswerState::Ended && now.head.is_none()
    }

    /// See [`Exchange::trailers`].
    pub(in crate::exchange) fn trailers(&self) -> Vec<Header> {
        self.now().trailers.clone()
    }

    /// See [`Exchange::has_trailers`].
    pub(in crate::exchange) fn has_trailers(&self) -> bool {
        !self.now().trailers.is_empty()
    }

    /// See [`Exchange::queue_piece`].
    pub(in crate::exchange) fn queue_piece(&mut self, piece: Bytes) -> Result<(), RequestFault> {
        let own = &mut self.running().own;
        own.body.count(piece.len() as u64)?;
        own.push(piece);
        Ok(())
    }

    /// See [`Exchange::end_body`]; requests have no trailers.
    pub(in crate::exchange) fn end_body(&mut self) -> Result<(), RequestFault> {
        let own = &mut self.running().own;
        if !own.is_body_queued {
            own.body.check_end()?;
            own.is_body_queued = true;
        }
        Ok(())
    }

    /// See [`Exchange::flush`].
    pub(in crate::exchange) async fn flush(
        &mut self,
        timeout: Duration,
    ) -> Result<Flushed, ExchangeError> {
        let running = self.running();
        loop {
            match running.write() {
                Ok(()) if running.is_all_written() => return Ok(Flushed::All),
                Ok(()) => {}
                Err(_) if running.own.has_answer() => {
                    running.stop_sending(); // what it said counts
                    return Ok(Flushed::AnswerCame);
                }
                Err(error) => return Err(ExchangeError::Send(error)),
            }
            if running.own.has_answer() {
                return Ok(Flushed::AnswerCame);
            }
            let is_blocked = running.session.output().is_empty();
            let own = &mut *running.own;
            let stream = &own.stream;
            let either = poll_fn(|cx| match stream.poll_readable(cx) {
                // A closed window is opened by the server.
                Poll::Pending if !is_blocked => stream.poll_writable(cx),
                outcome => outcome,
            });
            let outcome = own.timer.guard(timeout, either).await;
            outcome
                .map_err(|_| ExchangeError::Timeout)?
                .map_err(ExchangeError::Send)?;
        }
    }

    /// See [`Exchange::has_room`].
    pub(in crate::exchange) fn has_room(&self) -> bool {
        self.now().is_all_written()
    }

    /// See [`Exchange::takes_more`].
    pub(in crate::exchange) fn takes_more(&self) -> bool {
        self.now().own.takes_more()
    }

    /// See [`Exchange::is_sent`].
    pub(in crate::exchange) fn is_sent(&self) -> bool {
        let now = self.now();
        now.is_end_given && now.is_all_written()
    }

    /// See [`Exchange::finish`].
    pub(in crate::exchange) fn finish(mut self) -> Option<UpstreamConnection> {
        // What the server is still told (acknowledgements, room): all of it, or the connection is closed.
        let is_written = self.running().write().is_ok();
        let is_clean = is_written && self.is_sent() && self.is_ended();
        let now = self.now();
        let is_quiet = now.own.unread.is_empty() && now.own.is_silent();
        if !is_clean || !is_quiet || now.own.is_closed || now.session.openable() == 0 {
            return None;
        }
        let Running {
            mut own,
            mut session,
            ..
        } = *self.0.take()?;
        // An idle connection holds no buffer.
        session.release_buffers();
        own.queue = VecDeque::new();
        own.unread = Vec::new();
        own.session = Some(session);
        Some(UpstreamConnection(own))
    }

    /// See [`Exchange::into_tunnel`]. HTTP/2 has no 101, so that nothing asks for it.
    pub(in crate::exchange) fn into_tunnel(mut self) -> (Stream, Vec<u8>) {
        let running = self.0.take().expect(RUNS);
        (running.own.stream, running.own.unread)
    }

    /// See [`Exchange::sent`].
    pub(in crate::exchange) fn sent(&self) -> u64 {
        self.now().own.sent
    }

    /// See [`Exchange::received`].
    pub(in crate::exchange) fn received(&self) -> u64 {
        self.now().own.received
    }
}

impl Drop for Http2Exchange {
    /// The server need not go on with a response that is not read.
    fn drop(&mut self) {
        if let Some(running) = &mut self.0
            && let Some(key) = running.key
            && !running.own.is_closed
        {
            running.session.reset(key, ErrorCode::CANCEL);
            let _ = running.flush_output(); // best effort: the connection is closed
        }
    }
}
