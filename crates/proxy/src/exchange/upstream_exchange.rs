//! Asking the servers of an upstream request, one after the other, until one answers.
//!
//! Not here: what the response means for the client (`response_head`). Invariant: works on the upstream request alone;
//! every attempt is recorded, and its peer given back, however it ends.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use logs::Level;
use message::{HeaderId, ResponseHead};
use wire::exchange::AnswerHead;

use upstream::next_upstream::{AttemptProgress, NextRules, PeerFailure};
use upstream::{Choice, Now, PeerOutcome, PeerTimes};

use crate::exchange::attempt::{Attempt, AttemptError, CONNECTING, tell_repeats};
use crate::exchange::protocol;
use crate::response::response_body;
use crate::response::response_body::{BodyStart, BodyStream, Progress};
use crate::response::upstream_response::{UpstreamBody, UpstreamResponse};
use crate::upstream_request::log_context::READING_HEAD;
use crate::upstream_request::request::{UpstreamRequest, shown};

/// Invariant until a server has answered, for `expect`.
const NOT_OVER: &str = "nothing is asked of it behind the answer";

/// No server answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoAnswer {
    /// The status that stands for it.
    pub status: u16,
    /// The failure of the last server; `None`: there was none to ask, or the request itself is at fault.
    pub failure: Option<PeerFailure>,
}

/// The progress of an upstream request.
pub(crate) enum ExchangeStep {
    /// A 1xx has arrived; go on.
    Interim(Arc<ResponseHead>),
    /// A server has answered.
    Answer(UpstreamResponse),
}

/// An upstream request on its way through the servers.
pub(crate) struct UpstreamExchange {
    upstream_request: Rc<UpstreamRequest>,
    /// Until the body of a response has it.
    choice: Option<Choice>,
    begun_ms: u64,
    /// A request that was sent and waits for its response.
    current: Option<Attempt>,
}

impl UpstreamExchange {
    /// An exchange in which no server was asked yet.
    #[must_use]
    #[inline]
    pub(crate) fn new(upstream_request: Rc<UpstreamRequest>) -> UpstreamExchange {
        let settings = &upstream_request.passing.groups.asking;
        let mut choice = Some(upstream_request.upstream.choose(&upstream_request.asker));
        if settings.proxy_next_upstream_tries.0 > 0
            && let Some(choice) = &mut choice
        {
            let most = usize::try_from(settings.proxy_next_upstream_tries.0).unwrap_or(usize::MAX);
            choice.limit_tries(most);
        }
        UpstreamExchange {
            upstream_request,
            choice,
            begun_ms: wire::loop_clock::monotonic_ms(),
            current: None,
        }
    }

    /// Sends the request and waits until a response begins, of which nothing is read yet.
    ///
    /// # Errors
    /// No server answered; every failure was logged.
    pub(crate) async fn answer_comes(&mut self) -> Result<(), NoAnswer> {
        // Terminates as [`UpstreamExchange::next`] does.
        loop {
            let outcome = match &mut self.current {
                Some(one) => match one.answer_comes().await {
                    Ok(()) => return Ok(()),
                    Err(error) => Err(error),
                },
                None => self.send().await?,
            };
            if let Err(error) = outcome {
                self.survive(&error)?;
            }
        }
    }

    /// Goes on to the next head; not to be called after the response's.
    ///
    /// # Errors
    /// No server answered; every failure was logged.
    pub(crate) async fn next(&mut self) -> Result<ExchangeStep, NoAnswer> {
        // Terminates: each turn uses up an attempt, forgives one of a kept connection, or skips an interim head, of which there
        // are a limited number.
        loop {
            let outcome = match &mut self.current {
                Some(one) => one.head().await,
                None => match self.send().await? {
                    Ok(()) => continue,
                    Err(error) => Err(error),
                },
            };
            match outcome {
                Ok(AnswerHead::Interim(head)) => {
                    let current = self.current.as_mut();
                    if current.is_some_and(|one| one.takes_interim(&head)) {
                        return Ok(ExchangeStep::Interim(head));
                    }
                }
                Ok(AnswerHead::Final(head)) => {
                    self.read(&head);
                    if let Some(answer) = self.judge(head) {
                        return Ok(ExchangeStep::Answer(answer));
                    }
                }
                Err(error) => self.survive(&error)?,
            }
        }
    }

    /// Tells of what a head has too much, and notes the server for what is told of its redirect.
    fn read(&self, head: &ResponseHead) {
        let Some(one) = &self.current else { return };
        tell_repeats(&one.upstream_request, &one.name, head);
        if head.get(HeaderId::XAccelRedirect).is_some() {
            let shown = shown(&one.name, &one.upstream_request);
            let state = &self.upstream_request.state;
            *state.redirected_by.borrow_mut() = Some(shown);
        }
    }

    /// Sends the request to the next server.
    async fn send(&mut self) -> Result<Result<(), AttemptError>, NoAnswer> {
        let one = self.begin()?;
        let sent = one.send().await;
        let is_opened = one.is_sent && !one.is_kept;
        if is_opened && let Some(choice) = &self.choice {
            choice.count_opened();
        }
        Ok(sent)
    }

    /// Chooses the next server.
    fn begin(&mut self) -> Result<&mut Attempt, NoAnswer> {
        let choice = self.choice.as_mut().expect(NOT_OVER);
        let Some(peer) = choice.next(Now::read()) else {
            return Err(no_peer(&self.upstream_request));
        };
        self.upstream_request.bind(peer);
        Ok(self
            .current
            .insert(Attempt::new(&self.upstream_request, peer)))
    }

    /// The response, if this is one. `None`: another server is to be asked.
    fn judge(&mut self, head: Arc<ResponseHead>) -> Option<UpstreamResponse> {
        let one = self.current.as_ref()?;
        if let Some(failure) = PeerFailure::of_status(head.status)
            && self.goes_on(one, failure)
        {
            let one = self.current.take()?;
            one.end(Some(failure.status()));
            self.give_back(&one, failure.outcome());
            return None;
        }
        self.answer(head)
    }

    /// Whether the next server is asked.
    fn goes_on(&self, one: &Attempt, failure: PeerFailure) -> bool {
        let settings = &self.upstream_request.passing.groups.asking;
        let rules = NextRules {
            on: settings.proxy_next_upstream,
            timeout_ms: settings.proxy_next_upstream_timeout.0,
        };
        let progress = AttemptProgress {
            method: self.upstream_request.method,
            is_sent: one.is_sent,
            is_body_taken: !self.upstream_request.body.is_replayable(),
            elapsed_ms: wire::loop_clock::monotonic_ms().saturating_sub(self.begun_ms),
            tries_left: self.choice.as_ref().map_or(0, Choice::tries_left)
                + usize::from(one.is_forgiven(failure)),
        };
        rules.allows(failure, &progress)
    }

    /// Logs and records a failed attempt, and gives its peer back.
    fn survive(&mut self, error: &AttemptError) -> Result<(), NoAnswer> {
        let one = &mut self.current.take().expect("it was just being made");
        let failure = error.failure();
        let is_untouched = one.is_untouched();
        one.end(None);
        one.log(error);
        one.record_failure(error.status());
        let Some(failure) = failure else {
            let choice = self.choice.as_mut().expect(NOT_OVER);
            choice.give_back(PeerOutcome::Answered, PeerTimes::default(), Now::read());
            return Err(NoAnswer {
                status: error.status(),
                failure: None,
            });
        };
        let goes_on = self.goes_on(one, failure);
        match is_untouched {
            true => {
                let choice = self.choice.as_mut().expect(NOT_OVER);
                choice.give_back(PeerOutcome::Answered, PeerTimes::default(), Now::read());
            }
            false => self.give_back(one, one.outcome(failure)),
        }
        if one.is_forgiven(failure) {
            self.choice.as_mut().expect(NOT_OVER).forgive_try();
        }
        if goes_on {
            return Ok(());
        }
        Err(NoAnswer {
            status: failure.status(),
            failure: Some(failure),
        })
    }

    /// The peer stays taken until the response's end.
    fn answer(&mut self, head: Arc<ResponseHead>) -> Option<UpstreamResponse> {
        let mut one = self.current.take()?;
        let mut exchange = one.exchange.take()?;
        let header_ms = one.elapsed_ms();
        let choice = self.choice.as_mut().expect(NOT_OVER);
        choice.note_header(header_ms, Now::read());
        one.note(|noted| {
            noted.status = head.status;
            noted.header_ms = Some(header_ms);
        });
        let progress = Progress {
            begun_ms: one.begun_ms,
            header_ms,
            head_bytes: one.interim_bytes + exchange.beside_head() + head.bytes.len() as u64,
        };
        let begun = match protocol::is_whole_wanted(&one.upstream_request, &head) {
            true => exchange.ready_piece(),
            false => Bytes::new(),
        };
        // Trailers come behind the body of a stream.
        if exchange.is_ended() && !exchange.has_trailers() {
            response_body::settle(&one.upstream_request, &exchange, choice, &progress);
            response_body::keep(&one.upstream_request, exchange, one.like, &one.name);
            let body = UpstreamBody::Whole(begun);
            return Some(UpstreamResponse { head, body });
        }
        // The end of the response writes these again; a reader that does not wait for it logs the current values.
        let (sent, received) = (exchange.sent(), exchange.received());
        one.note(|noted| {
            noted.bytes_sent = sent;
            noted.bytes_received = received;
            noted.response_ms = Some(header_ms);
        });
        let stream = BodyStream::new(BodyStart {
            upstream_request: one.upstream_request,
            exchange,
            begun,
            rest: one.rest,
            choice: self.choice.take().expect(NOT_OVER),
            like: one.like,
            name: one.name,
            progress,
        });
        let body = UpstreamBody::Stream(Box::new(stream));
        Some(UpstreamResponse { head, body })
    }

    fn give_back(&mut self, one: &Attempt, outcome: PeerOutcome) {
        let times = PeerTimes {
            header_ms: None,
            response_ms: one.elapsed_ms(),
        };
        let choice = self.choice.as_mut().expect(NOT_OVER);
        let is_disabled = choice.give_back(outcome, times, Now::read());
        if is_disabled {
            let upstream = shown(&one.name, &one.upstream_request);
            let what = "upstream server temporarily disabled";
            let action = if one.is_sent {
                READING_HEAD
            } else {
                CONNECTING
            };
            self.upstream_request
                .context
                .log(Level::Warn, what, action, &upstream);
        }
    }
}

impl Drop for UpstreamExchange {
    /// When the request has ended, or has what it needs, the log shows how far the last attempt had come.
    fn drop(&mut self) {
        if let Some(one) = self.current.take() {
            one.leave();
        }
    }
}

fn no_peer(upstream_request: &UpstreamRequest) -> NoAnswer {
    let name = &*upstream_request.upstream.name();
    let upstream = shown(name, upstream_request);
    upstream_request
        .context
        .log(Level::Error, "no live upstreams", CONNECTING, &upstream);
    let mut tries = upstream_request.state.tries.borrow_mut();
    let one = tries.begin(name);
    one.status = 502;
    one.response_ms = Some(0);
    NoAnswer {
        status: 502,
        failure: None,
    }
}
