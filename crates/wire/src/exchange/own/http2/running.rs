//! The work of an exchange on a stream: reading frames, writing what is queued, and what each event means.
//!
//! Not here: what callers see of it (`super`). Invariant: the bytes behind a head are not examined before it is given
//! out.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf;
use message::{Header, ResponseFraming};

use crate::answer::AnswerFault;
use crate::exchange::own::OwnExchange;
use crate::exchange::{AnswerHead, ExchangeError, INTERIM_HEADS_MAX, RequestKind};
use crate::http2::{ErrorCode, Event, Reason, ResetCause, Session, StreamKey};
use crate::loop_clock;
use crate::turn;

/// How far the response has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerState {
    /// Its head has not been received.
    Head,
    Body,
    Ended,
}

/// The exchange while it runs.
pub(super) struct Running {
    pub(super) own: Box<OwnExchange>,
    pub(super) session: Box<Session>,
    /// `None`: no stream could be opened.
    pub(super) key: Option<StreamKey>,
    pub(super) asked: RequestKind,
    pub(super) head_max: usize,
    /// Whether END_STREAM was given to the session.
    pub(super) is_end_given: bool,
    pub(super) interim_heads: usize,
    pub(super) state: AnswerState,
    /// A head that has not been given out. The bytes behind it are not examined before.
    pub(super) head: Option<AnswerHead>,
    /// Data that has not been given out.
    pub(super) data: Vec<u8>,
    pub(super) trailers: Vec<Header>,
    /// The code of the server's GOAWAY.
    pub(super) goaway: ErrorCode,
}

impl Running {
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        timeout: Duration,
    ) -> Poll<Result<AnswerHead, ExchangeError>> {
        ready!(self.poll_until(cx, timeout, usize::MAX, Running::has_head))?;
        let Some(head) = self.head.take() else {
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

    pub(super) fn has_head(&self) -> bool {
        self.head.is_some()
    }

    /// Whether there is data, or the end.
    pub(super) fn has_piece(&self) -> bool {
        !self.data.is_empty() || self.state == AnswerState::Ended
    }

    /// Reads until `is_wanted`, and sends the queue in the meantime.
    pub(super) fn poll_until(
        &mut self,
        cx: &mut Context<'_>,
        timeout: Duration,
        read_max: usize,
        is_wanted: fn(&Running) -> bool,
    ) -> Poll<Result<(), ExchangeError>> {
        self.examine();
        loop {
            if is_wanted(self) {
                return Poll::Ready(Ok(()));
            }
            if let Some(fault) = self.own.fault.take() {
                return Poll::Ready(Err(fault.into()));
            }
            if self.own.is_closed {
                return Poll::Ready(Err(AnswerFault::Closed.into()));
            }
            // More may have been received than this turn may examine.
            ready!(turn::poll_go_on(cx));
            ready!(self.poll_read(cx, timeout, read_max))?;
        }
    }

    /// Waits until something was read, and sends the queue in the meantime.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        timeout: Duration,
        read_max: usize,
    ) -> Poll<Result<(), ExchangeError>> {
        loop {
            if self.write().is_err() {
                self.stop_sending(); // the answer, or the lack of one, says what is wrong
            }
            match self.read_once(read_max) {
                Ok(()) => {
                    self.stop_waiting();
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(ExchangeError::Receive(error))),
            }
            let stream = &self.own.stream;
            let mut either = stream.poll_readable(cx);
            if either.is_pending() && !self.session.output().is_empty() {
                either = stream.poll_writable(cx);
            }
            if let Poll::Ready(outcome) = either {
                outcome.map_err(ExchangeError::Receive)?;
                continue;
            }
            if !std::mem::replace(&mut self.own.is_waiting, true) {
                self.own.timer.arm(timeout);
            }
            ready!(self.own.timer.poll_expired(cx));
            return Poll::Ready(Err(ExchangeError::Timeout));
        }
    }

    pub(super) fn stop_waiting(&mut self) {
        if std::mem::take(&mut self.own.is_waiting) {
            self.own.timer.disarm();
        }
    }

    fn read_once(&mut self, max: usize) -> io::Result<()> {
        let owner = Rc::clone(&self.own.owner);
        let mut scratch = owner.scratch.borrow_mut();
        let len = scratch.len().min(max);
        let count = self.own.stream.try_read(&mut scratch[..len])?;
        self.own.received += count as u64;
        self.own.is_closed |= count == 0;
        self.session.begin_turn(loop_clock::monotonic_ms());
        self.session.begin_read();
        if self.own.unread.is_empty() {
            let used = self.take(&scratch[..count]);
            self.own.unread.extend_from_slice(&scratch[used..count]);
        } else {
            self.own.unread.extend_from_slice(&scratch[..count]);
            self.examine();
        }
        Ok(())
    }

    /// Examines the bytes that were read before.
    pub(super) fn examine(&mut self) {
        if !self.own.unread.is_empty() {
            let mut unread = std::mem::take(&mut self.own.unread);
            let used = self.take(&unread);
            unread.drain(..used);
            self.own.unread = unread;
        }
    }

    /// Takes frames, up to a head; returns the number of bytes used.
    fn take(&mut self, input: &[u8]) -> usize {
        let now_ms = loop_clock::monotonic_ms();
        let mut used = 0;
        while self.head.is_none() && self.own.fault.is_none() {
            let (taken, event) = self.session.receive(&input[used..], now_ms, &mut |_| None);
            used += taken;
            if matches!(event, Event::Partial | Event::TurnEnds) {
                break;
            }
            self.note(event);
        }
        used
    }

    fn note(&mut self, event: Event<'_>) {
        match event {
            Event::Response(_, mut head, is_end) if !head.is_interim() => {
                if is_end && self.may_have_body(head.status) {
                    head.framing = ResponseFraming::Length(0);
                }
                self.state = match is_end {
                    true => AnswerState::Ended,
                    false => AnswerState::Body,
                };
                self.head = Some(AnswerHead::Final(head));
            }
            Event::Response(_, head, _) => {
                self.interim_heads += 1;
                if self.interim_heads > INTERIM_HEADS_MAX {
                    let why = "upstream sent too many interim responses";
                    self.own.fault = Some(AnswerFault::Head(why.into()));
                } else {
                    self.head = Some(AnswerHead::Interim(head));
                }
            }
            Event::Data(key, data, is_end) => {
                self.data.extend_from_slice(data);
                self.session.consume(key, data.len());
                if is_end {
                    self.state = AnswerState::Ended;
                }
            }
            Event::Trailers(_, trailers) => {
                self.trailers = trailers;
                self.state = AnswerState::Ended;
            }
            Event::GoAway(_, code) => self.goaway = code,
            Event::Reset(_, cause) => {
                self.stop_sending();
                let why = self.reset_text(cause);
                self.fail(why);
            }
            Event::Closed(reason) => {
                let _ = self.flush_output(); // GOAWAY, best effort
                self.own.is_closed = true;
                self.fail(format!("upstream {}", of_upstream(reason)));
            }
            _ => {}
        }
    }

    fn may_have_body(&self, status: u16) -> bool {
        self.asked != RequestKind::Head && !matches!(status, 204 | 304)
    }

    /// Notes a fault, unless the response is complete.
    fn fail(&mut self, why: String) {
        self.own.fault = match self.state {
            AnswerState::Head => Some(AnswerFault::Head(why)),
            AnswerState::Body => Some(AnswerFault::Body(why)),
            AnswerState::Ended => None,
        };
    }

    fn reset_text(&self, cause: ResetCause) -> String {
        match cause {
            ResetCause::Peer(ErrorCode(code)) => {
                format!("upstream rejected request with error {code}")
            }
            ResetCause::Unprocessed => {
                format!("upstream sent goaway with error {}", self.goaway.0)
            }
            ResetCause::Fault(reason) => format!("upstream {}", of_upstream(reason)),
        }
    }

    pub(super) fn is_all_written(&self) -> bool {
        self.own.queue.is_empty()
            && (self.is_end_given || !self.own.is_body_queued)
            && self.session.output().is_empty()
    }

    /// Writes until everything is written, the windows are closed or the socket is full.
    pub(super) fn write(&mut self) -> io::Result<()> {
        loop {
            self.feed();
            if self.session.output().is_empty() {
                return Ok(());
            }
            if !self.flush_output()? {
                return Ok(());
            }
        }
    }

    /// Writes the session's output; returns whether all of it was written.
    pub(super) fn flush_output(&mut self) -> io::Result<bool> {
        while !self.session.output().is_empty() {
            match self.own.stream.try_write(self.session.output()) {
                Ok(count) => {
                    self.session.sent(count);
                    self.own.sent += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Gives the session as much of the body as it takes.
    fn feed(&mut self) {
        let Some(key) = self.key.filter(|_| !self.is_end_given) else {
            return;
        };
        while !self.own.queue.is_empty() {
            let is_last = self.own.is_body_queued && self.own.queue.len() == 1;
            let front = &mut self.own.queue[0];
            match self.session.data(key, front, is_last) {
                Ok(taken) => front.advance(taken),
                Err(_) => return self.stop_sending(),
            }
            if !front.is_empty() {
                return;
            }
            self.own.queue.pop_front();
            self.is_end_given = is_last;
        }
        if self.own.is_body_queued && !self.is_end_given {
            match self.session.data(key, &[], true) {
                Ok(_) => self.is_end_given = true,
                Err(_) => self.stop_sending(),
            }
        }
    }

    /// Stops sending: the server takes no more of the request.
    pub(super) fn stop_sending(&mut self) {
        if !self.is_end_given {
            self.own.stop_sending();
        }
    }
}

/// The predicate of a reason, where the upstream is its subject.
fn of_upstream(reason: Reason) -> &'static str {
    match reason {
        Reason::PseudoMissing => "sent no :status header",
        Reason::PseudoDuplicate => "sent duplicate :status header",
        Reason::PseudoUnknown | Reason::FieldName | Reason::FieldValue => "sent invalid header",
        Reason::Push => "sent unexpected push promise frame",
        reason => reason.text(),
    }
}
