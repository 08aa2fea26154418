//! Answering with a stored entry.
//!
//! Not here: whether it may be used (`lookup`). Invariants: no byte is sent before its block's checksum was verified,
//! once since the process started; a file stays a file.

use std::rc::Rc;
use std::sync::Arc;

use cache::store::Hit;
use disk::OpenFile;
use message::response::Ranges;
use message::{Body, HeaderId, ResponseFraming};

use crate::caching::cache_request;
use crate::caching::cache_request::CacheRequest;
use crate::caching::stored::age::with_age;
use crate::caching::stored::disk_work::ReadBody;
use crate::caching::stored::{disk_work, hot_entries, rest};
use crate::response::response_head;
use crate::response::response_head::Origin;
use crate::settings::proxy_pass::PassSettings;
use crate::state::cache_state;
use crate::state::cache_state::Status;
use httpcore::outcome::Outcome;
use httpcore::request::Request;

/// Error: the stored bytes cannot be used.
pub(crate) struct Unusable;

/// Answers with a hit, where nothing but its disk can.
///
/// # Errors
/// [`Unusable`]: it was damaged and has been dropped, or cannot be read in time.
pub(crate) async fn serve(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    hit: &Hit,
    status: Status,
) -> Result<Outcome, Unusable> {
    let body = disk_work::body(request, cache_request, hit);
    match disk_work::wait(request, cache_request, body).await {
        Some(body) => with_read(request, cache_request, hit, status, body),
        None => Err(Unusable),
    }
}

/// Answers with a hit and what its disk gave.
///
/// # Errors
/// [`Unusable`].
pub(crate) fn with_read(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    hit: &Hit,
    status: Status,
    body: ReadBody,
) -> Result<Outcome, Unusable> {
    match body {
        Ok(body) => Ok(with_body(request, cache_request, hit, status, body)),
        Err(error) => {
            cache_request.cache.tell("an entry cannot be used", &error);
            Err(Unusable)
        }
    }
}

/// Answers with a hit and its body.
fn with_body(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    hit: &Hit,
    status: Status,
    body: Body<Rc<OpenFile>>,
) -> Outcome {
    let age = hit.known.lifetime.age(cache_request.now);
    let state = cache_state::of(request);
    state.stored = rest::stored_file(hit, &body);
    state.status = Some(status);
    state.follows = false;
    state.age = Some(age);
    let mut head = Arc::clone(hit.entry.head());
    if let Some(framing) = framing_for_head(request, cache_request.passing, hit) {
        Arc::make_mut(&mut head).framing = framing;
    }
    let mut outcome =
        response_head::shape(request, cache_request.passing, head, body, Origin::Cache);
    if let Outcome::Answer(response) = &mut outcome {
        if cache_request.caching.proxy_cache_rfc9111 {
            response.ranges = Ranges::Allowed;
        }
        if status == Status::Hit && hit.known.is_verified && disk_work::is_kept(hit) {
            hot_entries::keep(
                request,
                cache_request.cache,
                &cache_request.key_text,
                hit,
                response,
            );
        }
    }
    with_age(outcome, age)
}

/// The response stored for a HEAD that was not made a GET has a length, and no body.
fn framing_for_head(
    request: &Request,
    passing: &PassSettings,
    hit: &Hit,
) -> Option<ResponseFraming> {
    if !request.is_head() || hit.entry.body_len() > 0 {
        return None;
    }
    let text = hit.entry.head().get(HeaderId::ContentLength);
    let length = text.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
    // Of a HEAD that is passed on as such the length is unknown, where the response has none.
    let is_passed_as_head = !cache_request::asks_as_get(request, passing);
    match length {
        None => is_passed_as_head.then_some(ResponseFraming::UntilClose),
        length => length.map(ResponseFraming::Length),
    }
}
