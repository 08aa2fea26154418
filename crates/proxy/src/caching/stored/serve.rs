//! Answering with a stored entry.
//!
//! Not here: whether it may be used (`lookup`). Invariants: no byte is sent before its block's checksum was verified,
//! once since the process started; a file stays a file.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use cache::store::{Checks, Hit};
use disk::OpenFile;
use message::response::Ranges;
use message::{Body, HeaderId, ResponseFraming};

use crate::caching::cache_request::{CacheRequest, access, local};
use crate::caching::stored::age::with_age;
use crate::caching::stored::{hot_entries, verify};
use crate::response::response_head;
use crate::response::response_head::Origin;
use crate::settings::family::Family;
use crate::settings::proxy_pass::PassSettings;
use crate::state::cache_state;
use crate::state::cache_state::Status;
use httpcore::Failure;
use httpcore::outcome::Outcome;
use httpcore::request::Request;

/// Maximum size of a body that is checked before its response begins, in bytes; a longer one is checked while it is
/// sent.
const CHECKED_FIRST_MAX: u64 = 1 << 20;

/// Error: the stored bytes cannot be used.
pub(crate) struct Unusable;

/// Answers with a hit.
///
/// # Errors
/// [`Unusable`]: it was damaged and has been dropped, or cannot be read. The origin is to be asked.
pub(crate) async fn serve(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    hit: &Hit,
    status: Status,
) -> Result<Outcome, Unusable> {
    let body = match hit.known.is_verified || request.is_head() {
        true => body_of(hit),
        false => Box::pin(checked(request, cache_request, hit)).await?,
    };
    let age = hit.known.lifetime.age(cache_request.now);
    let state = cache_state::of(request);
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
        if status == Status::Hit && hit.known.is_verified {
            hot_entries::keep(
                request,
                cache_request.cache,
                &cache_request.key_text,
                hit,
                response,
            );
        }
    }
    Ok(with_age(outcome, age))
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
    // A gateway's HEAD is never made a GET: without a length, the length is unknown.
    let is_gateway = passing.family != Family::Proxy;
    match length {
        None => is_gateway.then_some(ResponseFraming::UntilClose),
        length => length.map(ResponseFraming::Length),
    }
}

/// The stored body, from memory where a small one is kept there.
fn body_of(hit: &Hit) -> Body<Rc<OpenFile>> {
    let range = hit.entry.body();
    if range.is_empty() {
        return Body::Empty;
    }
    let is_inside = |whole: &Bytes| whole.len() as u64 >= range.end;
    match hit.file.body().filter(is_inside) {
        Some(whole) => Body::bytes(whole.slice(range.start as usize..range.end as usize)),
        None => {
            let start = hit.base + range.start;
            Body::file(Rc::clone(&hit.file), start, range.end - range.start)
        }
    }
}

/// The stored body, not checked yet.
async fn checked(
    request: &Request,
    cache_request: &CacheRequest<'_>,
    hit: &Hit,
) -> Result<Body<Rc<OpenFile>>, Unusable> {
    let mut checks = Checks::of(hit);
    let len = hit.entry.body_len();
    if len > CHECKED_FIRST_MAX {
        return Ok(verify::body(request, cache_request, hit.clone(), checks));
    }
    let access = access(request).map_err(|_: Failure| Unusable)?;
    let done = cache_request
        .store
        .verify(local(request), &access, hit, &mut checks, &(0..len))
        .await;
    match done {
        Ok(()) => Ok(body_of(hit)),
        Err(error) => {
            cache_request.cache.tell("an entry cannot be used", &error);
            Err(Unusable)
        }
    }
}
