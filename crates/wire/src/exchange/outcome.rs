//! The results of an exchange, step by step.

use std::io;
use std::sync::Arc;

use message::ResponseHead;

use crate::answer::AnswerFault;
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
    #[error("{}", told("writev", .0))]
    Send(io::Error),
    /// The connection broke while waiting for the response or reading it.
    #[error("{}", told("recv", .0))]
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

/// A failed call; a fault in TLS says itself what failed.
fn told(call: &str, error: &io::Error) -> String {
    let failure = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<tls::Failure>());
    match failure {
        Some(failure) => failure.to_string(),
        None => format!("{call}() failed {}", numbered(error)),
    }
}

/// The kernel's error as nginx writes it: `(111: Connection refused)`.
pub(crate) fn numbered(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(code) => {
            let text = text.split(" (os error").next().unwrap_or("");
            format!("({code}: {text})")
        }
        None => format!("({text})"),
    }
}
