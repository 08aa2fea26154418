//! The body of a client's request: read whole, into memory or a file ([`store`]), or passed on as it comes ([`pass`]).
//!
//! Both give a [`RequestBody`], an owned value that needs no request. A body is read only where it is wanted: an unread
//! one is discarded after the response (`connection/finish.rs`). Invariants: memory is bounded by
//! `client_body_buffer_size`, or 128 KiB that have come already, and one read, however slow the disk; a body is read from the
//! socket once, by one reader.

mod buffered;
mod streaming;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use disk::{Pool, Temporary};
use logs::Level;
use message::Framing;
use wire::call_failed;
use wire::http1::body_decoder::BodyFault;

use crate::Failure;
use crate::outcome::Outcome;
use crate::request::Request;
use crate::request::body::Pipe;
use crate::transport::BodyStop;

pub use crate::failure::CLIENT_CLOSED;
pub use crate::request::body::{Arriving, PieceError, Pieces, RequestBody, Stored};

/// Logged status of a client that did not send what it announced.
const TIMED_OUT: u16 = 408;

/// Reads the whole body, unless that was done before, and keeps it in the request.
///
/// # Errors
/// The response for a body that is too large, incomplete or malformed, and for a disk that does not take it; it is
/// logged.
pub async fn store(request: &mut Request) -> Result<RequestBody, Outcome> {
    let begun = match begin(request)? {
        Begun::Known(body) => return Ok(body),
        Begun::Fresh(begun) => begun,
    };
    prepare(request).await?;
    let stored = Box::pin(buffered::read(request, begun)).await?;
    let body = RequestBody::Stored(Rc::new(stored));
    request.body.set(body.clone());
    Ok(body)
}

/// Writes the whole body to a file. A part that was not read before is not kept in the request.
///
/// # Errors
/// As [`store`].
pub async fn write_to(request: &mut Request, file: &Temporary, pool: &Pool) -> Result<(), Outcome> {
    match begin(request)? {
        Begun::Known(body) => buffered::copy_to(request, &body, file, pool).await,
        Begun::Fresh(begun) => {
            prepare(request).await?;
            buffered::write_to(request, begun, file, pool).await
        }
    }
}

/// The start of reading a body.
enum Begun {
    /// It was read before.
    Known(RequestBody),
    /// These bytes have arrived already.
    Fresh(Bytes),
}

fn begin(request: &mut Request) -> Result<Begun, Outcome> {
    let begun = match request.body.take() {
        None if request.head.framing == Framing::None => {
            request.body.set(RequestBody::None);
            return Ok(Begun::Known(RequestBody::None));
        }
        None => Bytes::new(),
        Some(RequestBody::Passing(pipe)) => match pipe.reclaim() {
            Some(begun) => begun,
            None => return Err(gone(request)),
        },
        Some(known) => {
            request.body.set(known.clone());
            return Ok(Begun::Known(known));
        }
    };
    // After a failure there is no body.
    request.body.set(RequestBody::None);
    Ok(Begun::Fresh(begun))
}

/// Returns the body as a stream, or complete where it has arrived. A stream moves only while [`alongside`] runs.
///
/// # Errors
/// It was passed on before, and is not kept.
pub async fn pass(request: &mut Request) -> Result<RequestBody, Outcome> {
    match request.body.body().cloned() {
        None if request.head.framing == Framing::None => return store(request).await,
        None => {}
        Some(body) if body.is_replayable() => return Ok(body),
        Some(_) => return Err(gone(request)),
    }
    // After a failure there is no body.
    request.body.set(RequestBody::None);
    prepare(request).await?;
    let settings = &request.location().settings.client_body;
    let (size, mut begun) = (settings.client_body_buffer_size.0, Vec::new());
    read_ready(request, &mut begun, size)?;
    let begun = Bytes::from(begun);
    let framing = request.head.framing;
    let body = match request.transport.is_body_whole() {
        true => RequestBody::Stored(Rc::new(Stored::in_memory(framing, begun))),
        false => RequestBody::Passing(Rc::new(Pipe::new(framing, begun))),
    };
    request.body.set(body.clone());
    Ok(body)
}

/// Reads what has come already behind the content of `out`, until there are at least `enough` bytes: usually all of a small
/// body, which is then complete.
fn read_ready(request: &mut Request, out: &mut Vec<u8>, enough: u64) -> Result<(), Outcome> {
    while (out.len() as u64) < enough {
        let has_come = request.transport.try_read_body(out);
        if !has_come.map_err(|error| failed(request, error))? {
            break;
        }
    }
    Ok(())
}

/// The effect of a client that leaves on the work for its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// The work ends.
    Ends,
    /// It goes on (`proxy_ignore_client_abort`).
    IsIgnored,
}

/// Runs `work`, and meanwhile moves a streamed body, and notices when the client leaves.
///
/// # Errors
/// The work was dropped because the body is malformed or the client left; that is logged.
pub async fn alongside<F: Future>(
    request: &mut Request,
    leaving: Leaving,
    work: F,
) -> Result<F::Output, Outcome> {
    let mut work = pin!(work);
    let mut beside = pin!(beside(request, leaving));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending => beside.as_mut().poll(cx).map(Err),
    })
    .await
}

/// Has a streamed body of HTTP/1 move while the client takes nothing of the response, too.
pub(crate) fn pass_meanwhile(request: &mut Request) {
    if let Some(RequestBody::Passing(pipe)) = request.body.body() {
        request.transport.pass_meanwhile(Rc::clone(pipe));
    }
}

/// Moves a streamed body while the request's response is sent, until it has ended. `None`: it moves only while
/// [`alongside`] runs, or is not streamed.
pub(crate) fn apart(request: &Request) -> Option<Apart> {
    let Some(RequestBody::Passing(pipe)) = request.body.body() else {
        return None;
    };
    let body = request.transport.body_apart()?;
    Some(Box::pin(streaming::feed_apart(body, Rc::clone(pipe))))
}

/// A body that moves apart from its request.
pub(crate) type Apart = Pin<Box<dyn Future<Output = Result<(), wire::Error>>>>;

async fn beside(request: &mut Request, leaving: Leaving) -> Outcome {
    if let Some(RequestBody::Passing(pipe)) = request.body.body().cloned()
        && let Err(outcome) = Box::pin(streaming::feed(request, &pipe, leaving)).await
    {
        return outcome;
    }
    if leaving == Leaving::IsIgnored {
        std::future::pending::<()>().await;
    }
    request.transport.peer_closed().await;
    left(request)
}

/// The outcome of a request whose client has left.
fn left(request: &Request) -> Outcome {
    log_left(request);
    Outcome::Failed(Failure::new(CLIENT_CLOSED))
}

/// Logs that the client left while an upstream was being asked for it.
pub fn log_left(request: &Request) {
    request.log(Level::Info, &|out| {
        out.extend_from_slice(
            b"epoll_wait() reported that client prematurely closed connection, so upstream connection is closed too",
        );
    });
}

/// Checks before the first read: the location's limit, and the client's permission to send.
async fn prepare(request: &mut Request) -> Result<(), Outcome> {
    let settings = &request.location().settings;
    let limit = settings.client_body.client_max_body_size.0;
    let timeout = settings.sending.send_timeout.duration();
    request.transport.limit_body(limit);
    if !request.head.expects_continue() {
        return Ok(());
    }
    // Boxed: few clients wait for it.
    let invited = Box::pin(request.invite(timeout)).await;
    // Nothing may follow a part of it: no response, either.
    invited.map_err(|error| match failed(request, error) {
        Outcome::Failed(failure) => Outcome::Close(failure.status),
        other => other,
    })
}

/// Reads once from the client, behind the content of `out`; returns nothing only at the end.
async fn read_once(request: &mut Request, out: &mut Vec<u8>) -> Result<(), Outcome> {
    let settings = &request.location().settings.client_body;
    let timeout = settings.client_body_timeout.duration();
    match request.transport.read_body(timeout, out).await {
        Ok(()) => Ok(()),
        Err(BodyStop::Failed(error)) => Err(failed(request, error)),
        Err(BodyStop::GaveWay) => Err(gave_way(request)),
    }
}

/// The outcome of a request that is told to close while its body is stalled.
fn gave_way(request: &mut Request) -> Outcome {
    request.transport.close_after_response();
    request.log(Level::Info, &|out| {
        out.extend_from_slice(b"reusing connection while reading client request body");
    });
    Outcome::Close(TIMED_OUT)
}

/// The outcome of a request whose body cannot be read.
fn failed(request: &mut Request, error: wire::Error) -> Outcome {
    let (level, outcome) = match &error {
        wire::Error::Timeout => (Level::Info, Outcome::Failed(Failure::new(408))),
        wire::Error::Body(BodyFault::TooLarge { .. }) => {
            (Level::Error, Outcome::Failed(Failure::new(413)))
        }
        wire::Error::Body(BodyFault::Framing | BodyFault::Malformed) => {
            (Level::Error, Outcome::Failed(Failure::new(400)))
        }
        // The client is not there to read a response.
        _ => (Level::Info, Outcome::Close(400)),
    };
    request.transport.close_after_response();
    request.log(level, &|out| match &error {
        wire::Error::Body(fault) => out.extend_from_slice(fault.to_string().as_bytes()),
        wire::Error::Io(error) => out.extend_from_slice(
            format!(
                "{} while reading client request body",
                call_failed("recv", error)
            )
            .as_bytes(),
        ),
        other => {
            out.extend_from_slice(format!("{other} while reading client request body").as_bytes());
        }
    });
    outcome
}

/// 500 for a body that was passed on already and is needed once more.
fn gone(request: &Request) -> Outcome {
    request.log(Level::Error, &|out| {
        out.extend_from_slice(
            b"the request body was passed on unbuffered and is not there any more",
        );
    });
    Outcome::Failed(Failure::new(500))
}
