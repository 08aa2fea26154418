//! `client_max_body_size`: refuses a request by its head alone, where the body is too large.

use logs::Level;
use std::rc::Rc;

use message::head::Framing;

use httpcore::Failure;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::request::state::State;

/// The body of a request was refused for its length.
struct Refused;

impl State for Refused {}

/// Refuses a body whose announced length exceeds `client_max_body_size`. A sub-request's body was admitted already.
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
    let is_known = request.states.get::<Refused>().is_some();
    if limit == 0 || length <= limit || request.is_subrequest() || is_known {
        return None;
    }
    // The error page for it is not refused for the same body again: the body will not be read.
    request.states.put(Rc::new(Refused));
    request.body.withhold();
    request.log(Level::Error, &|out| {
        out.extend_from_slice(
            format!("client intended to send too large body: {length} bytes").as_bytes(),
        );
    });
    Some(Outcome::Failed(Failure::new(413)))
}
