//! The request that a fill is for: starts it, and answers with its response.
//!
//! Not here: the requests that follow the same fill (`follow`).

use disk::in_place;
use std::sync::Arc;

use cache::fill::{Ending, Filler, Follower};
use message::{HeaderId, ResponseHead};
use tokio::sync::{mpsc, oneshot};

use crate::caching::cache_request::{CacheRequest, is_storable};
use crate::caching::fetch::fetch_params::{FetchParams, Fetched};
use crate::caching::fetch::follower_body::answer;
use crate::caching::fetch::no_response::ended;
use crate::caching::fetch::origin_fetch::now_ms;
use crate::caching::fetch::start_fill::{FillReceivers, prepare, start};
use crate::caching::fetch::store_question::{self, storing};
use crate::response::response_head::{self, Origin};
use crate::response::{early_hints, to_client};
use crate::settings::directives::Hints;
use crate::settings::proxy_pass::PassSettings;
use crate::state::cache_state;
use httpcore::request::Request;

/// Maximum of interim heads that wait to be passed on.
const HINTS_MAX: usize = 16;

/// Asks the origin, for this request and its followers.
pub(super) async fn lead(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    params: FetchParams,
    filler: Filler,
) -> Fetched {
    filler.fill().begun(now_ms());
    cache_state::of(request).status = params.status;
    let upstream_request = match in_place::boxed(|| prepare(request, cache_request, &params)).await
    {
        Ok(upstream_request) => upstream_request,
        Err(outcome) => {
            filler.end_without(Ending::Refused(500));
            return Fetched::Answer(outcome);
        }
    };
    let fill = filler.fill().clone();
    let Some(owner) = filler.requester() else {
        return Fetched::Pass;
    };
    let (storing, question) = storing(cache_request, &params);
    let wants_hints = !request.location().own::<Hints>().early_hints.is_empty();
    let (send_hints, hints) = wants_hints.then(|| mpsc::channel(HINTS_MAX)).unzip();
    let wants_switch = request.head.get(HeaderId::Upgrade).is_some();
    let (send_switched, switched) = wants_switch.then(oneshot::channel).unzip();
    let receivers = FillReceivers {
        hints: send_hints,
        switched: send_switched,
        end: None,
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
    if let Some(question) = question {
        in_place::boxed(|| store_question::answer(request, cache_request.passing, question)).await;
    }
    let head = match hints {
        None => owner.head().await,
        // Boxed: few want hints.
        Some(hints) => in_place::boxed(|| head_after_hints(request, &owner, hints)).await,
    };
    let Some(head) = head else {
        let ending = fill.ending().unwrap_or(Ending::Lost(502));
        return in_place::boxed(|| ended(request, cache_request, params, ending)).await;
    };
    if params.is_raced && !is_better(request, cache_request.passing, &head) {
        return Fetched::Pass;
    }
    if let Some(Ok(answer)) = switched.map(|mut switched| switched.try_recv()) {
        return Fetched::Answer(
            in_place::boxed(|| to_client::respond(request, cache_request.passing, answer)).await,
        );
    }
    let origin = match fill.metadata() {
        Some(_) => Origin::Fill,
        None if params.may_store && is_storable(cache_request, &head) => Origin::Fill,
        None => Origin::Server,
    };
    Fetched::Answer(answer(request, cache_request, owner, &head, origin).await)
}

/// Whether the origin's response is better than what the disk may bring: no failure, and the content itself.
fn is_better(request: &Request, passing: &PassSettings, head: &ResponseHead) -> bool {
    head.status < 500 && !response_head::is_replaced(request, passing, head)
}

/// Waits for the response's head; interim ones are passed on.
async fn head_after_hints(
    request: &mut Request,
    owner: &Follower,
    mut hints: mpsc::Receiver<Arc<ResponseHead>>,
) -> Option<Arc<ResponseHead>> {
    loop {
        let hint = tokio::select! {
            biased;
            Some(hint) = hints.recv() => hint,
            head = owner.head() => return head,
        };
        early_hints::pass(request, &hint).await;
    }
}
