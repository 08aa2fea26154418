//! Answering a request whose head was read, on whatever it came: the steps, and the sending of the response.
//!
//! Invariant: a connection of any protocol has its requests answered here, and ended in [`super::finish`].

use std::rc::Rc;

use logs::Level;

use crate::failure::CLOSED;
use crate::outcome::Start;
use crate::request::Request;
use crate::responder::Responder;
use crate::status_zone::Running;
use runtime::Loop;

use super::finish::After;
use super::send;
use crate::connection::finish;

/// Logged status of a client that did not send what it announced.
const TIMED_OUT: u16 = 408;

/// The result of reading a request's head.
pub enum Started {
    /// A valid request.
    Fresh,
    /// One that is refused. Boxed: futures hold this.
    Refused(Box<Refusal>),
}

/// Why a request is refused, and how.
pub struct Refusal {
    /// The status of the response, or in the log.
    pub status: u16,
    /// The reason, for the log.
    pub why: String,
    /// The level of the reason in the log.
    pub level: Level,
    /// What the client gets.
    pub reply: Reply,
}

/// What the client of a refused request gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// A response.
    Response,
    /// A response; more of the request is likely to arrive.
    ResponseAndLinger,
    /// None.
    Nothing,
}

/// Sets the captures of the server's name. A request whose server is not known, since a match failed, is refused.
pub fn capture_server_name(request: &Request, start: Started) -> Started {
    match request.capture_server_name() {
        Ok(()) => start,
        Err(failed) => Started::Refused(Box::new(Refusal {
            status: 500,
            why: failed.sentence,
            level: Level::Alert,
            reply: Reply::Response,
        })),
    }
}

/// Makes the response and sends it; returns what becomes of the connection.
pub(super) async fn answer<R: Responder>(request: &mut Request, start: Started) -> After {
    tell_dropped(request);
    let mut refused = After::Close;
    let response = match start {
        Started::Fresh => match R::respond(request, Start::Fresh).await {
            Some(response) if finish::must_judge(request) => {
                Box::pin(finish::judge::<R>(request, response)).await
            }
            response => response,
        },
        Started::Refused(refusal) => {
            let Refusal {
                status,
                why,
                level,
                reply,
            } = *refusal;
            request.log(level, &|out| out.extend_from_slice(why.as_bytes()));
            refused = match reply {
                Reply::Response => After::Close,
                Reply::ResponseAndLinger => After::Linger,
                Reply::Nothing => After::TimedOut,
            };
            match reply {
                Reply::Nothing => {
                    request.silent_status = Some(status);
                    None
                }
                _ => Box::pin(R::respond(request, Start::Refused(status))).await,
            }
        }
    };
    if request.body.is_streamed() && !request.transport.is_body_over() {
        request.transport.close_after_response();
    }
    let after = match response {
        Some(response) => match send::start(request, response) {
            send::Started::Done(after) => after,
            send::Started::Left(left) => send::go_on(request, left).await,
        },
        // Both are reset with `reset_timedout_connection`, as in nginx.
        None if matches!(request.silent_status, Some(TIMED_OUT | CLOSED)) => After::TimedOut,
        None => refused,
    };
    if after == After::Close {
        refused
    } else {
        after
    }
}

/// Logs which header lines are ignored.
fn tell_dropped(request: &Request) {
    for line in &request.head.dropped {
        request.log(Level::Info, &|out| {
            out.extend_from_slice(b"client sent invalid header line: \"");
            out.extend_from_slice(request.head.text(*line));
            out.extend_from_slice(b"\" while reading client request headers");
        });
    }
}

/// A request between its first byte and its end, as the metrics count it.
pub(super) struct Counted {
    loop_: Rc<Loop>,
    is_answering: bool,
    pub(super) zone: Option<Running>,
}

impl Counted {
    pub(super) fn begin(loop_: &Rc<Loop>) -> Self {
        loop_.figures.in_exchange.add(1);
        Self {
            loop_: Rc::clone(loop_),
            is_answering: false,
            zone: None,
        }
    }

    /// Called when the head has arrived.
    pub(super) fn answer(&mut self) {
        self.is_answering = true;
        self.loop_.figures.requests.add(1);
        self.loop_.figures.answering.add(1);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let figures = &self.loop_.figures;
        figures.answering.sub(u64::from(self.is_answering));
        figures.in_exchange.sub(1);
    }
}
