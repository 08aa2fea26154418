//! The body of a stream: the kept samples, then each new one.
//!
//! Invariant: it ends with a reload (the next request checks anew whether the client may see it), with its loop, when
//! the worker quits, and when its client does not read.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use disk::OpenFile;
use message::{Body, Chunk};
use runtime::Ledger;

use super::history::Reader;
use crate::dashboard::history;
use httpcore::client::Client;

/// Maximum bytes of past samples that are sent at a time.
const PIECE_BYTES: usize = 64 << 10;
/// The first event: the client forgets its data, and reconnects after a second.
const BEGIN: &[u8] = b"retry: 1000\nevent: begin\ndata: {}\n\n";

/// A place among the streams.
struct StreamSlot(Arc<Ledger>);

impl Drop for StreamSlot {
    fn drop(&mut self) {
        history::of(&self.0).leave_place();
    }
}

struct Streaming {
    reader: Reader,
    client: Rc<Client>,
    /// The configuration that allowed it.
    generation: u64,
    _place: StreamSlot,
}

/// A stream; `None`: the maximum of streams is reached, or the worker quits.
#[must_use]
pub(crate) fn open(client: &Rc<Client>) -> Option<Body<Rc<OpenFile>>> {
    let ledger = Arc::clone(&client.loop_.ledger);
    let history = history::of(&ledger);
    if !history.take_place() {
        return None;
    }
    let place = StreamSlot(Arc::clone(&ledger));
    let mut reader = history.read()?;
    reader.past.push_front(Bytes::from_static(BEGIN));
    let streaming = Streaming {
        reader,
        client: Rc::clone(client),
        generation: client.http.generation().number,
        _place: place,
    };
    Some(Body::unfold(streaming, async |mut streaming| {
        let piece = streaming.next().await;
        Ok(piece.map(|piece| (Chunk::Bytes(piece), streaming)))
    }))
}

impl Streaming {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(piece) = piece_of(&mut self.reader.past) {
            return Some(piece);
        }
        let event = self.reader.news.recv().await.ok()?;
        let client = &self.client;
        let is_over =
            client.loop_.is_leaving() || client.http.generation().number != self.generation;
        (!is_over).then_some(event)
    }
}

/// The first events together; one that is larger alone.
fn piece_of(events: &mut VecDeque<Bytes>) -> Option<Bytes> {
    let first = events.pop_front()?;
    let mut piece = BytesMut::from(first);
    while let Some(next) = events.front() {
        if piece.len() + next.len() > PIECE_BYTES {
            break;
        }
        piece.extend_from_slice(next);
        events.pop_front();
    }
    Some(piece.freeze())
}
