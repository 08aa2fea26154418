//! What a location refuses by the head alone: a body that is too large.

use message::head::Framing;

use crate::Failure;
use crate::log::Level;
use crate::request::Request;
use crate::respond::Outcome;

/// Refuses a body whose announced length is over `client_max_body_size`. That of a sub-request was let in already.
pub fn run(request: &mut Request) -> Option<Outcome> {
    let Framing::Length(length) = request.head.framing else {
        return None;
    };
    let limit = request
        .location()
        .settings
        .client_body
        .client_max_body_size
        .0;
    if limit == 0 || length <= limit || request.is_subrequest() {
        return None;
    }
    request.log(Level::Error, &|out| {
        out.extend_from_slice(
            format!("client intended to send too large body: {length} bytes").as_bytes(),
        );
    });
    Some(Outcome::Failed(Failure::new(413)))
}
