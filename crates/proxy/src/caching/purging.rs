//! Purging: by request (`proxy_cache_purge`: of a key, a prefix or tags), and after an unsafe request that changed its
//! URI (RFC 9111, 4.4).

use std::rc::Rc;

use bytes::Bytes;
use cache::freshness::invalidates;
use cache::tags_of;
use cache::{Error, Key, PurgeRule, Store};
use disk::Local;

use crate::caching::cache_request;
use crate::caching::cache_request::cache_name;
use crate::caching::cache_request::{CacheRequest, local};
use crate::caching::caches::open_cache::Cache;
use crate::caching::caches::registry;
use crate::settings::caching::Caching;
use crate::settings::caching::rules;
use crate::settings::proxy_pass::PassSettings;
use crate::state::cache_state;
use httpcore::Failure;
use httpcore::Response;
use httpcore::outcome::Outcome;
use httpcore::request::Request;

/// Maximum of tags that one request purges.
const TAGS_MAX: usize = 256;

/// Deletes the entry of the request's key, or with `*` at the key's end all entries whose keys begin so. A request with
/// tags deletes the entries that have one of them.
pub(crate) async fn purge(request: &mut Request, cache_request: &CacheRequest<'_>) -> Outcome {
    cache_state::of(request).status = None;
    let (store, local) = (cache_request.store, local(request));
    let lines = request.head.iter();
    let tags = lines.flat_map(|(name, value, _)| tags_of(name, value));
    let tags: Vec<_> = tags.map(<[u8]>::to_vec).take(TAGS_MAX + 1).collect();
    if tags.len() > TAGS_MAX {
        return Outcome::Failed(Failure::new(400));
    }
    let done = match cache_request.key_text.strip_suffix(b"*") {
        _ if !tags.is_empty() => {
            let done = purge_tags(cache_request, local, &tags).await;
            cache_request.cache.fills.forget_tags(&tags);
            done.map(|()| true)
        }
        Some(prefix) => {
            let rule = PurgeRule::Prefix(Bytes::copy_from_slice(prefix));
            carry_out(cache_request.cache, store, local, &rule).await
        }
        None => {
            let rule = PurgeRule::Key(cache_request.main);
            carry_out(cache_request.cache, store, local, &rule).await
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

async fn purge_tags(
    cache_request: &CacheRequest<'_>,
    local: &Local,
    tags: &[Vec<u8>],
) -> Result<(), Error> {
    for tag in tags {
        cache_request.store.purge_tag(local, tag).await?;
    }
    Ok(())
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
    let cache = name.and_then(|name| registry::find(&generation.settings, &name));
    let Some((cache, store)) = cache.and_then(|cache| Some((cache, cache.store()?))) else {
        return;
    };
    let key = Key::of(&cache_request::key_text(request, passing));
    let done = store.purge(local(request), &key).await;
    cache.fills.forget_key(&key);
    if let Err(error) = done {
        cache.tell("it cannot be purged", &error);
    }
}
