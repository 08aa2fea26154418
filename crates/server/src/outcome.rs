//! The outcome of one step of a request, and what it leads to.
//!
//! Not here: the steps themselves (`respond`).

use crate::{Failure, Response};

/// What a step has to say about a request.
pub enum Outcome {
    /// The answer, in a box: it is large, and handed on.
    Answer(Box<Response>),
    /// No answer: this status, by an error page or the built-in one.
    Failed(Failure),
    /// Start again with another URI.
    Redirect(Target),
    /// Close the connection without a byte; logs show this status.
    Close(u16),
}

/// Where an internal redirect leads.
#[derive(Debug, Clone)]
pub enum Target {
    /// Another URI and its arguments.
    Uri(bytes::Bytes, bytes::Bytes),
    /// A location of the same server by its name, `@` included; the URI stays.
    Named(bytes::Bytes),
}

/// Where answering begins.
pub enum Start {
    /// With the request as it came.
    Fresh,
    /// With the content, since what comes before was done for a request like it.
    Content,
    /// Here, with what was known of it when it was answered (`post_action`).
    /// In a box, so that the many others need no place for it.
    Elsewhere(Box<Target>),
    /// It was refused while it was read: with this status.
    Refused(u16),
}

/// What an outcome comes to.
pub enum Settled {
    /// An answer.
    Response(Box<Response>),
    /// Another round.
    Redirect(Target),
    /// Nothing: the connection is closed, and logs show this status.
    Close(u16),
}
