//! The response of a fill for one of its followers: the body is read from memory, else from the file.

use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use cache::Store;
use cache::fill::{Follower, NextPiece};
use disk::{Access, Local, OpenFile, Pool};
use message::{Body, BodyError, Chunk, ResponseFraming, ResponseHead};

use crate::caching::cache_request::{CacheRequest, local};
use crate::caching::caches::open_cache::Cache;
use crate::caching::stored::rest;
use crate::response::response_head::{self, Origin};
use httpcore::files;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::transport::DiskLimit;

/// A follower and its means of reading.
struct FollowedBody {
    follower: Follower,
    store: Store,
    local: Local,
    pool: Pool,
    /// The file that is being filled, once it was opened.
    file: Option<Rc<OpenFile>>,
    /// A piece that arrived before the first poll.
    first: Option<Bytes>,
    /// Of waits for the disk.
    limit: Option<DiskLimit>,
    /// What the origin is asked by for what the disk does not give; once.
    successor: Option<Box<Successor>>,
    /// What it has given.
    instead: Option<Body<Rc<OpenFile>>>,
}

/// See [`rest::of_fill`].
struct Successor {
    request: Box<Request>,
    cache: Arc<Cache>,
    head: Arc<ResponseHead>,
    /// How long the disk is waited for before the origin is asked.
    patience: DiskLimit,
}

/// The response to a request that follows a fill.
pub(super) async fn answer(
    request: &mut Request,
    cache_request: &CacheRequest<'_>,
    follower: Follower,
    head: &Arc<ResponseHead>,
    origin: Origin,
) -> Outcome {
    let body = body(request, cache_request, follower, head).await;
    let head = Arc::clone(head);
    response_head::shape(request, cache_request.passing, head, body, origin)
}

/// The body for a follower. A body that is here completely is one piece.
async fn body(
    request: &Request,
    cache_request: &CacheRequest<'_>,
    follower: Follower,
    head: &Arc<ResponseHead>,
) -> Body<Rc<OpenFile>> {
    let mut first = None;
    if let ResponseFraming::Length(length) = head.framing {
        match now(&follower).await {
            Some(NextPiece::End) if length == 0 => return Body::Empty,
            Some(NextPiece::Bytes(bytes)) if bytes.len() as u64 == length => {
                return Body::bytes(bytes);
            }
            Some(NextPiece::Bytes(bytes)) => first = Some(bytes),
            // The next call gives the same result.
            _ => {}
        }
    }
    // For its disk: the file may be kept open, and sent from later.
    let pool = files::pool(request).map(|pool| pool.for_disk(&cache_request.cache.disk));
    let following = FollowedBody {
        follower,
        store: cache_request.store.clone(),
        local: local(request).clone(),
        pool: pool.unwrap_or_else(|_| cache_request.store.settings().pool.clone()),
        file: None,
        first,
        limit: files::disk_limit(request),
        successor: Some(Box::new(Successor {
            request: request.understudy(),
            cache: Arc::clone(cache_request.cache),
            head: Arc::clone(head),
            patience: DiskLimit {
                wheel: Rc::clone(&request.client.loop_.wire.wheel),
                after: Duration::MAX,
                disk: Some(Arc::clone(&cache_request.cache.disk)),
            },
        })),
        instead: None,
    };
    Body::unfold(following, next)
}

/// The next piece for a follower, if one is here.
async fn now(follower: &Follower) -> Option<NextPiece> {
    poll_fn(|context| match follower.poll_next(context) {
        Poll::Ready(next) => Poll::Ready(Some(next)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

async fn next(
    mut following: FollowedBody,
) -> Result<Option<(Chunk<Rc<OpenFile>>, FollowedBody)>, BodyError> {
    if let Some(bytes) = following.first.take() {
        return Ok(Some((Chunk::Bytes(bytes), following)));
    }
    if let Some(body) = &mut following.instead {
        let next = body.next().await.transpose()?;
        return Ok(next.map(|chunk| (chunk, following)));
    }
    let bytes = match following.follower.next().await {
        NextPiece::Bytes(bytes) => bytes,
        NextPiece::End => return Ok(None),
        NextPiece::Written(range) => match Box::pin(following.read_or_ask(range)).await? {
            Some(bytes) => bytes,
            None => return Box::pin(next(following)).await,
        },
        NextPiece::Broken if following.follower.is_spoilt() => return Err(BodyError::Invalid),
        // The fill has logged the reason.
        NextPiece::Broken | NextPiece::Alone | NextPiece::Flush => return Err(BodyError::Logged),
    };
    Ok(Some((Chunk::Bytes(bytes), following)))
}

impl FollowedBody {
    /// Reads from the file what has left the memory window; None: the origin gives what comes from here on.
    async fn read_or_ask(&mut self, range: Range<u64>) -> Result<Option<Bytes>, BodyError> {
        let patience = self.successor.as_ref().map(|asked| asked.patience.clone());
        let limit = patience.or_else(|| self.limit.clone());
        let error = match self.read(range.clone(), limit).await {
            Ok(bytes) => return Ok(Some(bytes)),
            Err(error) => error,
        };
        let is_late = matches!(error, cache::Error::Disk(disk::Error::Late(_)));
        if let Some(asked) = self.successor.take() {
            let why = error.to_string();
            let rest = rest::of_fill(asked.request, &asked.cache, &asked.head, range.start, &why);
            self.instead = rest.await;
            if self.instead.is_some() {
                return Ok(None);
            }
            if is_late && !asked.cache.disk.is_out() {
                let again = self.read(range, self.limit.clone()).await;
                return again.map(Some).map_err(failed);
            }
        }
        Err(failed(error))
    }

    async fn read(
        &mut self,
        range: Range<u64>,
        limit: Option<DiskLimit>,
    ) -> Result<Bytes, cache::Error> {
        let access = Access {
            noatime: true,
            ..Access::new(&self.pool)
        };
        let place = self.follower.fill().written_body().cloned();
        let place = place.ok_or(cache::EntryFault::Damaged("length"))?;
        let read = self
            .store
            .read_written(&self.local, &access, &place, &mut self.file, &range);
        let read = tokio::select! {
            biased;
            read = read => read,
            limit = DiskLimit::reached(limit.as_ref()) => {
                Err(disk::Error::Late(limit).into())
            }
        };
        let bytes = read?;
        self.follower.advance(bytes.len() as u64);
        Ok(bytes)
    }
}

fn failed(error: cache::Error) -> BodyError {
    BodyError::Io(std::io::Error::other(error))
}
