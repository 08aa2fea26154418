//! A disk that is waited for, raced by the origin: hedged reads (`proxy_cache_hedge`).
//!
//! A request whose work at a disk outlasts the usual p99 of that disk is asked for at the origin, too, within a budget;
//! the first of the two is its response. One that waits longer than a request may, or whose disk goes out meanwhile, is
//! left to the origin by its caller. Not here: how many races there may be (`hedge_budget`).
//!
//! Invariants: the loser is dropped, and leaves nothing at the request; what the origin says in a race is not stored,
//! and no other request follows it.

use std::ops::Add;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use cache::store::Hit;
use message::{Framing, HeaderId, Method};

use crate::caching::cache_request::CacheRequest;
use crate::caching::caches::registry;
use crate::caching::fetch::fetch_params::{FetchParams, Fetched};
use crate::caching::fetch::origin_fetch::fetch_alone;
use crate::caching::hedge_budget::Latest;
use crate::caching::stored::disk_work::{self, DiskWork, Quick};
use crate::caching::stored::serve::{Unusable, with_read};
use crate::state::cache_state::{CacheState, Status};
use crate::state::upstream_state::UpstreamState;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::transport::DiskLimit;

/// The end of a race.
pub(crate) enum Raced<T> {
    /// The disk was faster, or had no rival.
    Disk(T),
    /// The origin was.
    Origin(Outcome),
    /// The disk is out, or took longer than a request waits.
    Past,
}

/// Answers with a hit, or with the origin's response where that is faster than the disk.
///
/// # Errors
/// [`Unusable`]: the origin is to be asked.
pub(crate) async fn used(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    hit: &Hit,
    status: Status,
) -> Result<Outcome, Unusable> {
    let body = disk_work::body(request, cache_request, hit);
    match race(request, cache_request, body).await {
        Raced::Disk(body) => with_read(request, cache_request, hit, status, body),
        Raced::Origin(outcome) => Ok(outcome),
        Raced::Past => Err(Unusable),
    }
}

/// Waits for the disk, and races it with the origin where that is due.
pub(crate) async fn race<T>(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    quick: Quick<T>,
) -> Raced<T> {
    match quick {
        Quick::Done(done) => Raced::Disk(done),
        Quick::Past => Raced::Past,
        // Boxed, as every wait for a pool.
        Quick::Wait(work) => Box::pin(wait(request, cache_request, work)).await,
    }
}

async fn wait<T>(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    mut work: DiskWork<T>,
) -> Raced<T> {
    let limit = disk_work::patience(request, cache_request);
    let mut past = pin!(DiskLimit::reached(Some(&limit)));
    if may_hedge(request, cache_request) {
        tokio::select! {
            biased;
            done = &mut work => return Raced::Disk(done),
            _ = &mut past => return Raced::Past,
            () = limit.wheel.sleep(cache_request.cache.disk.hedge_after()) => {}
        }
        if may_begin(request, cache_request)
            && let Some(raced) = Box::pin(hedge(request, cache_request, &mut work)).await
        {
            return raced;
        }
    }
    tokio::select! {
        biased;
        done = work => Raced::Disk(done),
        _ = past => Raced::Past,
    }
}

/// Whether the request can be sent to the origin beside the disk: it may be sent twice, and nothing of it is read.
fn may_hedge(request: &Request, cache_request: &CacheRequest<'_>) -> bool {
    cache_request.caching.proxy_cache_hedge.0 > 0
        && matches!(request.method, Method::Get | Method::Head)
        && request.head.framing == Framing::None
        && request.head.get(HeaderId::Upgrade).is_none()
        && !cache_request.rules.refuses_miss(&cache_request.wishes)
}

/// Takes a race out of the budget, which the disks of a cache have together.
fn may_begin(request: &Request, cache_request: &CacheRequest<'_>) -> bool {
    let cache = cache_request.cache;
    let now_ms = wire::loop_clock::monotonic_ms();
    let disks = registry::find(&request.generation.settings, &cache.zone.name).unwrap_or_default();
    let others = disks.iter().filter(|disk| !Arc::ptr_eq(disk, cache));
    let others = others.map(|disk| disk.hedges.latest(now_ms, disk.counters.all()));
    cache.hedges.take(
        now_ms,
        cache.counters.all(),
        cache_request.caching.proxy_cache_hedge.0,
        others.fold(Latest::default(), Latest::add),
    )
}

/// Asks the origin beside the disk. None: the origin has no response to give; the disk is to be waited for.
async fn hedge<T>(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    work: &mut DiskWork<T>,
) -> Option<Raced<T>> {
    let states = &mut request.states;
    let before = (states.take::<UpstreamState>(), states.take::<CacheState>());
    states.put(Rc::new(CacheState {
        key: cache_request.key_text.clone(),
        ..CacheState::default()
    }));
    let params = FetchParams {
        status: Some(Status::Miss),
        is_raced: true,
        ..FetchParams::default()
    };
    let raced = {
        let origin = fetch_alone(request, cache_request, params);
        tokio::select! {
            biased;
            done = work => Some(Raced::Disk(done)),
            fetched = origin => won(fetched).map(Raced::Origin),
        }
    };
    if let Some(Raced::Origin(_)) = &raced {
        cache_request.cache.hedges.win();
        return raced;
    }
    // What is recorded of this fetch does not belong to the response that the request gets.
    request.states.take::<UpstreamState>();
    request.states.take::<CacheState>();
    request.states.replace(before.0);
    request.states.replace(before.1);
    raced
}

/// The origin's response, if there is one.
fn won(fetched: Fetched) -> Option<Outcome> {
    match fetched {
        Fetched::Answer(outcome @ Outcome::Answer(_)) => Some(outcome),
        _ => None,
    }
}
