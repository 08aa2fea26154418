//! Sending a response: head and body, with as few calls as possible.
//!
//! Not here: how bytes are serialised (`wire`), where a file's pages are (`disk`). Invariant: only bytes that the
//! socket took are counted in [`Sent`](crate::request::Sent).

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, Bytes};
use disk::OpenFile;
use message::response::ClientAbort;
use message::{Body, BodyError, Chunk, Header, Version};
use wire::http1::response_writer;
use wire::rate::Rate;
use wire::turn;

use crate::loops::current_request;
use crate::request::Request;
use crate::{Response, absolute_redirect};

use super::directives::SizeTemplate;
use super::finish::{After, invite};
use super::is_http11;
use super::send_error::{Stop, stopped};
use super::send_file::{allowed, send_copy, send_file, send_whole_file};

/// Maximum size of a file that is read into memory and sent with the head rather than with `sendfile`, in bytes.
pub const TOGETHER_MAX: u64 = 64 << 10;

/// The framing of a response.
#[derive(Clone, Copy)]
pub(super) struct Framing {
    is_chunked: bool,
    has_body: bool,
    has_trailers: bool,
    delays_head: bool,
    ends_with_client: bool,
    pub(super) rate: Rate,
    pub(super) timeout: Duration,
}

/// The result of [`start`].
pub enum Started {
    /// The kernel has the response, or it cannot be sent.
    Done(After),
    /// The rest has to wait.
    Left(Left),
}

/// The rest of a response.
pub struct Left {
    framing: Framing,
    /// Whether a send was tried: then `head` and `body` are what the socket did not take.
    is_begun: bool,
    head: Vec<u8>,
    body: Body<Rc<OpenFile>>,
}

/// Sends as much of the response as needs no waiting: most are sent completely. The request then records what was sent,
/// and the response's head.
pub fn start(request: &mut Request, mut response: Box<Response>) -> Started {
    current_request::behind(current_request::Phase::Sending);
    absolute_redirect::complete(request, &mut response);
    let framing = frame(request, &mut response);
    let mut left = Left {
        framing,
        is_begun: false,
        head: Vec::new(),
        body: std::mem::take(&mut response.body),
    };
    request.response = Some(response);
    if !is_simple(request, &left) {
        return Started::Left(left);
    }
    left.is_begun = true;
    match try_send(request, &mut left) {
        Ok(true) => Started::Done(sent(request)),
        Ok(false) => Started::Left(left),
        Err(stop) => Started::Done(stopped(request, stop)),
    }
}

/// Whether it is a head and a body in memory, to be sent as they are.
fn is_simple(request: &Request, left: &Left) -> bool {
    let is_in_memory = match &left.body {
        Body::Empty | Body::Once(Chunk::Bytes(_)) => true,
        Body::Once(Chunk::File(range)) => !left.framing.has_body || range.file.has_copy(),
        Body::Stream(_) => !left.framing.has_body,
        Body::Tunnel => false,
    };
    is_in_memory
        && !left.framing.is_chunked
        && left.framing.rate.per_second == 0
        && request.head.version >= Version::HTTP_10
        && request.location().settings.sending.tcp_nodelay
        && !must_invite(request)
}

/// Tries to send the rest; returns whether all of it is sent.
fn try_send(request: &mut Request, left: &mut Left) -> Result<bool, Stop> {
    if !left.framing.has_body {
        left.body = Body::Empty;
    }
    request
        .wire
        .hold_next(matches!(left.body, Body::Once(Chunk::File(_))));
    match &mut left.body {
        Body::Once(Chunk::Bytes(bytes)) => {
            let unsent = send_piece_now(request, left.framing, bytes, WITH_HEAD)?;
            left.head = unsent.head;
            bytes.advance(unsent.gone);
            Ok(left.head.is_empty() && bytes.is_empty())
        }
        Body::Once(Chunk::File(range)) => {
            left.head = send_piece_now(request, left.framing, &[], WITH_HEAD)?.head;
            if left.head.is_empty() {
                send_copy(request, range)?;
            }
            Ok(range.len == 0)
        }
        _ => {
            left.head = send_piece_now(request, left.framing, &[], WITH_HEAD)?.head;
            Ok(left.head.is_empty())
        }
    }
}

/// Sends the rest that [`start`] left.
pub async fn go_on(request: &mut Request, left: Left) -> After {
    let framing = left.framing;
    let sent = if left.is_begun {
        send_rest(request, left).await
    } else {
        send_whole(request, left.body, framing).await
    };
    match sent {
        Ok(()) => self::sent(request),
        Err(stop) => stopped(request, stop),
    }
}

fn sent(request: &mut Request) -> After {
    request.is_complete = true;
    if request.keepalive {
        After::Keep
    } else {
        After::close()
    }
}

/// Sends the part of head and body that the socket did not take.
async fn send_rest(request: &mut Request, left: Left) -> Result<(), Stop> {
    let before = request.wire.sent();
    let outcome = request
        .wire
        .send_bytes(left.framing.timeout, &left.head)
        .await;
    request.count(before, left.head.len() as u64);
    outcome?;
    match left.body {
        Body::Once(Chunk::Bytes(bytes)) => send_bytes(request, bytes, left.framing).await,
        Body::Once(Chunk::File(range)) => send_file(request, range, left.framing).await,
        _ => Ok(()),
    }
}

/// Whether the client waits for a `100 Continue` before it sends its body.
fn must_invite(request: &Request) -> bool {
    request.keepalive
        && request.head.expects_continue()
        && request.head.has_body()
        && request.error_status.is_none()
}

async fn send_whole(
    request: &mut Request,
    body: Body<Rc<OpenFile>>,
    framing: Framing,
) -> Result<(), Stop> {
    if must_invite(request) {
        invite(request, framing.timeout).await?;
    }
    let gathers = !request.location().settings.sending.tcp_nodelay;
    if gathers {
        let _ = request.wire.stream.set_nodelay(false);
    }
    let sent = send(request, body, framing).await;
    if gathers {
        // The next response may belong to another location. The rest goes out now.
        let _ = request.wire.stream.set_nodelay(true);
    }
    sent
}

/// Decides on chunks and on keeping the connection.
fn frame(request: &mut Request, response: &mut Response) -> Framing {
    let settings = &request
        .generation
        .settings
        .location(request.location)
        .settings;
    let status = response.status;
    let is_bodiless = matches!(status, 100..=199 | 204 | 304);
    let has_trailers = request.late_trailers.is_some();
    let mut is_chunked = false;
    if !matches!(status, 200 | 206 | 304) {
        response.last_modified = None;
    }
    if status == 204 {
        response.content_type = Bytes::new();
        response.content_length = None;
    }
    // A 200 to CONNECT is followed by the tunnel, not by a body.
    let is_tunnel = matches!(response.body, Body::Tunnel);
    let may_chunk = !is_bodiless && !request.is_head() && !is_tunnel;
    if may_chunk && (response.content_length.is_none() || has_trailers) {
        if !is_http11(&request.head) {
            request.keepalive &= response.content_length.is_some();
        } else if settings.sending.chunked_transfer_encoding {
            if has_trailers {
                response.content_length = None;
            }
            is_chunked = true;
        } else if response.content_length.is_none() {
            request.keepalive = false;
        }
    }
    request.is_chunked = is_chunked;
    request.keepalive &= !request.client.loop_.is_leaving();
    let size = |size: &Option<SizeTemplate>| size.as_ref().map_or(0, |size| size.bytes(request));
    let per_second = request
        .limit_rate
        .get()
        .unwrap_or_else(|| size(&settings.sending.limit_rate));
    let after = if per_second == 0 {
        0
    } else {
        size(&settings.sending.limit_rate_after)
    };
    Framing {
        is_chunked,
        has_body: !is_bodiless && !request.is_head(),
        has_trailers: has_trailers && is_chunked,
        delays_head: response.delays_head,
        ends_with_client: response.client_abort == ClientAbort::EndsBody,
        rate: Rate { per_second, after },
        timeout: settings.sending.send_timeout.duration(),
    }
}

async fn send(
    request: &mut Request,
    body: Body<Rc<OpenFile>>,
    framing: Framing,
) -> Result<(), Stop> {
    if matches!(body, Body::Tunnel) {
        request.keepalive = false;
        send_head(request, framing, &[]).await?;
        if let Some(tunnel) = request.tunnel.take() {
            tunnel.run(request).await;
        }
        return Ok(());
    }
    if !framing.has_body {
        return send_head(request, framing, &[]).await;
    }
    match body {
        Body::Empty | Body::Tunnel => {
            send_head(request, framing, &[]).await?;
            end(request, framing, &mut Body::Empty).await
        }
        Body::Once(Chunk::Bytes(bytes)) if !framing.is_chunked && framing.rate.per_second == 0 => {
            send_head(request, framing, &bytes).await
        }
        Body::Once(Chunk::File(range)) if !framing.is_chunked && framing.rate.per_second == 0 => {
            send_whole_file(request, range, framing).await
        }
        mut stream => match send_stream(request, &mut stream, framing).await? {
            Extent::End => Ok(()),
            Extent::Chunks => end(request, framing, &mut stream).await,
        },
    }
}

/// The part of a body's framing that was sent.
enum Extent {
    /// Its chunks: the last chunk is still to be sent.
    Chunks,
    /// Its end too.
    End,
}

/// The position of a piece in a response.
#[derive(Clone, Copy, Default)]
struct Place {
    /// Whether the head goes before it.
    has_head: bool,
    /// Whether the end of the chunked body goes after it.
    has_end: bool,
}

const WITH_HEAD: Place = Place {
    has_head: true,
    has_end: false,
};

/// Whether the end of a body can go out with the piece that was just taken.
fn ends_with_this(framing: Framing, stream: &Body<Rc<OpenFile>>) -> bool {
    framing.is_chunked && !framing.has_trailers && stream.is_over()
}

/// Sends piece after piece. Data that is available when the head is due goes with it, and the end goes with the last
/// piece where that is known to be the last.
async fn send_stream(
    request: &mut Request,
    stream: &mut Body<Rc<OpenFile>>,
    framing: Framing,
) -> Result<Extent, Stop> {
    let first = poll_fn(|cx| {
        Poll::Ready(match stream.poll_next(cx) {
            Poll::Ready(chunk) => Some(chunk),
            Poll::Pending => None,
        })
    });
    let mut next = match first.await {
        Some(Some(Err(error))) if is_without_answer(framing, &error) => {
            return Err(Stop::Body(error));
        }
        Some(Some(Ok(Chunk::Bytes(bytes)))) if framing.rate.per_second == 0 => {
            let place = Place {
                has_head: true,
                has_end: ends_with_this(framing, stream),
            };
            ahead(stream, send_piece(request, framing, &bytes, place)).await?;
            if place.has_end {
                return Ok(Extent::End);
            }
            next_piece(request, framing, stream).await?
        }
        Some(chunk) => {
            ahead(stream, send_head(request, framing, &[])).await?;
            chunk
        }
        None if framing.delays_head => match next_piece(request, framing, stream).await? {
            Some(Err(error)) => return Err(Stop::Body(error)),
            next => {
                send_head(request, framing, &[]).await?;
                next
            }
        },
        None => {
            ahead(stream, send_head(request, framing, &[])).await?;
            next_piece(request, framing, stream).await?
        }
    };
    while let Some(chunk) = next {
        match chunk.map_err(Stop::Body)? {
            Chunk::Bytes(bytes) if framing.rate.per_second == 0 => {
                let place = Place {
                    has_head: false,
                    has_end: ends_with_this(framing, stream),
                };
                ahead(stream, send_piece(request, framing, &bytes, place)).await?;
                if place.has_end {
                    return Ok(Extent::End);
                }
            }
            chunk => ahead(stream, Box::pin(send_chunk(request, chunk, framing))).await?,
        }
        // Not between the read of a piece and its write.
        turn::go_on().await;
        next = next_piece(request, framing, stream).await?;
    }
    Ok(Extent::Chunks)
}

/// Sends data. While the client does not take it, the following body may be fetched.
async fn ahead(
    stream: &mut Body<Rc<OpenFile>>,
    send: impl Future<Output = Result<(), Stop>>,
) -> Result<(), Stop> {
    let mut send = pin!(send);
    poll_fn(|cx| {
        let sent = send.as_mut().poll(cx);
        if sent.is_pending() {
            stream.poll_ahead(cx);
        }
        sent
    })
    .await
}

/// Whether the client gets nothing, not even the head. As nginx: when an upstream connection was lost, the part
/// received before is passed on; a malformed body never becomes a response that looks complete, as it would to an
/// HTTP/1.0 client.
fn is_without_answer(framing: Framing, error: &BodyError) -> bool {
    framing.delays_head || matches!(error, BodyError::Invalid | BodyError::Io(_))
}

/// The next piece of a body. A response that an upstream sends for this client alone is given up when the client
/// leaves.
async fn next_piece(
    request: &Request,
    framing: Framing,
    stream: &mut Body<Rc<OpenFile>>,
) -> Result<Option<Result<Chunk<Rc<OpenFile>>, BodyError>>, Stop> {
    let mut left = pin!(request.wire.peer_closed());
    poll_fn(|cx| match stream.poll_next(cx) {
        Poll::Ready(next) => Poll::Ready(Ok(next)),
        Poll::Pending if framing.ends_with_client => {
            left.as_mut().poll(cx).map(|()| Err(Stop::Left))
        }
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// Sends the head, and a body in memory with the same call.
pub(super) async fn send_head(
    request: &mut Request,
    framing: Framing,
    body: &[u8],
) -> Result<(), Stop> {
    send_piece(request, framing, body, WITH_HEAD).await
}

/// Sends a piece of a body in memory, framed as the body is, with the head before it and the end after it where these
/// are due: with one call, if the socket takes it.
async fn send_piece(
    request: &mut Request,
    framing: Framing,
    body: &[u8],
    place: Place,
) -> Result<(), Stop> {
    let left = send_piece_now(request, framing, body, place)?;
    for (bytes, is_head) in [
        (&left.head[..], true),
        (&body[left.gone..], false),
        (left.behind, false),
    ] {
        let before = request.wire.sent();
        let outcome = request.wire.send_bytes(framing.timeout, bytes).await;
        request.count(before, if is_head { left.head_bytes } else { 0 });
        outcome?;
    }
    Ok(())
}

/// The part of a piece that the socket did not take at once.
struct Unsent {
    /// The head, and the framing before the piece.
    head: Vec<u8>,
    /// Bytes of `head` that belong to the response's head.
    head_bytes: u64,
    /// Bytes of the piece that were sent.
    gone: usize,
    /// The rest of the framing after it.
    behind: &'static [u8],
}

/// Sends as much of head and piece as the socket takes at once.
fn send_piece_now(
    request: &mut Request,
    framing: Framing,
    body: &[u8],
    place: Place,
) -> Result<Unsent, Stop> {
    let has_head = place.has_head && request.head.version >= Version::HTTP_10;
    let is_chunk = framing.is_chunked && !body.is_empty();
    let behind: &'static [u8] = match (is_chunk, place.has_end) {
        (true, true) => b"\r\n0\r\n\r\n",
        (true, false) => response_writer::CRLF,
        (false, true) => b"0\r\n\r\n",
        (false, false) => &[],
    };
    let before = request.wire.sent();
    let mut head_bytes = 0;
    let location = request.generation.settings.location(request.location);
    let connection = match (
        request.response.as_ref().map_or(0, |r| r.status),
        request.keepalive,
    ) {
        (101, _) => response_writer::ConnectionHeader::Upgrade,
        (_, true) => response_writer::ConnectionHeader::KeepAlive(
            location.settings.keepalive.keepalive_timeout.told,
        ),
        (_, false) => response_writer::ConnectionHeader::Close,
    };
    let date = request.client.loop_.wire.date();
    let context = response_writer::HeadContext {
        server_line: location.settings.identity.line().as_bytes(),
        date: &date,
        connection,
        is_chunked: framing.is_chunked,
    };
    let response = request.response.as_ref().expect("start put it there");
    let write = |out: &mut Vec<u8>| {
        if has_head {
            response_writer::head(out, response, &context);
            head_bytes = out.len() as u64;
        }
        if is_chunk {
            response_writer::chunk_head(out, body.len() as u64);
        }
    };
    let sent = request.wire.send_now(write, body, behind);
    request.count(before, head_bytes);
    let (head, gone, behind_gone) = sent?;
    Ok(Unsent {
        head_bytes: head_bytes.min(head.len() as u64),
        head,
        gone,
        behind: &behind[behind_gone..],
    })
}

/// Sends one piece of a body.
async fn send_chunk(
    request: &mut Request,
    chunk: Chunk<Rc<OpenFile>>,
    framing: Framing,
) -> Result<(), Stop> {
    if chunk.is_empty() {
        return Ok(());
    }
    let before = request.wire.sent();
    if framing.is_chunked {
        let len = chunk.len();
        request
            .wire
            .send(framing.timeout, |out| response_writer::chunk_head(out, len))
            .await?;
        request.count(before, 0);
    }
    match chunk {
        Chunk::File(range) => send_file(request, range, framing).await?,
        Chunk::Bytes(bytes) => send_bytes(request, bytes, framing).await?,
    }
    if framing.is_chunked {
        let before = request.wire.sent();
        request
            .wire
            .send_bytes(framing.timeout, response_writer::CRLF)
            .await?;
        request.count(before, 0);
    }
    Ok(())
}

async fn send_bytes(request: &mut Request, mut bytes: Bytes, framing: Framing) -> Result<(), Stop> {
    let begun = request.sent.get().head_bytes;
    while !bytes.is_empty() {
        let now = allowed(request, framing, begun).await;
        let part = bytes.split_to(bytes.len().min(usize::try_from(now).unwrap_or(usize::MAX)));
        let before = request.wire.sent();
        let sent = request.wire.send_bytes(framing.timeout, &part).await;
        request.count(before, 0);
        sent?;
    }
    Ok(())
}

/// Ends a chunked body, with its trailers.
async fn end(
    request: &mut Request,
    framing: Framing,
    body: &mut Body<Rc<OpenFile>>,
) -> Result<(), Stop> {
    if !framing.is_chunked {
        return Ok(());
    }
    let response = request.response.as_mut().expect("transmit put it there");
    let first = response.trailers.len();
    if let Body::Stream(source) = body {
        for trailer in source.trailers() {
            response.trailers.push(trailer.name, trailer.value);
        }
    }
    if let Some(add) = request.late_trailers.filter(|_| framing.has_trailers) {
        add(request);
    }
    let response = request.response.as_ref().expect("transmit put it there");
    let trailers: Vec<Header> = response.trailers.iter().skip(first).cloned().collect();
    let before = request.wire.sent();
    request
        .wire
        .send(framing.timeout, |out| {
            response_writer::last_chunk(out, &trailers)
        })
        .await?;
    request.count(before, 0);
    Ok(())
}
