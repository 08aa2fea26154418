//! Asking the servers of an order, one after the other, until one answers.
//!
//! Not here: what the response means for the client (`response_head`). Invariant: works on the order alone; every
//! attempt is recorded, and its peer given back, however it ends.

use std::rc::Rc;

use bytes::Bytes;
use logs::Level;
use message::ResponseHead;
use wire::exchange::AnswerHead;

use upstream::next_upstream::{AttemptProgress, NextRules, PeerFailure};
use upstream::{Choice, Now, PeerOutcome, PeerTimes};

use crate::exchange::attempt::{CONNECTING, READING_HEAD, Trouble, Try};
use crate::exchange::protocol;
use crate::response::response_body;
use crate::response::response_body::{Beginning, Flow, Progress};
use crate::response::upstream_response::{UpstreamBody, UpstreamResponse};
use crate::upstream_request::request::{Order, shown};

/// Invariant until a server has answered, for `expect`.
const NOT_OVER: &str = "nothing is asked of it behind the answer";

/// No server answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoAnswer {
    /// The status that stands for it.
    pub status: u16,
    /// The failure of the last server; `None`: there was none to ask, or the request itself is at fault.
    pub failure: Option<PeerFailure>,
}

/// The progress of an upstream request.
pub enum Step {
    /// A 1xx has arrived; go on.
    Interim(Box<ResponseHead>),
    /// A server has answered.
    Answer(UpstreamResponse),
}

/// An upstream request on its way through the servers.
pub struct Asking {
    order: Rc<Order>,
    /// Until a server has answered.
    choice: Option<Choice>,
    begun_ms: u64,
    /// A request that was sent and waits for its response.
    current: Option<Try>,
}

impl Asking {
    /// An exchange in which no server was asked yet.
    #[must_use]
    pub fn new(order: Rc<Order>) -> Asking {
        let settings = &order.passing.groups.asking;
        let mut choice = order.upstream.choose(&order.asker);
        if settings.proxy_next_upstream_tries.0 > 0 {
            let most = usize::try_from(settings.proxy_next_upstream_tries.0).unwrap_or(usize::MAX);
            choice.limit_tries(most);
        }
        Asking {
            order,
            choice: Some(choice),
            begun_ms: wire::loop_clock::monotonic_ms(),
            current: None,
        }
    }

    /// Sends the request and waits until a response begins, of which nothing is read yet.
    ///
    /// # Errors
    /// No server answered; every failure was logged.
    pub async fn answer_comes(&mut self) -> Result<(), NoAnswer> {
        // Terminates as [`Asking::next`] does.
        loop {
            let outcome = match &mut self.current {
                Some(one) => match one.answer_comes().await {
                    Ok(()) => return Ok(()),
                    Err(trouble) => Err(trouble),
                },
                None => self.send().await?,
            };
            if let Err(trouble) = outcome {
                self.survive(&trouble)?;
            }
        }
    }

    /// Goes on to the next head; not to be called after the response's.
    ///
    /// # Errors
    /// No server answered; every failure was logged.
    pub async fn next(&mut self) -> Result<Step, NoAnswer> {
        // Terminates: each turn uses up a try, or forgives one of a kept connection, of which there is a limited
        // number.
        loop {
            let outcome = match &mut self.current {
                Some(one) => one.head().await,
                None => match self.send().await? {
                    Ok(()) => continue,
                    Err(trouble) => Err(trouble),
                },
            };
            match outcome {
                Ok(AnswerHead::Interim(head)) => {
                    if let Some(one) = &mut self.current {
                        one.interim_bytes += head.bytes.len() as u64;
                    }
                    return Ok(Step::Interim(head));
                }
                Ok(AnswerHead::Final(head)) => {
                    if let Some(answer) = self.judge(head) {
                        return Ok(Step::Answer(answer));
                    }
                }
                Err(trouble) => self.survive(&trouble)?,
            }
        }
    }

    /// Sends the request to the next server.
    async fn send(&mut self) -> Result<Result<(), Trouble>, NoAnswer> {
        let one = self.begin()?;
        let sent = one.send().await;
        let is_opened = one.is_sent && !one.is_kept;
        if is_opened && let Some(choice) = &self.choice {
            choice.count_opened();
        }
        Ok(sent)
    }

    /// Chooses the next server.
    fn begin(&mut self) -> Result<&mut Try, NoAnswer> {
        let choice = self.choice.as_mut().expect(NOT_OVER);
        let Some(peer) = choice.next(Now::read()) else {
            return Err(no_peer(&self.order));
        };
        self.order.bind(peer);
        Ok(self.current.insert(Try::new(&self.order, peer)))
    }

    /// The response, if this is one. `None`: another server is to be asked.
    fn judge(&mut self, head: Box<ResponseHead>) -> Option<UpstreamResponse> {
        let one = self.current.take()?;
        match PeerFailure::of_status(head.status) {
            Some(failure) if self.goes_on(&one, failure) => {
                one.end(Some(failure.status()));
                self.give_back(&one, failure);
                None
            }
            _ => self.answer(one, head),
        }
    }

    /// Whether the next server is asked.
    fn goes_on(&self, one: &Try, failure: PeerFailure) -> bool {
        let settings = &self.order.passing.groups.asking;
        let rules = NextRules {
            on: settings.proxy_next_upstream,
            timeout_ms: settings.proxy_next_upstream_timeout.0,
        };
        let progress = AttemptProgress {
            method: self.order.method,
            is_sent: one.is_sent,
            is_unbuffered: !self.order.body.is_replayable(),
            elapsed_ms: wire::loop_clock::monotonic_ms().saturating_sub(self.begun_ms),
            tries_left: self.choice.as_ref().map_or(0, Choice::tries_left)
                + usize::from(one.is_forgiven(failure)),
        };
        rules.allows(failure, &progress)
    }

    /// Logs and records a failed try, and gives its peer back.
    fn survive(&mut self, trouble: &Trouble) -> Result<(), NoAnswer> {
        let one = &self.current.take().expect("it was just being made");
        let failure = trouble.failure();
        one.end(None);
        one.log(trouble);
        one.record_failure(failure);
        let Some(failure) = failure else {
            let choice = self.choice.as_mut().expect(NOT_OVER);
            choice.give_back(PeerOutcome::Answered, PeerTimes::default(), Now::read());
            return Err(NoAnswer {
                status: 500,
                failure: None,
            });
        };
        let goes_on = self.goes_on(one, failure);
        self.give_back(one, failure);
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
    fn answer(&mut self, mut one: Try, head: Box<ResponseHead>) -> Option<UpstreamResponse> {
        let mut exchange = one.exchange.take()?;
        let header_ms = one.elapsed_ms();
        let mut choice = self.choice.take().expect(NOT_OVER);
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
        let begun = match protocol::is_whole_wanted(&one.order, &head) {
            true => exchange.ready_piece(),
            false => Bytes::new(),
        };
        if exchange.is_ended() {
            response_body::settle(&one.order, &exchange, &mut choice, &progress);
            response_body::keep(&one.order, exchange, one.like);
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
        let flow = Flow::new(Beginning {
            order: one.order,
            exchange,
            begun,
            choice,
            like: one.like,
            name: one.name,
            progress,
        });
        let body = UpstreamBody::Flow(Box::new(flow));
        Some(UpstreamResponse { head, body })
    }

    fn give_back(&mut self, one: &Try, failure: PeerFailure) {
        let times = PeerTimes {
            header_ms: None,
            response_ms: one.elapsed_ms(),
        };
        let choice = self.choice.as_mut().expect(NOT_OVER);
        let is_disabled = choice.give_back(failure.outcome(), times, Now::read());
        if is_disabled {
            let upstream = shown(&one.name, &one.order);
            let what = "upstream server temporarily disabled";
            let action = if one.is_sent {
                READING_HEAD
            } else {
                CONNECTING
            };
            self.order.about.log(Level::Warn, what, action, &upstream);
        }
    }
}

impl Drop for Asking {
    /// When the request has ended, or has what it needs, the log shows how far the last try had come.
    fn drop(&mut self) {
        if let Some(one) = self.current.take() {
            one.leave();
        }
    }
}

fn no_peer(order: &Order) -> NoAnswer {
    let name = &*order.upstream.name();
    let upstream = shown(name, order);
    order
        .about
        .log(Level::Error, "no live upstreams", CONNECTING, &upstream);
    let mut tries = order.record.tries.borrow_mut();
    let one = tries.begin(name);
    one.status = 502;
    one.response_ms = Some(0);
    NoAnswer {
        status: 502,
        failure: None,
    }
}
