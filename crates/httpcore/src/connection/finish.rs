//! The end of a request: the rest of its body, what follows it, its log lines.

use logs::Level;
use message::Framing;
use runtime::timing::current_request;

use crate::Response;
use crate::outcome::Start;
use crate::request::Request;
use crate::responder::Responder;
use crate::transport::{BodyStop, Transport};
use crate::variables::Values;

use super::{post_action, zones};

/// Maximum of reads of a body before its request is answered.
const READS_AHEAD_MAX: usize = 8;

/// The fate of a connection after a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// The next request may come.
    Keep,
    /// It is closed, once nothing of the client's is on its way (`lingering_close`).
    Close,
    /// It is closed, and the client may still be sending, whatever was read.
    Linger,
    /// It is closed because the client took too long.
    TimedOut,
    /// It is reset: the response broke off, and only the connection's end would have marked the end of the response
    /// (RFC 9112, 6.3).
    Reset,
}

/// Ends the work for an answered request: runs what follows it, writes its log lines, reads the rest of its body. Returns
/// what becomes of its connection.
pub(super) async fn finish<R: Responder>(request: &mut Request, mut after: After) -> After {
    if post_action::is_wanted(request) {
        Box::pin(post_action::run::<R>(request)).await;
    }
    request.tell_answered();
    current_request::behind(current_request::Phase::Logging);
    log(request).await;
    zones::count(request);
    // The request does not last as long as its client sends what nothing reads.
    if after == After::Keep && !request.transport.is_body_over() {
        after = discard(request).await;
    }
    current_request::end();
    if after != After::Keep {
        // A client that has left does not check the log on seeing the connection's end.
        tokio::select! {
            biased;
            () = request.client.loop_.feed.settle() => {}
            () = request.transport.peer_closed() => {}
        }
    }
    if after == After::Close && request.work_behind.is_some() {
        Box::pin(let_work_end(request)).await;
    }
    after
}

/// Delays the close until the update behind a stale response has ended, as nginx: a client that asks again after the
/// close finds the new response. There is no delay for a client that learns the end of the response only from the
/// close, nor for one that has left.
async fn let_work_end(request: &mut Request) {
    let work = request.work_behind.take();
    if let Some(work) = work.filter(|_| has_told_end(request)) {
        tokio::select! {
            biased;
            _ = work => {}
            () = request.transport.peer_closed() => {}
        }
    }
}

/// Whether the client can tell the end of the response before the connection ends.
pub(super) fn has_told_end(request: &Request) -> bool {
    let Some(response) = &request.response else {
        return false;
    };
    let has_body = !request.is_head() && !matches!(response.status, 204 | 304);
    request.transport.tells_end(response, has_body)
}

/// Whether there is a chunked body that was not read.
pub(super) fn must_judge(request: &Request) -> bool {
    request.head.framing == Framing::Chunked && request.body.body().is_none()
}

/// Checks the part of a chunked body that has arrived before the response goes out: nginx refuses a malformed one.
/// Returns the response to send.
pub(super) async fn judge<R: Responder>(
    request: &mut Request,
    response: Box<Response>,
) -> Option<Box<Response>> {
    give_body_up(request);
    let mut outcome = Ok(false);
    for _ in 0..READS_AHEAD_MAX {
        outcome = request.transport.try_read_body(&mut Vec::new());
        if !matches!(outcome, Ok(true)) {
            break;
        }
    }
    let Err(wire::Error::Body(fault)) = outcome else {
        // A lost connection is noticed when the response is sent.
        return Some(response);
    };
    request.log(Level::Error, &|out| {
        out.extend_from_slice(fault.to_string().as_bytes());
    });
    request.transport.close_after_response();
    // As in nginx, which makes these redirects before it looks at the body; that of `return` it makes behind it.
    let is_redirect = matches!(response.status, 301 | 302 | 303 | 307 | 308)
        && request.returned.get() != Some(response.status);
    if response.status >= 400 || is_redirect {
        return Some(response);
    }
    R::respond(request, Start::Refused(400)).await
}

/// Reads the rest of a body and throws it away, so that the next request can be found after it (nginx-drop-in 36).
async fn discard(request: &mut Request) -> After {
    let generation = request.generation.clone();
    let closing = &generation
        .settings
        .location(request.location)
        .settings
        .closing;
    let (total, between) = (
        closing.lingering_time.duration(),
        closing.lingering_timeout.duration(),
    );
    give_body_up(request);
    match request.transport.discard_body(total, between).await {
        Ok(()) => After::Keep,
        Err(BodyStop::Failed(wire::Error::Timeout)) => After::TimedOut,
        Err(BodyStop::Failed(_)) => After::Close,
        Err(BodyStop::GaveWay) => After::TimedOut,
    }
}

/// What is read of the body from here on is no part of the request's length, as in nginx. Over HTTP/2 all that arrives is.
fn give_body_up(request: &mut Request) {
    if let Transport::Http1(http1) = &mut request.transport {
        http1.give_body_up();
    }
}

async fn log(request: &Request) {
    let logs = request.location().access_logs();
    if logs.is_off() {
        return;
    }
    let feed = &request.client.loop_.feed;
    request.is_logging.set(true);
    logs.log(feed, &Values::of(request), |out| {
        crate::files::path::root(request, out)
    })
    .await;
}
