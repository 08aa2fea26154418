//! What has come on a stream and was not taken by its exchange yet.
//!
//! Not here: sending (`super`), frames (`http2`). Invariant: heads come before data, and a fault after all data that came
//! before it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Waker};

use message::{Header, ResponseFraming, ResponseHead};

use crate::answer::AnswerFault;
use crate::exchange::{AnswerHead, ExchangeError, INTERIM_HEADS_MAX, RequestKind};
use crate::http2::{ErrorCode, Event, Reason, ResetCause};

/// How far the response has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerState {
    /// Its head has not been received.
    Head,
    Body,
    Ended,
}

/// What an exchange finds on its stream.
pub(super) struct Look {
    /// Whether anything came since it looked last.
    pub(super) has_progress: bool,
    /// `None`: it has to wait.
    pub(super) outcome: Option<Result<(), ExchangeError>>,
}

/// The receiving side of a stream.
#[derive(Debug)]
pub(super) struct StreamState {
    asked: RequestKind,
    pub(super) state: AnswerState,
    /// Heads that have not been given out.
    pub(super) heads: VecDeque<AnswerHead>,
    interim_heads: usize,
    /// Bytes of the interim heads that were kept.
    interim_bytes: usize,
    /// Bytes of interim heads from which on no more are kept.
    interim_bytes_max: usize,
    /// Data that has not been given out; at most the stream's window.
    pub(super) data: Vec<u8>,
    pub(super) trailers: Vec<Header>,
    /// An error to report once the data before it has been given out.
    pub(super) fault: Option<ExchangeError>,
    /// Whether nothing more comes, nor is anything more taken.
    pub(super) is_gone: bool,
    /// Whether it is gone since its connection is.
    pub(super) is_broken_off: bool,
    /// Whether the server did nothing with the request (RFC 9113, 8.7).
    pub(super) may_repeat: bool,
    /// Whether anything came since the exchange looked.
    pub(super) has_progress: bool,
    /// Whether the exchange waits for room to send.
    pub(super) wants_room: bool,
    /// Whether the window of the connection kept the exchange from sending when it last tried.
    pub(super) is_starved: bool,
    /// Bytes of the frames that came.
    pub(super) received: u64,
    /// Bytes of the body among them.
    pub(super) body_received: u64,
    waker: Option<Waker>,
}

impl StreamState {
    pub(super) fn new(asked: RequestKind, interim_bytes_max: usize) -> StreamState {
        StreamState {
            asked,
            state: AnswerState::Head,
            heads: VecDeque::new(),
            interim_heads: 0,
            interim_bytes: 0,
            interim_bytes_max,
            data: Vec::new(),
            trailers: Vec::new(),
            fault: None,
            is_gone: false,
            is_broken_off: false,
            may_repeat: false,
            has_progress: false,
            wants_room: false,
            is_starved: false,
            received: 0,
            body_received: 0,
            waker: None,
        }
    }

    /// Has the exchange's task woken by the next event.
    pub(super) fn wait(&mut self, context: &Context<'_>) {
        let is_same = |waker: &Waker| waker.will_wake(context.waker());
        if !self.waker.as_ref().is_some_and(is_same) {
            self.waker = Some(context.waker().clone());
        }
    }

    pub(super) fn wake(&mut self) {
        self.wants_room = false;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// What an exchange that waits for `is_wanted` finds.
    pub(super) fn look(&mut self, is_wanted: fn(&StreamState) -> bool) -> Look {
        let has_progress = std::mem::take(&mut self.has_progress);
        let outcome = match is_wanted(self) {
            true => Some(Ok(())),
            false => match self.fault.take() {
                Some(fault) => Some(Err(fault)),
                None => self.is_gone.then(|| Err(AnswerFault::Closed.into())),
            },
        };
        Look {
            has_progress,
            outcome,
        }
    }

    pub(super) fn has_head(&self) -> bool {
        !self.heads.is_empty()
    }

    /// Whether there is data, or the end.
    pub(super) fn has_piece(&self) -> bool {
        !self.data.is_empty() || self.state == AnswerState::Ended
    }

    /// Whether the server has said anything that was not given out, or nothing more comes.
    pub(super) fn has_answer(&self) -> bool {
        self.has_head() || self.state != AnswerState::Head || self.is_gone
    }

    /// Whether the response is complete, or never will be.
    pub(super) fn has_ended(&self) -> bool {
        self.state == AnswerState::Ended || self.is_gone
    }

    /// Takes an event of the stream, which took so many bytes.
    pub(super) fn note(&mut self, event: Event<'_>, bytes: usize, goaway: ErrorCode) {
        self.received += bytes as u64;
        self.has_progress = true;
        match event {
            Event::Response(_, mut head, is_end) if !head.is_interim() => {
                if is_end && self.may_have_body(head.status) {
                    Arc::make_mut(&mut head).framing = ResponseFraming::Length(0);
                }
                self.state = match is_end {
                    true => AnswerState::Ended,
                    false => AnswerState::Body,
                };
                self.heads.push_back(AnswerHead::Final(head));
            }
            Event::Response(_, head, _) => self.take_interim(head),
            Event::Data(_, data, is_end) => {
                self.data.extend_from_slice(data);
                self.body_received += data.len() as u64;
                if is_end {
                    self.state = AnswerState::Ended;
                }
            }
            Event::Trailers(_, trailers) => {
                self.trailers = trailers;
                self.state = AnswerState::Ended;
            }
            Event::Reset(_, cause) => {
                self.may_repeat = cause.may_repeat() && self.state == AnswerState::Head;
                match cause {
                    // The connection ends; the request goes on another one, as from one that was found closed.
                    ResetCause::Unprocessed if self.may_repeat => {
                        self.end(AnswerFault::Closed.into());
                    }
                    cause => self.fail(reset_text(cause, goaway)),
                }
            }
            _ => {}
        }
    }

    /// Takes an interim head. The one that exceeds the limit is the last that is kept: by it, the exchange's owner sees that
    /// they are too large.
    fn take_interim(&mut self, head: Arc<ResponseHead>) {
        self.interim_heads += 1;
        if self.interim_heads > INTERIM_HEADS_MAX {
            self.fail("upstream sent too many interim responses".into());
        } else if self.interim_bytes <= self.interim_bytes_max {
            self.interim_bytes += head.bytes.len();
            self.heads.push_back(AnswerHead::Interim(head));
        }
    }

    /// The connection is broken, by what the server sent.
    pub(super) fn break_connection(&mut self, reason: Reason) {
        self.fail(format!("upstream {}", of_upstream(reason)));
    }

    /// Nothing more comes, for this reason.
    pub(super) fn end(&mut self, error: ExchangeError) {
        if self.state != AnswerState::Ended && !self.is_gone {
            self.fault = Some(error);
        }
        self.is_gone = true;
    }

    /// The response is not to be had, or not whole.
    fn fail(&mut self, why: String) {
        let fault = match self.state {
            AnswerState::Head => AnswerFault::Head(why),
            AnswerState::Body | AnswerState::Ended => AnswerFault::Body(why),
        };
        self.end(fault.into());
    }

    fn may_have_body(&self, status: u16) -> bool {
        self.asked != RequestKind::Head && !matches!(status, 204 | 304)
    }
}

fn reset_text(cause: ResetCause, goaway: ErrorCode) -> String {
    match cause {
        ResetCause::Peer(ErrorCode(code)) => {
            format!("upstream rejected request with error {code}")
        }
        ResetCause::Unprocessed => format!("upstream sent goaway with error {}", goaway.0),
        ResetCause::Fault(reason) => format!("upstream {}", of_upstream(reason)),
    }
}

/// The predicate of a reason, where the upstream is its subject.
fn of_upstream(reason: Reason) -> &'static str {
    match reason {
        Reason::PseudoMissing => "sent no :status header",
        Reason::PseudoDuplicate => "sent duplicate :status header",
        Reason::PseudoUnknown | Reason::FieldName | Reason::FieldValue => "sent invalid header",
        Reason::BlockTooLarge | Reason::FieldTooLarge => "sent too big header",
        Reason::Push => "sent unexpected push promise frame",
        reason => reason.text(),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn interim_heads_are_kept_up_to_a_sum() {
        let mut stream = StreamState::new(RequestKind::Plain, 100);
        let head = || Arc::new(ResponseHead::new(Bytes::from_static(&[b'x'; 40])));
        for kept in [1, 2, 3, 3, 3] {
            stream.take_interim(head());
            assert_eq!(stream.heads.len(), kept);
        }
        // Those that were given out count as well.
        stream.heads.clear();
        stream.take_interim(head());
        assert!(!stream.has_head() && !stream.is_gone);
    }
}
