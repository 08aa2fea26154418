//! Purging: by request (`proxy_cache_purge`: of a key, a prefix or tags), and after an unsafe request that changed its
//! URI (RFC 9111, 4.4).

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use cache::freshness::invalidates;
use cache::tags_of;
use cache::{Error, Key, PurgeRule, Store};
use disk::Local;
use logs::Level;
use runtime::{Kind, spawn};
use tokio::sync::oneshot;

use crate::caching::cache_request;
use crate::caching::cache_request::cache_name;
use crate::caching::cache_request::{CacheRequest, local};
use crate::caching::caches::open_cache::Cache;
use crate::caching::caches::registry;
use crate::settings::caching::Caching;
use crate::settings::caching::rules;
use crate::settings::proxy_pass::PassSettings;
use crate::state::cache_state;
use crate::state::cache_state::CacheState;
use httpcore::Failure;
use httpcore::Response;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::settings::Location;

/// Maximum of tags that one request purges.
const TAGS_MAX: usize = 256;

/// Deletes the entry of the request's key, or with `*` at the key's end all entries whose keys begin so. A request with
/// tags deletes the entries that have one of them.
async fn purge(request: &mut Request, cache_request: &CacheRequest<'_>) -> Outcome {
    cache_state::of(request).status = None;
    let lines = request.head.iter();
    let tags = lines.flat_map(|(name, value, _)| tags_of(name, value));
    let tags: Vec<_> = tags.map(<[u8]>::to_vec).take(TAGS_MAX + 1).collect();
    if tags.len() > TAGS_MAX {
        return Outcome::Failed(Failure::new(400));
    }
    let done = match cache_request.key_text.strip_suffix(b"*") {
        _ if !tags.is_empty() => {
            let rules = tags.into_iter().map(|tag| PurgeRule::Tag(tag.into()));
            in_time(cache_request, request, rules.collect()).await
        }
        Some(prefix) => {
            let rule = PurgeRule::Prefix(Bytes::copy_from_slice(prefix));
            in_time(cache_request, request, vec![rule]).await
        }
        None => {
            let rule = PurgeRule::Key(cache_request.main);
            in_time(cache_request, request, vec![rule]).await
        }
    };
    match done {
        Ok(true) => Outcome::Answer(Box::new(Response::new(204))),
        Ok(false) => Outcome::Failed(Failure::new(404)),
        Err(error) => {
            cache_request.cache.tell("it cannot be purged", &error);
            let is_for_later = matches!(error, Error::TooManyPurges(_));
            let status = if is_for_later { 503 } else { 500 };
            Outcome::Failed(Failure::new(status))
        }
    }
}

/// Purges on every disk of a cache: a key may have been elsewhere while its disk was out.
pub(crate) async fn purge_disks(
    request: &mut Request,
    caches: &[Arc<Cache>],
    (location, passing): (&Location, &PassSettings),
    key_text: Bytes,
) -> Outcome {
    let (mut purged, mut failed) = (None, None);
    for cache in caches {
        request.states.put(Rc::new(CacheState {
            key: key_text.clone(),
            ..CacheState::default()
        }));
        let Some(store) = cache.opened(&request.client.loop_.wire.wheel).await else {
            failed = Some(unopened(request, cache));
            continue;
        };
        let key_text = key_text.clone();
        let cache_request = CacheRequest::new(request, (location, passing), cache, store, key_text);
        match purge(request, &cache_request).await {
            Outcome::Failed(failure) if failure.status == 404 => {}
            Outcome::Failed(failure) => failed = Some(Outcome::Failed(failure)),
            outcome => purged = Some(outcome),
        }
    }
    let absent = || Outcome::Failed(Failure::new(404));
    failed.or(purged).unwrap_or_else(absent)
}

/// The response to a purge where the cache cannot be asked now: what is stored would be served later, so it is not taken
/// for done.
fn unopened(request: &Request, cache: &Cache) -> Outcome {
    let why: &[u8] = match () {
        () if cache.is_taken() => b"another process has its directory",
        () if cache.disk.is_out() => b"its disk is out",
        () => b"it is not open yet",
    };
    request.log(Level::Warn, &|out| {
        out.extend_from_slice(b"cache \"");
        out.extend_from_slice(&cache.zone.name);
        out.extend_from_slice(b"\": it cannot be purged: ");
        out.extend_from_slice(why);
    });
    let failure = Failure::new(503).with_header("Retry-After", Bytes::from_static(b"5"));
    Outcome::Failed(failure)
}

/// Purges by some rules, and waits for the disk as long as any request. A purge is obeyed at once, and goes on in the background where
/// the disk takes longer to write it down.
async fn in_time(
    cache_request: &CacheRequest<'_>,
    request: &Request,
    rules: Vec<PurgeRule>,
) -> Result<bool, Error> {
    let loop_ = &request.client.loop_;
    let (send, done) = oneshot::channel();
    let (cache, store) = (Arc::clone(cache_request.cache), cache_request.store.clone());
    let (local, errand) = (local(request).clone(), loop_.begin_errand());
    drop(spawn(Kind::Module("purge"), async move {
        let _errand = errand;
        let mut done = Ok(false);
        for rule in &rules {
            let one = carry_out(&cache, &store, &local, rule).await;
            // The first error is told; the other rules are obeyed all the same.
            done = done.and_then(|some| one.map(|was_there| some | was_there));
        }
        // The request that asked may have left.
        let _ = send.send(done);
    }));
    let patience = cache_request.cache.disk.patience();
    match loop_.wire.wheel.timeout(patience, done).await {
        Ok(Ok(done)) => done,
        _ => Err(disk::Error::Late(patience).into()),
    }
}

/// Purges, fetches in progress included. False: nothing was stored under the key.
pub(crate) async fn carry_out(
    cache: &Cache,
    store: &Store,
    local: &Local,
    rule: &PurgeRule,
) -> Result<bool, Error> {
    let fills = &cache.fills;
    match rule {
        PurgeRule::Key(key) => {
            let running = fills.running(key);
            let is_coming = running.is_some_and(|fill| fill.is_complete());
            let done = store.purge(local, key).await;
            fills.forget_key(key);
            done.map(|was_there| was_there || is_coming)
        }
        PurgeRule::Prefix(prefix) => {
            let done = store.purge_prefix(local, prefix).await;
            fills.forget_prefix(prefix);
            done.map(|()| true)
        }
        PurgeRule::Tag(tag) => {
            let done = store.purge_tag(local, tag).await;
            fills.forget_tags(&[tag.to_vec()]);
            done.map(|()| true)
        }
    }
}

/// Called when a request that was passed on got this status: the entry stored for its URI may be invalid now.
pub(crate) async fn invalidate(request: &mut Request, passing: &PassSettings, status: u16) {
    let generation = Rc::clone(&request.generation);
    let location = generation.settings.location(request.location);
    let caching = location.own::<Caching>();
    if !caching.is_on() || !rules(location).invalidates {
        return;
    }
    if !invalidates(request.head.method_text(), status) {
        return;
    }
    let name = cache_name(request, passing);
    let caches = name.and_then(|name| registry::find(&generation.settings, &name));
    let Some(caches) = caches else { return };
    let key = Key::of(&cache_request::key_text(request, passing));
    for cache in caches {
        let Some(store) = cache.store() else { continue };
        let purge = store.invalidate(local(request), &key);
        let patience = cache.disk.patience();
        let done = request.client.loop_.wire.wheel.timeout(patience, purge);
        let done = done.await;
        cache.fills.forget_key(&key);
        if let Ok(Err(error)) = done {
            cache.tell("it cannot be purged", &error);
        }
    }
}
