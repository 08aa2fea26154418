//! The steps after the content, in the order in which nginx's header filters run.
//!
//! To add a step, add a line to [`apply`].

pub mod expires;
pub mod headers;
pub mod not_modified;
pub mod ranges;
pub mod slice;

use std::rc::Rc;

use crate::Response;
use crate::request::Request;
use crate::respond::Outcome;

/// Finishes a response.
///
/// # Errors
/// What takes its place: a failure (412, 416), which goes through the error pages like any other, or the connection's end.
pub fn apply(request: &mut Request, mut response: Box<Response>) -> Result<Box<Response>, Outcome> {
    let generation = Rc::clone(&request.generation);
    let settings = &generation.settings.location(request.location).settings;
    request.take_over(&mut response);
    if request.is_subrequest() {
        return Ok(response);
    }
    let sliced = slice::begin(request, &mut response)?;
    not_modified::apply(request, &settings.not_modified, &mut response).map_err(Outcome::Failed)?;
    if settings.headers.is_any() {
        // Their values may look at what is to be sent (`$sent_http_content_type`, `$status`).
        request.response = Some(response);
        headers::apply(request, &settings.headers);
        response = request.response.take().expect("it was put there");
    }
    let part = ranges::apply(request, &settings.ranges, &mut response).map_err(Outcome::Failed)?;
    if let Some(whole) = sliced {
        slice::end(request, &mut response, whole, part);
    }
    Ok(response)
}
