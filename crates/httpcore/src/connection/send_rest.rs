//! Sending the rest of a response that has to wait: for its client, a disk or an upstream.
//!
//! Not here: what is sent without waiting ([`super::send`]).

use std::future::Future;
use std::pin::Pin;

use message::{Body, Chunk};

use crate::request::Request;

use super::finish::After;
use super::send::{self, Delivery, Left};
use super::send_error::{Stop, stopped};
use super::send_file::{send_file, send_whole_file};

/// Sends the rest that [`start`](super::send::start) left. Each way has a box of its own: a response that waits for its client takes no more room
/// than its own way needs, as thousands of streams of HTTP/2 may.
pub fn go_on(request: &mut Request, left: Left) -> Pin<Box<dyn Future<Output = After> + '_>> {
    let Left {
        delivery,
        is_begun,
        head,
        body,
    } = left;
    let is_plain = !delivery.has_explicit_end && delivery.rate.per_second == 0;
    match body {
        Body::Once(Chunk::File(range)) if is_begun => Box::pin(async move {
            let sent = send_unsent(request, delivery, &head, true).await;
            let sent = match sent {
                Ok(()) => send_file(request, range, delivery).await,
                stopped => stopped,
            };
            concluded(request, sent)
        }),
        Body::Once(Chunk::Bytes(bytes)) if is_begun => Box::pin(async move {
            let sent = send_unsent(request, delivery, &head, true).await;
            let sent = match sent {
                Ok(()) => send_unsent(request, delivery, &bytes, false).await,
                stopped => stopped,
            };
            concluded(request, sent)
        }),
        _ if is_begun => Box::pin(async move {
            let sent = send_unsent(request, delivery, &head, true).await;
            concluded(request, sent)
        }),
        Body::Once(Chunk::File(range)) if is_plain && delivery.has_body => {
            Box::pin(send_whole(request, delivery, async move |request| {
                send_whole_file(request, range, delivery).await
            }))
        }
        body => Box::pin(send_whole(request, delivery, async move |request| {
            send::send(request, body, delivery).await
        })),
    }
}

fn concluded(request: &mut Request, sent: Result<(), Stop>) -> After {
    match sent {
        Ok(()) => send::sent(request),
        Err(stop) => stopped(request, stop),
    }
}

/// Sends a part of head or body that the socket did not take: of [`start`](super::send::start), which heeds no rate, or after it.
async fn send_unsent(
    request: &mut Request,
    delivery: Delivery,
    part: &[u8],
    is_head: bool,
) -> Result<(), Stop> {
    let before = request.transport.sent();
    let outcome = request.transport.send_bytes(delivery.timeout, part).await;
    request.count(before, if is_head { part.len() as u64 } else { 0 });
    Ok(outcome?)
}

/// Sends a response of which nothing was sent, its head and body by `send`.
async fn send_whole(
    request: &mut Request,
    delivery: Delivery,
    send: impl AsyncFnOnce(&mut Request) -> Result<(), Stop>,
) -> After {
    if send::must_invite(request)
        && let Err(error) = Box::pin(request.invite(delivery.timeout)).await
    {
        return stopped(request, error.into());
    }
    let gathers = !request.location().settings.sending.tcp_nodelay;
    if gathers {
        request.transport.gather(true);
    }
    let sent = send(request).await;
    if gathers {
        // The next response may belong to another location. The rest goes out now.
        request.transport.gather(false);
    }
    concluded(request, sent)
}
