//! Getting an answer from the origin for a cache, by a fill of its own or as a follower of another request's fill.
//!
//! Not here: the fill (`fill`), and whether one is needed (`lookup`). Invariant: a follower whose fill comes to nothing
//! asks the origin itself, or is given a stale entry where that may stand in for a failure.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cache::Key;
use cache::KeyState;
use cache::fill::{Ending, Fill, Filler, Follower, Role};
use cache::freshness::OriginFailure as Lost;
use cache::store::Hit;
use cache::{Lifetime, variant};
use logs::wall_clock::Moment;
use message::{HeaderId, ResponseHead};
use runtime::{Kind, spawn_begun};
use tokio::sync::{mpsc, oneshot};

use crate::caching::cache_request::{Inquiry, access, asks_as_get, is_storable, lines};
use crate::caching::fetch::fill::{Filling, Question, Storing, Task, WINDOW_BYTES};
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
use crate::state::cache_state;
use crate::state::cache_state::{Note, Status};
use crate::state::upstream_state::{Record, record_of};
use crate::upstream_request::request;
use crate::upstream_request::request::Order;
use crate::upstream_request::variation::Variation;
use httpcore::Failure;
use httpcore::outcome::Outcome;
use httpcore::request::Request;

/// The parameters of a fetch from the origin.
#[derive(Debug, Default)]
pub struct Want {
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

impl Want {
    fn key(&self, inquiry: &Inquiry<'_>) -> Key {
        self.looked_for.unwrap_or(inquiry.main)
    }
}

/// The result of a fetch.
pub enum Fetched {
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
pub async fn fetch(request: &mut Request, inquiry: &Inquiry<'_>, want: Want) -> Fetched {
    if inquiry.rules.demands_anew(&inquiry.wishes) {
        return fetch_anew(request, inquiry, want).await;
    }
    let key = want.key(inquiry);
    match inquiry.cache.fills.join(key, WINDOW_BYTES) {
        Role::Fill(filler) if want.may_have_come && is_stored(inquiry, &key) => {
            filler.end_without(Ending::Renewed);
            Fetched::Again
        }
        Role::Fill(filler) => lead(request, inquiry, want, filler).await,
        Role::Follow(fill) if has_expired(inquiry, &fill) => {
            fetch_alone(request, inquiry, want).await
        }
        Role::Follow(fill) if inquiry.caching.proxy_cache_lock || fill.is_complete() => {
            Box::pin(follow(request, inquiry, want, fill)).await
        }
        Role::Follow(_) => fetch_alone(request, inquiry, want).await,
    }
}

/// Whether it has arrived completely and is not fresh: then it is only for the requests that waited for it.
pub fn has_expired(inquiry: &Inquiry<'_>, fill: &Fill) -> bool {
    let is_fresh = |lifetime| inquiry.rules.is_fresh(lifetime, inquiry.now);
    let lifetime = fill.metadata().and_then(|about| about.lifetime.as_ref());
    fill.is_complete() && !lifetime.is_none_or(is_fresh)
}

fn is_stored(inquiry: &Inquiry<'_>, key: &Key) -> bool {
    let known = inquiry.store.index().peek(key);
    known.is_some_and(|known| known.state == KeyState::Stored)
}

/// Fetches from the origin regardless of other requests; requests that arrive from now on may follow this one.
pub async fn fetch_anew(request: &mut Request, inquiry: &Inquiry<'_>, want: Want) -> Fetched {
    let key = want.key(inquiry);
    let filler = inquiry.cache.fills.take_over(key, WINDOW_BYTES);
    lead(request, inquiry, want, filler).await
}

/// Fetches from the origin beside other requests, for this one alone: it cannot be followed.
async fn fetch_alone(request: &mut Request, inquiry: &Inquiry<'_>, want: Want) -> Fetched {
    let key = want.key(inquiry);
    let filler = inquiry.cache.fills.alone(key, WINDOW_BYTES);
    lead(request, inquiry, want, filler).await
}

fn now_ms() -> u64 {
    wire::loop_clock::monotonic_ms()
}

/// Fetches in the background, while the client gets the stored response. False: another request does so already.
///
/// # Errors
/// The response that the request gets instead: it cannot be passed on.
pub async fn fetch_behind(
    request: &mut Request,
    inquiry: &Inquiry<'_>,
    hit: &Hit,
) -> Result<bool, Outcome> {
    let want = Want {
        stale: Some(hit.clone()),
        looked_for: hit.entry.variant().is_some().then_some(hit.known.key),
        status: None,
        may_store: true,
        may_have_come: false,
    };
    let key = want.key(inquiry);
    let Role::Fill(filler) = inquiry.cache.fills.join(key, WINDOW_BYTES) else {
        return Ok(false);
    };
    filler.fill().begun(now_ms());
    // What is recorded of this fetch does not belong to the response that the request gets.
    let states = &mut request.states;
    let (record, note) = (states.take::<Record>(), states.take::<Note>());
    let prepared = prepare(request, inquiry, &want).await;
    request.states.replace(record);
    request.states.replace(note);
    let storing = match inquiry.caching.proxy_no_cache.hold(request) {
        true => Storing::No,
        false => Storing::Yes,
    };
    match prepared {
        Ok(order) => {
            let told = Told {
                end: end_awaited(request),
                hints: None,
                switched: None,
            };
            start(request, inquiry, &want, order, filler, storing, told);
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
    inquiry: &Inquiry<'_>,
    want: &Want,
) -> Result<Rc<Order>, Outcome> {
    let note = cache_state::of(request);
    if let Some(hit) = conditional_on(inquiry, want) {
        note.set_validators(hit);
    }
    let variation = Variation {
        is_cacheable: want.may_store,
        as_get: asks_as_get(request),
        lines: cache_state::of(request).conditions(),
    };
    request::make(request, &variation).await
}

/// The stored response that the origin is asked to revalidate.
fn conditional_on<'w>(inquiry: &Inquiry<'_>, want: &'w Want) -> Option<&'w Hit> {
    let hit = want.stale.as_ref().filter(|_| want.may_store)?;
    let can_be = matches!(hit.entry.head().status, 200 | 206);
    (inquiry.caching.revalidates() && can_be).then_some(hit)
}

/// The receivers of a fill's events beside its followers.
struct Told {
    hints: Option<mpsc::Sender<Box<ResponseHead>>>,
    switched: Option<oneshot::Sender<UpstreamResponse>>,
    end: Option<oneshot::Sender<()>>,
}

/// Starts the fill's task.
fn start(
    request: &Request,
    inquiry: &Inquiry<'_>,
    want: &Want,
    order: Rc<Order>,
    filler: Filler,
    storing: Storing,
    told: Told,
) {
    let loop_ = &request.client.loop_;
    let filling = Box::new(Filling {
        loop_: Rc::clone(loop_),
        generation: Rc::clone(&request.generation),
        location: request.location,
        cache: Arc::clone(inquiry.cache),
        key_text: inquiry.key_text.clone(),
        main: inquiry.main,
        looked_for: want.looked_for,
        head: (*request.head).clone(),
        stale: want.stale.clone(),
        is_miss: want.status == Some(Status::Miss),
        is_conditional: conditional_on(inquiry, want).is_some(),
        moment: inquiry.store.moment(),
        seat: Some(loop_.seat()),
        end: told.end,
        asked: Moment::now().second(),
    });
    let task = Task {
        order,
        filler,
        storing,
        hints: told.hints,
        switched: told.switched,
        filling,
    };
    let errand = loop_.begin_errand();
    spawn_begun(Kind::Module("fill"), async move {
        let _errand = errand;
        fill::run(task).await;
    });
}

/// Asks the origin, for this request and its followers.
async fn lead(request: &mut Request, inquiry: &Inquiry<'_>, want: Want, filler: Filler) -> Fetched {
    filler.fill().begun(now_ms());
    cache_state::of(request).status = want.status;
    let order = match Box::pin(prepare(request, inquiry, &want)).await {
        Ok(order) => order,
        Err(outcome) => {
            filler.end_without(Ending::Refused(500));
            return Fetched::Answer(outcome);
        }
    };
    let fill = filler.fill().clone();
    let Some(owner) = filler.requester() else {
        return Fetched::Pass;
    };
    let (storing, question) = storing(inquiry, &want);
    let wants_hints = !request.location().own::<Hints>().early_hints.is_empty();
    let (send_hints, hints) = wants_hints.then(|| mpsc::channel(HINTS_MAX)).unzip();
    let wants_switch = request.head.get(HeaderId::Upgrade).is_some();
    let (send_switched, switched) = wants_switch.then(oneshot::channel).unzip();
    let told = Told {
        hints: send_hints,
        switched: send_switched,
        end: None,
    };
    start(request, inquiry, &want, order, filler, storing, told);
    if let Some(question) = question {
        Box::pin(answer_question(request, inquiry, question)).await;
    }
    let Some(head) = head_after_hints(request, &owner, hints).await else {
        let ending = fill.ending().unwrap_or(Ending::Lost(502));
        return Box::pin(ended(request, inquiry, want, ending)).await;
    };
    if let Some(Ok(answer)) = switched.map(|mut switched| switched.try_recv()) {
        return Fetched::Answer(Box::pin(to_client::respond(request, answer)).await);
    }
    let origin = match fill.metadata() {
        Some(_) => Origin::Fill,
        None if want.may_store && is_storable(inquiry, &head) => Origin::Fill,
        None => Origin::Server,
    };
    Fetched::Answer(answer(request, inquiry, owner, &head, origin).await)
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
fn storing(inquiry: &Inquiry<'_>, want: &Want) -> (Storing, Option<oneshot::Receiver<Question>>) {
    if !want.may_store {
        return (Storing::No, None);
    }
    if inquiry.caching.proxy_no_cache.is_empty() {
        return (Storing::Yes, None);
    }
    let (ask, question) = oneshot::channel();
    (Storing::Ask(ask), Some(question))
}

/// Answers for `proxy_no_cache`, which may look at the response.
async fn answer_question(
    request: &mut Request,
    inquiry: &Inquiry<'_>,
    question: oneshot::Receiver<Question>,
) {
    let Ok(Question { head, may_store }) = question.await else {
        return;
    };
    *record_of(request).head.borrow_mut() = Some(head);
    let _ = may_store.send(!inquiry.caching.proxy_no_cache.hold(request));
}

async fn answer(
    request: &mut Request,
    inquiry: &Inquiry<'_>,
    follower: Follower,
    head: &Arc<ResponseHead>,
    origin: Origin,
) -> Outcome {
    let body = follow::body(request, inquiry, follower, head).await;
    response_head::shape(request, Box::new(ResponseHead::clone(head)), body, origin)
}

/// The result for a request whose fill ended without a response.
async fn ended(
    request: &mut Request,
    inquiry: &Inquiry<'_>,
    want: Want,
    ending: Ending,
) -> Fetched {
    let Some(hit) = want.stale else {
        return match ending {
            Ending::Renewed => Fetched::Again,
            _ => Fetched::Answer(Outcome::Failed(Failure::new(status_of(ending)))),
        };
    };
    if ending == Ending::Renewed {
        return renewed(request, inquiry, hit).await;
    }
    if !may_cover(inquiry, &hit.known.lifetime, ending) {
        return Fetched::Answer(Outcome::Failed(Failure::new(status_of(ending))));
    }
    served(serve(request, inquiry, &hit, Status::Stale).await)
}

fn served(outcome: Result<Outcome, Unusable>) -> Fetched {
    match outcome {
        Ok(outcome) => Fetched::Answer(outcome),
        Err(Unusable) => Fetched::Pass,
    }
}

/// The result after the origin said that the stored response has not changed.
async fn renewed(request: &mut Request, inquiry: &Inquiry<'_>, old: Hit) -> Fetched {
    let found = match access(request) {
        Ok(access) => inquiry.find(request, &access).await,
        Err(failure) => return Fetched::Answer(Outcome::Failed(failure)),
    };
    // With the lines that the 304 brought, if they could be stored.
    let hit = match found {
        Ok(cache::store::LookupOutcome::Hit(new)) => new,
        _ => old,
    };
    served(serve(request, inquiry, &hit, Status::Revalidated).await)
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
fn may_cover(inquiry: &Inquiry<'_>, lifetime: &Lifetime, ending: Ending) -> bool {
    let (kind, failure) = match ending {
        Ending::Covered(status) => (UseStale::of_status(status), Lost::Status(status)),
        Ending::Lost(_) => (Some(UseStale::ERROR), Lost::Connection),
        Ending::TimedOut(_) => (Some(UseStale::TIMEOUT), Lost::Connection),
        Ending::Invalid(_) => (Some(UseStale::INVALID_HEADER), Lost::Connection),
        Ending::Refused(_) | Ending::Renewed => return false,
    };
    let use_stale = inquiry.caching.proxy_cache_use_stale;
    let is_wanted = kind.is_some_and(|kind| use_stale.has(kind));
    inquiry
        .rules
        .may_cover(lifetime, inquiry.now, failure, is_wanted)
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
    inquiry: &Inquiry<'_>,
    want: Want,
    mut fill: Fill,
) -> Fetched {
    inquiry.cache.counters.follow();
    let key = want.key(inquiry);
    let begun = now_ms();
    // Terminates: each turn waits for a part of the timeout, or takes the lead.
    loop {
        let Some(follower) = fill.follow() else {
            return Fetched::Again;
        };
        cache_state::of(request).follows = !follower.fill().is_complete();
        let waited = wait(request, inquiry, &follower, begun).await;
        match waited {
            Waited::TimedOut => return Fetched::Pass,
            Waited::Aged => match inquiry.cache.fills.running(&key) {
                Some(other) if !other.is(&fill) => fill = other,
                _ => return fetch_anew(request, inquiry, want).await,
            },
            Waited::Head(Some(head)) => {
                return followed(request, inquiry, follower, &head).await;
            }
            Waited::Head(None) => {
                return match fill.ending() {
                    Some(ending) => ended(request, inquiry, want, ending).await,
                    // It is for the other request alone.
                    None => fetch_alone(request, inquiry, want).await,
                };
            }
        }
    }
}

async fn wait(request: &Request, inquiry: &Inquiry<'_>, follower: &Follower, begun: u64) -> Waited {
    let now = now_ms();
    let left = |from: u64, ms: u64| Duration::from_millis((from + ms).saturating_sub(now));
    let timeout = left(begun, inquiry.caching.proxy_cache_lock_timeout.0);
    let fill_begun = follower.fill().begun(now);
    let age = left(fill_begun, inquiry.caching.proxy_cache_lock_age.0);
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
    inquiry: &Inquiry<'_>,
    follower: Follower,
    head: &Arc<ResponseHead>,
) -> Fetched {
    let Some(about) = follower.fill().metadata().cloned() else {
        return Fetched::Pass;
    };
    if let Some(lifetime) = &about.lifetime {
        let (rules, wishes) = (inquiry.rules, &inquiry.wishes);
        if !rules.may_follow(lifetime, inquiry.now, wishes) {
            return match rules.refuses_miss(wishes) {
                true => Fetched::Answer(Outcome::Failed(Failure::new(504))),
                false => Fetched::Pass,
            };
        }
    }
    if !about.vary.is_empty() {
        let own = variant(inquiry.main, &about.vary, lines(request));
        if own != about.variant {
            return Fetched::Variant(own);
        }
    }
    let note = cache_state::of(request);
    note.status = Some(Status::Hit);
    let age = about.lifetime.map(|lifetime| lifetime.age(inquiry.now));
    note.age = age;
    let origin = match follower.fill().is_complete() {
        true => Origin::Cache,
        false => Origin::Fill,
    };
    let outcome = answer(request, inquiry, follower, head, origin).await;
    Fetched::Answer(match age {
        Some(age) => with_age(outcome, age),
        None => outcome,
    })
}
