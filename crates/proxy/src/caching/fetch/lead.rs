//! The request that a fill is for: starts it, and answers with its response.
//!
//! Not here: the requests that follow the same fill (`follow`).

use disk::in_place;
use std::pin::pin;
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
use crate::caching::fetch::store_question::{self, StoreQuestion, storing};
use crate::response::response_head::{self, Origin};
use crate::response::{early_hints, to_client};
use crate::settings::directives::Hints;
use crate::settings::proxy_pass::PassSettings;
use crate::state::cache_state;
use httpcore::outcome::Outcome;
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
    // One that loses a race would leave half a head at the request.
    let wants_hints = !params.is_raced && !request.location().own::<Hints>().early_hints.is_empty();
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
    let head = match (&hints, &question) {
        (None, None) => Ok(owner.head().await),
        // Boxed: few have either.
        _ => {
            let passing = cache_request.passing;
            in_place::boxed(|| head_meanwhile(request, passing, &owner, hints, question)).await
        }
    };
    let Some(head) = (match head {
        Ok(head) => head,
        Err(outcome) => return Fetched::Answer(outcome),
    }) else {
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
        None if params.may_store && is_storable(cache_request, &head) => Origin::Private,
        None => Origin::Server,
    };
    Fetched::Answer(answer(request, cache_request, owner, &head, origin).await)
}

/// Whether the origin's response is better than what the disk may bring: no failure, and the content itself.
fn is_better(request: &Request, passing: &PassSettings, head: &ResponseHead) -> bool {
    head.status < 500 && !response_head::is_replaced(request, passing, head)
}

/// Waits for the response's head. Meanwhile interim heads are passed on, and the fill is told whether it may store.
async fn head_meanwhile(
    request: &mut Request,
    passing: &PassSettings,
    owner: &Follower,
    mut hints: Option<mpsc::Receiver<Arc<ResponseHead>>>,
    mut question: Option<oneshot::Receiver<StoreQuestion>>,
) -> Result<Option<Arc<ResponseHead>>, Outcome> {
    loop {
        let hint = tokio::select! {
            biased;
            Some(asked) = asked(&mut question) => {
                store_question::decide(request, passing, asked);
                continue;
            }
            Some(hint) = async { hints.as_mut()?.recv().await } => hint,
            head = owner.head() => return Ok(head),
        };
        let mut passed = pin!(early_hints::pass(request, &hint));
        tokio::select! {
            biased;
            passed = &mut passed => passed,
            // A client that takes nothing holds up no fill: dropped, it is a no.
            Some(_) = asked(&mut question) => passed.await,
        }?;
    }
}

/// The question of the fill, once; `None`: there is none.
async fn asked(question: &mut Option<oneshot::Receiver<StoreQuestion>>) -> Option<StoreQuestion> {
    let asked = question.as_mut()?.await.ok();
    *question = None;
    asked
}
