//! The parts of a response from an upstream, and its errors, whichever protocol it comes in.
//!
//! Not here: the readers that find them (`exchange::answer_reader`, `fastcgi::read`).

use std::ops::Range;
use std::sync::Arc;

use message::ResponseHead;

/// An error in a response, in nginx's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerFault {
    /// The head cannot be passed on: 502.
    #[error("{0}")]
    Head(String),
    /// The connection ended before the response did. If before the head: 502.
    #[error("upstream prematurely closed connection")]
    Closed,
    /// The framing of the body is invalid.
    #[error("{0}")]
    Body(String),
    /// The bytes are not a record of a response (FastCGI).
    #[error("{0}")]
    Record(String),
    /// The body is not made of chunks, although the head says so.
    #[error("upstream sent invalid chunked response")]
    Chunks,
}

/// The next part of a response.
#[derive(Debug)]
pub enum Event {
    /// More bytes are needed.
    Partial,
    /// A 1xx (not 101), which may be ignored.
    Interim(Arc<ResponseHead>),
    /// The head. Its version is 0.9 if the bytes do not begin as HTTP: all of them are then the body of a 200, as in
    /// nginx ("upstream sent no valid HTTP/1.0 header").
    Head(Arc<ResponseHead>),
    /// The range of the given bytes that is data of the body; never empty.
    Data(Range<usize>),
    /// The end of the response.
    End,
}
