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
use crate::caching::stored::disk_work::ReadBody;
use httpcore::files;
use httpcore::request::Request;
use httpcore::transport::DiskLimit;

/// Bytes that are checked at once, then sent.
const WINDOW: u64 = 1 << 20;

/// A body that is being sent.
struct VerifiedBody {
    /// The verifier; while it works, it is in `checking`.
    verifier: Option<Box<Verifier>>,
    verifying: Option<Verifying>,
    limit: Option<DiskLimit>,
    file: Rc<OpenFile>,
    body_start: u64,
    at: u64,
    end: u64,
}

type Verifying = Pin<Box<dyn Future<Output = Option<Box<Verifier>>>>>;

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

    /// Checks a part that is due. None: it cannot be sent, which is logged.
    async fn check_in_time(
        self: Box<Self>,
        from: u64,
        to: u64,
        limit: Option<DiskLimit>,
    ) -> Option<Box<Self>> {
        let cache = Arc::clone(&self.cache);
        let limit_reached = DiskLimit::reached(limit.as_ref());
        let (verifier, done) = tokio::select! {
            biased;
            (verifier, done) = self.check(from, to) => (Some(verifier), done),
            limit = limit_reached => (None, Err(disk::Error::Late(limit).into())),
        };
        match done {
            Ok(()) => verifier,
            Err(error) => {
                cache.tell("an entry is cut off where it cannot be used", &error);
                None
            }
        }
    }
}

/// The complete body of a hit; its first part is verified first.
pub(super) fn body(
    request: &Request,
    cache_request: &CacheRequest<'_>,
    hit: Hit,
    pool: Pool,
) -> impl Future<Output = ReadBody> + use<> {
    let verifier = Box::new(Verifier {
        cache: Arc::clone(cache_request.cache),
        store: Some(cache_request.store.clone()),
        local: local(request).clone(),
        pool,
        checks: Checks::of(&hit),
        hit,
    });
    let limit = files::disk_limit(request);
    async move {
        let first = verifier.hit.entry.body_len().min(WINDOW);
        let (verifier, done) = verifier.check(0, first).await;
        done.map(|()| made(verifier, limit))
    }
}

/// The complete body of an entry of another process.
#[must_use]
pub(super) fn foreign_body(request: &Request, cache: &Arc<Cache>, hit: Hit) -> Body<Rc<OpenFile>> {
    let pool = files::pool(request).cloned();
    let local = local(request).clone();
    let verifier = Box::new(Verifier {
        cache: Arc::clone(cache),
        store: None,
        pool: pool.unwrap_or_else(|_| store_settings(cache, local.disk()).pool),
        local,
        checks: Checks::of(&hit),
        hit,
    });
    made(verifier, files::disk_limit(request))
}

fn made(verifier: Box<Verifier>, limit: Option<DiskLimit>) -> Body<Rc<OpenFile>> {
    let range = verifier.hit.entry.body();
    let body_start = verifier.hit.base + range.start;
    Body::Stream(Box::new(VerifiedBody {
        file: Rc::clone(&verifier.hit.file),
        verifier: Some(verifier),
        verifying: None,
        limit,
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
            let limit = self.limit.clone();
            self.verifying = Some(Box::pin(verifier.check_in_time(self.at, to, limit)));
        }
        let Some(verifying) = &mut self.verifying else {
            return Poll::Ready(Some(Err(BodyError::Truncated)));
        };
        let verifier = ready!(verifying.as_mut().poll(cx));
        self.verifying = None;
        if verifier.is_none() {
            self.end = self.at;
            return Poll::Ready(Some(Err(BodyError::Logged)));
        }
        self.verifier = verifier;
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
