//! The steps after the content, in the order in which nginx's header filters run.
//!
//! To add a step, add a line to [`apply`]; a step that changes bodies goes into `filter` and `has_filters`, see
//! [`body_filter`](httpcore::body_filter).

use std::rc::Rc;

use crate::settings::tables::LocationSettings;
use crate::settings::tables::all_of;
use httpcore::Response;
use httpcore::body_filter::Steps;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::settings::Location;
use modules::after::charset::{self, Charsets};
use modules::after::compression::gunzip;
use modules::after::compression::{self, GzipTest};
use modules::after::{addition, headers, not_modified, ranges, slice, ssi, sub_filter, userid};
use modules::headers_more;
use proxy::response::{accel, response_head};

/// Finishes a response.
///
/// # Errors
/// The failure that replaces the answer (412, 416), which goes through the error pages like any other, or the
/// connection's end.
pub(crate) fn apply(
    request: &mut Request,
    mut response: Box<Response>,
) -> Result<Box<Response>, Outcome> {
    let generation = Rc::clone(&request.generation);
    let location = generation.settings.location(request.location);
    let settings = all_of(location);
    request.take_over_status(&mut response);
    accel::give(request, &mut response);
    request.take_over_lines(&mut response);
    if request.is_subrequest() {
        // A slice is part of a body that is filtered as a whole.
        if location.has_filters && !slice::is_slice(request) {
            filter(request, settings, &mut response)?.run(request, &mut response);
        }
        return Ok(response);
    }
    let sliced = slice::begin(request, &mut response)?;
    // RFC 9111, 4.3.2.
    let yields = || settings.caching.proxy_cache_rfc9111 && settings.caching.is_on();
    let judged = not_modified::apply(request, &settings.not_modified, yields, &mut response);
    if let Err(failure) = judged {
        // As in nginx a server that names the charset of its response does not speak of this page.
        request.charset_hint = None;
        return Err(Outcome::Failed(failure));
    }
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
        false => {
            charset::tell_hinted(request, &response);
            None
        }
    };
    let part = ranges::apply(request, &settings.ranges, &mut response).map_err(|mut failure| {
        response_head::keep_lines(request, &mut failure);
        Outcome::Failed(failure)
    })?;
    if let Some(whole) = sliced {
        slice::end(request, &mut response, whole, part);
    }
    if let Some(steps) = steps {
        steps.run(request, &mut response);
    }
    headers::plan_trailers(request, &settings.headers, response.status);
    Ok(response)
}

/// Whether any filter may change bodies of a location, by its settings. If not, `filter` is not called.
#[must_use]
pub(crate) fn has_filters(charsets: &Charsets, location: &Location) -> bool {
    gunzip::is_on(location)
        || sub_filter::is_on(location)
        || charset::is_on(charsets, location)
        || ssi::is_on(location)
        || addition::is_on(location)
        || compression::is_on(location.groups())
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
    let mut gzip = GzipTest::of(request);
    gunzip::decide(request, response, &mut gzip, &mut steps);
    let is_added_to = addition::decide(request, &settings.addition, response);
    sub_filter::begin(request, &settings.sub_filter, response, &mut steps);
    charset::begin(request, response, &mut steps)?;
    let page = ssi::begin(request, &settings.ssi, response, &mut steps);
    if is_added_to {
        addition::begin(request, &settings.addition, response, page, &mut steps);
    }
    compression::decide(request, settings, response, &mut gzip, &mut steps);
    Ok(steps)
}
