//! The response of a fill for one of its followers: the body is read from memory, else from the file.

use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use cache::Store;
use cache::fill::{Fill, Follower, NextPiece};
use disk::{Access, Local, OpenFile, Pool};
use message::{Body, BodyError, Chunk, Header, ResponseFraming, ResponseHead, Source};

use crate::caching::cache_request::{CacheRequest, local};
use crate::caching::stored::rest;
use crate::response::response_head::{self, Origin};
use httpcore::files;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::request::successor::Takeover;
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
    /// The origin, where the disk does not give what is missing from this byte on.
    takeover: Takeover<u64>,
    /// Of waits for the disk, while the origin may be asked.
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
        takeover: rest::of_fill(request, cache_request.cache, head),
        patience: DiskLimit::of_disk(&request.client.loop_.wire.wheel, &cache_request.cache.disk),
    };
    let fill = following.follower.fill().clone();
    match (
        Body::unfold(following, next),
        cache_request.passing.passes_trailers(),
    ) {
        (Body::Stream(body), true) => Body::Stream(Box::new(WithTrailers { body, fill })),
        (body, _) => body,
    }
}

/// The body of a response whose trailers are passed on.
struct WithTrailers {
    body: Box<dyn Source<Rc<OpenFile>>>,
    fill: Fill,
}

impl Source<Rc<OpenFile>> for WithTrailers {
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Chunk<Rc<OpenFile>>, BodyError>>> {
        self.body.poll_next(cx)
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        self.body.poll_ahead(cx);
    }

    fn trailers(&mut self) -> Vec<Header> {
        self.fill.trailers().to_vec()
    }
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
    let mut failed = None;
    loop {
        if let Some(next) = poll_fn(|context| following.takeover.poll_next(context)).await {
            return Ok(next.transpose()?.map(|chunk| (chunk, following)));
        }
        // The origin has refused. A disk that is slow, and not out, is waited for as any other.
        if let Some(error) = failed.take()
            && !following.may_wait_for(&error)
        {
            return Err(of_read(error));
        }
        let range = match following.follower.next().await {
            NextPiece::Bytes(bytes) => return Ok(Some((Chunk::Bytes(bytes), following))),
            NextPiece::End => return Ok(None),
            NextPiece::Written(range) => range,
            NextPiece::Broken if following.follower.is_spoilt() => return Err(BodyError::Invalid),
            // The fill has logged the reason.
            NextPiece::Broken | NextPiece::Alone | NextPiece::Flush => {
                return Err(BodyError::Logged);
            }
        };
        let start = range.start;
        match Box::pin(following.read(range)).await {
            Ok(bytes) => return Ok(Some((Chunk::Bytes(bytes), following))),
            Err(error) if following.takeover.ask(start, error.to_string()) => failed = Some(error),
            Err(error) => return Err(of_read(error)),
        }
    }
}

impl FollowedBody {
    /// Whether the disk may yet give what it did not give in time.
    fn may_wait_for(&self, error: &cache::Error) -> bool {
        let is_late = matches!(error, cache::Error::Disk(disk::Error::Late(_)));
        let disk = self.patience.disk.as_ref();
        is_late && !disk.is_some_and(|disk| disk.is_out())
    }

    /// Reads from the file what has left the memory window.
    async fn read(&mut self, range: Range<u64>) -> Result<Bytes, cache::Error> {
        let limit = match self.takeover.may_be_asked() {
            true => Some(self.patience.clone()),
            false => self.limit.clone(),
        };
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

fn of_read(error: cache::Error) -> BodyError {
    BodyError::Io(std::io::Error::other(error))
}
