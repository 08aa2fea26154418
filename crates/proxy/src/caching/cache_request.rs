//! A request as its cache sees it: which cache, which key, which rules.
//!
//! Not here: what follows from the look-up (`lookup`). Invariant: the pool is the location's, evaluated for each
//! request, so that each disk can have a pool of its own.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use cache::freshness::{self, PassReason, RequestControl, Rules, StoreVerdict};
use cache::store::{LookupOutcome, Uses};
use cache::{Key, Store};
use config::Template;
use disk::{Access, Local, Pool};
use logs::wall_clock::Moment;
use message::date::Seconds;
use message::{HeaderId, Method, RequestHead, ResponseHead};
use wire::http1::head_buffers;

use crate::caching::caches::open_cache::Cache;
use crate::settings::caching::Caching;
use crate::settings::caching::rules;
use crate::settings::directives::Proxy;
use crate::settings::family::Family;
use crate::settings::proxy_pass::{PassSettings, PassTarget};
use crate::settings::url::{Url, with_slash};
use crate::upstream_request::{gateway_params, head};
use httpcore::Failure;
use httpcore::files;
use httpcore::request::Request;
use httpcore::settings::Location;

/// A request's lookup in a cache; see the module.
pub struct CacheRequest<'a> {
    /// Its location's settings.
    pub passing: &'a PassSettings,
    /// The cache.
    pub cache: &'a Arc<Cache>,
    /// Its store.
    pub store: &'a Store,
    /// The location's cache settings.
    pub caching: &'a Caching,
    /// The freshness rules.
    pub rules: &'a Rules,
    /// The text that the key is made of.
    pub key_text: Bytes,
    /// The key.
    pub main: Key,
    /// The client's `Cache-Control` (empty unless the rules obey it).
    pub wishes: RequestControl,
    /// Seconds since 1970.
    pub now: Seconds,
    /// The location's pool, for the cache's disk.
    pool: Option<PoolOf<'a>>,
}

/// A pool for a cache's disk.
enum PoolOf<'a> {
    /// The cache keeps it.
    Kept(&'a Pool),
    /// It is one of several that the cache's locations have.
    Own(Pool),
}

impl<'a> CacheRequest<'a> {
    /// That of a request.
    #[must_use]
    pub fn new(
        request: &Request,
        (location, passing): (&'a Location, &'a PassSettings),
        cache: &'a Arc<Cache>,
        store: &'a Store,
        key_text: Bytes,
    ) -> Self {
        let rules = rules(location);
        let wishes = match rules.obeys_requests {
            true => RequestControl::of(
                request.head.get_each(HeaderId::CacheControl),
                request.head.get_each(HeaderId::Pragma),
            ),
            false => RequestControl::default(),
        };
        Self {
            passing,
            cache,
            store,
            caching: location.own::<Caching>(),
            rules,
            main: Key::of(&key_text),
            key_text,
            wishes,
            now: Moment::now().second(),
            pool: pool_for(request, cache),
        }
    }

    /// The access for reading on behalf of this request.
    ///
    /// # Errors
    /// 500: the pool's name, made from variables, names no pool.
    pub fn access(&self, request: &Request) -> Result<Access<'_>, Failure> {
        let pool = match &self.pool {
            Some(PoolOf::Kept(pool)) => pool,
            Some(PoolOf::Own(pool)) => pool,
            None => return Err(Failure::new(500)),
        };
        Ok(reading(request, pool))
    }

    /// Looks up the stored response.
    ///
    /// # Errors
    /// The disk fails, or its pool is full.
    pub async fn find(
        &self,
        request: &Request,
        access: &Access<'_>,
    ) -> Result<LookupOutcome, cache::Error> {
        let (local, key) = (local(request), (self.main, &self.key_text[..]));
        self.store
            .find(local, access, key, lines(request), self.now, Uses::Count)
            .await
    }
}

/// The location's pool, for the disk of a cache. None: its name, made from variables, names no pool (that is logged).
fn pool_for<'a>(request: &Request, cache: &'a Cache) -> Option<PoolOf<'a>> {
    if let Some(own) = cache.own_pool() {
        return Some(PoolOf::Kept(own));
    }
    let pool = files::pool(request).ok()?;
    let kept = cache.kept_pool(pool);
    Some(match kept.is_same(pool) {
        true => PoolOf::Kept(kept),
        false => PoolOf::Own(pool.for_disk(&cache.disk)),
    })
}

/// The access of a pool for reading on behalf of this request, at the disk that the pool is for.
pub fn reading<'p>(request: &Request, pool: &'p Pool) -> Access<'p> {
    let mode = files::reading(request.location(), pool).mode;
    Access {
        mode,
        moment: request.moment,
        ..access_by(pool)
    }
}

/// How entries are read. (An entry's head and its checksums are read in pieces that do not suit O_DIRECT, and its body
/// should be in memory.)
#[must_use]
pub fn access_by(pool: &Pool) -> Access<'_> {
    Access {
        noatime: true,
        is_own: true,
        unsent: cache::CHECKSUM_BYTES as usize,
        ..Access::new(pool)
    }
}

/// The part of the disk layer that belongs to the request's loop.
#[must_use]
pub fn local(request: &Request) -> &Local {
    &request.client.loop_.disk
}

/// A request's header lines, for `Vary`.
pub fn lines(request: &Request) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
    lines_of(&request.head)
}

/// The header lines of a head, for `Vary`.
pub fn lines_of(head: &RequestHead) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
    let line = |field: &message::Field| (head.text(field.name), head.text(field.value));
    head.fields.iter().map(line)
}

/// The name of a request's cache; None: it has none.
#[must_use]
pub fn cache_name(request: &Request, passing: &PassSettings) -> Option<Bytes> {
    let template = passing.groups.caching.proxy_cache.value.on()?;
    Some(request.evaluate(template))
}

/// The text of a request's key: `proxy_cache_key`, else scheme, host (or socket) and URI of the request to the origin.
/// (For gateways there is no default, as in nginx.)
#[must_use]
pub fn key_text(request: &Request, passing: &PassSettings) -> Bytes {
    if let Some(template) = &passing.groups.caching.proxy_cache_key {
        return request.evaluate(template);
    }
    if passing.family != Family::Proxy {
        return Bytes::new();
    }
    let written = head_buffers::written(|text| {
        append_default_key(request, passing, text);
        Ok::<_, Infallible>(())
    });
    let Ok((text, ())) = written;
    text
}

/// Appends scheme, host (or socket) and URI of the request to the origin.
fn append_default_key(request: &Request, passing: &PassSettings, text: &mut Vec<u8>) {
    match &passing.target {
        PassTarget::Fixed { url, .. } => {
            url.append_key_start(text);
            head::append_target(request, passing, (&url.uri, false), text);
        }
        PassTarget::Made(template) => {
            let url = Url::parse(&request.evaluate(template)).ok();
            if let Some(url) = &url {
                url.append_key_start(text);
            }
            let uri = url.map_or_else(Bytes::new, |url| with_slash(url.uri));
            head::append_target(request, passing, (&uri, true), text);
        }
    }
}

/// Whether the request may use the cache at all.
#[must_use]
pub fn is_asked(request: &Request, caching: &Caching) -> bool {
    caching.proxy_cache_methods.has(request.method)
}

/// Whether the response itself allows storing it, though perhaps not for how long. Then the client's conditions and
/// range are answered here, stored or not: the origin was not sent them.
pub fn is_storable(cache_request: &CacheRequest<'_>, head: &ResponseHead) -> bool {
    let answer = freshness::OriginResponse {
        status: head.status,
        fields: head.iter(),
        is_authorized: false,
        is_slice: false,
        asked: cache_request.now,
        now: cache_request.now,
    };
    let verdict = freshness::judge(&answer, cache_request.rules);
    matches!(
        verdict,
        StoreVerdict::Store(_) | StoreVerdict::Pass(PassReason::NoLifetime)
    )
}

/// Whether the client's HEAD is passed on as GET.
#[must_use]
pub fn asks_as_get(request: &Request, passing: &PassSettings) -> bool {
    request.method == Method::Head
        && request.location().own::<Proxy>().proxy_cache_convert_head
        && passing.family == Family::Proxy
}

/// Whether a gateway is told HEAD, with nothing of that in the key. A GET would then get a response without a body.
/// (With an explicit `proxy_cache_convert_head off` the key is the configuration's responsibility.)
#[must_use]
pub fn is_head_alone(request: &Request, passing: &PassSettings) -> bool {
    let Some(params) = &passing.params else {
        return false;
    };
    let key = request.location().own::<Caching>().proxy_cache_key.as_ref();
    let names_method =
        |key: &Template| memchr::memmem::find(key.source(), b"request_method").is_some();
    !key.is_some_and(names_method) && gateway_params::is_head(params, request)
}

/// Whether the request asks for a range that begins too far in (`proxy_cache_max_range_offset`).
#[must_use]
pub fn is_range_far(request: &Request, caching: &Caching) -> bool {
    let Some(max) = caching.proxy_cache_max_range_offset else {
        return false;
    };
    let Some(range) = request.head.get(HeaderId::Range) else {
        return false;
    };
    if max.0 == 0 {
        return true;
    }
    let is_bytes = range.len() >= 7 && range[..6].eq_ignore_ascii_case(b"bytes=");
    if !is_bytes {
        return false;
    }
    let text = range[6..].trim_ascii_start();
    if text.starts_with(b"-") {
        return true;
    }
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    let start = digits.fold(0u64, |sum, digit| {
        sum.saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    });
    start >= max.0
}
