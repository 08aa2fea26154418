//! The body of an entry that is verified while it is sent, each part before its bytes go out.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use cache::Store;
use cache::store::{Checks, Hit, verify_blocks};
use disk::{Access, Local, OpenFile, Pool};
use message::{Body, BodyError, Chunk, FileRange, Source};

use crate::caching::cache_request::{CacheRequest, local};
use crate::caching::caches::open_cache::{Cache, store_settings};
use httpcore::files;
use httpcore::request::Request;

/// Bytes that are checked at once, then sent.
const WINDOW: u64 = 1 << 20;

/// A body that is being sent.
struct VerifiedBody {
    /// The verifier; while it works, it is in `checking`.
    verifier: Option<Box<Verifier>>,
    verifying: Option<Verifying>,
    file: Rc<OpenFile>,
    body_start: u64,
    at: u64,
    end: u64,
}

type Verifying = Pin<Box<dyn Future<Output = (Box<Verifier>, Result<(), cache::Error>)>>>;

struct Verifier {
    cache: Arc<Cache>,
    /// The store that the entry is in; `None`: it is another process's.
    store: Option<Store>,
    local: Local,
    pool: Pool,
    hit: Hit,
    checks: Checks,
}

impl Verifier {
    async fn check(
        mut self: Box<Self>,
        from: u64,
        to: u64,
    ) -> (Box<Self>, Result<(), cache::Error>) {
        let this = &mut *self;
        let access = Access {
            noatime: true,
            ..Access::new(&this.pool)
        };
        let (local, hit, checks, range) = (&this.local, &this.hit, &mut this.checks, from..to);
        let done = match &this.store {
            Some(store) => store.verify(local, &access, hit, checks, &range).await,
            None => verify_blocks(local, &access, hit, checks, &range).await,
        };
        (self, done)
    }
}

/// The complete body of a hit.
#[must_use]
pub(super) fn body(
    request: &Request,
    cache_request: &CacheRequest<'_>,
    hit: Hit,
    checks: Checks,
) -> Body<Rc<OpenFile>> {
    let pool = files::pool(request).cloned();
    made(Verifier {
        cache: Arc::clone(cache_request.cache),
        store: Some(cache_request.store.clone()),
        local: local(request).clone(),
        pool: pool.unwrap_or_else(|_| cache_request.store.settings().pool.clone()),
        checks,
        hit,
    })
}

/// The complete body of an entry of another process.
#[must_use]
pub(super) fn foreign_body(request: &Request, cache: &Arc<Cache>, hit: Hit) -> Body<Rc<OpenFile>> {
    let pool = files::pool(request).cloned();
    let local = local(request).clone();
    made(Verifier {
        cache: Arc::clone(cache),
        store: None,
        pool: pool.unwrap_or_else(|_| store_settings(&cache.zone, local.disk()).pool),
        local,
        checks: Checks::of(&hit),
        hit,
    })
}

fn made(verifier: Verifier) -> Body<Rc<OpenFile>> {
    let range = verifier.hit.entry.body();
    let body_start = verifier.hit.base + range.start;
    Body::Stream(Box::new(VerifiedBody {
        file: Rc::clone(&verifier.hit.file),
        verifier: Some(Box::new(verifier)),
        verifying: None,
        body_start,
        at: 0,
        end: range.end - range.start,
    }))
}

impl Source<Rc<OpenFile>> for VerifiedBody {
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Chunk<Rc<OpenFile>>, BodyError>>> {
        if self.at >= self.end {
            return Poll::Ready(None);
        }
        let to = (self.at + WINDOW).min(self.end);
        if let Some(verifier) = self.verifier.take() {
            self.verifying = Some(Box::pin(verifier.check(self.at, to)));
        }
        let Some(verifying) = &mut self.verifying else {
            return Poll::Ready(Some(Err(BodyError::Truncated)));
        };
        let (verifier, done) = ready!(verifying.as_mut().poll(cx));
        self.verifying = None;
        if let Err(error) = done {
            let cache = &verifier.cache;
            let what = "an entry is cut off where it cannot be used";
            cache.tell(what, &error);
            self.end = self.at;
            return Poll::Ready(Some(Err(BodyError::Logged)));
        }
        self.verifier = Some(verifier);
        let (offset, len) = (self.body_start + self.at, to - self.at);
        self.at = to;
        Poll::Ready(Some(Ok(Chunk::File(FileRange {
            file: Rc::clone(&self.file),
            offset,
            len,
        }))))
    }

    fn cut(&mut self, start: u64, end: u64) -> bool {
        (self.at, self.end) = (start, end.min(self.end));
        true
    }
}
