//! The way of a request through its cache: look up, judge, then use the stored entry or ask the origin.
//!
//! The order is nginx's: method, name, purge, bypass, look-up, freshness, lock. Invariant: whatever goes wrong here,
//! the origin is asked.

use disk::in_place;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use cache::freshness::ReuseDecision;
use cache::store::{Hit, LookupOutcome, Miss};
use cache::{Key, KeyState, KnownKey, USES_MAX};
use logs::Level;
use message::Framing;

use crate::caching::cache_request::{CacheRequest, is_asked, is_range_far, key_text};
use crate::caching::caches::open_cache::Cache;
use crate::caching::caches::{placing, registry};
use crate::caching::fetch::fetch_params::{FetchParams, Fetched};
use crate::caching::fetch::origin_fetch::{fetch, fetch_alone, fetch_behind, has_expired};
use crate::caching::hedge::{Raced, race, used};
use crate::caching::stored::serve::Unusable;
use crate::caching::stored::{disk_work, foreign_cache, hot_entries};
use crate::caching::{cache_request, purging};
use crate::settings::caching::rules;
use crate::settings::caching::{Caching, UseStale};
use crate::settings::proxy_pass::PassSettings;
use crate::state::cache_state;
use crate::state::cache_state::{CacheState, Status};
use httpcore::Failure;
use httpcore::http_loop::generation::Generation;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::request_body;
use httpcore::settings::Location;

/// Maximum of lookups that one request repeats because another one stored or renewed what it waits for.
const TURNS_MAX: u32 = 4;

/// Answers from the cache, or through it. None: the request has no cache, and is to be passed on.
pub(crate) async fn make(request: &mut Request) -> Option<Outcome> {
    let generation = Rc::clone(&request.generation);
    // The record of an earlier location, which sent the request here, is not about this one's cache.
    request.states.take::<CacheState>();
    let location = generation.settings.location(request.location);
    let passing = location.made::<PassSettings>()?;
    let caches = match chosen(request, &generation, (location, passing))? {
        Ok(caches) => caches,
        Err(name) => {
            let caching = &passing.groups.caching;
            let needs_cache =
                is_asked(request, caching) || caching.proxy_cache_purge.0.hold(request);
            return needs_cache.then(|| Outcome::Failed(not_found(request, &name)));
        }
    };
    through(request, caches, (location, passing)).await
}

/// The cache that a request goes through; `None`: its name is empty, or `off`.
///
/// # Errors
/// The name, which no cache has.
fn chosen<'a>(
    request: &Request,
    generation: &'a Generation,
    (location, passing): (&'a Location, &PassSettings),
) -> Option<Result<&'a [Arc<Cache>], Bytes>> {
    let template = passing.groups.caching.proxy_cache.value.on()?;
    let settings = &generation.settings;
    let evaluated;
    let (name, caches) = match template.literal() {
        Some(name) => (name, registry::find_for(settings, location, name)),
        None => {
            evaluated = request.evaluate(template);
            if evaluated.is_empty() || evaluated == "off" {
                return None;
            }
            (&evaluated, registry::find(settings, &evaluated))
        }
    };
    Some(caches.ok_or_else(|| name.clone()))
}

async fn through(
    request: &mut Request,
    caches: &[Arc<Cache>],
    (location, passing): (&Location, &PassSettings),
) -> Option<Outcome> {
    let caching = &passing.groups.caching;
    let is_asked = is_asked(request, caching);
    // As in nginx: the key and the conditions may be made of the body.
    let may_use_body = is_asked || !caching.proxy_cache_purge.0.is_empty();
    if may_use_body
        && request.head.framing != Framing::None
        && let Err(outcome) = Box::pin(request_body::store(request)).await
    {
        return Some(outcome);
    }
    let is_purge = caching.proxy_cache_purge.0.hold(request);
    if !is_purge && !is_asked {
        return None;
    }
    let key_text = key_text(request, passing);
    if is_purge {
        let purge = purging::purge_disks(request, caches, (location, passing), key_text);
        return Some(Box::pin(purge).await);
    }
    // A key that was elsewhere, while its disk was out, is found there by purges only.
    let cache = placing::of(caches, &key_text);
    // The only one: that of an earlier location was taken out.
    request.states.put(Rc::new(CacheState {
        key: key_text.clone(),
        ..CacheState::default()
    }));
    let is_bypass = caching.proxy_cache_bypass.hold(request);
    let rules = rules(location);
    // A request that may state its wishes is parsed first.
    let is_plain = !is_bypass && !rules.obeys_requests;
    let ready = match is_plain {
        true => hot_entries::answer(request, rules, cache, &key_text),
        false => None,
    };
    let outcome = match ready {
        // Boxed: it is large, and ready responses do not need it.
        None => {
            let wishes = (is_plain, is_bypass);
            in_place::boxed(|| through_disk(request, cache, (location, passing), key_text, wishes))
                .await
        }
        ready => ready,
    };
    if let Some(state) = request.states.get::<CacheState>()
        && let Some(status) = state.status
    {
        cache.counters.count(status, request.client.loop_.index);
    }
    outcome
}

/// Answers from the cache of one disk, or through it.
async fn through_disk(
    request: &mut Request,
    cache: &Arc<Cache>,
    (location, passing): (&Location, &PassSettings),
    key_text: Bytes,
    (is_plain, is_bypass): (bool, bool),
) -> Option<Outcome> {
    let rules = rules(location);
    let Some(store) = cache.opened(&request.client.loop_.wire.wheel).await else {
        return match is_plain && cache.is_taken() {
            true => {
                let wheel = Rc::clone(&request.client.loop_.wire.wheel);
                let answer = foreign_cache::answer(request, passing, rules, cache, &key_text);
                let patience = cache.disk.patience();
                Box::pin(wheel.timeout(patience, answer)).await.ok()?
            }
            false => None,
        };
    };
    let cache_request = CacheRequest::new(request, (location, passing), cache, store, key_text);
    if is_bypass {
        let params = FetchParams {
            status: Some(Status::Bypass),
            // However far in a range begins.
            may_store: !cache_request::is_head_alone(request, passing)
                && !rules.forbids_storing(&cache_request.wishes),
            ..FetchParams::default()
        };
        // As in nginx it holds up no other request; what it gets may be for it alone.
        let fetched = in_place::boxed(|| fetch_alone(request, &cache_request, params)).await;
        return outcome(request, fetched);
    }
    in_place::boxed(|| look(request, &cache_request)).await
}

fn not_found(request: &Request, name: &Bytes) -> Failure {
    request.log(Level::Error, &|out| {
        out.extend_from_slice(b"cache \"");
        out.extend_from_slice(name);
        out.extend_from_slice(b"\" not found");
    });
    Failure::new(500)
}

fn outcome(request: &mut Request, fetched: Fetched) -> Option<Outcome> {
    match fetched {
        Fetched::Answer(outcome) => Some(outcome),
        Fetched::Again | Fetched::Variant(_) | Fetched::Pass => {
            cache_state::of(request).status = Some(Status::Miss);
            None
        }
    }
}

/// The next step for a request.
enum LookupStep {
    /// Use the stored response.
    Use(Hit, Status),
    /// Use it, and fetch it anew unless another request does.
    UseAndUpdate(Hit),
    /// Ask the origin.
    Ask(FetchParams),
    /// Give this response.
    Answer(Outcome),
    /// Pass the request on.
    Pass,
}

async fn look(request: &mut Request, cache_request: &CacheRequest<'_>) -> Option<Outcome> {
    let mut variant = None;
    for turn in 0..TURNS_MAX {
        let newest = variant
            .is_none()
            .then(|| newest(request, cache_request))
            .flatten();
        let mut step = match newest {
            Some(params) => LookupStep::Ask(params),
            None => next(request, cache_request).await,
        };
        if let (LookupStep::Ask(params), Some(variant)) = (&mut step, variant) {
            params.looked_for = Some(variant);
        }
        let step = match step {
            LookupStep::Use(hit, status) => {
                let used = used(request, cache_request, &hit, status).await;
                used_or_past(request, cache_request, used, &hit)
            }
            LookupStep::UseAndUpdate(hit) => {
                let used = in_place::boxed(|| update_behind(request, cache_request, &hit)).await;
                used_or_past(request, cache_request, used, &hit)
            }
            step => step,
        };
        let mut params = match step {
            LookupStep::Answer(outcome) => return Some(outcome),
            LookupStep::Ask(params) => params,
            LookupStep::Pass | LookupStep::Use(..) | LookupStep::UseAndUpdate(_) => break,
        };
        params.may_have_come = turn == 0 && params.stale.is_none() && !params.is_past_disk;
        match in_place::boxed(|| fetch(request, cache_request, params)).await {
            Fetched::Again => {}
            Fetched::Variant(key) => variant = Some(key),
            other => return outcome(request, other),
        }
    }
    outcome(request, Fetched::Pass)
}

/// The step for a request whose hit was used, or could not be.
fn used_or_past(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    used: Result<Outcome, Unusable>,
    hit: &Hit,
) -> LookupStep {
    match used {
        Ok(outcome) => LookupStep::Answer(outcome),
        Err(Unusable) => past_disk(request, cache_request, variant_of(hit)),
    }
}

/// The key of a hit's variant, if the response has variants.
fn variant_of(hit: &Hit) -> Option<Key> {
    hit.entry.variant().is_some().then_some(hit.known.key)
}

/// The step for a request whose disk cannot be asked, or does not answer in time.
fn past_disk(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    variant: Option<Key>,
) -> LookupStep {
    cache_request.cache.counters.pass_disk();
    cache_state::of(request).status = Some(Status::Miss);
    if cache_request.rules.refuses_miss(&cache_request.wishes) {
        return LookupStep::Answer(Outcome::Failed(Failure::new(504)));
    }
    if !may_store(request, cache_request) {
        return LookupStep::Pass;
    }
    LookupStep::Ask(FetchParams {
        looked_for: variant,
        status: Some(Status::Miss),
        may_store: true,
        is_past_disk: true,
        ..FetchParams::default()
    })
}

/// A response that has just arrived completely and is not stored yet, newer than the stored one.
fn newest(request: &Request, cache_request: &CacheRequest<'_>) -> Option<FetchParams> {
    let fills = &cache_request.cache.fills;
    if !fills.has_complete() || cache_request.rules.demands_anew(&cache_request.wishes) {
        return None;
    }
    let fill = fills.running(&cache_request.main)?;
    (fill.is_complete() && !has_expired(cache_request, &fill)).then(|| FetchParams {
        status: Some(Status::Miss),
        may_store: may_store(request, cache_request),
        ..FetchParams::default()
    })
}

async fn update_behind(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    hit: &Hit,
) -> Result<Outcome, Unusable> {
    match in_place::boxed(|| fetch_behind(request, cache_request, hit)).await {
        Ok(true) => used(request, cache_request, hit, Status::Stale).await,
        Ok(false) => used(request, cache_request, hit, Status::Updating).await,
        Err(outcome) => Ok(outcome),
    }
}

async fn next(request: &mut Request, cache_request: &CacheRequest<'_>) -> LookupStep {
    let find = match disk_work::find(request, cache_request).await {
        Ok(find) => find,
        Err(failure) => return LookupStep::Answer(Outcome::Failed(failure)),
    };
    let found = match race(request, cache_request, find).await {
        Raced::Disk(found) => found,
        Raced::Origin(outcome) => return LookupStep::Answer(outcome),
        Raced::Past => return past_disk(request, cache_request, None),
    };
    match found {
        Ok(LookupOutcome::Hit(hit)) => judge(request, cache_request, hit),
        Ok(LookupOutcome::Miss(missed)) => miss(request, cache_request, missed),
        Ok(LookupOutcome::Failed(known))
            if cache_request
                .rules
                .is_fresh(&known.lifetime, cache_request.now) =>
        {
            cache_state::of(request).status = Some(Status::Hit);
            LookupStep::Answer(Outcome::Failed(Failure::new(known.status)))
        }
        Ok(LookupOutcome::Failed(_)) => miss(request, cache_request, Miss::default()),
        Err(error) => {
            cache_request.cache.tell("it cannot be looked into", &error);
            past_disk(request, cache_request, None)
        }
    }
}

/// Decides whether the stored response may be used.
fn judge(request: &Request, cache_request: &CacheRequest<'_>, hit: Hit) -> LookupStep {
    let (rules, caching) = (cache_request.rules, cache_request.caching);
    let lifetime = &hit.known.lifetime;
    let is_fresh = rules.is_fresh(lifetime, cache_request.now);
    if is_fresh && !rules.obeys_requests {
        return LookupStep::Use(hit, Status::Hit);
    }
    let may_be_old = !is_fresh && may_be_old(cache_request, &hit);
    let is_usable = is_fresh || may_be_old;
    match rules.admit(
        lifetime,
        cache_request.now,
        &cache_request.wishes,
        is_usable,
    ) {
        ReuseDecision::Use if is_fresh => LookupStep::Use(hit, Status::Hit),
        ReuseDecision::Use
            if may_be_old
                && caching.updates_behind()
                && !cache_request::is_head_alone(request, cache_request.passing) =>
        {
            LookupStep::UseAndUpdate(hit)
        }
        ReuseDecision::Use if may_be_old => LookupStep::Use(hit, Status::Updating),
        ReuseDecision::Use => LookupStep::Use(hit, Status::Stale),
        ReuseDecision::Refuse => LookupStep::Answer(Outcome::Failed(Failure::new(504))),
        ReuseDecision::Ask => LookupStep::Ask(FetchParams {
            looked_for: variant_of(&hit),
            // The origin may take its time: its bytes are not kept for that long.
            stale: Some(Box::new(Hit { whole: None, ..hit })),
            status: Some(Status::Expired),
            may_store: may_store(request, cache_request),
            ..FetchParams::default()
        }),
    }
}

/// Whether it may be used while it is fetched anew, by this request or by another one.
fn may_be_old(cache_request: &CacheRequest<'_>, hit: &Hit) -> bool {
    let caching = cache_request.caching;
    let is_wanted = caching.proxy_cache_use_stale.has(UseStale::UPDATING);
    let lifetime = &hit.known.lifetime;
    cache_request
        .rules
        .may_use_while_updating(lifetime, cache_request.now, is_wanted)
        && (caching.updates_behind() || cache_request.cache.fills.running(&hit.known.key).is_some())
}

/// The step for a request that found nothing.
fn miss(request: &mut Request, cache_request: &CacheRequest<'_>, missed: Miss) -> LookupStep {
    if let Some(fault) = &missed.damage {
        cache_request
            .cache
            .tell("an entry was dropped", &fault.clone().into());
    }
    cache_state::of(request).status = Some(Status::Miss);
    if cache_request.rules.refuses_miss(&cache_request.wishes) {
        return LookupStep::Answer(Outcome::Failed(Failure::new(504)));
    }
    let key = missed.variant.unwrap_or(cache_request.main);
    let is_scarce = is_scarce(request, cache_request, key);
    if is_scarce || !may_store(request, cache_request) || !is_admitted(cache_request) {
        return LookupStep::Pass;
    }
    LookupStep::Ask(FetchParams {
        stale: None,
        looked_for: missed.variant,
        status: Some(Status::Miss),
        may_store: true,
        ..FetchParams::default()
    })
}

/// Whether a key, each variant's for itself, was not asked for often enough (`proxy_cache_min_uses`). Counts this request.
fn is_scarce(request: &Request, cache_request: &CacheRequest<'_>, key: Key) -> bool {
    // More are not counted.
    let min = cache_request
        .caching
        .proxy_cache_min_uses
        .0
        .min(u64::from(USES_MAX));
    if min <= 1 {
        return false;
    }
    // A known key was counted by its lookup.
    if let Some(known) = cache_request.store.index().peek(&key) {
        return u64::from(known.uses) < min;
    }
    let seen = KnownKey::seen(key, cache_request.now);
    cache_request.cache.note(&request.client.loop_, &seen);
    true
}

/// Whether its key was asked for before, where that is demanded (`admission`). Notes that it was asked for.
fn is_admitted(cache_request: &CacheRequest<'_>) -> bool {
    let main = &cache_request.main;
    let known = || cache_request.store.index().peek(main);
    let is_stored = || known().is_some_and(|known| known.state == KeyState::Stored);
    cache_request.cache.admits(main, is_stored)
}

/// Whether a response may be stored, as far as the request decides that.
fn may_store(request: &Request, cache_request: &CacheRequest<'_>) -> bool {
    let caching: &Caching = cache_request.caching;
    !is_range_far(request, caching)
        && !cache_request::is_head_alone(request, cache_request.passing)
        && !cache_request.rules.forbids_storing(&cache_request.wishes)
}
