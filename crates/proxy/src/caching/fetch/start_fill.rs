//! The start of a fill: its upstream request, made from the request that needs it, and its task.
//!
//! Not here: the task (`fill`).

use std::rc::Rc;
use std::sync::Arc;

use cache::fill::Filler;
use cache::store::Hit;
use logs::wall_clock::Moment;
use message::ResponseHead;
use runtime::{Kind, spawn_begun};
use tokio::sync::{mpsc, oneshot};

use crate::caching::cache_request::{CacheRequest, asks_as_get};
use crate::caching::fetch::fetch_params::FetchParams;
use crate::caching::fetch::fill::{self, FillContext, FillTask};
use crate::caching::fetch::store_question::Storing;
use crate::response::upstream_response::UpstreamResponse;
use crate::settings::proxy_pass::PassSettings;
use crate::state::cache_state;
use crate::state::cache_state::Status;
use crate::upstream_request::request::{self, UpstreamRequest};
use crate::upstream_request::variation::Variation;
use httpcore::Failure;
use httpcore::outcome::Outcome;
use httpcore::request::Request;

/// Makes the upstream request.
pub(super) async fn prepare(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    params: &FetchParams,
) -> Result<Rc<UpstreamRequest>, Outcome> {
    let state = cache_state::of(request);
    if let Some(hit) = conditional_on(cache_request, params) {
        state.set_validators(hit);
    }
    let variation = Variation {
        is_cacheable: params.may_store,
        as_get: asks_as_get(request, cache_request.passing),
        lines: cache_state::of(request).conditions(),
    };
    let Some(passing) = request.location().made.share::<PassSettings>() else {
        return Err(Outcome::Failed(Failure::new(500)));
    };
    request::make(request, &passing, &variation).await
}

/// The stored response that the origin is asked to revalidate.
fn conditional_on<'w>(
    cache_request: &CacheRequest<'_>,
    params: &'w FetchParams,
) -> Option<&'w Hit> {
    let hit = params.stale.as_deref().filter(|_| params.may_store)?;
    let can_be = matches!(hit.entry.head().status, 200 | 206);
    (cache_request.caching.revalidates() && can_be).then_some(hit)
}

/// The receivers of a fill's events beside its followers.
pub(super) struct FillReceivers {
    /// Of interim heads (`early_hints`).
    pub(super) hints: Option<mpsc::Sender<Arc<ResponseHead>>>,
    /// Of a 101.
    pub(super) switched: Option<oneshot::Sender<UpstreamResponse>>,
    /// Of the end of the response, which a request waits for.
    pub(super) end: Option<oneshot::Sender<()>>,
}

/// Starts the fill's task.
pub(super) fn start(
    request: &Request,
    cache_request: &CacheRequest<'_>,
    params: &FetchParams,
    upstream_request: Rc<UpstreamRequest>,
    filler: Filler,
    storing: Storing,
    receivers: FillReceivers,
) {
    let loop_ = &request.client.loop_;
    // Built in place: the box comes first.
    let place = Box::new_uninit();
    let context = FillContext {
        loop_: Rc::clone(loop_),
        generation: Rc::clone(&request.generation),
        location: request.location,
        cache: Arc::clone(cache_request.cache),
        key_text: cache_request.key_text.clone(),
        main: cache_request.main,
        looked_for: params.looked_for,
        head: (*request.head).clone(),
        stale: params.stale.clone(),
        is_miss: params.status == Some(Status::Miss),
        is_conditional: conditional_on(cache_request, params).is_some(),
        is_past_disk: params.is_past_disk,
        moment: cache_request.store.moment(),
        seat: Some(loop_.seat()),
        end: receivers.end,
        asked: Moment::now().second(),
    };
    let context = Box::write(place, context);
    let task = FillTask {
        upstream_request,
        filler,
        storing,
        hints: receivers.hints,
        switched: receivers.switched,
        context,
    };
    let errand = loop_.begin_errand();
    spawn_begun(Kind::Module("fill"), || async move {
        let _errand = errand;
        fill::run(task).await;
    });
}
