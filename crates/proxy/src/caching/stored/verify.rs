//! The body of an entry that is verified while it is sent, each part before its bytes go out.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use cache::Store;
use cache::store::{Checks, Hit};
use disk::{Access, Local, OpenFile, Pool};
use message::{Body, BodyError, Chunk, FileRange, Source};

use crate::caching::cache_request::{Inquiry, local};
use crate::caching::caches::open_cache::Cache;
use httpcore::files;
use httpcore::request::Request;

/// Bytes that are checked at once, then sent.
const WINDOW: u64 = 1 << 20;

/// A body that is being sent.
struct Checked {
    /// The verifier; while it works, it is in `checking`.
    checker: Option<Box<Checker>>,
    checking: Option<Checking>,
    file: Rc<OpenFile>,
    body_start: u64,
    at: u64,
    end: u64,
}

type Checking = Pin<Box<dyn Future<Output = (Box<Checker>, Result<(), cache::Error>)>>>;

struct Checker {
    cache: Arc<Cache>,
    store: Store,
    local: Local,
    pool: Pool,
    hit: Hit,
    checks: Checks,
}

impl Checker {
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
        let done = this
            .store
            .verify(
                &this.local,
                &access,
                &this.hit,
                &mut this.checks,
                &(from..to),
            )
            .await;
        (self, done)
    }
}

/// The complete body of a hit.
#[must_use]
pub fn body(
    request: &Request,
    inquiry: &Inquiry<'_>,
    hit: Hit,
    checks: Checks,
) -> Body<Rc<OpenFile>> {
    let range = hit.entry.body();
    let pool = files::pool(request).cloned();
    let checker = Checker {
        cache: Arc::clone(inquiry.cache),
        store: inquiry.store.clone(),
        local: local(request).clone(),
        pool: pool.unwrap_or_else(|_| inquiry.store.settings().pool.clone()),
        checks,
        hit,
    };
    Body::Stream(Box::new(Checked {
        file: Rc::clone(&checker.hit.file),
        checker: Some(Box::new(checker)),
        checking: None,
        body_start: range.start,
        at: 0,
        end: range.end - range.start,
    }))
}

impl Source<Rc<OpenFile>> for Checked {
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Chunk<Rc<OpenFile>>, BodyError>>> {
        if self.at >= self.end {
            return Poll::Ready(None);
        }
        let to = (self.at + WINDOW).min(self.end);
        if let Some(checker) = self.checker.take() {
            self.checking = Some(Box::pin(checker.check(self.at, to)));
        }
        let Some(checking) = &mut self.checking else {
            return Poll::Ready(Some(Err(BodyError::Truncated)));
        };
        let (checker, done) = ready!(checking.as_mut().poll(cx));
        self.checking = None;
        if let Err(error) = done {
            let cache = &checker.cache;
            let what = "an entry is cut off where it cannot be used";
            cache.tell(what, &error);
            self.end = self.at;
            return Poll::Ready(Some(Err(BodyError::Logged)));
        }
        self.checker = Some(checker);
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
