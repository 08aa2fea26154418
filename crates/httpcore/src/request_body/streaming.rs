//! Feeds a body that is passed on as it comes: one piece at a time, from the socket into its pipe.
//!
//! Of an announced length, the last byte ends it: the server has all that it waits for. Invariant: the socket is read only
//! when the previous piece was taken.

use std::future::poll_fn;

use crate::outcome::Outcome;
use crate::request::Request;
use crate::request::body::Pipe;

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
