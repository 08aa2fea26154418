//! Feeds a body that is passed on as it comes: one piece at a time, from the socket into its pipe.
//!
//! While a response is sent, the body of a stream of HTTP/2 goes on apart from it ([`feed_apart`]), and one of HTTP/1 whenever the
//! client takes nothing (`transport/http1.rs`). Of an announced length, the last byte ends it: the server has all that it waits for. Invariant: the socket is read only
//! when the previous piece was taken.

use std::future::poll_fn;
use std::rc::Rc;

use crate::outcome::Outcome;
use crate::request::Request;
use crate::request::body::Pipe;

use crate::transport::StreamBody;

use super::read_once;

/// Moves pieces from the wire into the pipe until the body has ended.
pub(super) async fn feed(request: &mut Request, pipe: &Pipe) -> Result<(), Outcome> {
    while !pipe.has_end() {
        poll_fn(|cx| pipe.poll_room(cx)).await;
        let mut piece = Vec::new();
        if !request.transport.is_body_whole() {
            read_once(request, &mut piece).await?;
        }
        pipe.give(piece, request.transport.is_body_whole());
    }
    Ok(())
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
