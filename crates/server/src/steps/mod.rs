//! The steps of a request: the lists that name the modules, and the function that runs them.
//!
//! A module that takes part in answering has a line in one of these lists: [`before`] the content, among the
//! [`judges`] of a client, as [`content`], or [`after`] the content. Nothing below imports them: connections and
//! sub-requests are given [`Steps`].

pub(crate) mod after;
pub(crate) mod before;
pub(crate) mod content;
pub(crate) mod judges;
pub(crate) mod respond;
#[cfg(test)]
mod tests;

use httpcore::Response;
use httpcore::outcome::{Outcome, Start};
use httpcore::request::Request;
use httpcore::responder::Responder;

/// The steps of this server.
pub(crate) enum Steps {}

impl Responder for Steps {
    fn respond(request: &mut Request, start: Start) -> impl Future<Output = Option<Box<Response>>> {
        respond::respond(request, start, ())
    }

    fn finish(request: &mut Request, response: Box<Response>) -> Result<Box<Response>, Outcome> {
        after::apply(request, response)
    }
}
