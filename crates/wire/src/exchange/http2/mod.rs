//! An exchange on a stream of HTTP/2 (RFC 9113), on a connection that others share (`shared_connection`).
//!
//! Not here: frames and windows (`http2`), the content of head and body. Invariants: a slow reader holds back its own
//! stream and no other, by the stream's window; an exchange that is dropped before its end resets its stream.

mod driver;
mod shared_connection;
mod stream_state;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use message::{Framing, Header};

use self::shared_connection::{DECODED_FACTOR, Shared, State};
use self::stream_state::{AnswerState, StreamState};
use crate::answer::AnswerFault;
use crate::exchange::{AnswerHead, BodyWriter, ExchangeError, Flushed, RequestKind};
use crate::http1::request_writer::RequestFault;
use crate::http2::flow::GrowingWindow;
use crate::http2::{ErrorCode, StreamKey};
use crate::timers::Timer;
use crate::turn;

pub use self::driver::SharedDriver;
pub use self::shared_connection::{STREAMS_MAX, SharedConnection};

/// A request and its response on a stream.
pub struct Http2Exchange(Box<Running>);

struct Running {
    shared: Rc<Shared>,
    stream: Rc<RefCell<StreamState>>,
    /// `None`: no stream could be opened.
    key: Option<StreamKey>,
    timer: Timer,
    /// Whether the timer has been armed since anything was sent or, behind the head of the response, came.
    is_waiting: bool,
    /// The reads of the connection when the timer was armed.
    reads: u64,
    body: BodyWriter,
    is_body_queued: bool,
    /// Pieces that the session has not taken; no element is empty.
    queue: VecDeque<Bytes>,
    /// Whether END_STREAM was given to the session.
    is_end_given: bool,
    /// Whether the server takes no more of the request.
    has_stopped: bool,
    head_max: usize,
    sent: u64,
    window: GrowingWindow,
}

impl Http2Exchange {
    fn begin(
        shared: &Rc<Shared>,
        asked: RequestKind,
        head: &[u8],
        framing: Framing,
        head_bytes_max: usize,
    ) -> Http2Exchange {
        let body = BodyWriter::new(framing);
        let is_end = body.is_empty();
        let stream = Rc::new(RefCell::new(StreamState::new(asked, head_bytes_max)));
        // Only whether it is HEAD counts.
        let method: &[u8] = match asked {
            RequestKind::Head => b"HEAD",
            RequestKind::Plain | RequestKind::PlainTold | RequestKind::Upgrade => b"POST",
        };
        let state = &mut *shared.state.borrow_mut();
        let before = state.session.output().len();
        let key = state.open(method, is_end, head, &stream);
        if key.is_none() {
            stream.borrow_mut().end(AnswerFault::Closed.into());
        }
        let sent = state.session.output().len().saturating_sub(before) as u64;
        Http2Exchange(Box::new(Running {
            shared: Rc::clone(shared),
            stream,
            key,
            timer: shared.owner.wheel.timer(),
            is_waiting: false,
            reads: 0,
            body,
            is_body_queued: is_end,
            queue: VecDeque::new(),
            is_end_given: is_end,
            has_stopped: false,
            head_max: head_bytes_max.saturating_mul(DECODED_FACTOR),
            sent,
            window: GrowingWindow::default(),
        }))
    }

    /// See [`super::Exchange::answer_begins`].
    pub(in crate::exchange) async fn answer_begins(&self) {
        let stream = &self.0.stream;
        poll_fn(|cx| {
            let mut stream = stream.borrow_mut();
            match stream.has_answer() {
                true => Poll::Ready(()),
                false => {
                    stream.wait(cx);
                    Poll::Pending
                }
            }
        })
        .await;
    }

    /// See [`super::Exchange::answer_comes`].
    pub(in crate::exchange) async fn answer_comes(
        &mut self,
        timeout: Duration,
    ) -> Result<(), ExchangeError> {
        let running = &mut *self.0;
        poll_fn(|cx| running.poll_until(cx, timeout, StreamState::has_head)).await
    }

    /// See [`super::Exchange::head`].
    pub(in crate::exchange) async fn head(
        &mut self,
        timeout: Duration,
    ) -> Result<AnswerHead, ExchangeError> {
        let running = &mut *self.0;
        poll_fn(|cx| running.poll_head(cx, timeout)).await
    }

    /// See [`super::Exchange::head_or_room`].
    pub(in crate::exchange) async fn head_or_room(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<AnswerHead>, ExchangeError> {
        let running = &mut *self.0;
        poll_fn(|cx| match running.poll_head(cx, timeout) {
            Poll::Ready(outcome) => Poll::Ready(outcome.map(Some)),
            Poll::Pending if running.is_all_given() && !turn::is_over() => {
                running.stop_waiting();
                Poll::Ready(Ok(None))
            }
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// See [`super::Exchange::poll_piece`].
    pub(in crate::exchange) fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
        timeout: Duration,
    ) -> Poll<Result<Option<Bytes>, ExchangeError>> {
        ready!(self.0.poll_until(cx, timeout, StreamState::has_piece))?;
        let piece = self.0.take_data();
        Poll::Ready(Ok((!piece.is_empty()).then_some(piece)))
    }

    /// See [`super::Exchange::ready_piece`].
    pub(in crate::exchange) fn ready_piece(&mut self) -> Bytes {
        self.0.take_data()
    }

    /// See [`super::Exchange::is_ended`].
    pub(in crate::exchange) fn is_ended(&self) -> bool {
        let stream = self.0.stream.borrow();
        stream.state == AnswerState::Ended && !stream.has_head() && stream.data.is_empty()
    }

    /// See [`super::Exchange::trailers`].
    pub(in crate::exchange) fn trailers(&self) -> Vec<Header> {
        self.0.stream.borrow().trailers.clone()
    }

    /// See [`super::Exchange::has_trailers`].
    pub(in crate::exchange) fn has_trailers(&self) -> bool {
        !self.0.stream.borrow().trailers.is_empty()
    }

    /// See [`super::Exchange::queue_piece`].
    pub(in crate::exchange) fn queue_piece(&mut self, piece: Bytes) -> Result<(), RequestFault> {
        self.0.body.count(piece.len() as u64)?;
        if !piece.is_empty() && !self.0.has_stopped {
            self.0.queue.push_back(piece);
        }
        Ok(())
    }

    /// See [`super::Exchange::end_body`]; requests have no trailers.
    pub(in crate::exchange) fn end_body(&mut self) -> Result<(), RequestFault> {
        if !self.0.is_body_queued {
            self.0.body.check_end()?;
            self.0.is_body_queued = true;
        }
        Ok(())
    }

    /// See [`super::Exchange::flush`]. The driver's next poll sends what was queued.
    pub(in crate::exchange) async fn flush(
        &mut self,
        timeout: Duration,
    ) -> Result<Flushed, ExchangeError> {
        let running = &mut *self.0;
        poll_fn(|cx| running.poll_flush(cx, timeout)).await
    }

    /// See [`super::Exchange::poll_send`].
    pub(in crate::exchange) fn poll_send(&mut self, cx: &mut Context<'_>) {
        self.0.feed();
        self.0.watch(cx);
    }

    /// See [`super::Exchange::has_room`].
    pub(in crate::exchange) fn has_room(&self) -> bool {
        self.0.is_all_given()
    }

    /// See [`super::Exchange::takes_more`].
    pub(in crate::exchange) fn takes_more(&self) -> bool {
        !self.0.has_stopped
    }

    /// See [`super::Exchange::is_sent`].
    pub(in crate::exchange) fn is_sent(&self) -> bool {
        self.0.is_end_given
    }

    /// See [`super::Exchange::may_repeat`].
    pub(in crate::exchange) fn may_repeat(&self) -> bool {
        self.0.key.is_none() || self.0.stream.borrow().may_repeat
    }

    /// See [`super::Exchange::counts_failure`].
    pub(in crate::exchange) fn counts_failure(&self) -> bool {
        let is_broken_off = self.0.stream.borrow().is_broken_off;
        !is_broken_off || self.0.shared.state.borrow_mut().claim_failure()
    }

    /// See [`super::Exchange::sent`].
    pub(in crate::exchange) fn sent(&self) -> u64 {
        self.0.sent
    }

    pub(in crate::exchange) fn body_received(&self) -> u64 {
        self.0.stream.borrow().body_received
    }

    /// See [`super::Exchange::received`].
    pub(in crate::exchange) fn received(&self) -> u64 {
        self.0.stream.borrow().received
    }
}

impl Running {
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        timeout: Duration,
    ) -> Poll<Result<AnswerHead, ExchangeError>> {
        ready!(self.poll_until(cx, timeout, StreamState::has_head))?;
        let Some(head) = self.stream.borrow_mut().heads.pop_front() else {
            return Poll::Ready(Err(AnswerFault::Closed.into()));
        };
        if let AnswerHead::Final(head) = &head
            && head.bytes.len() > self.head_max
        {
            let why = "upstream sent too big header".to_owned();
            return Poll::Ready(Err(AnswerFault::Head(why).into()));
        }
        Poll::Ready(Ok(head))
    }

    /// Waits until `is_wanted`, and sends the queue in the meantime.
    fn poll_until(
        &mut self,
        cx: &mut Context<'_>,
        timeout: Duration,
        is_wanted: fn(&StreamState) -> bool,
    ) -> Poll<Result<(), ExchangeError>> {
        self.feed();
        let (found, is_before_head) = {
            let stream = &mut *self.stream.borrow_mut();
            (stream.look(is_wanted), stream.state == AnswerState::Head)
        };
        // As in nginx all heads of a response have one time together, interim ones and all.
        if !is_before_head && (found.has_progress || found.outcome.is_some()) {
            self.stop_waiting();
        }
        match found.outcome {
            Some(outcome) => Poll::Ready(outcome),
            None => self.poll_wait(cx, timeout),
        }
    }

    /// Gives the session what it takes of the queue, until it has taken all.
    fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        timeout: Duration,
    ) -> Poll<Result<Flushed, ExchangeError>> {
        self.feed();
        self.shared.state.borrow_mut().wake_driver();
        let has_answer = self.stream.borrow().has_answer();
        if self.is_all_given() && !has_answer {
            self.stop_waiting();
            return Poll::Ready(Ok(Flushed::All));
        }
        if has_answer {
            self.stop_waiting();
            return Poll::Ready(Ok(match self.is_all_given() {
                true => Flushed::All,
                false => Flushed::AnswerCame,
            }));
        }
        self.poll_wait(cx, timeout).map(|waited| {
            waited.map(|()| Flushed::All) // it ends by its timeout only
        })
    }

    /// Waits for an event of the stream, or the end of the time.
    fn poll_wait(
        &mut self,
        cx: &mut Context<'_>,
        timeout: Duration,
    ) -> Poll<Result<(), ExchangeError>> {
        self.watch(cx);
        if !std::mem::replace(&mut self.is_waiting, true) {
            self.arm(timeout);
        }
        loop {
            ready!(self.timer.poll_expired(cx));
            match self.left_by_pings(timeout) {
                Some(left) => self.arm(left),
                None => break,
            }
        }
        self.shared.state.borrow_mut().note_timeout(self.reads);
        Poll::Ready(Err(ExchangeError::Timeout))
    }

    /// Has the task woken by the next event of the stream, and by room for the queue.
    fn watch(&self, cx: &Context<'_>) {
        let stream = &mut *self.stream.borrow_mut();
        stream.wait(cx);
        if !self.queue.is_empty() {
            stream.wants_room = true;
            self.shared.state.borrow_mut().note_sender();
        }
    }

    fn arm(&mut self, timeout: Duration) {
        self.timer.arm(timeout);
        self.reads = self.shared.state.borrow().reads();
    }

    /// As [`State::left_by_pings`]; before the head of the response nothing else counts for it, as in nginx.
    fn left_by_pings(&self, timeout: Duration) -> Option<Duration> {
        match self.stream.borrow().state {
            AnswerState::Head => None,
            AnswerState::Body | AnswerState::Ended => {
                let state = self.shared.state.borrow();
                state.left_by_pings(timeout, self.reads)
            }
        }
    }

    fn stop_waiting(&mut self) {
        if std::mem::take(&mut self.is_waiting) {
            self.timer.disarm();
        }
    }

    /// Whether the session has taken all that was queued.
    fn is_all_given(&self) -> bool {
        self.queue.is_empty() && (self.is_end_given || !self.is_body_queued)
    }

    /// The data that has come; the server gets room for as much again, and more where its reader keeps up.
    fn take_data(&mut self) -> Bytes {
        let data = {
            let stream = &mut *self.stream.borrow_mut();
            // What follows a head is not given out before it.
            match stream.has_head() {
                true => Vec::new(),
                false => std::mem::take(&mut stream.data),
            }
        };
        let (Some(key), false) = (self.key, data.is_empty()) else {
            return Bytes::new();
        };
        let state = &mut *self.shared.state.borrow_mut();
        state.session.consume(key, data.len());
        if let Some(width) = self.window.take(data.len()) {
            state.session.widen(key, width);
        }
        if !state.session.output().is_empty() {
            state.wake_driver();
        }
        data.into()
    }

    /// Gives the session as much of the body as it takes.
    fn feed(&mut self) {
        let Some(key) = self.key.filter(|_| !self.is_end_given) else {
            return;
        };
        if self.stream.borrow().is_gone {
            return self.stop_sending();
        }
        let shared = Rc::clone(&self.shared);
        let state = &mut *shared.state.borrow_mut();
        let before = state.session.output().len();
        self.feed_session(state, key);
        self.stream.borrow_mut().is_starved =
            !self.queue.is_empty() && state.session.waits_for_connection(key);
        let more = state.session.output().len().saturating_sub(before);
        if more > 0 {
            self.sent += more as u64;
            self.is_waiting = false;
            state.wake_driver();
        }
    }

    fn feed_session(&mut self, state: &mut State, key: StreamKey) {
        while !self.queue.is_empty() {
            let is_last = self.is_body_queued && self.queue.len() == 1;
            let front = &mut self.queue[0];
            match state.session.data(key, front, is_last) {
                Ok(taken) => front.advance(taken),
                Err(_) => return self.stop_sending(),
            }
            if !front.is_empty() {
                return;
            }
            self.queue.pop_front();
            self.is_end_given = is_last;
        }
        if self.is_body_queued && !self.is_end_given {
            match state.session.data(key, &[], true) {
                Ok(_) => self.is_end_given = true,
                Err(_) => self.stop_sending(),
            }
        }
    }

    /// Stops sending: the server takes no more of the request.
    fn stop_sending(&mut self) {
        if !self.is_end_given {
            self.has_stopped = true;
            self.queue.clear();
        }
    }
}

impl Drop for Http2Exchange {
    /// The server need not go on with a response that is not read.
    fn drop(&mut self) {
        if let Some(key) = self.0.key {
            let state = &mut *self.0.shared.state.borrow_mut();
            state.leave_stream(key, ErrorCode::CANCEL);
        }
    }
}
