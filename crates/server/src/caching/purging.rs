//! Deleting what is stored: by order (`proxy_cache_purge`), and when an unsafe request changed its URI (RFC 9111, 4.4).

use std::rc::Rc;

use cache::Key;
use cache::freshness::invalidates;

use super::inquiry::{Inquiry, local};
use super::{directives, inquiry, note};
use crate::Failure;
use crate::Response;
use crate::request::Request;
use crate::respond::Outcome;

/// Deletes the entry of the request's key, or with `*` at the key's end all whose keys begin so.
pub async fn purge(request: &mut Request, inquiry: &Inquiry<'_>) -> Outcome {
    note::of(request).status = None;
    let (store, local) = (inquiry.store, local(request));
    let done = match inquiry.key_text.strip_suffix(b"*") {
        Some(prefix) => {
            let done = store.purge_prefix(local, prefix).await;
            inquiry.cache.fills.forget_all();
            done.map(|()| true)
        }
        None => {
            let fills = &inquiry.cache.fills;
            let is_coming = fills
                .running(&inquiry.main)
                .is_some_and(|fill| fill.is_whole());
            let done = store.purge(local, &inquiry.main).await;
            fills.forget(&inquiry.main);
            done.map(|was_there| was_there || is_coming)
        }
    };
    match done {
        Ok(true) => Outcome::Answer(Box::new(Response::new(204))),
        Ok(false) => Outcome::Failed(Failure::new(404)),
        Err(error) => {
            inquiry.tell("it cannot be purged", &error);
            Outcome::Failed(Failure::new(500))
        }
    }
}

/// A request that was passed on was answered so: what is stored for its URI may be wrong now.
pub async fn invalidate(request: &mut Request, status: u16) {
    let generation = Rc::clone(&request.generation);
    let location = generation.settings.location(request.location);
    let caching = &location.settings.caching;
    if !caching.is_on() || !inquiry::rules(location).invalidates {
        return;
    }
    if !invalidates(request.head.method_text(), status) {
        return;
    }
    let name = directives::name(request);
    let cache = name.and_then(|name| generation.settings.cache(&name));
    let Some((cache, store)) = cache.and_then(|cache| Some((cache, cache.store()?))) else {
        return;
    };
    let key = Key::of(&inquiry::key_text(request));
    let done = store.purge(local(request), &key).await;
    cache.fills.forget(&key);
    if let Err(error) = done {
        let directory = &cache.zone.directory;
        cache
            .troubles
            .tell(directory, "it cannot be purged", &error);
    }
}
