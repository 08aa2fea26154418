//! Getting an answer from the origin for a cache, by a fill of its own (`lead`) or as a follower of another request's
//! fill (`follow`).
//!
//! Not here: the fill (`fill`), and whether one is needed (`lookup`).

use cache::Key;
use cache::KeyState;
use cache::fill::{Ending, Fill, Role};
use cache::store::Hit;
use disk::in_place;
use tokio::sync::oneshot;

use crate::caching::cache_request::CacheRequest;
use crate::caching::fetch::fetch_params::{FetchParams, Fetched};
use crate::caching::fetch::fill::WINDOW_BYTES;
use crate::caching::fetch::follow::follow;
use crate::caching::fetch::lead::lead;
use crate::caching::fetch::start_fill::{FillReceivers, prepare, start};
use crate::caching::fetch::store_question::{self, storing};
use crate::state::cache_state::CacheState;
use crate::state::upstream_state::UpstreamState;
use httpcore::outcome::Outcome;
use httpcore::request::Request;

/// Gets a response: as the first request, which others may follow, or by following another one (`proxy_cache_lock`). A
/// response that has arrived completely and is only not stored yet is followed in any case. A request that accepts
/// nothing fetched before its arrival follows no other.
pub(crate) async fn fetch(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    params: FetchParams,
) -> Fetched {
    if cache_request.rules.demands_anew(&cache_request.wishes) {
        return fetch_anew(request, cache_request, params).await;
    }
    let fill_key = params.key(cache_request);
    let key = fill_key.key;
    // One whose response is not stored leads nobody: its followers would all ask the origin at once.
    if !params.may_store && cache_request.cache.fills.running(&key).is_none() {
        return fetch_alone(request, cache_request, params).await;
    }
    match cache_request.cache.fills.join(fill_key, WINDOW_BYTES) {
        Role::Fill(filler) if params.may_have_come && is_stored(cache_request, &key) => {
            filler.end_without(Ending::Renewed);
            Fetched::Again
        }
        Role::Fill(filler) => lead(request, cache_request, params, filler).await,
        Role::Follow(fill) if has_expired(cache_request, &fill) => {
            fetch_alone(request, cache_request, params).await
        }
        Role::Follow(fill) if cache_request.caching.proxy_cache_lock || fill.is_complete() => {
            in_place::boxed(|| follow(request, cache_request, params, fill)).await
        }
        Role::Follow(_) => fetch_alone(request, cache_request, params).await,
    }
}

/// Whether it has arrived completely and is not fresh: then it is only for the requests that waited for it.
pub(crate) fn has_expired(cache_request: &CacheRequest<'_>, fill: &Fill) -> bool {
    let is_fresh = |lifetime| cache_request.rules.is_fresh(lifetime, cache_request.now);
    let lifetime = fill.metadata().and_then(|about| about.lifetime.as_ref());
    fill.is_complete() && !lifetime.is_none_or(is_fresh)
}

fn is_stored(cache_request: &CacheRequest<'_>, key: &Key) -> bool {
    let known = cache_request.store.index().peek(key);
    known.is_some_and(|known| known.state == KeyState::Stored)
}

/// Fetches from the origin regardless of other requests; requests that arrive from now on may follow this one.
pub(crate) async fn fetch_anew(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    params: FetchParams,
) -> Fetched {
    let key = params.key(cache_request);
    let filler = cache_request.cache.fills.take_over(key, WINDOW_BYTES);
    lead(request, cache_request, params, filler).await
}

/// Fetches from the origin beside other requests, for this one alone: it cannot be followed.
pub(crate) async fn fetch_alone(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    params: FetchParams,
) -> Fetched {
    let key = params.key(cache_request);
    let filler = cache_request.cache.fills.alone(key, WINDOW_BYTES);
    lead(request, cache_request, params, filler).await
}

/// The loop's monotonic time in milliseconds.
pub(super) fn now_ms() -> u64 {
    wire::loop_clock::monotonic_ms()
}

/// Fetches in the background, while the client gets the stored response. False: another request does so already.
///
/// # Errors
/// The response that the request gets instead: it cannot be passed on.
pub(crate) async fn fetch_behind(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    hit: &Hit,
) -> Result<bool, Outcome> {
    let params = FetchParams {
        stale: Some(Box::new(hit.clone())),
        looked_for: hit.entry.variant().is_some().then_some(hit.known.key),
        status: None,
        may_store: true,
        may_have_come: false,
        is_past_disk: false,
        is_raced: false,
    };
    let key = params.key(cache_request);
    let Role::Fill(filler) = cache_request.cache.fills.join(key, WINDOW_BYTES) else {
        return Ok(false);
    };
    filler.fill().begun(now_ms());
    // What is recorded of this fetch does not belong to the response that the request gets.
    let states = &mut request.states;
    let (upstream, cached) = (states.take::<UpstreamState>(), states.take::<CacheState>());
    let prepared = prepare(request, cache_request, &params).await;
    request.states.replace(upstream);
    request.states.replace(cached);
    match prepared {
        Ok(upstream_request) => {
            let (storing, question) = storing(cache_request, &params);
            if let Some(question) = question {
                store_question::answer_behind(request, &upstream_request, question);
            }
            let receivers = FillReceivers {
                end: end_awaited(request),
                hints: None,
                switched: None,
            };
            start(
                request,
                cache_request,
                &params,
                upstream_request,
                filler,
                storing,
                receivers,
            );
            Ok(true)
        }
        Err(outcome) => {
            filler.end_without(Ending::Refused(500));
            match outcome {
                // A server that cannot be asked is no reason not to use the stored response; the log says why.
                Outcome::Failed(failure) if failure.status >= 500 => Ok(true),
                outcome => Err(outcome),
            }
        }
    }
}

/// A connection that is to be closed waits for the update, as in nginx.
fn end_awaited(request: &mut Request) -> Option<oneshot::Sender<()>> {
    if request.transport.is_persistent() || request.is_subrequest() {
        return None;
    }
    let (end, ended) = oneshot::channel();
    request.work_behind = Some(ended);
    Some(end)
}
