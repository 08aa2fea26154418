//! Sending a response: head and body, with as few calls as possible.
//!
//! Not here: how bytes are serialised (`wire`), where a file's pages are (`disk`). Invariant: only bytes that the
//! socket took are counted in [`Sent`](crate::request::Sent).

use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use disk::OpenFile;
use message::response::ClientAbort;
use message::{Body, Chunk};
use runtime::timing::current_request;
use wire::rate::Rate;

use crate::Response;
use crate::connection::absolute_redirect;
use crate::request::Request;
use crate::transport::{Extent, Head, Piece, TunnelOutcome, Unsent};

use super::finish::After;
use super::send_error::{Stop, stopped};
use super::send_file::{allowed, send_copy, send_file};
use super::send_stream::{end, send_stream};
use crate::settings::connections::SizeTemplate;

pub use super::send_rest::go_on;

/// How a response is delivered.
#[derive(Clone, Copy)]
pub(super) struct Delivery {
    /// Whether the body's end is sent by itself or with the last piece, rather than told by the head.
    pub(super) has_explicit_end: bool,
    pub(super) has_body: bool,
    pub(super) has_trailers: bool,
    pub(super) delays_head: bool,
    pub(super) ends_with_client: bool,
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
    pub(super) delivery: Delivery,
    /// Whether a send was tried: then `head` and `body` are what the socket did not take.
    pub(super) is_begun: bool,
    pub(super) head: Vec<u8>,
    pub(super) body: Body<Rc<OpenFile>>,
}

/// Sends as much of the response as needs no waiting: most are sent completely. The request then records what was sent,
/// and the response's head.
pub fn start(request: &mut Request, mut response: Box<Response>) -> Started {
    current_request::behind(current_request::Phase::Sending);
    absolute_redirect::complete(request, &mut response);
    let delivery = frame(request, &mut response);
    let mut left = Left {
        delivery,
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
        Body::Once(Chunk::File(range)) => !left.delivery.has_body || range.file.has_copy(),
        Body::Stream(_) => !left.delivery.has_body,
        Body::Tunnel => false,
    };
    is_in_memory
        && !left.delivery.has_explicit_end
        && left.delivery.rate.per_second == 0
        && request.transport.sends_at_once()
        && request.location().settings.sending.tcp_nodelay
        && !must_invite(request)
}

/// Tries to send the rest; returns whether all of it is sent.
fn try_send(request: &mut Request, left: &mut Left) -> Result<bool, Stop> {
    if !left.delivery.has_body {
        left.body = Body::Empty;
    }
    request
        .transport
        .hold_next(matches!(left.body, Body::Once(Chunk::File(_))));
    match &mut left.body {
        Body::Once(Chunk::Bytes(bytes)) => {
            let unsent = send_piece_now(request, bytes, WITH_HEAD)?;
            left.head = unsent.head;
            bytes.advance(unsent.gone);
            Ok(left.head.is_empty() && bytes.is_empty())
        }
        Body::Once(Chunk::File(range)) => {
            left.head = send_piece_now(request, &[], WITH_HEAD)?.head;
            if left.head.is_empty() {
                send_copy(request, range)?;
            }
            Ok(range.len == 0)
        }
        _ => {
            left.head = send_piece_now(request, &[], WITH_HEAD)?.head;
            Ok(left.head.is_empty())
        }
    }
}

pub(super) fn sent(request: &mut Request) -> After {
    request.is_complete = true;
    if request.transport.is_persistent() {
        After::Keep
    } else {
        After::Close
    }
}

/// Whether the client waits for a `100 Continue` before it sends its body.
pub(super) fn must_invite(request: &Request) -> bool {
    request.transport.is_persistent()
        && request.head.expects_continue()
        && request.head.has_body()
        && request.error_status.is_none()
}

/// Completes the head, and decides how the response is delivered.
fn frame(request: &mut Request, response: &mut Response) -> Delivery {
    let settings = &request
        .generation
        .settings
        .location(request.location)
        .settings;
    let status = response.status;
    let is_bodiless = matches!(status, 100..=199 | 204 | 304);
    let has_trailers = request.late_trailers.is_some();
    response.last_modified = response.sent_last_modified();
    if status == 204 {
        response.content_type = Bytes::new();
        response.content_length = None;
    }
    // A 200 to CONNECT is followed by the tunnel, not by a body.
    let is_tunnel = matches!(response.body, Body::Tunnel);
    let has_body = !is_bodiless && !request.is_head();
    let extent = Extent {
        has_body: has_body && !is_tunnel,
        has_trailers: has_trailers || response.body.may_have_trailers(),
        may_chunk: settings.sending.chunked_transfer_encoding,
        frame_max: settings.sending.http2_chunk_size.bytes(),
    };
    let has_explicit_end = request.transport.frame(response, &extent);
    // What a client makes of a 101 that it did not ask for is not known: nothing follows it.
    if request.client.loop_.is_leaving() || status == 101 {
        request.transport.close_after_response();
    }
    let size = |size: &Option<SizeTemplate>| size.as_ref().map_or(0, |size| request.size(size));
    let per_second = request
        .limit_rate
        .get()
        .unwrap_or_else(|| size(&settings.sending.limit_rate));
    let after = if per_second == 0 {
        0
    } else {
        size(&settings.sending.limit_rate_after)
    };
    Delivery {
        has_explicit_end,
        has_body,
        has_trailers: has_trailers && has_explicit_end,
        delays_head: response.delays_head,
        ends_with_client: response.client_abort == ClientAbort::EndsBody,
        rate: Rate { per_second, after },
        timeout: settings.sending.send_timeout.duration(),
    }
}

pub(super) async fn send(
    request: &mut Request,
    body: Body<Rc<OpenFile>>,
    delivery: Delivery,
) -> Result<(), Stop> {
    if matches!(body, Body::Tunnel) {
        request.transport.close_after_response();
        send_head(request, delivery, &[]).await?;
        if let Some(tunnel) = request.tunnel.take() {
            let outcome = match request.transport.tunnel(delivery.timeout) {
                Some(client) => tunnel.run(client).await,
                None => TunnelOutcome::default(),
            };
            request.add_sent(outcome.sent);
            if outcome.has_client_timed_out {
                return Err(Stop::LoggedTimeout);
            }
            request.transport.end_tunnel();
        }
        return Ok(());
    }
    if !delivery.has_body {
        return send_head(request, delivery, &[]).await;
    }
    match body {
        Body::Empty | Body::Tunnel => {
            send_head(request, delivery, &[]).await?;
            end(request, delivery, &mut Body::Empty).await
        }
        Body::Once(Chunk::Bytes(bytes))
            if !delivery.has_explicit_end && delivery.rate.per_second == 0 =>
        {
            send_head(request, delivery, &bytes).await
        }
        mut stream => send_stream(request, &mut stream, delivery).await,
    }
}

/// The position of a piece in a response.
#[derive(Clone, Copy, Default)]
pub(super) struct Place {
    /// Whether the head goes before it.
    pub(super) has_head: bool,
    /// Whether the end of the body goes after it.
    pub(super) has_end: bool,
}

const WITH_HEAD: Place = Place {
    has_head: true,
    has_end: false,
};

/// Sends the head, and a body in memory with the same call.
pub(super) async fn send_head(
    request: &mut Request,
    delivery: Delivery,
    body: &[u8],
) -> Result<(), Stop> {
    send_piece(request, delivery, body, WITH_HEAD).await
}

/// Sends a piece of a body in memory, framed as the body is, with the head before it and the end after it where these
/// are due: with one call, if the socket takes it.
pub(super) async fn send_piece(
    request: &mut Request,
    delivery: Delivery,
    body: &[u8],
    place: Place,
) -> Result<(), Stop> {
    let left = send_piece_now(request, body, place)?;
    let head_bytes = left.head_len.min(left.head.len() as u64);
    for (bytes, is_head) in [
        (&left.head[..], true),
        (&body[left.gone..], false),
        (left.behind, false),
    ] {
        let before = request.transport.sent();
        let outcome = request.transport.send_bytes(delivery.timeout, bytes).await;
        request.count(before, if is_head { head_bytes } else { 0 });
        outcome?;
    }
    Ok(())
}

/// Sends as much of head and piece as the socket takes at once.
fn send_piece_now(request: &mut Request, body: &[u8], place: Place) -> Result<Unsent, Stop> {
    let location = request.generation.settings.location(request.location);
    let response = request.response.as_ref().expect("start put it there");
    let head = Head {
        response,
        server_line: location.settings.identity.line().as_bytes(),
        keepalive_told: location.settings.keepalive.keepalive_timeout.told,
    };
    let piece = Piece {
        head: place.has_head.then_some(head),
        body,
        is_last: place.has_end,
    };
    let before = request.transport.sent();
    let unsent = request.transport.send_now(&piece)?;
    request.count(before, unsent.head_len);
    Ok(unsent)
}

/// Sends one piece of a body.
pub(super) async fn send_chunk(
    request: &mut Request,
    chunk: Chunk<Rc<OpenFile>>,
    delivery: Delivery,
) -> Result<(), Stop> {
    if chunk.is_empty() {
        return Ok(());
    }
    let before = request.transport.sent();
    request
        .transport
        .open_piece(delivery.timeout, chunk.len())
        .await?;
    request.count(before, 0);
    match chunk {
        Chunk::File(range) => send_file(request, range, delivery).await?,
        Chunk::Bytes(bytes) => send_bytes(request, bytes, delivery).await?,
    }
    let before = request.transport.sent();
    request.transport.close_piece(delivery.timeout).await?;
    request.count(before, 0);
    Ok(())
}

/// Sends bytes of a piece that was opened, or of a body without pieces.
pub(super) async fn send_bytes(
    request: &mut Request,
    mut bytes: Bytes,
    delivery: Delivery,
) -> Result<(), Stop> {
    let begun = request.sent.get().head_bytes;
    while !bytes.is_empty() {
        let now = allowed(request, delivery, begun).await;
        let part = bytes.split_to(bytes.len().min(usize::try_from(now).unwrap_or(usize::MAX)));
        let before = request.transport.sent();
        let sent = request.transport.send_bytes(delivery.timeout, &part).await;
        request.count(before, 0);
        sent?;
    }
    Ok(())
}
