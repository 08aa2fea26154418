//! Reading a cache that belongs to another process: to a worker that shuts down beside this one, or to another
//! instance.
//!
//! There is no index, so the entry's file is looked for by its name. Not here: writing, which only the owner does.
//! Invariants: the whole entry is verified at each use, a large one while it is sent; stale ones are asked for at the
//! origin, as are all while purges are pending.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use cache::freshness::Rules;
use cache::store::{Hit, purge_mark};
use cache::{Entry, Key, KnownKey, variant};
use disk::{Errno, OpenFile, READ_MAX};
use logs::wall_clock::Moment;
use message::Body;

use crate::caching::cache_request;
use crate::caching::cache_request::{lines, local};
use crate::caching::caches::open_cache::Cache;
use crate::caching::stored::age::with_age;
use crate::caching::stored::verify;
use crate::response::response_head;
use crate::response::response_head::Origin;
use crate::settings::proxy_pass::PassSettings;
use crate::state::cache_state;
use crate::state::cache_state::Status;
use httpcore::files;
use httpcore::outcome::Outcome;
use httpcore::request::Request;

/// Answers with a fresh entry, where requests cannot influence that. None: the request is to be passed on.
pub(crate) async fn answer(
    request: &mut Request,
    passing: &PassSettings,
    rules: &Rules,
    cache: &Arc<Cache>,
    key_text: &Bytes,
) -> Option<Outcome> {
    if is_purging(request, cache).await {
        return None;
    }
    let found = find(request, cache, key_text).await?;
    let now = Moment::now().second();
    let lifetime = found.entry().lifetime();
    if !rules.is_fresh(lifetime, now) {
        return None;
    }
    let age = lifetime.age(now);
    let state = cache_state::of(request);
    state.status = Some(Status::Hit);
    state.age = Some(age);
    let head = Arc::clone(found.entry().head());
    let body = found.body(request, cache);
    let outcome = response_head::shape(request, passing, head, body, Origin::Cache);
    Some(with_age(outcome, age))
}

/// Whether purges are pending there: any entry may be one that they cover. (Asked before the entry is opened: they are
/// pending until the files are deleted.)
async fn is_purging(request: &Request, cache: &Cache) -> bool {
    let Ok(pool) = files::pool(request) else {
        return true;
    };
    let pool = pool.for_disk(&cache.disk);
    let access = cache_request::reading(request, &pool);
    let mark = purge_mark(&cache.zone.directory);
    let looked = local(request).stat(&mark, &access).await;
    !looked.is_err_and(|error| error.errno() == Some(Errno::NOENT))
}

/// An entry of the other process.
enum Found {
    /// A small one, all of which was read and verified.
    Whole(Box<Entry>, Bytes),
    /// A large one, to be verified while it is sent.
    Large(Hit),
}

impl Found {
    fn entry(&self) -> &Entry {
        match self {
            Self::Whole(entry, _) => entry,
            Self::Large(hit) => &hit.entry,
        }
    }

    fn body(self, request: &Request, cache: &Arc<Cache>) -> Body<Rc<OpenFile>> {
        match self {
            Self::Whole(entry, whole) => {
                let range = entry.body();
                Body::bytes(whole.slice(range.start as usize..range.end as usize))
            }
            Self::Large(hit) => verify::foreign_body(request, cache, hit),
        }
    }
}

/// The entry of a key, in the variant that the request asks for.
async fn find(request: &Request, cache: &Cache, key_text: &Bytes) -> Option<Found> {
    let main = Key::of(key_text);
    let is_it = |found: &Found| found.entry().key_text() == key_text;
    let first = open(request, cache, &main).await.filter(is_it)?;
    let Some(own) = first.entry().variant() else {
        return Some(first);
    };
    let wanted = variant(main, first.entry().vary(), lines(request));
    if wanted == own {
        return Some(first);
    }
    let other = open(request, cache, &wanted).await.filter(is_it)?;
    (other.entry().variant() == Some(wanted)).then_some(other)
}

/// The entry in the file of a key.
async fn open(request: &Request, cache: &Cache, key: &Key) -> Option<Found> {
    let path = key.path(cache.zone.levels);
    let path = [&cache.zone.directory[..], b"/", path.as_bytes()].concat();
    let pool = files::pool(request).ok()?.for_disk(&cache.disk);
    let access = cache_request::reading(request, &pool);
    let file = local(request).open(&path, &access).await.ok()?;
    let len = file.meta().len;
    let front = usize::try_from(len).unwrap_or(usize::MAX).min(READ_MAX);
    let front = local(request).read(&file, 0, front, &access).await.ok()?;
    let found = if front.len() as u64 == len {
        Found::Whole(Box::new(Entry::decode_whole(&front).ok()?), front)
    } else {
        let entry = Rc::new(Entry::decode(&front, len).ok()?);
        let known = KnownKey::seen(*key, Moment::now().second());
        let base = 0;
        Found::Large(Hit {
            entry,
            file,
            base,
            known,
            whole: None,
        })
    };
    (found.entry().key() == *key).then_some(found)
}
