//! A disk that is waited for, raced by the origin: hedged reads (`proxy_cache_hedge`).
//!
//! A request whose work at a disk outlasts the usual p99 of that disk is asked for at the origin, too, within a budget;
//! the first of the two is its response. One that waits longer than a request may, or whose disk goes out meanwhile, is
//! left to the origin by its caller. Not here: how many races there may be (`hedge_budget`).
//!
//! Invariants: the loser is dropped, and leaves nothing at the request; what the origin says in a race is not stored,
//! and no other request follows it.

use std::rc::Rc;
use std::time::Duration;

use message::{Framing, HeaderId, Method};

use crate::caching::cache_request::CacheRequest;
use crate::caching::fetch::fetch_params::{FetchParams, Fetched};
use crate::caching::fetch::origin_fetch::fetch_alone;
use crate::caching::stored::disk_work::{DiskWait, DiskWork, LOOK, Quick, Waited, millis};
use crate::state::cache_state::{CacheState, Status};
use crate::state::upstream_state::UpstreamState;
use httpcore::outcome::Outcome;
use httpcore::request::Request;

/// The end of a race.
pub(crate) enum Raced<T> {
    /// The disk was faster, or had no rival.
    Disk(T),
    /// The origin was.
    Origin(Outcome),
    /// The disk is out, or took longer than a request waits.
    Past,
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
    let wait = DiskWait::begin(request, cache_request);
    let hedge_after = millis(cache_request.cache.disk.hedge_after());
    let mut may_hedge = may_hedge(request, cache_request);
    let mut waited = 0;
    loop {
        let step = match may_hedge {
            true => Duration::from_millis(hedge_after.saturating_sub(waited)).max(LOOK),
            false => LOOK,
        };
        match wait.step(&mut work, step).await {
            Waited::Done(done) => return Raced::Disk(done),
            Waited::Longer(ms) => waited = ms,
            Waited::Past => return Raced::Past,
        }
        if may_hedge && waited >= hedge_after {
            may_hedge = false;
            if may_begin(cache_request)
                && let Some(raced) = Box::pin(hedge(request, cache_request, &mut work)).await
            {
                return raced;
            }
        }
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

/// Takes a race out of the budget.
fn may_begin(cache_request: &CacheRequest<'_>) -> bool {
    let cache = cache_request.cache;
    let share = cache_request.caching.proxy_cache_hedge.0;
    cache.hedges.take(
        wire::loop_clock::monotonic_ms(),
        cache.counters.all(),
        share,
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

/// The origin's response, if it is better than what the disk may bring.
fn won(fetched: Fetched) -> Option<Outcome> {
    match fetched {
        Fetched::Answer(Outcome::Answer(response)) if response.status < 500 => {
            Some(Outcome::Answer(response))
        }
        _ => None,
    }
}
