//! The body of a request on a stream of HTTP/2, read apart from the sending of its response.
//!
//! Both are done in the request's task, each whenever it can go on: a client may send all of its body before it takes
//! anything of the response. Invariants: bytes are given out in their order, and once, whichever of the two asks; the body
//! of a stream that was reset before its end has no end.

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll};

use wire::http1::body_decoder::BodyFault;
use wire::http2::StreamKey;

use super::{Http2Connection, Rest};

/// The body of a request.
pub(crate) struct StreamBody {
    connection: Rc<Http2Connection>,
    key: StreamKey,
    /// The announced length in bytes.
    length: Option<u64>,
    /// Maximum size without an announced length, in bytes; 0: none.
    limit: Cell<u64>,
    /// Bytes that were read.
    received: Cell<u64>,
    /// Whether its end was seen: the stream may be closed since.
    has_ended: Cell<bool>,
    /// Whether the client has the room of a body that is being read.
    is_wide: Cell<bool>,
}

impl StreamBody {
    pub(super) fn new(
        connection: Rc<Http2Connection>,
        key: StreamKey,
        length: Option<u64>,
    ) -> Rc<Self> {
        Rc::new(Self {
            has_ended: Cell::new(connection.is_body_over(key)),
            connection,
            key,
            length,
            limit: Cell::new(0),
            received: Cell::new(0),
            is_wide: Cell::new(false),
        })
    }

    pub(super) fn limit(&self, limit: u64) {
        self.limit.set(limit);
    }

    pub(super) fn received(&self) -> u64 {
        self.received.get()
    }

    /// Whether it was read to its end.
    pub(super) fn is_over(&self) -> bool {
        if !self.has_ended.get() {
            let has_ended = self.connection.is_body_over(self.key);
            self.has_ended.set(has_ended);
        }
        self.has_ended.get()
    }

    /// Whether its last byte has been read.
    pub(crate) fn is_whole(&self) -> bool {
        self.length == Some(self.received.get()) || self.is_over()
    }

    /// Appends what has come to `out`; whether that is all that can be said now.
    pub(super) fn read_into(&self, out: &mut Vec<u8>) -> Result<bool, wire::Error> {
        let before = out.len();
        let rest = self.connection.read(self.key, out);
        let count = (out.len() - before) as u64;
        let (limit, received) = (self.limit.get(), self.received.get());
        if self.length.is_none() && limit != 0 && received + count > limit {
            out.truncate(before);
            let size = count;
            return Err(wire::Error::Body(BodyFault::TooLarge { received, size }));
        }
        self.received.set(received + count);
        match rest {
            None => Err(wire::Error::Closed),
            Some(Rest::Malformed) => Err(wire::Error::Body(BodyFault::Malformed)),
            Some(rest) => {
                let is_last = rest == Rest::Nothing;
                self.has_ended.set(is_last);
                Ok(count > 0 || is_last)
            }
        }
    }

    /// Reads once, behind the content of `out`; nothing comes only at the end.
    pub(crate) fn poll_read(
        &self,
        out: &mut Vec<u8>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), wire::Error>> {
        self.widen();
        match self.read_into(out) {
            Ok(true) => return Poll::Ready(Ok(())),
            Ok(false) => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
        self.connection.watch(self.key, context);
        Poll::Pending
    }

    /// Gives the client more room for a body that is read now, unless all of it fits into what it has: that is
    /// `http2_body_preread_size`, which may be nothing.
    fn widen(&self) {
        if self.is_wide.get() {
            return;
        }
        let length = self.length.unwrap_or(u64::MAX);
        self.is_wide.set(self.connection.widen(self.key, length));
    }
}
