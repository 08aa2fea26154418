//! The way of a request through its cache: look up, judge, then use the stored entry or ask the origin.
//!
//! The order is nginx's: method, name, purge, bypass, look-up, freshness, lock. Invariant: whatever goes wrong here,
//! the origin is asked.

use std::rc::Rc;

use bytes::Bytes;
use cache::KnownKey;
use cache::freshness::ReuseDecision;
use cache::store::{Hit, LookupOutcome, Miss};
use logs::Level;

use crate::caching::cache_request::cache_name;
use crate::caching::cache_request::{Inquiry, access, is_asked, is_range_far, key_text};
use crate::caching::caches::registry;
use crate::caching::fetch::origin_fetch::{
    Fetched, Want, fetch, fetch_anew, fetch_behind, has_expired,
};
use crate::caching::stored::serve::{Unusable, serve};
use crate::caching::stored::{foreign_cache, hot_entries};
use crate::caching::{cache_request, purging};
use crate::settings::caching::rules;
use crate::settings::caching::{Caching, UseStale};
use crate::settings::proxy_pass::groups;
use crate::state::cache_state;
use crate::state::cache_state::{Note, Status};
use httpcore::Failure;
use httpcore::generation::Generation;
use httpcore::outcome::Outcome;
use httpcore::request::Request;

/// Maximum of lookups that one request repeats because another one stored or renewed what it waits for.
const TURNS_MAX: u32 = 4;

/// Answers from the cache, or through it. None: the request has no cache, and is to be passed on.
pub async fn make(request: &mut Request) -> Option<Outcome> {
    let generation = Rc::clone(&request.generation);
    // The record of an earlier location, which sent the request here, is not about this one's cache.
    request.states.take::<Note>();
    let outcome = through(request, &generation).await;
    if let Some(note) = request.states.get::<Note>()
        && let Some(status) = note.status
        && let Some(cache) =
            cache_name(request).and_then(|name| registry::find(&generation.settings, &name))
    {
        cache.counters.count(status, request.client.loop_.index);
    }
    outcome
}

async fn through(request: &mut Request, generation: &Generation) -> Option<Outcome> {
    let location = generation.settings.location(request.location);
    let caching = &groups(location)?.caching;
    let name = request.evaluate(caching.proxy_cache.value.on()?);
    if name.is_empty() || name == "off" {
        return None;
    }
    let Some(cache) = registry::find(&generation.settings, &name) else {
        return Some(Outcome::Failed(not_found(request, &name)));
    };
    let is_purge = caching.proxy_cache_purge.0.hold(request);
    if !is_purge && !is_asked(request, caching) {
        return None;
    }
    let key_text = key_text(request);
    cache_state::of(request).key = key_text.clone();
    let is_bypass = caching.proxy_cache_bypass.hold(request);
    let rules = rules(location);
    // A request that may state its wishes is parsed first.
    let is_plain = !is_purge && !is_bypass && !rules.obeys_requests;
    if is_plain && let Some(outcome) = hot_entries::answer(request, rules, cache, &key_text) {
        return Some(outcome);
    }
    let Some(store) = cache.opened().await else {
        return match is_plain && cache.is_taken() {
            true => Box::pin(foreign_cache::answer(request, rules, cache, &key_text)).await,
            false => None,
        };
    };
    let inquiry = Inquiry::new(request, location, cache, store, key_text);
    if is_purge {
        return Some(Box::pin(purging::purge(request, &inquiry)).await);
    }
    if is_bypass {
        let want = Want {
            status: Some(Status::Bypass),
            // However far in a range begins.
            may_store: !cache_request::is_head_alone(request)
                && !rules.forbids_storing(&inquiry.wishes),
            ..Want::default()
        };
        let fetched = Box::pin(fetch_anew(request, &inquiry, want)).await;
        return outcome(request, fetched);
    }
    // Boxed: it is large, and ready responses do not need it.
    Box::pin(look(request, &inquiry)).await
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
enum Step {
    /// Use the stored response.
    Use(Hit, Status),
    /// Use it, and fetch it anew unless another request does.
    UseAndUpdate(Hit),
    /// Ask the origin.
    Ask(Want),
    /// Give this response.
    Answer(Outcome),
    /// Pass the request on.
    Pass,
}

async fn look(request: &mut Request, inquiry: &Inquiry<'_>) -> Option<Outcome> {
    let mut variant = None;
    for turn in 0..TURNS_MAX {
        let newest = variant
            .is_none()
            .then(|| newest(request, inquiry))
            .flatten();
        let mut step = match newest {
            Some(want) => Step::Ask(want),
            None => next(request, inquiry).await,
        };
        if let (Step::Ask(want), Some(variant)) = (&mut step, variant) {
            want.looked_for = Some(variant);
        }
        let mut want = match step {
            Step::Answer(outcome) => return Some(outcome),
            Step::Pass => break,
            Step::Ask(want) => want,
            Step::Use(hit, status) => match serve(request, inquiry, &hit, status).await {
                Ok(outcome) => return Some(outcome),
                Err(Unusable) => continue,
            },
            Step::UseAndUpdate(hit) => {
                match Box::pin(update_behind(request, inquiry, &hit)).await {
                    Ok(outcome) => return Some(outcome),
                    Err(Unusable) => continue,
                }
            }
        };
        want.may_have_come = turn == 0 && want.stale.is_none();
        match Box::pin(fetch(request, inquiry, want)).await {
            Fetched::Again => {}
            Fetched::Variant(key) => variant = Some(key),
            other => return outcome(request, other),
        }
    }
    outcome(request, Fetched::Pass)
}

/// A response that has just arrived completely and is not stored yet, newer than the stored one.
fn newest(request: &Request, inquiry: &Inquiry<'_>) -> Option<Want> {
    let fills = &inquiry.cache.fills;
    if !fills.has_complete() || inquiry.rules.demands_anew(&inquiry.wishes) {
        return None;
    }
    let fill = fills.running(&inquiry.main)?;
    (fill.is_complete() && !has_expired(inquiry, &fill)).then(|| Want {
        status: Some(Status::Miss),
        may_store: may_store(request, inquiry),
        ..Want::default()
    })
}

async fn update_behind(
    request: &mut Request,
    inquiry: &Inquiry<'_>,
    hit: &Hit,
) -> Result<Outcome, Unusable> {
    match Box::pin(fetch_behind(request, inquiry, hit)).await {
        Ok(true) => serve(request, inquiry, hit, Status::Stale).await,
        Ok(false) => serve(request, inquiry, hit, Status::Updating).await,
        Err(outcome) => Ok(outcome),
    }
}

async fn next(request: &mut Request, inquiry: &Inquiry<'_>) -> Step {
    let found = {
        let access = match access(request) {
            Ok(access) => access,
            Err(failure) => return Step::Answer(Outcome::Failed(failure)),
        };
        inquiry.find(request, &access).await
    };
    match found {
        Ok(LookupOutcome::Hit(hit)) => judge(request, inquiry, hit),
        Ok(LookupOutcome::Miss(missed)) => miss(request, inquiry, missed),
        Ok(LookupOutcome::Failed(known))
            if inquiry.rules.is_fresh(&known.lifetime, inquiry.now) =>
        {
            cache_state::of(request).status = Some(Status::Hit);
            Step::Answer(Outcome::Failed(Failure::new(known.status)))
        }
        Ok(LookupOutcome::Failed(_)) => miss(request, inquiry, Miss::default()),
        Err(error) => {
            inquiry.cache.tell("it cannot be looked into", &error);
            Step::Pass
        }
    }
}

/// Decides whether the stored response may be used.
fn judge(request: &Request, inquiry: &Inquiry<'_>, hit: Hit) -> Step {
    let (rules, caching) = (inquiry.rules, inquiry.caching);
    let lifetime = &hit.known.lifetime;
    let is_fresh = rules.is_fresh(lifetime, inquiry.now);
    if is_fresh && !rules.obeys_requests {
        return Step::Use(hit, Status::Hit);
    }
    let may_be_old = !is_fresh && may_be_old(inquiry, &hit);
    let is_usable = is_fresh || may_be_old;
    match rules.admit(lifetime, inquiry.now, &inquiry.wishes, is_usable) {
        ReuseDecision::Use if is_fresh => Step::Use(hit, Status::Hit),
        ReuseDecision::Use
            if may_be_old && caching.updates_behind() && !cache_request::is_head_alone(request) =>
        {
            Step::UseAndUpdate(hit)
        }
        ReuseDecision::Use if may_be_old => Step::Use(hit, Status::Updating),
        ReuseDecision::Use => Step::Use(hit, Status::Stale),
        ReuseDecision::Refuse => Step::Answer(Outcome::Failed(Failure::new(504))),
        ReuseDecision::Ask => Step::Ask(Want {
            looked_for: hit.entry.variant().is_some().then_some(hit.known.key),
            stale: Some(hit),
            status: Some(Status::Expired),
            may_store: may_store(request, inquiry),
            ..Want::default()
        }),
    }
}

/// Whether it may be used while it is fetched anew, by this request or by another one.
fn may_be_old(inquiry: &Inquiry<'_>, hit: &Hit) -> bool {
    let caching = inquiry.caching;
    let is_wanted = caching.proxy_cache_use_stale.has(UseStale::UPDATING);
    let lifetime = &hit.known.lifetime;
    inquiry
        .rules
        .may_use_while_updating(lifetime, inquiry.now, is_wanted)
        && (caching.updates_behind() || inquiry.cache.fills.running(&hit.known.key).is_some())
}

/// The step for a request that found nothing.
fn miss(request: &mut Request, inquiry: &Inquiry<'_>, missed: Miss) -> Step {
    if let Some(fault) = &missed.damage {
        inquiry
            .cache
            .tell("an entry was dropped", &fault.clone().into());
    }
    cache_state::of(request).status = Some(Status::Miss);
    if inquiry.rules.refuses_miss(&inquiry.wishes) {
        return Step::Answer(Outcome::Failed(Failure::new(504)));
    }
    if is_scarce(request, inquiry) || !may_store(request, inquiry) {
        return Step::Pass;
    }
    Step::Ask(Want {
        stale: None,
        looked_for: missed.variant,
        status: Some(Status::Miss),
        may_store: true,
        ..Want::default()
    })
}

/// Whether it was not asked for often enough (`proxy_cache_min_uses`). Counts this request.
fn is_scarce(request: &Request, inquiry: &Inquiry<'_>) -> bool {
    let min = inquiry.caching.proxy_cache_min_uses.0;
    if min <= 1 {
        return false;
    }
    // A known key was counted by its lookup.
    if let Some(known) = inquiry.store.index().peek(&inquiry.main) {
        return u64::from(known.uses) < min;
    }
    let seen = KnownKey::seen(inquiry.main, inquiry.now);
    inquiry.cache.note(&request.client.loop_, &seen);
    true
}

/// Whether a response may be stored, as far as the request decides that.
fn may_store(request: &Request, inquiry: &Inquiry<'_>) -> bool {
    let caching: &Caching = inquiry.caching;
    !is_range_far(request, caching)
        && !cache_request::is_head_alone(request)
        && !inquiry.rules.forbids_storing(&inquiry.wishes)
}
