//! Feeds a body that is passed on as it comes: one piece at a time, from the socket into its pipe.
//!
//! While a response is sent, the body of a stream of HTTP/2 goes on apart from it ([`feed_apart`]), and one of HTTP/1 whenever the
//! client takes nothing (`transport/http1.rs`). Of an announced length, the last byte ends it: the server has all that it waits for. Invariant: the socket is read only
//! when the previous piece was taken.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use crate::outcome::Outcome;
use crate::request::Request;
use crate::request::body::Pipe;

use crate::transport::StreamBody;

use super::{Leaving, left, read_once};

/// Moves pieces from the wire into the pipe until the body has ended.
pub(super) async fn feed(
    request: &mut Request,
    pipe: &Pipe,
    leaving: Leaving,
) -> Result<(), Outcome> {
    while !pipe.has_end() {
        if !has_room(request, pipe, leaving).await {
            return Err(left(request));
        }
        let mut piece = Vec::new();
        if !request.transport.is_body_whole() {
            read_once(request, &mut piece).await?;
        }
        pipe.give(piece, request.transport.is_body_whole());
    }
    Ok(())
}

/// Waits until the pipe takes a piece; false: the client has left before. Nothing is read from it meanwhile.
async fn has_room(request: &Request, pipe: &Pipe, leaving: Leaving) -> bool {
    let mut closed = pin!(request.transport.peer_closed());
    poll_fn(|cx| {
        if pipe.poll_room(cx).is_ready() {
            return Poll::Ready(true);
        }
        match leaving {
            Leaving::Ends => closed.as_mut().poll(cx).map(|()| false),
            Leaving::IsIgnored => Poll::Pending,
        }
    })
    .await
}

/// The same for a body that is read apart from its transport. No time limits it: that of the response does.
pub(super) async fn feed_apart(body: Rc<StreamBody>, pipe: Rc<Pipe>) -> Result<(), wire::Error> {
    while !pipe.has_end() {
        poll_fn(|cx| pipe.poll_room(cx)).await;
        let mut piece = Vec::new();
        if !body.is_whole() {
            poll_fn(|cx| body.poll_read(&mut piece, cx)).await?;
        }
        pipe.give(piece, body.is_whole());
    }
    Ok(())
}
