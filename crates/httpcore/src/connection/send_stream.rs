//! Sending a body that comes in pieces: each as it comes, little ones that are there at once together.
//!
//! Not here: how one piece is sent ([`super::send`]). Invariants: as there; a piece never waits for another.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use disk::OpenFile;
use message::{Body, BodyError, Chunk, Header};
use wire::turn;

use crate::failure::Failure;
use crate::outcome::Outcome;
use crate::request::Request;
use crate::request_body::{self, Apart, Leaving};
use crate::transport::OtherStreams;

use super::send::{Delivery, Place, send_chunk, send_head, send_piece};
use super::send_error::Stop;

/// Maximum bytes of pieces that are sent as one, and of a part of a file that is read for it rather than sent with `sendfile`.
const JOINED_MAX: usize = 16 << 10;
/// Maximum number of pieces that are sent as one.
const JOINED_PIECES_MAX: usize = 64;

/// What a body gives next; `None` at its end.
type Next = Option<Result<Chunk<Rc<OpenFile>>, BodyError>>;

/// Sends all of a body.
pub(super) async fn send_stream(
    request: &mut Request,
    stream: &mut Body<Rc<OpenFile>>,
    delivery: Delivery,
) -> Result<(), Stop> {
    let mut next = match send_first(request, stream, delivery).await? {
        Sent::Piece(next) => next,
        Sent::End => return Ok(()),
    };
    while let Some(chunk) = next {
        let chunk = chunk.map_err(Stop::Body)?;
        next = match from_memory(request, delivery, chunk) {
            Chunk::Bytes(bytes) if delivery.rate.per_second == 0 => {
                match send_joined(request, stream, delivery, bytes, false).await? {
                    Sent::Piece(next) => next,
                    Sent::End => return Ok(()),
                }
            }
            chunk => {
                let beside = Beside::of(request, stream);
                let send = Box::pin(send_chunk(request, chunk, delivery));
                ahead(stream, beside, send).await?;
                // Not between the read of a piece and its write.
                turn::go_on().await;
                next_piece(request, delivery, stream).await?
            }
        };
    }
    end(request, delivery, stream).await
}

/// What was sent of a body.
enum Sent {
    /// A piece; and what comes next.
    Piece(Next),
    /// Its end too.
    End,
}

/// Sends the head, and the first piece with it where that is there.
async fn send_first(
    request: &mut Request,
    stream: &mut Body<Rc<OpenFile>>,
    delivery: Delivery,
) -> Result<Sent, Stop> {
    if stream.takes_request() {
        request_body::pass_meanwhile(request);
    }
    let first = poll_fn(|cx| {
        Poll::Ready(match stream.poll_next(cx) {
            Poll::Ready(chunk) => Some(chunk),
            Poll::Pending => None,
        })
    });
    let next = match first.await {
        Some(Some(Err(error))) if is_without_answer(delivery, &error) => {
            return Err(Stop::Body(error));
        }
        Some(Some(Ok(chunk))) => match from_memory(request, delivery, chunk) {
            Chunk::Bytes(bytes) if delivery.rate.per_second == 0 => {
                return send_joined(request, stream, delivery, bytes, true).await;
            }
            chunk => Some(Some(Ok(chunk))),
        },
        None if delivery.delays_head => match next_piece(request, delivery, stream).await? {
            Some(Err(error)) => return Err(Stop::Body(error)),
            next => Some(next),
        },
        next => next,
    };
    let beside = Beside::of(request, stream);
    ahead(stream, beside, send_head(request, delivery, &[])).await?;
    Ok(Sent::Piece(match next {
        Some(next) => next,
        None => next_piece(request, delivery, stream).await?,
    }))
}

/// Sends a piece from memory together with what little is ready behind it, and with the end where that is known to follow.
async fn send_joined(
    request: &mut Request,
    stream: &mut Body<Rc<OpenFile>>,
    delivery: Delivery,
    mut piece: Bytes,
    has_head: bool,
) -> Result<Sent, Stop> {
    let following =
        poll_fn(|cx| Poll::Ready(join(request, stream, delivery, &mut piece, cx))).await;
    let is_last = following.is_none() && stream.is_over();
    let place = Place {
        has_head,
        has_end: delivery.has_explicit_end && !delivery.has_trailers && is_last,
    };
    let beside = Beside::of(request, stream);
    ahead(stream, beside, send_piece(request, delivery, &piece, place)).await?;
    if place.has_end {
        return Ok(Sent::End);
    }
    turn::go_on().await;
    Ok(Sent::Piece(match following {
        Some(next) => next,
        None => next_piece(request, delivery, stream).await?,
    }))
}

/// Appends to `piece` what is ready behind it, up to [`JOINED_MAX`] in sum; returns what was taken of the stream besides.
fn join(
    request: &Request,
    stream: &mut Body<Rc<OpenFile>>,
    delivery: Delivery,
    piece: &mut Bytes,
    cx: &mut Context<'_>,
) -> Option<Next> {
    let mut joined = BytesMut::new();
    let mut following = None;
    for _ in 0..JOINED_PIECES_MAX {
        let len = piece.len().max(joined.len());
        if len >= JOINED_MAX || stream.is_over() {
            break;
        }
        let Poll::Ready(next) = stream.poll_next(cx) else {
            break;
        };
        match next.map(|chunk| chunk.map(|chunk| from_memory(request, delivery, chunk))) {
            Some(Ok(Chunk::Bytes(bytes))) if len + bytes.len() <= JOINED_MAX => {
                if joined.is_empty() {
                    joined.extend_from_slice(piece);
                }
                joined.extend_from_slice(&bytes);
            }
            next => {
                following = Some(next);
                break;
            }
        }
    }
    if !joined.is_empty() {
        *piece = joined.freeze();
    }
    following
}

/// A piece as it is to be sent: what is little of a file, and in the page cache, is read.
fn from_memory(
    request: &Request,
    delivery: Delivery,
    chunk: Chunk<Rc<OpenFile>>,
) -> Chunk<Rc<OpenFile>> {
    match chunk {
        Chunk::File(range) if range.len <= JOINED_MAX as u64 && delivery.rate.per_second == 0 => {
            let disk = &request.client.loop_.disk;
            match disk.try_read(&range.file, range.offset, range.len as usize) {
                Ok(Ok(bytes)) if bytes.len() as u64 == range.len => Chunk::Bytes(bytes),
                _ => Chunk::File(range),
            }
        }
        chunk => chunk,
    }
}

/// What goes on while a piece is sent.
struct Beside {
    /// The rest of a request's body, where the response's server is to get it meanwhile.
    body: Option<Apart>,
    /// Streams that may go before: while they do, the client is not the slow one, and the body is not fetched ahead of it.
    others: Option<OtherStreams>,
}

impl Beside {
    fn of(request: &Request, stream: &Body<Rc<OpenFile>>) -> Beside {
        Beside {
            body: match stream.takes_request() {
                true => request_body::apart(request),
                false => None,
            },
            others: request.transport.other_streams(),
        }
    }
}

/// Sends data. While the client does not take it, the following body may be fetched, and that of the request goes on: a
/// client may send all of it before it takes anything.
async fn ahead(
    stream: &mut Body<Rc<OpenFile>>,
    mut beside: Beside,
    send: impl Future<Output = Result<(), Stop>>,
) -> Result<(), Stop> {
    let mut send = pin!(send);
    poll_fn(|cx| {
        let sent = send.as_mut().poll(cx);
        if sent.is_ready() {
            return sent;
        }
        // A body that breaks off is told of when the next piece is waited for.
        if let Some(moving) = &mut beside.body
            && moving.as_mut().poll(cx).is_ready()
        {
            beside.body = None;
        }
        let others = beside.others.as_mut();
        if !others.is_some_and(|others| others.go_first(cx)) {
            stream.poll_ahead(cx);
        }
        Poll::Pending
    })
    .await
}

/// Whether the client gets nothing, not even the head. As nginx: when an upstream connection was lost, the part
/// received before is passed on; a malformed body never becomes a response that looks complete, as it would to an
/// HTTP/1.0 client.
fn is_without_answer(delivery: Delivery, error: &BodyError) -> bool {
    delivery.delays_head || matches!(error, BodyError::Invalid | BodyError::Io(_))
}

/// The next piece of a body. A response that an upstream sends for this client alone is given up when the client
/// leaves.
pub(super) async fn next_piece(
    request: &mut Request,
    delivery: Delivery,
    stream: &mut Body<Rc<OpenFile>>,
) -> Result<Option<Result<Chunk<Rc<OpenFile>>, BodyError>>, Stop> {
    if stream.takes_request() {
        let next = poll_fn(|cx| stream.poll_next(cx));
        // Boxed: it is rare.
        let next = Box::pin(request_body::alongside(request, Leaving::Ends, next)).await;
        return next.map_err(|outcome| match outcome {
            Outcome::Failed(Failure { status: 408, .. }) | Outcome::Close(408) => {
                Stop::LoggedTimeout
            }
            _ => Stop::Logged,
        });
    }
    let mut left = pin!(request.transport.peer_closed());
    poll_fn(|cx| match stream.poll_next(cx) {
        Poll::Ready(next) => Poll::Ready(Ok(next)),
        Poll::Pending if delivery.ends_with_client => {
            left.as_mut().poll(cx).map(|()| Err(Stop::Left))
        }
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// Ends a body whose end is explicit, with its trailers.
pub(super) async fn end(
    request: &mut Request,
    delivery: Delivery,
    body: &mut Body<Rc<OpenFile>>,
) -> Result<(), Stop> {
    if !delivery.has_explicit_end {
        return Ok(());
    }
    let response = request.response.as_mut().expect("transmit put it there");
    let first = response.trailers.len();
    if let Body::Stream(source) = body {
        for trailer in source.trailers() {
            response.trailers.push(trailer.name, trailer.value);
        }
    }
    if let Some(add) = request.late_trailers.filter(|_| delivery.has_trailers) {
        add(request);
    }
    let response = request.response.as_ref().expect("transmit put it there");
    let trailers: Vec<Header> = response.trailers.iter().skip(first).cloned().collect();
    let before = request.transport.sent();
    request.transport.end(delivery.timeout, &trailers).await?;
    request.count(before, 0);
    Ok(())
}
