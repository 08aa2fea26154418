//! The way of a request that is passed on: answered by its location's cache, or by an upstream server.
//!
//! Not here: the steps of that way (`upstream_request`, `exchange`, `response`), and those through a cache (`caching`).

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use disk::in_place;
use runtime::timing::yield_turn;

use crate::caching::cache_request::asks_as_get;
use crate::caching::{lookup, purging};
use crate::exchange::upstream_exchange::{ExchangeStep, NoAnswer, UpstreamExchange};
use crate::response::upstream_response::UpstreamResponse;
use crate::response::{early_hints, store, to_client};
use crate::settings::proxy_pass::{PassSettings, groups};
use crate::state::cache_state::CacheState;
use crate::state::upstream_state;
use crate::upstream_request::request::{self, UpstreamRequest};
use crate::upstream_request::variation::Variation;
use httpcore::Failure;
use httpcore::files;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::request_body::{self, Leaving};

/// Answers from a cache, or passes the request on.
///
/// Each is boxed: the state of an upstream exchange is large, and a response from a file does not need it, nor the
/// other way round.
pub async fn make(request: &mut Request) -> Outcome {
    request.is_passed_on = true;
    upstream_state::forget_answer(request);
    let outcome = match is_cached(request) {
        true => in_place::boxed(|| lookup::make(request)).await,
        false => {
            // The record of an earlier location, which sent the request here, is not about this one.
            request.states.take::<CacheState>();
            None
        }
    };
    let outcome = match outcome {
        Some(outcome) => outcome,
        None => in_place::boxed(|| pass_on(request)).await,
    };
    upstream_state::bound(request, outcome)
}

fn is_cached(request: &Request) -> bool {
    groups(request.location()).is_some_and(|groups| groups.caching.is_on())
}

async fn pass_on(request: &mut Request) -> Outcome {
    let Some(passing) = request.location().made.share::<PassSettings>() else {
        return Outcome::Failed(Failure::new(500));
    };
    let response = match answered(request, &passing).await {
        Ok(response) => response,
        Err(outcome) => return outcome,
    };
    if passing.groups.caching.is_on() {
        Box::pin(purging::invalidate(request, &passing, response.head.status)).await;
    }
    to_client::respond(request, &passing, response).await
}

async fn answered(
    request: &mut Request,
    passing: &Arc<PassSettings>,
) -> Result<UpstreamResponse, Outcome> {
    let upstream_request = upstream_request(request, passing).await?;
    let ignores = passing.groups.asking.proxy_ignore_client_abort;
    let leaving = match ignores || store::is_on(passing) {
        true => Leaving::IsIgnored,
        false => Leaving::Ends,
    };
    yield_turn::others_first().await;
    let mut exchange = UpstreamExchange::new(upstream_request);
    loop {
        // By reference: it is large, and is in place already.
        let step = request_body::alongside(request, leaving, pin!(exchange.next())).await;
        let head = match step? {
            Ok(ExchangeStep::Answer(answer)) => return Ok(answer),
            Ok(ExchangeStep::Interim(head)) => head,
            Err(none) => return Err(Outcome::Failed(failure(none))),
        };
        Box::pin(early_hints::pass(request, &head)).await?;
    }
}

fn failure(none: NoAnswer) -> Failure {
    match (none.failure, none.status) {
        // The disk with the request's body.
        (None, 503) => files::late(),
        (_, status) => Failure::new(status),
    }
}

/// The upstream request. Its own function, so that nothing that it is made of stays in the exchange's future.
async fn upstream_request(
    request: &mut Request,
    passing: &Arc<PassSettings>,
) -> Result<Rc<UpstreamRequest>, Outcome> {
    let variation = Variation {
        // With a cache a HEAD may be sent as GET, though this response is not stored.
        as_get: request.states.get::<CacheState>().is_some() && asks_as_get(request, passing),
        ..Variation::default()
    };
    request::make(request, passing, &variation).await
}
