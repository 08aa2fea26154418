//! The way from a request to its response, as connections and sub-requests call it.
//!
//! The steps stand above them (`server::steps`) and are handed in: to a connection as a type ([`Responder`]), so that
//! the way of a request is part of its future; to sub-requests, whose futures are boxed anyway, as functions
//! ([`Calls`]).

mod kind;

use std::future::Future;
use std::pin::Pin;

use runtime::Loop;
use runtime::loops::LOOP;
use slots::slotted;

use crate::Response;
use crate::outcome::{Outcome, Start};
use crate::request::Request;

pub use kind::{Kind, METRICS};

/// The steps of a server.
pub trait Responder: Sized + 'static {
    /// Makes the response to a request; `None` closes the connection without a byte.
    fn respond(request: &mut Request, start: Start) -> impl Future<Output = Option<Box<Response>>>;

    /// Runs the steps after the content.
    ///
    /// # Errors
    /// The outcome that replaces the response.
    fn finish(request: &mut Request, response: Box<Response>) -> Result<Box<Response>, Outcome>;

    /// Gives these steps to a loop, for its sub-requests: before it serves.
    fn install(loop_: &Loop) {
        loop_.state.get_or_init(|| Calls {
            ask: ask::<Self>,
            finish: Self::finish,
        });
    }
}

/// A finished sub-request, with the body of its response still to come; without a response it was closed.
pub type Answered = (Box<Request>, Option<Box<Response>>);

/// A sub-request on its way to its response.
pub type Asked = Pin<Box<dyn Future<Output = Answered>>>;

/// [`Responder`] as functions, for requests that are made on the way of other requests.
#[derive(Debug, Clone, Copy)]
pub struct Calls {
    /// Makes the response to a sub-request, and counts it for the module that asked.
    pub ask: fn(Box<Request>, Start, &'static Kind) -> Asked,
    /// As [`Responder::finish`].
    pub finish: fn(&mut Request, Box<Response>) -> Result<Box<Response>, Outcome>,
}

slotted!(LOOP: Calls);

impl Calls {
    /// Those of a loop.
    ///
    /// # Panics
    /// If the loop has none: a mistake in the program.
    #[must_use]
    pub fn of(loop_: &Loop) -> Self {
        *loop_
            .state
            .get()
            .expect("a loop has its steps before it serves")
    }
}

fn ask<R: Responder>(mut request: Box<Request>, start: Start, by: &'static Kind) -> Asked {
    // Boxed, with its type named, since requests run sub-requests on their way (recursion).
    Box::pin(async move {
        let response = R::respond(&mut request, start).await;
        let status = response.as_ref().map(|response| response.status);
        by.count(&request.client.loop_.figures, status);
        (request, response)
    })
}
