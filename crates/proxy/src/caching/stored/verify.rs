//! The body of an entry that is verified while it is sent, each part before its bytes go out. Where a part cannot be
//! used, the origin gives the rest (`rest`).

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use cache::Store;
use cache::store::{Checks, Hit, verify_blocks};
use disk::{Access, Local, OpenFile, Pool};
use message::{Body, BodyError, Chunk, FileRange, Source};

use crate::caching::cache_request::{CacheRequest, local};
use crate::caching::caches::open_cache::{Cache, store_settings};
use crate::caching::stored::disk_work::ReadBody;
use crate::caching::stored::rest;
use httpcore::files;
use httpcore::request::Request;
use httpcore::request::successor::{NextChunk, Takeover};
use httpcore::transport::DiskLimit;

/// Bytes that are checked at once, then sent.
const WINDOW: u64 = 1 << 20;

/// A body that is being sent.
struct VerifiedBody {
    /// The verifier; while it works, it is in `checking`.
    verifier: Option<Box<Verifier>>,
    verifying: Option<Verifying>,
    /// What the part that is verified is waited for, before the origin is asked.
    patience: Option<Pin<Box<dyn Future<Output = Duration>>>>,
    /// Of waits for the disk.
    limit: Option<DiskLimit>,
    /// The same, where the origin may have the rest.
    patient: DiskLimit,
    hit: Hit,
    at: u64,
    end: u64,
    /// The origin, for what is missing.
    takeover: Takeover<Range<u64>>,
}

type Verifying = Pin<Box<dyn Future<Output = Result<Box<Verifier>, String>>>>;

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

    /// Checks a part that is due.
    ///
    /// # Errors
    /// It cannot be sent, which is logged with the reason.
    async fn check_in_time(
        self: Box<Self>,
        from: u64,
        to: u64,
        limit: Option<DiskLimit>,
    ) -> Result<Box<Self>, String> {
        let cache = Arc::clone(&self.cache);
        let limit_reached = DiskLimit::reached(limit.as_ref());
        let (verifier, done) = tokio::select! {
            biased;
            (verifier, done) = self.check(from, to) => (Some(verifier), done),
            limit = limit_reached => (None, Err(disk::Error::Late(limit).into())),
        };
        match (done, verifier) {
            (Ok(()), Some(verifier)) => Ok(verifier),
            (Ok(()), None) => Err(String::new()),
            (Err(error), _) => {
                cache.tell("an entry cannot be used to its end", &error);
                Err(error.to_string())
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
    let body = VerifiedBody::of(request, &verifier);
    async move {
        let first = verifier.hit.entry.body_len().min(WINDOW);
        let (verifier, done) = verifier.check(0, first).await;
        done.map(|()| body.by(verifier))
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
    VerifiedBody::of(request, &verifier).by(verifier)
}

impl VerifiedBody {
    /// A body that nothing verifies yet.
    fn of(request: &Request, verifier: &Verifier) -> Box<Self> {
        let hit = verifier.hit.clone();
        let wheel = &request.client.loop_.wire.wheel;
        Box::new(Self {
            verifier: None,
            verifying: None,
            patience: None,
            limit: files::disk_limit(request),
            patient: DiskLimit::of_disk(wheel, &verifier.cache.disk),
            at: 0,
            end: hit.entry.body_len(),
            takeover: rest::of_body(request, &hit),
            hit,
        })
    }

    fn by(mut self: Box<Self>, verifier: Box<Verifier>) -> Body<Rc<OpenFile>> {
        self.verifier = Some(verifier);
        Body::Stream(self)
    }

    /// The next part, verified.
    ///
    /// # Errors
    /// The reason why it cannot be sent, or that it takes long.
    fn poll_verified(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<FileRange<Rc<OpenFile>>, String>> {
        let to = (self.at + WINDOW).min(self.end);
        if let Some(verifier) = self.verifier.take() {
            let (limit, patient) = (self.limit.clone(), self.patient.clone());
            self.verifying = Some(Box::pin(verifier.check_in_time(self.at, to, limit)));
            self.patience = Some(Box::pin(
                async move { DiskLimit::reached(Some(&patient)).await },
            ));
        }
        let Some(verifying) = &mut self.verifying else {
            return Poll::Ready(Err(String::new()));
        };
        if let Poll::Ready(verified) = verifying.as_mut().poll(cx) {
            (self.verifying, self.patience) = (None, None);
            self.verifier = Some(verified?);
            let start = self.hit.base + self.hit.entry.body().start;
            let (offset, len) = (start + self.at, to - self.at);
            self.at = to;
            let file = Rc::clone(&self.hit.file);
            return Poll::Ready(Ok(FileRange { file, offset, len }));
        }
        let Some(patience) = &mut self.patience else {
            return Poll::Pending;
        };
        let waited = ready!(patience.as_mut().poll(cx));
        self.patience = None;
        Poll::Ready(Err(disk::Error::Late(waited).to_string()))
    }
}

impl Source<Rc<OpenFile>> for VerifiedBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<NextChunk> {
        loop {
            if let Some(next) = ready!(self.takeover.poll_next(cx)) {
                if next.is_none() {
                    self.at = self.end;
                }
                return Poll::Ready(next);
            }
            if self.at >= self.end {
                return Poll::Ready(None);
            }
            match ready!(self.poll_verified(cx)) {
                Ok(range) => return Poll::Ready(Some(Ok(Chunk::File(range)))),
                Err(why) if self.takeover.ask(self.at..self.end, why.clone()) => {}
                // It is slow, and nothing else has it.
                Err(_) if self.verifying.is_some() => {}
                Err(_) => {
                    self.end = self.at;
                    return Poll::Ready(Some(Err(BodyError::Logged)));
                }
            }
        }
    }

    fn cut(&mut self, start: u64, end: u64) -> bool {
        (self.at, self.end) = (start, end.min(self.hit.entry.body_len()));
        // What was still being verified belongs to the part before, which the origin gave. Nothing verifies this one.
        (self.verifying, self.patience) = (None, None);
        true
    }

    fn can_be_cut_again(&self) -> bool {
        true
    }
}
