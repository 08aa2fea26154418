//! The steps after the content, in the order in which nginx's header filters run.
//!
//! To add a step, add a line to [`apply`].

pub mod expires;
pub mod headers;
pub mod not_modified;
pub mod ranges;

use std::rc::Rc;

use crate::request::Request;
use crate::{Failure, Response};

/// Finishes a response.
///
/// # Errors
/// The failure that takes its place (412, 416): it goes through the error pages like any other.
pub fn apply(request: &mut Request, mut response: Box<Response>) -> Result<Box<Response>, Failure> {
    let generation = Rc::clone(&request.generation);
    let settings = &generation.settings.location(request.location).settings;
    request.take_over(&mut response);
    if request.is_subrequest() {
        return Ok(response);
    }
    not_modified::apply(request, &settings.not_modified, &mut response)?;
    if settings.headers.is_any() {
        // Their values may look at what is to be sent (`$sent_http_content_type`, `$status`).
        request.response = Some(response);
        headers::apply(request, &settings.headers);
        response = request.response.take().expect("it was put there");
    }
    ranges::apply(request, &settings.ranges, &mut response)?;
    Ok(response)
}
