//! `proxy_store`: the directives.
//!
//! Not here: the storing (`response::store`). Invariant: no location has both a store and a cache.

use config::{Group, Placed, Problem, Scope, Template, Value, Word, directives};

use crate::settings::caching::Caching;
use crate::settings::family::Family;
use httpcore::file_mode::Permissions;

/// `proxy_store`.
#[derive(Debug, Clone)]
pub enum StoreTo {
    /// Nowhere.
    Off,
    /// Where a server of files would look for it.
    Place,
    /// This file.
    File(Template),
}

impl Value for StoreTo {
    const SYNTAX: &'static str = "on | off | string";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        match &args[0].bytes()[..] {
            b"off" => Ok(Self::Off),
            b"on" => Ok(Self::Place),
            b"" => Err(Problem::new("empty path").at(0)),
            _ => Template::of_word(&args[0], scope)
                .map(Self::File)
                .map_err(|problem| problem.at(0)),
        }
    }
}

directives! {
    /// Storing responses as files (proxy_store).
    pub struct ProxyStore in Location {
        /// Stores responses with status 200 as files: with `on` at the path given by `root` or `alias`, otherwise at
        /// the given path, which may contain variables. A file gets the time of the response's `Last-Modified`. It is
        /// written beside its destination, by the location's thread pool, and moved into place when it is complete.
        /// Nothing is stored with `proxy_buffering off` or in a location with a cache.
        proxy_store: Placed<StoreTo> = "off", [HTTP | SERVER | LOCATION] 1;
        /// Sets the permissions of stored files: `user`, `group` or `all`, with `r` or `rw`. Created directories can be
        /// entered by those who may read.
        proxy_store_access: Permissions = "user:rw", [HTTP | SERVER | LOCATION] 1..=3;
    }
}

/// A level that says one of `proxy_store` and `proxy_cache` switches the other one of the level around off.
pub fn settle(store: &mut Group<ProxyStore>, caching: &mut Group<Caching>) {
    let said = store.get().and_then(|raw| raw.proxy_store.value.as_ref());
    let stores = said.is_some_and(|store| !matches!(store.value, StoreTo::Off));
    let said = caching.get().and_then(|raw| raw.proxy_cache.value.as_ref());
    let caches = said.is_some_and(|cache| cache.value.on().is_some());
    match (stores, caches) {
        (true, false) => {
            caching.edit().proxy_cache.value = Some(Placed {
                value: config::OrOff::Off,
                place: None,
            });
        }
        (false, true) => {
            store.edit().proxy_store.value = Some(Placed {
                value: StoreTo::Off,
                place: None,
            });
        }
        _ => {}
    }
}

/// Refuses both at one level.
///
/// # Errors
/// nginx's sentence.
pub fn check(family: Family, store: &ProxyStore, caching: &Caching) -> Result<(), config::Error> {
    let store = &store.proxy_store;
    match store.value {
        StoreTo::Off => Ok(()),
        _ if !caching.is_on() => Ok(()),
        _ => {
            let why = "\"proxy_store\" directive is incompatible with \"proxy_cache\"";
            Err(store.error(family.renamed(why)))
        }
    }
}
