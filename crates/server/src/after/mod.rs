//! The steps after the content, in the order in which nginx's header filters run.
//!
//! To add a step, add a line to [`apply`]; to add one that changes bodies, to [`filter`], and see [`steps`].

pub mod expires;
pub mod headers;
pub mod media_types;
pub mod not_modified;
pub mod ranges;
pub mod slice;
pub mod steps;
pub mod userid;

use std::rc::Rc;

use crate::Response;
use crate::request::Request;
use crate::respond::Outcome;
use crate::settings::LocationSettings;

use steps::Steps;

/// Finishes a response.
///
/// # Errors
/// What takes its place: a failure (412, 416), which goes through the error pages like any other, or the connection's end.
pub fn apply(request: &mut Request, mut response: Box<Response>) -> Result<Box<Response>, Outcome> {
    let generation = Rc::clone(&request.generation);
    let location = generation.settings.location(request.location);
    let settings = &location.settings;
    request.take_over(&mut response);
    if request.is_subrequest() {
        // A slice is part of a body that is filtered as a whole.
        if location.has_filters && request.slice_start().is_none() {
            filter(request, settings, &mut response).run(request, &mut response);
        }
        return Ok(response);
    }
    let sliced = slice::begin(request, &mut response)?;
    not_modified::apply(request, &settings.not_modified, &mut response).map_err(Outcome::Failed)?;
    if settings.headers.is_any() || settings.userid.sets() {
        // Their values may look at what is to be sent (`$sent_http_content_type`, `$status`).
        request.response = Some(response);
        headers::apply(request, &settings.headers);
        if settings.userid.sets() {
            userid::apply(request);
        }
        response = request.response.take().expect("it was put there");
    }
    let steps = location
        .has_filters
        .then(|| filter(request, settings, &mut response));
    let part = ranges::apply(request, &settings.ranges, &mut response).map_err(Outcome::Failed)?;
    if let Some(whole) = sliced {
        slice::end(request, &mut response, whole, part);
    }
    if let Some(steps) = steps {
        steps.run(request, &mut response);
    }
    Ok(response)
}

/// Does a level say anything of filters? Where none does, [`filter`] is not asked.
#[must_use]
pub fn has_filters(_settings: &LocationSettings) -> bool {
    false
}

/// Has the filters decide by the head what they will do with the body, in nginx's order: gunzip, addition, sub_filter, charset, ssi,
/// gzip. Sub-requests come here too: a filter that is for the client's answer alone looks at [`Request::is_subrequest`].
fn filter(_request: &Request, _settings: &LocationSettings, _response: &mut Response) -> Steps {
    Steps::default()
}
