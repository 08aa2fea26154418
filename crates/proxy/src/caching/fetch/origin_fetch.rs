//! Getting an answer from the origin for a cache, by a fill of its own or as a follower of another request's fill.
//!
//! Not here: the fill (`fill`), and whether one is needed (`lookup`). Invariant: a follower whose fill comes to nothing
//! asks the origin itself, or is given a stale entry where that may stand in for a failure.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cache::Key;
use cache::KeyState;
use cache::fill::{Ending, Fill, FillKey, Filler, Follower, Role};
use cache::freshness::OriginFailure as Lost;
use cache::store::Hit;
use cache::{Lifetime, variant};
use logs::wall_clock::Moment;
use message::{HeaderId, ResponseHead};
use runtime::{Kind, spawn_begun};
use tokio::sync::{mpsc, oneshot};

use crate::caching::cache_request::{CacheRequest, access, asks_as_get, is_storable, lines};
use crate::caching::fetch::fill::{FillContext, FillTask, StoreQuestion, Storing, WINDOW_BYTES};
use crate::caching::fetch::{fill, follow};
use crate::caching::stored::age::with_age;
use crate::caching::stored::serve::Unusable;
use crate::caching::stored::serve::serve;
use crate::response::response_head;
use crate::response::response_head::Origin;
use crate::response::upstream_response::UpstreamResponse;
use crate::response::{early_hints, to_client};
use crate::settings::caching::UseStale;
use crate::settings::directives::Hints;
use crate::settings::proxy_pass::Passing;
use crate::state::cache_state;
use crate::state::cache_state::{CacheState, Status};
use crate::state::upstream_state::{self, UpstreamState};
use crate::upstream_request::request;
use crate::upstream_request::request::UpstreamRequest;
use crate::upstream_request::variation::Variation;
use httpcore::Failure;
use httpcore::outcome::Outcome;
use httpcore::request::Request;

/// The parameters of a fetch from the origin.
#[derive(Debug, Default)]
pub(crate) struct FetchParams {
    /// The stored response that is no longer fresh.
    pub stale: Option<Hit>,
    /// The variant that was looked up.
    pub looked_for: Option<Key>,
    /// `$upstream_cache_status` of a response from the origin.
    pub status: Option<Status>,
    /// Whether the response may be stored, as far as the request decides that.
    pub may_store: bool,
    /// Whether it was looked up once only: then another request may have stored it since.
    pub may_have_come: bool,
}

impl FetchParams {
    fn key(&self, cache_request: &CacheRequest<'_>) -> FillKey {
        FillKey {
            key: self.looked_for.unwrap_or(cache_request.main),
            main: cache_request.main,
            text: cache_request.key_text.clone(),
        }
    }
}

/// The result of a fetch.
pub(crate) enum Fetched {
    /// A response.
    Answer(Outcome),
    /// Another request stored something: look it up again.
    Again,
    /// The other request's response is of another variant: this one is wanted.
    Variant(Key),
    /// The request is to be passed on without the cache.
    Pass,
}

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
            Box::pin(follow(request, cache_request, params, fill)).await
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
async fn fetch_alone(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    params: FetchParams,
) -> Fetched {
    let key = params.key(cache_request);
    let filler = cache_request.cache.fills.alone(key, WINDOW_BYTES);
    lead(request, cache_request, params, filler).await
}

fn now_ms() -> u64 {
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
        stale: Some(hit.clone()),
        looked_for: hit.entry.variant().is_some().then_some(hit.known.key),
        status: None,
        may_store: true,
        may_have_come: false,
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
    let storing = match cache_request.caching.proxy_no_cache.hold(request) {
        true => Storing::No,
        false => Storing::Yes,
    };
    match prepared {
        Ok(upstream_request) => {
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

/// Makes the upstream request.
async fn prepare(
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
    let Some(passing) = request.location().made.share::<Passing>() else {
        return Err(Outcome::Failed(Failure::new(500)));
    };
    request::make(request, &passing, &variation).await
}

/// The stored response that the origin is asked to revalidate.
fn conditional_on<'w>(
    cache_request: &CacheRequest<'_>,
    params: &'w FetchParams,
) -> Option<&'w Hit> {
    let hit = params.stale.as_ref().filter(|_| params.may_store)?;
    let can_be = matches!(hit.entry.head().status, 200 | 206);
    (cache_request.caching.revalidates() && can_be).then_some(hit)
}

/// The receivers of a fill's events beside its followers.
struct FillReceivers {
    hints: Option<mpsc::Sender<Box<ResponseHead>>>,
    switched: Option<oneshot::Sender<UpstreamResponse>>,
    end: Option<oneshot::Sender<()>>,
}

/// Starts the fill's task.
fn start(
    request: &Request,
    cache_request: &CacheRequest<'_>,
    params: &FetchParams,
    upstream_request: Rc<UpstreamRequest>,
    filler: Filler,
    storing: Storing,
    receivers: FillReceivers,
) {
    let loop_ = &request.client.loop_;
    let context = Box::new(FillContext {
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
        moment: cache_request.store.moment(),
        seat: Some(loop_.seat()),
        end: receivers.end,
        asked: Moment::now().second(),
    });
    let task = FillTask {
        upstream_request,
        filler,
        storing,
        hints: receivers.hints,
        switched: receivers.switched,
        context,
    };
    let errand = loop_.begin_errand();
    spawn_begun(Kind::Module("fill"), async move {
        let _errand = errand;
        fill::run(task).await;
    });
}

/// Asks the origin, for this request and its followers.
async fn lead(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    params: FetchParams,
    filler: Filler,
) -> Fetched {
    filler.fill().begun(now_ms());
    cache_state::of(request).status = params.status;
    let upstream_request = match Box::pin(prepare(request, cache_request, &params)).await {
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
        Box::pin(answer_question(request, cache_request, question)).await;
    }
    let Some(head) = head_after_hints(request, &owner, hints).await else {
        let ending = fill.ending().unwrap_or(Ending::Lost(502));
        return Box::pin(ended(request, cache_request, params, ending)).await;
    };
    if let Some(Ok(answer)) = switched.map(|mut switched| switched.try_recv()) {
        return Fetched::Answer(
            Box::pin(to_client::respond(request, cache_request.passing, answer)).await,
        );
    }
    let origin = match fill.metadata() {
        Some(_) => Origin::Fill,
        None if params.may_store && is_storable(cache_request, &head) => Origin::Fill,
        None => Origin::Server,
    };
    Fetched::Answer(answer(request, cache_request, owner, &head, origin).await)
}

/// Maximum of interim heads that wait to be passed on.
const HINTS_MAX: usize = 16;

/// Waits for the response's head; interim ones are passed on.
async fn head_after_hints(
    request: &mut Request,
    owner: &Follower,
    hints: Option<mpsc::Receiver<Box<ResponseHead>>>,
) -> Option<Arc<ResponseHead>> {
    let Some(mut hints) = hints else {
        return owner.head().await;
    };
    loop {
        let hint = tokio::select! {
            biased;
            Some(hint) = hints.recv() => hint,
            head = owner.head() => return head,
        };
        early_hints::pass(request, &hint).await;
    }
}

/// How it is decided whether the response may be stored.
fn storing(
    cache_request: &CacheRequest<'_>,
    params: &FetchParams,
) -> (Storing, Option<oneshot::Receiver<StoreQuestion>>) {
    if !params.may_store {
        return (Storing::No, None);
    }
    if cache_request.caching.proxy_no_cache.is_empty() {
        return (Storing::Yes, None);
    }
    let (ask, question) = oneshot::channel();
    (Storing::Ask(ask), Some(question))
}

/// Answers for `proxy_no_cache`, which may look at the response.
async fn answer_question(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    question: oneshot::Receiver<StoreQuestion>,
) {
    let Ok(StoreQuestion { head, may_store }) = question.await else {
        return;
    };
    *upstream_state::of(request).head.borrow_mut() = Some(head);
    let _ = may_store.send(!cache_request.caching.proxy_no_cache.hold(request));
}

async fn answer(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    follower: Follower,
    head: &Arc<ResponseHead>,
    origin: Origin,
) -> Outcome {
    let body = follow::body(request, cache_request, follower, head).await;
    let head = Box::new(ResponseHead::clone(head));
    response_head::shape(request, cache_request.passing, head, body, origin)
}

/// The result for a request whose fill ended without a response.
async fn ended(
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
        return renewed(request, cache_request, hit).await;
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
    let found = match access(request) {
        Ok(access) => cache_request.find(request, &access).await,
        Err(failure) => return Fetched::Answer(Outcome::Failed(failure)),
    };
    // With the lines that the 304 brought, if they could be stored.
    let hit = match found {
        Ok(cache::store::LookupOutcome::Hit(new)) => new,
        _ => old,
    };
    served(serve(request, cache_request, &hit, Status::Revalidated).await)
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

/// How a follower's wait for a head ended.
enum Waited {
    Head(Option<Arc<ResponseHead>>),
    /// `proxy_cache_lock_timeout`
    TimedOut,
    /// `proxy_cache_lock_age`
    Aged,
}

/// Follows another request's fetch.
async fn follow(
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
        match waited {
            Waited::TimedOut => return Fetched::Pass,
            Waited::Aged => match cache_request.cache.fills.running(&key) {
                Some(other) if !other.is(&fill) => fill = other,
                _ => return fetch_anew(request, cache_request, params).await,
            },
            Waited::Head(Some(head)) => {
                return followed(request, cache_request, follower, &head).await;
            }
            Waited::Head(None) => {
                return match fill.ending() {
                    Some(ending) => ended(request, cache_request, params, ending).await,
                    // It is for the other request alone.
                    None => fetch_alone(request, cache_request, params).await,
                };
            }
        }
    }
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
    let outcome = answer(request, cache_request, follower, head, origin).await;
    Fetched::Answer(match age {
        Some(age) => with_age(outcome, age),
        None => outcome,
    })
}
