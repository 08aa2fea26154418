//! The rest of a stored body whose disk fails in the middle of a response, from the origin.
//!
//! Where the entry has a strong entity tag, the origin is asked for the missing range (RFC 9110, 13.1.5). Else it is
//! asked for the whole, and what was sent is skipped. Its bytes are taken only if they are those of the entry: by the
//! same strong tag, or by the same date and length. Not here: when a disk is given up (`httpcore`).
//!
//! Invariant: no byte is sent twice, and none of another version.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use cache::freshness::RequestControl;
use cache::store::Hit;
use disk::{DiskHealth, OpenFile, in_place};
use message::{
    Body, Chunk, FileRange, Framing, HeaderId, Method, ResponseFraming, ResponseHead, range,
};

use crate::caching::caches::open_cache::Cache;
use crate::caching::caches::registry::Caches;
use crate::exchange::upstream_exchange::{ExchangeStep, UpstreamExchange};
use crate::response::upstream_response::{UpstreamBody, UpstreamResponse};
use crate::settings::caching::rules;
use crate::settings::proxy_pass::PassSettings;
use crate::state::cache_state::{CacheState, StoredFile};
use crate::upstream_request::request;
use crate::upstream_request::variation::Variation;
use httpcore::request::Request;
use httpcore::request::successor::{Rest, Takeover};

/// Maximum of interim heads that the origin may send before its response.
const INTERIM_MAX: usize = 16;

/// The record of a body that is sent from its file; none for one in memory.
pub(super) fn stored_file(hit: &Hit, body: &Body<Rc<OpenFile>>) -> Option<StoredFile> {
    let is_of_file = match body {
        Body::Once(Chunk::File(range)) => !range.file.has_copy(),
        Body::Stream(_) => true,
        Body::Once(Chunk::Bytes(_)) | Body::Empty | Body::Tunnel => false,
    };
    is_of_file.then(|| of_hit(hit))
}

fn of_hit(hit: &Hit) -> StoredFile {
    StoredFile {
        entry: Rc::clone(&hit.entry),
        file: Rc::clone(&hit.file),
        base: hit.base,
        successor,
    }
}

/// The origin for a hit's body, of which some bytes are missing.
pub(super) fn of_body(request: &Request, hit: &Hit) -> Takeover<Range<u64>> {
    let (stand_in, stored) = (request.stand_in(), of_hit(hit));
    let start = hit.base + hit.entry.body().start;
    Takeover::by(move |missing: Range<u64>, why| {
        let range = FileRange {
            file: Rc::clone(&stored.file),
            offset: start + missing.start,
            len: missing.end - missing.start,
        };
        Box::pin(rest(stand_in, stored, range, why))
    })
}

fn successor(
    request: Box<Request>,
    range: FileRange<Rc<OpenFile>>,
    why: String,
) -> Pin<Box<dyn Future<Output = Rest>>> {
    let stored = request.states.get::<CacheState>();
    match stored.and_then(|state| state.stored.clone()) {
        Some(stored) => in_place::boxed(|| rest(request, stored, range, why)).into_pin(),
        None => Box::pin(std::future::ready(None)),
    }
}

async fn rest(
    mut request: Box<Request>,
    stored: StoredFile,
    range: FileRange<Rc<OpenFile>>,
    why: String,
) -> Rest {
    let cache = cache_of(&request, range.file.disk_health());
    let body = stored.entry.body();
    let start = stored.base + body.start;
    let missing = match range.offset.checked_sub(start) {
        Some(from) if from + range.len <= body.end - body.start => from..from + range.len,
        _ => return None,
    };
    let (head, len) = (stored.entry.head(), stored.entry.body_len());
    let rest = from_origin(&mut request, head, len, missing).await;
    told(cache.as_deref(), rest, &why)
}

/// Counts and logs what became of it.
fn told(cache: Option<&Cache>, rest: Result<Body<Rc<OpenFile>>, &'static str>, why: &str) -> Rest {
    if let Some(cache) = cache {
        let outcome = rest.as_ref().map(drop).map_err(|refusal| *refusal);
        cache.tell_taken_over(outcome, why);
    }
    rest.ok()
}

/// The origin for a body with this head that is being stored in `cache`, and of which all is missing from a byte on.
pub(crate) fn of_fill(
    request: &Request,
    cache: &Arc<Cache>,
    head: &Arc<ResponseHead>,
) -> Takeover<u64> {
    let mut stand_in = request.stand_in();
    let (cache, head) = (Arc::clone(cache), Arc::clone(head));
    Takeover::by(move |at, why| {
        Box::pin(async move {
            let rest = match head.framing {
                ResponseFraming::Length(len) if at < len => {
                    from_origin(&mut stand_in, &head, len, at..len).await
                }
                _ => Err("its length is not known"),
            };
            told(Some(&cache), rest, &why)
        })
    })
}

/// The cache with this disk.
fn cache_of(request: &Request, disk: Option<&Arc<DiskHealth>>) -> Option<Arc<Cache>> {
    let mut caches = Caches::of(&request.generation.settings).iter();
    let found = caches.find(|cache| disk.is_some_and(|disk| Arc::ptr_eq(&cache.disk, disk)));
    found.map(Arc::clone)
}

/// Asks the origin for a part of a stored body of `len` bytes.
///
/// # Errors
/// Why it cannot be had.
async fn from_origin(
    request: &mut Request,
    stored: &ResponseHead,
    len: u64,
    missing: Range<u64>,
) -> Result<Body<Rc<OpenFile>>, &'static str> {
    if !matches!(request.method, Method::Get | Method::Head)
        || request.head.framing != Framing::None
    {
        return Err("the request cannot be sent twice");
    }
    let rules = rules(request.location());
    let wishes = match rules.obeys_requests {
        true => RequestControl::of(
            request.head.get_each(HeaderId::CacheControl),
            request.head.get_each(HeaderId::Pragma),
        ),
        false => RequestControl::default(),
    };
    if rules.refuses_miss(&wishes) {
        return Err("the client wants nothing of it");
    }
    let Some(passing) = request.location().made.share::<PassSettings>() else {
        return Err("there is none");
    };
    let validator = Validator::of(stored).ok_or("the entry has no validator")?;
    let wanted = Wanted {
        stored,
        len,
        validator,
        missing,
        is_range: !passing.asks_for_ranges() && stored.status == 200,
    };
    let variation = Variation {
        is_cacheable: true,
        as_get: false,
        lines: wanted.lines(),
    };
    let made = request::make(request, &passing, &variation).await;
    let made = made.map_err(|_| "it cannot be asked")?;
    let made = made.resolved().await.ok_or("its name cannot be resolved")?;
    let UpstreamResponse { head, body } = answered(UpstreamExchange::new(made)).await?;
    let skipped = wanted.skipped(&head)?;
    let (from, to) = (
        skipped,
        skipped + (wanted.missing.end - wanted.missing.start),
    );
    match body {
        UpstreamBody::Whole(bytes) if (bytes.len() as u64) < to => Err("it sent too little"),
        UpstreamBody::Whole(bytes) => Ok(Body::bytes(bytes.slice(from as usize..to as usize))),
        UpstreamBody::Stream(stream) => Ok(Body::Stream(stream).cut(from, to)),
    }
}

async fn answered(mut exchange: UpstreamExchange) -> Result<UpstreamResponse, &'static str> {
    for _ in 0..INTERIM_MAX {
        match exchange.next().await {
            Ok(ExchangeStep::Answer(answer)) => return Ok(answer),
            Ok(ExchangeStep::Interim(_)) => {}
            Err(_) => return Err("it has not answered"),
        }
    }
    Err("it has not answered")
}

/// What tells that a response of the origin is the entry's version.
enum Validator {
    /// A strong entity tag: every byte is the same.
    Tag(Bytes),
    /// The date of the last change; the length must be the same, too, and a weak tag.
    Date,
}

impl Validator {
    fn of(head: &ResponseHead) -> Option<Self> {
        if let Some(tag) = head.get(HeaderId::ETag)
            && tag.starts_with(b"\"")
        {
            return Some(Self::Tag(Bytes::copy_from_slice(tag)));
        }
        head.get(HeaderId::LastModified).map(|_| Self::Date)
    }
}

/// The part of a stored response that the origin is asked for.
struct Wanted<'a> {
    stored: &'a ResponseHead,
    /// Of its whole body, in bytes.
    len: u64,
    validator: Validator,
    missing: Range<u64>,
    /// Whether a range may be asked for.
    is_range: bool,
}

impl Wanted<'_> {
    /// The lines that ask for the range alone.
    fn lines(&self) -> Vec<(Bytes, Bytes)> {
        let Validator::Tag(tag) = &self.validator else {
            return Vec::new();
        };
        if !self.is_range {
            return Vec::new();
        }
        let bytes = format!("bytes={}-{}", self.missing.start, self.missing.end - 1);
        vec![
            (Bytes::from_static(b"Range"), bytes.into()),
            (Bytes::from_static(b"If-Range"), tag.clone()),
        ]
    }

    /// Number of bytes in front of the missing ones in a response with this head.
    ///
    /// # Errors
    /// Why it is not the entry's version, or not the part that was asked for.
    fn skipped(&self, head: &ResponseHead) -> Result<u64, &'static str> {
        const ANOTHER: &str = "it has another version now";
        let (stored, len) = (self.stored, self.len);
        let is_same = |id| stored.get(id) == head.get(id);
        if !is_same(HeaderId::ContentEncoding) || !is_same(HeaderId::ETag) {
            return Err(ANOTHER);
        }
        let is_part = head.status == 206 && stored.status != 206;
        if is_part {
            let wanted = range::content_range(&self.missing, len);
            let is_it = self.is_range
                && matches!(self.validator, Validator::Tag(_))
                && head.get(HeaderId::ContentRange) == Some(&wanted);
            return is_it.then_some(0).ok_or("it sent another range");
        }
        if head.status != stored.status || !is_same(HeaderId::ContentRange) {
            return Err(ANOTHER);
        }
        let is_long = head.framing == ResponseFraming::Length(len);
        match self.validator {
            Validator::Tag(_) => Ok(self.missing.start),
            Validator::Date if is_long && is_same(HeaderId::LastModified) => Ok(self.missing.start),
            Validator::Date => Err(ANOTHER),
        }
    }
}
