//! What a location refuses by the head alone: a body that is too large.

use config::{Msec, Offset, directives};
use message::head::Framing;

use crate::Failure;
use crate::log::Level;
use crate::request::Request;
use crate::respond::Outcome;

directives! {
    /// Reading the body of a request.
    pub struct ClientBody in Location {
        /// Limits the body of a request; larger ones are refused with 413. `0` switches the check off.
        client_max_body_size: Offset = "1m", [HTTP | SERVER | LOCATION] 1;
        /// Limits the time between two reads of a body that somebody wants (408 after it). One that is thrown away, as with
        /// files, has `lingering_timeout`.
        client_body_timeout: Msec = "60s", [HTTP | SERVER | LOCATION] 1;
    }
}

/// Refuses a body whose announced length is over `client_max_body_size`.
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
    if limit == 0 || length <= limit {
        return None;
    }
    request.log(Level::Error, &|out| {
        out.extend_from_slice(
            format!("client intended to send too large body: {length} bytes").as_bytes(),
        );
    });
    Some(Outcome::Failed(Failure::new(413)))
}
