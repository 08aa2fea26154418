//! A request that follows the fill of another one (`proxy_cache_lock`).
//!
//! Invariant: a follower whose fill comes to nothing asks the origin itself, or is given a stale entry where that may
//! stand in for a failure.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cache::fill::{Fill, Follower};
use cache::variant;
use message::ResponseHead;

use crate::caching::cache_request::{CacheRequest, is_storable, lines};
use crate::caching::fetch::fetch_params::{FetchParams, Fetched};
use crate::caching::fetch::follower_body::answer;
use crate::caching::fetch::no_response::ended;
use crate::caching::fetch::origin_fetch::{fetch_alone, fetch_anew, now_ms};
use crate::caching::fetch::store_question::keeps_out;
use crate::caching::stored::age::with_age;
use crate::response::response_head::{Origin, ranges};
use crate::state::cache_state;
use crate::state::cache_state::Status;
use httpcore::Failure;
use httpcore::outcome::Outcome;
use httpcore::request::Request;

/// How a follower's wait for a head ended.
enum Waited {
    Head(Option<Arc<ResponseHead>>),
    /// `proxy_cache_lock_timeout`
    TimedOut,
    /// `proxy_cache_lock_age`
    Aged,
}

/// Follows another request's fetch.
pub(super) async fn follow(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    params: FetchParams,
    mut fill: Fill,
) -> Fetched {
    cache_request.cache.counters.follow();
    let key = params.key(cache_request).key;
    let begun = now_ms();
    // Terminates: each turn waits for a part of the timeout, or takes the lead.
    loop {
        let Some(follower) = fill.follow() else {
            return Fetched::Again;
        };
        cache_state::of(request).follows = !follower.fill().is_complete();
        let waited = wait(request, cache_request, &follower, begun).await;
        if let Waited::Head(Some(head)) = waited {
            return followed(request, cache_request, follower, &head).await;
        }
        // One that reads nothing would hold up the others.
        drop(follower);
        match waited {
            Waited::TimedOut => return after_timeout(request, cache_request, params).await,
            Waited::Aged => match cache_request.cache.fills.running(&key) {
                Some(other) if !other.is(&fill) => fill = other,
                _ => return fetch_anew(request, cache_request, params).await,
            },
            Waited::Head(_) => {
                return match fill.ending() {
                    Some(ending) => ended(request, cache_request, params, ending).await,
                    None => after_private(request, cache_request, params, &fill).await,
                };
            }
        }
    }
}

/// The step for a follower that has waited for too long: its response is not stored, and a stale entry may stand in
/// for a failure.
async fn after_timeout(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    params: FetchParams,
) -> Fetched {
    if params.stale.is_none() {
        return Fetched::Pass;
    }
    let params = FetchParams {
        may_store: false,
        ..params
    };
    fetch_alone(request, cache_request, params).await
}

/// The step for a follower whose fill is for the other request alone. One that only that request's conditions
/// (`proxy_no_cache`) keep out of the cache is fetched again, by one of its followers for the others.
async fn after_private(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    params: FetchParams,
    fill: &Fill,
) -> Fetched {
    let no_cache = &cache_request.caching.proxy_no_cache;
    if !no_cache.is_empty()
        && let Some(head) = fill.head()
        && is_storable(cache_request, &head)
        && !keeps_out(request, cache_request.passing, &head)
    {
        return Fetched::Again;
    }
    fetch_alone(request, cache_request, params).await
}

async fn wait(
    request: &Request,
    cache_request: &CacheRequest<'_>,
    follower: &Follower,
    begun: u64,
) -> Waited {
    let now = now_ms();
    let left = |from: u64, ms: u64| Duration::from_millis((from + ms).saturating_sub(now));
    let timeout = left(begun, cache_request.caching.proxy_cache_lock_timeout.0);
    let fill_begun = follower.fill().begun(now);
    let age = left(fill_begun, cache_request.caching.proxy_cache_lock_age.0);
    let wheel = Rc::clone(&request.client.loop_.wire.wheel);
    tokio::select! {
        biased;
        head = follower.head() => Waited::Head(head),
        () = wheel.sleep(timeout) => Waited::TimedOut,
        () = wheel.sleep(age) => Waited::Aged,
    }
}

/// Answers a follower, if the response is of the variant that it asks for.
async fn followed(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    follower: Follower,
    head: &Arc<ResponseHead>,
) -> Fetched {
    let Some(about) = follower.fill().metadata().cloned() else {
        return Fetched::Pass;
    };
    if let Some(lifetime) = &about.lifetime {
        let (rules, wishes) = (cache_request.rules, &cache_request.wishes);
        if !rules.may_follow(lifetime, cache_request.now, wishes) {
            return match rules.refuses_miss(wishes) {
                true => Fetched::Answer(Outcome::Failed(Failure::new(504))),
                false => Fetched::Pass,
            };
        }
    }
    if !about.vary.is_empty() {
        let own = variant(cache_request.main, &about.vary, lines(request));
        if own != about.variant {
            return Fetched::Variant(own);
        }
    }
    let state = cache_state::of(request);
    state.status = Some(Status::Hit);
    let age = about
        .lifetime
        .map(|lifetime| lifetime.age(cache_request.now));
    state.age = age;
    let origin = match follower.fill().is_complete() {
        true => Origin::Cache,
        false => Origin::Fill,
    };
    let mut outcome = answer(request, cache_request, follower, head, origin).await;
    if cache_request.caching.proxy_cache_rfc9111
        && let Outcome::Answer(response) = &mut outcome
    {
        response.ranges = ranges(origin);
    }
    Fetched::Answer(match age {
        Some(age) => with_age(outcome, age),
        None => outcome,
    })
}
