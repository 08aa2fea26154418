//! The outcome of a request whose fill ended without a response: a stale entry in its place, where that may stand in for
//! a failure; the renewed one; or an error.

use cache::Lifetime;
use cache::fill::Ending;
use cache::freshness::OriginFailure as Lost;
use cache::store::{Hit, LookupOutcome};

use crate::caching::cache_request::CacheRequest;
use crate::caching::fetch::fetch_params::{FetchParams, Fetched};
use crate::caching::hedge::{Raced, race, used};
use crate::caching::stored::disk_work;
use crate::caching::stored::serve::{Unusable, serve};
use crate::settings::caching::UseStale;
use crate::state::cache_state::Status;
use httpcore::Failure;
use httpcore::outcome::Outcome;
use httpcore::request::Request;

/// The result for a request whose fill ended without a response.
pub(super) async fn ended(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    params: FetchParams,
    ending: Ending,
) -> Fetched {
    let Some(hit) = params.stale else {
        return match ending {
            Ending::Renewed => Fetched::Again,
            _ => Fetched::Answer(Outcome::Failed(Failure::new(status_of(ending)))),
        };
    };
    if ending == Ending::Renewed {
        return renewed(request, cache_request, *hit).await;
    }
    if !may_cover(cache_request, &hit.known.lifetime, ending) {
        return Fetched::Answer(Outcome::Failed(Failure::new(status_of(ending))));
    }
    served(serve(request, cache_request, &hit, Status::Stale).await)
}

fn served(outcome: Result<Outcome, Unusable>) -> Fetched {
    match outcome {
        Ok(outcome) => Fetched::Answer(outcome),
        Err(Unusable) => Fetched::Pass,
    }
}

/// The result after the origin said that the stored response has not changed.
async fn renewed(request: &mut Request, cache_request: &CacheRequest<'_>, old: Hit) -> Fetched {
    let find = match disk_work::find(request, cache_request).await {
        Ok(find) => find,
        Err(failure) => return Fetched::Answer(Outcome::Failed(failure)),
    };
    // With the lines that the 304 brought, if they could be stored.
    let hit = match race(request, cache_request, find).await {
        Raced::Disk(Ok(LookupOutcome::Hit(new))) => new,
        Raced::Origin(outcome) => return Fetched::Answer(outcome),
        _ => old,
    };
    served(used(request, cache_request, &hit, Status::Revalidated).await)
}

fn status_of(ending: Ending) -> u16 {
    match ending {
        Ending::Renewed => 500,
        Ending::Covered(status)
        | Ending::Lost(status)
        | Ending::TimedOut(status)
        | Ending::Invalid(status)
        | Ending::Refused(status) => status,
    }
}

/// Whether the stored response may be used instead of this ending.
fn may_cover(cache_request: &CacheRequest<'_>, lifetime: &Lifetime, ending: Ending) -> bool {
    let (kind, failure) = match ending {
        Ending::Covered(status) => (UseStale::of_status(status), Lost::Status(status)),
        Ending::Lost(_) => (Some(UseStale::ERROR), Lost::Connection),
        Ending::TimedOut(_) => (Some(UseStale::TIMEOUT), Lost::Connection),
        Ending::Invalid(_) => (Some(UseStale::INVALID_HEADER), Lost::Connection),
        Ending::Refused(_) | Ending::Renewed => return false,
    };
    let use_stale = cache_request.caching.proxy_cache_use_stale;
    let is_wanted = kind.is_some_and(|kind| use_stale.has(kind));
    cache_request
        .rules
        .may_cover(lifetime, cache_request.now, failure, is_wanted)
}
