//! Reading a cache that belongs to another process: to a worker that shuts down beside this one, or to another
//! instance.
//!
//! There is no index, so the entry's file is looked for by its name. Not here: writing, which only the owner does.
//! Invariant: the whole entry is verified at each use; entries that are large, stale or another variant are asked for
//! at the origin.

use std::sync::Arc;

use bytes::Bytes;
use cache::freshness::Rules;
use cache::{Entry, Key, variant};
use disk::READ_MAX;
use logs::wall_clock::Moment;
use message::Body;

use crate::caching::cache_request;
use crate::caching::cache_request::{lines, local};
use crate::caching::caches::open_cache::Cache;
use crate::caching::stored::age::with_age;
use crate::response::response_head;
use crate::response::response_head::Origin;
use crate::settings::proxy_pass::PassSettings;
use crate::state::cache_state;
use crate::state::cache_state::Status;
use httpcore::outcome::Outcome;
use httpcore::request::Request;

/// Answers with a small fresh entry, where requests cannot influence that. None: the request is to be passed on.
pub(crate) async fn answer(
    request: &mut Request,
    passing: &PassSettings,
    rules: &Rules,
    cache: &Arc<Cache>,
    key_text: &Bytes,
) -> Option<Outcome> {
    let (entry, whole) = find(request, cache, key_text).await?;
    let now = Moment::now().second();
    let lifetime = entry.lifetime();
    if !rules.is_fresh(lifetime, now) {
        return None;
    }
    let age = lifetime.age(now);
    let state = cache_state::of(request);
    state.status = Some(Status::Hit);
    state.age = Some(age);
    let range = entry.body();
    let body = whole.slice(range.start as usize..range.end as usize);
    let head = Box::new(entry.head().clone());
    let outcome = response_head::shape(request, passing, head, Body::bytes(body), Origin::Cache);
    Some(with_age(outcome, age))
}

/// The complete entry of a key.
async fn find(request: &Request, cache: &Cache, key_text: &Bytes) -> Option<(Entry, Bytes)> {
    let main = Key::of(key_text);
    let path = main.path(cache.zone.levels);
    let path = [&cache.zone.directory[..], b"/", path.as_bytes()].concat();
    let access = cache_request::access(request).ok()?;
    let file = local(request).open(&path, &access).await.ok()?;
    let len = usize::try_from(file.meta().len).ok()?;
    if len > READ_MAX {
        return None;
    }
    let whole = local(request).read(&file, 0, len, &access).await.ok()?;
    let entry = Entry::decode_whole(&whole).ok()?;
    let is_it = entry.key() == main && entry.key_text() == key_text;
    let is_variant = match entry.variant() {
        None => true,
        Some(own) => variant(main, entry.vary(), lines(request)) == own,
    };
    (is_it && is_variant).then_some((entry, whole))
}
