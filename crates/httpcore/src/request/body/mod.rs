//! The body of a request as a value: complete, in memory or a file, or passing through a pipe.
//!
//! Not here: reading it from the client ([`crate::request_body`]). Invariant: nothing here needs a request.

mod pieces;
mod pipe;
mod stored;

use std::rc::Rc;

use bytes::Bytes;
use message::Framing;

pub use pieces::{PieceError, Pieces};
pub use pipe::Pipe;
pub(crate) use stored::InFile;
pub use stored::Stored;

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

    /// Takes back what was known of it, as if nothing had been read.
    pub(crate) fn take(&mut self) -> Option<RequestBody> {
        self.body.take()
    }

    /// Records the part that was read.
    pub(crate) fn set(&mut self, body: RequestBody) {
        self.body = Some(body);
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
