//! The steps after the content, in the order in which nginx's header filters run.
//!
//! To add a step, add a line to [`apply`]; a step that changes bodies goes into `filter`, see [`body_filter`].

pub mod addition;
pub mod body_filter;
pub mod charset;
pub mod compression;
pub mod expires;
pub mod gunzip;
pub mod headers;
pub mod media_types;
pub mod not_modified;
pub mod ranges;
pub mod slice;
pub mod ssi;
pub mod sub_filter;
pub mod userid;

use std::rc::Rc;

use message::Body;

use crate::Response;
use crate::headers_more;
use crate::outcome::Outcome;
use crate::request::Request;
use crate::settings::LocationSettings;

use body_filter::Steps;
use compression::GzipTest;

/// Finishes a response.
///
/// # Errors
/// The failure that replaces the answer (412, 416), which goes through the error pages like any other, or the
/// connection's end.
pub fn apply(request: &mut Request, mut response: Box<Response>) -> Result<Box<Response>, Outcome> {
    let generation = Rc::clone(&request.generation);
    let location = generation.settings.location(request.location);
    let settings = &location.settings;
    request.take_over(&mut response);
    if request.is_subrequest() {
        // A slice is part of a body that is filtered as a whole.
        if location.has_filters && request.slice_start().is_none() {
            filter(request, settings, &mut response)?.run(request, &mut response);
        }
        return Ok(response);
    }
    let sliced = slice::begin(request, &mut response)?;
    not_modified::apply(request, &settings.not_modified, &mut response).map_err(Outcome::Failed)?;
    let more = &settings.headers_more;
    if more.has_output() || settings.headers.is_any() || settings.userid.sets() {
        // Their values may refer to the response (`$sent_http_content_type`, `$status`).
        request.response = Some(response);
        if more.has_output() {
            headers_more::output::apply(request, more);
        }
        headers::apply(request, &settings.headers);
        if settings.userid.sets() {
            userid::apply(request);
        }
        response = request.response.take().expect("it was put there");
    }
    let steps = match location.has_filters {
        true => Some(filter(request, settings, &mut response)?),
        false => None,
    };
    let part = ranges::apply(request, &settings.ranges, &mut response).map_err(Outcome::Failed)?;
    if let Some(whole) = sliced {
        slice::end(request, &mut response, whole, part);
    }
    if let Some(steps) = steps {
        steps.run(request, &mut response);
    }
    headers::plan_trailers(request, &settings.headers, response.status);
    Ok(response)
}

/// Whether a level configures any filter. If not, `filter` is not called.
#[must_use]
pub fn has_filters(settings: &LocationSettings) -> bool {
    settings.gunzip.gunzip
        || settings.sub_filter.sub_filter.is_any()
        || settings.charset.charset.0.is_some()
        || settings.ssi.ssi
        || settings.addition.is_any()
        || compression::is_on(settings)
}

/// Lets each filter decide by the head whether it will change the body, in nginx's order: gunzip, sub_filter, charset,
/// ssi, addition, gzip. Sub-requests come here too: a filter for the client's answer alone checks
/// [`Request::is_subrequest`]. Parts that are added around a body or included in a page have gone through the filters
/// of their own location, so addition comes after those.
fn filter(
    request: &mut Request,
    settings: &LocationSettings,
    response: &mut Response,
) -> Result<Steps, Outcome> {
    let mut steps = Steps::default();
    let mut gzip = GzipTest::default();
    gunzip::decide(request, response, &mut gzip, &mut steps);
    let is_added_to = addition::decide(request, &settings.addition, response);
    sub_filter::begin(request, &settings.sub_filter, response, &mut steps);
    charset::begin(request, response, &mut steps)?;
    ssi::begin(request, &settings.ssi, response, &mut steps);
    if is_added_to {
        addition::begin(request, &settings.addition, response, &mut steps);
    }
    compression::decide(request, settings, response, &mut gzip, &mut steps);
    Ok(steps)
}

/// Runs `work` on a request that knows the head of its answer (`$sent_http_content_type`, `$status`).
fn with_head<T>(
    request: &mut Request,
    response: &Response,
    work: impl FnOnce(&mut Request) -> T,
) -> T {
    request.response = Some(Box::new(response.with_body(Body::Empty)));
    let done = work(request);
    request.response = None;
    done
}

/// Removes the validators from a head whose body differs at every answer; `is_kept`: the date stays, and the entity tag
/// as a weak one.
fn forget_version(response: &mut Response, is_kept: bool) {
    if is_kept {
        response.weaken_etag();
        return;
    }
    response.last_modified = None;
    response.headers.remove(b"Last-Modified");
    response.etag = None;
    response.headers.remove(b"ETag");
}
