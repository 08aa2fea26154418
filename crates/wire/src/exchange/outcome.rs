//! What an exchange comes to, step by step.

use std::io;

use message::ResponseHead;

use crate::connect::numbered;
use crate::http1::answer::AnswerFault;
use crate::http1::request::RequestFault;

/// Why an exchange cannot go on, in nginx's words.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// Nothing went or came for too long.
    #[error("upstream timed out (110: Connection timed out)")]
    Timeout,
    /// The answer cannot be passed on, or not further.
    #[error(transparent)]
    Answer(#[from] AnswerFault),
    /// The request's body is not what its head announced.
    #[error(transparent)]
    Request(#[from] RequestFault),
    /// The connection broke while the request was sent.
    #[error("writev() failed {}", numbered(.0))]
    Send(io::Error),
    /// The connection broke while the answer was awaited or read.
    #[error("recv() failed {}", numbered(.0))]
    Receive(io::Error),
}

/// What `Exchange::flush` came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// All that was queued is sent.
    All,
    /// The server takes no more now, and has something to say: read the answer's head.
    AnswerCame,
}

/// A head of an answer.
#[derive(Debug)]
pub enum AnswerHead {
    /// A 1xx; another head follows.
    Interim(Box<ResponseHead>),
    /// The one that counts.
    Final(Box<ResponseHead>),
}
