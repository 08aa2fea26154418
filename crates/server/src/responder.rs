//! The way from a request to its response, as connections and sub-requests call it.
//!
//! The steps stand above them ([`crate::steps`]) and are handed in: to a connection as a type ([`Responder`]), so that
//! the way of a request is part of its future; to sub-requests, whose futures are boxed anyway, as functions
//! ([`Calls`]).

use std::future::Future;
use std::pin::Pin;

use crate::Response;
use crate::outcome::{Outcome, Start};
use crate::request::Request;
use crate::subrequest::{self, Kind};

/// The steps of a server.
pub trait Responder: Sized + 'static {
    /// The steps for sub-requests.
    const CALLS: &'static Calls = &Calls {
        ask: ask::<Self>,
        finish: Self::finish,
    };

    /// Makes the response to a request; `None` closes the connection without a byte.
    fn respond(request: &mut Request, start: Start) -> impl Future<Output = Option<Box<Response>>>;

    /// Runs the steps after the content.
    ///
    /// # Errors
    /// The outcome that replaces the response.
    fn finish(request: &mut Request, response: Box<Response>) -> Result<Box<Response>, Outcome>;
}

/// A finished sub-request, with the body of its response still to come; without a response it was closed.
pub type Answered = (Box<Request>, Option<Box<Response>>);

/// A sub-request on its way to its response.
pub type Asked = Pin<Box<dyn Future<Output = Answered>>>;

/// [`Responder`] as functions, for requests that are made on the way of other requests.
#[derive(Debug)]
pub struct Calls {
    /// Makes the response to a sub-request, and counts it for the module that asked.
    pub ask: fn(Box<Request>, Start, &'static Kind) -> Asked,
    /// As [`Responder::finish`].
    pub finish: fn(&mut Request, Box<Response>) -> Result<Box<Response>, Outcome>,
}

fn ask<R: Responder>(mut request: Box<Request>, start: Start, by: &'static Kind) -> Asked {
    // Boxed, with its type named, since requests run sub-requests on their way (recursion).
    Box::pin(async move {
        let response = R::respond(&mut request, start).await;
        subrequest::count(&request, by, response.as_deref());
        (request, response)
    })
}
