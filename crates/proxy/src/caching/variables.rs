//! The variables of a request's cache (`$upstream_cache_…`, `$served_from`).
//!
//! Not here: what they show (`state::cache_state`).

use std::borrow::Cow;

use bytes::Bytes;
use cache::freshness::{self, OriginResponse, StoreVerdict};
use disk::memory::MemoryLevel;
use disk::memory::level::level;
use logs::wall_clock::Moment;
use message::HeaderId;
use runtime::timing::current_request;

use crate::caching::cache_request::cache_name;
use crate::caching::caches::{placing, registry};
use crate::settings::caching::rules;
use crate::settings::proxy_pass::PassSettings;
use crate::state::cache_state::{CacheState, Status};
use crate::state::upstream_state::UpstreamState;
use httpcore::request::Request;
use httpcore::variables::append::{number, put, put_if_any};

/// Refusal text where every server that was asked failed.
const NO_ANSWER: &str = "no answer";

httpcore::variables! {
    /// The source of the response: `memory`, `disk`, `upstream`, or `fill`, which is a cache's fetch, by this request
    /// or another.
    "served_from" => fresh(served_from);
    /// Seconds since the stored response that was used came from the origin, or was revalidated.
    "upstream_cache_age" => fresh(age);
    /// The entity tag of the stored response that is being revalidated.
    "upstream_cache_etag" => fresh(|request, out| kept(request, |state| state.etag.as_ref(), out));
    /// The key that the response is stored under.
    "upstream_cache_key" => fresh(key);
    /// The modification time of the stored response that is being revalidated.
    "upstream_cache_last_modified" => fresh(|request, out| kept(request, |state| state.last_modified.as_ref(), out));
    /// Why the origin's response is not stored, as far as its head tells (`no lifetime`, `Set-Cookie`, `no-store`, …),
    /// the disk's state or the memory; `no answer` if no server sent one.
    "upstream_cache_refusal" => fresh(append_refusal);
    /// `MISS`, `BYPASS`, `EXPIRED`, `STALE`, `UPDATING`, `REVALIDATED` or `HIT`.
    "upstream_cache_status" => fresh(status);
}

fn cache_state_of(request: &Request) -> Option<&CacheState> {
    request.states.get()
}

fn status(request: &Request, out: &mut Vec<u8>) -> bool {
    let status = cache_state_of(request).and_then(|state| state.status);
    status.is_some_and(|status| put(status.name().as_bytes(), out))
}

fn age(request: &Request, out: &mut Vec<u8>) -> bool {
    let age = cache_state_of(request).and_then(|state| state.age);
    age.is_some_and(|age| number(u64::from(age), out))
}

/// A text of the record.
fn kept(request: &Request, which: fn(&CacheState) -> Option<&Bytes>, out: &mut Vec<u8>) -> bool {
    let text = cache_state_of(request).and_then(which);
    text.is_some_and(|text| put(text, out))
}

fn key(request: &Request, out: &mut Vec<u8>) -> bool {
    let state = cache_state_of(request);
    state.is_some_and(|state| put_if_any(&state.key, out))
}

fn append_refusal(request: &Request, out: &mut Vec<u8>) -> bool {
    let reason = cache_state_of(request).and_then(|_| refusal(request));
    reason.is_some_and(|reason| put(reason.as_bytes(), out))
}

fn served_from(request: &Request, out: &mut Vec<u8>) -> bool {
    let state = cache_state_of(request);
    let cached = state.and_then(|state| state.status);
    let word = match cached {
        Some(Status::Miss | Status::Expired) => "fill",
        Some(Status::Hit) if state.is_some_and(|state| state.follows) => "fill",
        Some(Status::Bypass) => "upstream",
        None if request.is_of_upstream() => "upstream",
        _ if current_request::waited().disk_ns > 0 => "disk",
        _ => "memory",
    };
    put(word.as_bytes(), out)
}

/// The reason why the origin's response is not stored, if its head gives one, its cache's disk or the memory, or there is
/// no response.
fn refusal(request: &Request) -> Option<Cow<'static, str>> {
    let state = request.states.get::<UpstreamState>()?;
    let head = state.head.borrow();
    let Some(head) = &*head else {
        let was_asked = !state.tries.borrow().is_empty();
        return was_asked.then_some(NO_ANSWER.into());
    };
    let now = Moment::now().second();
    let passing = request.location().made::<PassSettings>();
    let answer = OriginResponse {
        status: head.status,
        fields: head.iter(),
        is_authorized: request.head.get(HeaderId::Authorization).is_some(),
        is_slice: passing.is_some_and(PassSettings::asks_for_ranges),
        asked: now,
        now,
    };
    match freshness::judge(&answer, rules(request.location())) {
        StoreVerdict::Pass(why) => Some(why.to_string().into()),
        StoreVerdict::Store(_) => scarcity(request, passing?).map(Cow::Borrowed),
    }
}

/// Why nothing new is stored in the request's cache, whatever it is.
fn scarcity(request: &Request, passing: &PassSettings) -> Option<&'static str> {
    if level() >= MemoryLevel::Fills {
        return Some("memory is scarce");
    }
    let name = cache_name(request, passing)?;
    let caches = registry::find(&request.generation.settings, &name)?;
    let state = cache_state_of(request)?;
    placing::of(caches, &state.key).write_refusal()
}
