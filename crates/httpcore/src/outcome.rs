//! The outcome of one step of a request, and what it leads to.
//!
//! Not here: the steps themselves (`respond`).

use crate::{Failure, Response};

/// The outcome of a step.
pub enum Outcome {
    /// The response; boxed, since it is large and passed on.
    Answer(Box<Response>),
    /// No response: this status, by an error page or the built-in one.
    Failed(Failure),
    /// Start again with another URI or location.
    Redirect(Target),
    /// Close the connection without a byte; logs show this status.
    Close(u16),
}

/// The target of an internal redirect.
#[derive(Debug, Clone)]
pub enum Target {
    /// Another URI and its arguments.
    Uri(bytes::Bytes, bytes::Bytes),
    /// A location of the same server by its name, `@` included; the URI stays.
    Named(bytes::Bytes),
}

/// The step at which a request begins.
pub enum Start {
    /// With the request as it came.
    Fresh,
    /// With the content, since the steps before it were done for a request like it.
    Content,
    /// At this target, with the state that the request had after its response (`post_action`). Boxed, so that the
    /// many other requests need no space for it.
    Elsewhere(Box<Target>),
    /// Refused with this status while it was being read.
    Refused(u16),
}

/// The result of an outcome.
pub enum Settled {
    /// An answer.
    Response(Box<Response>),
    /// Another round.
    Redirect(Target),
    /// Nothing: the connection is closed, and logs show this status.
    Close(u16),
}
