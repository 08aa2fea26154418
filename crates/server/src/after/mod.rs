//! The steps after the content, in the order in which nginx's header filters run.
//!
//! To add a step, add a line to [`apply`].

pub mod expires;
pub mod headers;
pub mod not_modified;
pub mod ranges;

use crate::request::Request;
use crate::{Failure, Response};

/// Finishes a response.
///
/// # Errors
/// The failure that takes its place (412, 416): it goes through the error pages like any other.
pub fn apply(request: &Request, mut response: Box<Response>) -> Result<Box<Response>, Failure> {
    let location = request.location();
    request.override_status(&mut response);
    not_modified::apply(request, &location.settings.not_modified, &mut response)?;
    headers::apply(request, &location.settings.headers, &mut response);
    ranges::apply(request, &location.settings.ranges, &mut response)?;
    Ok(response)
}
