//! The results of an exchange, step by step.

use std::io;
use std::sync::Arc;

use message::ResponseHead;

use crate::answer::AnswerFault;
use crate::call_error::call_failed;
use crate::http1::request_writer::RequestFault;

/// Why an exchange cannot continue, in nginx's words.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// Nothing was sent or received for too long.
    #[error("upstream timed out (110: Connection timed out)")]
    Timeout,
    /// The response cannot be passed on, or not any further.
    #[error(transparent)]
    Answer(#[from] AnswerFault),
    /// The request body does not match its announced length.
    #[error(transparent)]
    Request(#[from] RequestFault),
    /// The connection broke while the request was being sent.
    #[error("{}", call_failed("writev", .0))]
    Send(io::Error),
    /// The connection broke while waiting for the response or reading it.
    #[error("{}", call_failed("recv", .0))]
    Receive(io::Error),
}

/// The result of `Exchange::flush`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// Everything that was queued has been sent.
    All,
    /// The server takes no more for now, and has begun to respond: read the head of the response.
    AnswerCame,
}

/// The head of a response.
#[derive(Debug)]
pub enum AnswerHead {
    /// A 1xx; another head follows.
    Interim(Arc<ResponseHead>),
    /// The final head.
    Final(Arc<ResponseHead>),
}
