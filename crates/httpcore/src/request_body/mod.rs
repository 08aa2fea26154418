//! The body of a client's request: read whole, into memory or a file ([`store`]), or passed on as it comes ([`pass`]).
//!
//! Both give a [`RequestBody`], an owned value that needs no request. A body is read only where it is wanted: an unread
//! one is discarded after the response (`connection/finish.rs`). Invariants: memory is bounded by
//! `client_body_buffer_size` and one read, however slow the disk; a body is read from the socket once, by one reader.

mod buffered;
mod reader;
mod streaming;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use disk::{Pool, Temporary};
use logs::Level;
use message::Framing;
use wire::http1::body_decoder::BodyFault;

use crate::Failure;
use crate::outcome::Outcome;
use crate::request::Request;
use crate::transport::BodyStop;

pub use crate::failure::CLIENT_CLOSED;
pub use buffered::Stored;
pub use reader::{PieceError, Pieces};
use streaming::Pipe;

/// Logged status of a client that did not send what it announced.
const TIMED_OUT: u16 = 408;

/// A request's body for its readers. Cheap to clone; stays on its loop.
#[derive(Clone, Debug)]
pub enum RequestBody {
    /// There is none.
    None,
    /// The complete body, which can be read any number of times.
    Stored(Rc<Stored>),
    /// A body that is streamed as it arrives, and can be read once.
    Passing(Rc<Pipe>),
}

impl RequestBody {
    /// These bytes (`proxy_set_body`).
    #[must_use]
    pub fn bytes(bytes: Bytes) -> Self {
        let framing = Framing::Length(bytes.len() as u64);
        Self::Stored(Rc::new(Stored::in_memory(framing, bytes)))
    }

    /// The framing for an upstream: the length where that is known, chunks where it is not yet.
    #[must_use]
    pub fn framing(&self) -> Framing {
        match self {
            Self::None => Framing::None,
            Self::Stored(stored) => match stored.came_as() {
                Framing::None => Framing::None,
                Framing::Length(_) | Framing::Chunked => Framing::Length(stored.len()),
            },
            Self::Passing(pipe) => pipe.framing(),
        }
    }

    /// Whether it can be read from its start once more: a streamed body can, as long as nothing of it was taken.
    #[must_use]
    pub fn is_replayable(&self) -> bool {
        match self {
            Self::None | Self::Stored(_) => true,
            Self::Passing(pipe) => !pipe.is_touched(),
        }
    }

    /// Reads it from its start.
    #[must_use]
    pub fn pieces(&self) -> Pieces {
        Pieces::new(self.clone())
    }
}

/// The state of a request's body.
#[derive(Debug, Default)]
pub struct Arriving {
    body: Option<RequestBody>,
}

impl Arriving {
    /// The body of a request without a client: this one.
    #[must_use]
    pub fn given(body: RequestBody) -> Self {
        Self { body: Some(body) }
    }

    /// The part that was read, after the first reader asked for it.
    #[must_use]
    pub fn body(&self) -> Option<&RequestBody> {
        self.body.as_ref()
    }

    /// The whole body, once it was read.
    #[must_use]
    pub fn stored(&self) -> Option<&Stored> {
        match &self.body {
            Some(RequestBody::Stored(stored)) => Some(stored),
            _ => None,
        }
    }

    /// Withholds the body from every reader: it is thrown away like a refused one, and counts as empty.
    pub fn withhold(&mut self) {
        self.body = Some(RequestBody::bytes(Bytes::new()));
    }

    /// Whether it is passed on as it arrives: where it is not to its end, the connection cannot be kept.
    #[must_use]
    pub fn is_streamed(&self) -> bool {
        matches!(self.body, Some(RequestBody::Passing(_)))
    }
}

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
    request.body.body = Some(body.clone());
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
    let begun = match request.body.body.take() {
        None if request.head.framing == Framing::None => {
            request.body.body = Some(RequestBody::None);
            return Ok(Begun::Known(RequestBody::None));
        }
        None => Bytes::new(),
        Some(RequestBody::Passing(pipe)) => match pipe.reclaim() {
            Some(begun) => begun,
            None => return Err(gone(request)),
        },
        Some(known) => {
            request.body.body = Some(known.clone());
            return Ok(Begun::Known(known));
        }
    };
    // After a failure there is no body.
    request.body.body = Some(RequestBody::None);
    Ok(Begun::Fresh(begun))
}

/// Returns the body as a stream, or complete where it has arrived. A stream moves only while [`alongside`] runs.
///
/// # Errors
/// It was passed on before, and is not kept.
pub async fn pass(request: &mut Request) -> Result<RequestBody, Outcome> {
    match request.body.body.clone() {
        None if !request.head.has_body() => return store(request).await,
        None => {}
        Some(body) if body.is_replayable() => return Ok(body),
        Some(_) => return Err(gone(request)),
    }
    // After a failure there is no body.
    request.body.body = Some(RequestBody::None);
    prepare(request).await?;
    let begun = read_ahead(request)?;
    let framing = request.head.framing;
    let body = match request.transport.is_body_over() {
        true => RequestBody::Stored(Rc::new(Stored::in_memory(framing, begun))),
        false => RequestBody::Passing(Rc::new(Pipe::new(framing, begun))),
    };
    request.body.body = Some(body.clone());
    Ok(body)
}

/// The part that has arrived already, as far as the buffer holds it: usually all of a small body, which is then
/// complete.
fn read_ahead(request: &mut Request) -> Result<Bytes, Outcome> {
    let max = request
        .location()
        .settings
        .client_body
        .client_body_buffer_size
        .0;
    let mut begun = Vec::new();
    while (begun.len() as u64) < max {
        let piece = request.transport.try_read_body();
        match piece.map_err(|error| failed(request, error))? {
            Some(piece) => begun.extend_from_slice(&piece),
            None => break,
        }
    }
    Ok(begun.into())
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

async fn beside(request: &mut Request, leaving: Leaving) -> Outcome {
    if let Some(RequestBody::Passing(pipe)) = request.body.body.clone()
        && let Err(outcome) = Box::pin(streaming::feed(request, &pipe)).await
    {
        return outcome;
    }
    if leaving == Leaving::IsIgnored {
        std::future::pending::<()>().await;
    }
    request.transport.peer_closed().await;
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
    let invited = request.transport.invite(timeout).await;
    invited.map_err(|error| failed(request, error))
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
        wire::Error::Body(BodyFault::Framing) => (Level::Error, Outcome::Failed(Failure::new(400))),
        // The client is not there to read a response.
        _ => (Level::Info, Outcome::Close(400)),
    };
    request.transport.close_after_response();
    request.log(level, &|out| match &error {
        wire::Error::Body(fault) => out.extend_from_slice(fault.to_string().as_bytes()),
        wire::Error::Io(error) => out.extend_from_slice(
            format!("recv() failed ({error}) while reading client request body").as_bytes(),
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
