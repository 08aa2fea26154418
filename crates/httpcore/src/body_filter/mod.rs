//! Filters: steps after the content that look at or change the bytes of a body.
//!
//! How to write one:
//!
//! 1. In `server::steps::after`, at its place in nginx's order, the filter decides by the head whether it wants the body.
//!    If so, it changes the head ([`Response::becomes_another`] for a filter that gives other bytes) and pushes its
//!    step onto [`Steps`]. It does so for HEAD as well: the head must be the same, only the body is not touched then.
//! 2. A filter that takes bytes and gives bytes implements [`Filter`] and pushes itself ([`Steps::filter`]); it never
//!    waits, and is fed little at a time. A filter that waits (for a sub-request, a pool) is a [`Source`] of its own
//!    around [`Inside`], which gives it the bytes of the body in front of it ([`Steps::push`]).
//!
//! Bodies are wrapped when the head is final, after ranges and slices, in the order in which the steps were pushed. A
//! body without steps costs one comparison. Invariant: nothing here waits for a disk; bytes that are not in memory are
//! read by the location's pool, [`READ_LEN`] bytes at a time, once the client has taken those before them.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use disk::OpenFile;
use message::{Body, BodyError, Chunk, FileRange, Header, Source};
use runtime::Loop;
use wire::turn;

use crate::Response;
use crate::files;
use crate::http_loop::generation::Generation;
use crate::request::Request;
use crate::request::successor::Takeover;
use crate::route::LocationId;
use crate::transport::DiskLimit;

/// Maximum bytes of a file that are read at once.
pub const READ_LEN: u64 = 64 << 10;
/// Maximum bytes that a filter is fed at once, so that its output is bounded too.
pub const FEED_LEN: usize = 32 << 10;

/// The body of an answer.
pub type AnswerBody = Body<Rc<OpenFile>>;

/// A filter that is fed a body's bytes in order and gives other bytes in their place.
pub trait Filter {
    /// Takes bytes, at most [`Filter::feed_len`], and puts its output into `out`; it may keep some bytes for later.
    ///
    /// # Errors
    /// The body cannot go on: the connection is cut.
    fn feed(&mut self, bytes: Bytes, out: &mut Out) -> Result<(), BodyError>;

    /// Maximum bytes that it is fed at once: fewer where a few bytes may become many. At least 1.
    fn feed_len(&self) -> usize {
        FEED_LEN
    }

    /// No more input is ready at the moment: gives as much as it can of the bytes that it kept.
    fn flush(&mut self, _out: &mut Out) {}

    /// The body has ended: gives the bytes that it kept.
    ///
    /// # Errors
    /// The body is incomplete: the connection is cut.
    fn end(&mut self, out: &mut Out) -> Result<(), BodyError>;
}

/// The output of a filter. One piece stays as it is, several become one.
#[derive(Debug, Default)]
pub struct Out {
    one: Bytes,
    joined: Vec<u8>,
}

impl Out {
    /// Appends bytes without copying them, if they are the first.
    pub fn push(&mut self, bytes: Bytes) {
        if self.one.is_empty() && self.joined.is_empty() {
            self.one = bytes;
        } else {
            self.extend(&bytes);
        }
    }

    /// Appends a copy of these bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.place().extend_from_slice(bytes);
    }

    /// The buffer with the output so far, to which more can be written.
    pub fn place(&mut self) -> &mut Vec<u8> {
        let one = std::mem::take(&mut self.one);
        self.joined.extend_from_slice(&one);
        &mut self.joined
    }

    /// Whether there is no output since the last [`Out::take`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.one.is_empty() && self.joined.is_empty()
    }

    /// Takes the output; `None`: there is none.
    pub fn take(&mut self) -> Option<Bytes> {
        let one = match self.joined.is_empty() {
            true => std::mem::take(&mut self.one),
            false => std::mem::take(&mut self.joined).into(),
        };
        (!one.is_empty()).then_some(one)
    }
}

type Step = Box<dyn FnOnce(&mut Request, &Response, AnswerBody) -> AnswerBody>;

/// The steps that change the body of one answer, in order.
#[derive(Default)]
pub struct Steps(Vec<Step>);

impl Steps {
    /// Has `step` change the body, once the head is final.
    pub fn push(&mut self, step: impl FnOnce(&Request, AnswerBody) -> AnswerBody + 'static) {
        self.0
            .push(Box::new(|request, _, body| step(request, body)));
    }

    /// Has the body go through a filter.
    pub fn filter(&mut self, filter: impl Filter + 'static) {
        self.filter_of_head(|_, _| filter);
    }

    /// Has the body go through a filter that is made once the head is final.
    pub fn filter_of_head<T: Filter + 'static>(
        &mut self,
        make: impl FnOnce(&mut Request, &Response) -> T + 'static,
    ) {
        self.0.push(Box::new(|request, head, body| {
            Body::Stream(Box::new(Filtered {
                filter: make(request, head),
                inside: Inside::new(request, body),
                bytes: Bytes::new(),
                out: Out::default(),
                is_kept: false,
                is_over: false,
            }))
        }));
    }

    /// Changes the body of a response whose head is final.
    pub fn run(self, request: &mut Request, response: &mut Response) {
        if request.is_head() || matches!(response.body, Body::Tunnel) {
            return;
        }
        for step in self.0 {
            let body = std::mem::take(&mut response.body);
            response.body = step(request, response, body);
        }
    }
}

/// A body as bytes: its parts in files are read.
pub struct Inside {
    body: AnswerBody,
    reader: Reader,
    /// The rest of a file that must be read before anything else.
    file: Option<FileRange<Rc<OpenFile>>>,
    reading: Option<Reading>,
    /// What has the rest of a file that cannot be read.
    takeover: Takeover<FileRange<Rc<OpenFile>>>,
    /// Why that was asked.
    failed: Option<BodyError>,
    /// Of waits for the disk, where nothing else has what is waited for.
    limit: Option<DiskLimit>,
}

type Reading = Pin<Box<dyn Future<Output = Result<Bytes, BodyError>>>>;

impl Inside {
    /// The bytes of the body of an answer to this request.
    #[must_use]
    pub fn new(request: &Request, body: AnswerBody) -> Self {
        let reader = Reader {
            loop_: Rc::clone(&request.client.loop_),
            generation: Rc::clone(&request.generation),
            location: request.location,
            pool: files::pool(request).ok().cloned(),
            limit: match body.ranged_file() {
                Some(file) => files::disk_limit_of(request, file),
                None => files::disk_limit(request),
            },
        };
        let takeover = body
            .ranged_file()
            .map_or(Takeover::No, |file| takeover_of(request, file));
        Self {
            body,
            reader,
            file: None,
            reading: None,
            takeover,
            failed: None,
            limit: files::disk_limit(request),
        }
    }

    /// The next bytes, never empty; `None` at the end.
    pub fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        loop {
            if let Some(next) = ready!(self.poll_elsewhere(cx)) {
                return Poll::Ready(Some(next));
            }
            if let Some(reading) = &mut self.reading {
                let read = ready!(reading.as_mut().poll(cx));
                self.reading = None;
                match (read, &mut self.file) {
                    (Err(error), Some(rest))
                        if self.takeover.ask(rest.clone(), error.to_string()) =>
                    {
                        self.failed = Some(error);
                        continue;
                    }
                    (read, rest) => {
                        rest.iter_mut().for_each(next_part);
                        return Poll::Ready(Some(read));
                    }
                }
            }
            if let Some(range) = &mut self.file {
                if range.len == 0 {
                    self.file = None;
                    continue;
                }
                let part = part_of(range);
                match self.reader.try_read(&part) {
                    Some(read) => {
                        next_part(range);
                        return Poll::Ready(Some(read));
                    }
                    None => self.reading = Some(Box::pin(self.reader.clone().read(part))),
                }
                continue;
            }
            match ready!(self.body.poll_next(cx)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(chunk)) if chunk.is_empty() => {}
                Some(Ok(Chunk::Bytes(bytes))) => return Poll::Ready(Some(Ok(bytes))),
                Some(Ok(Chunk::File(range))) => self.file = Some(range),
            }
        }
    }

    /// The next bytes of the rest that comes from elsewhere; `None`: there is none.
    fn poll_elsewhere(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        while let Some(next) = ready!(self.takeover.poll_next(cx)) {
            (self.file, self.failed) = (None, None);
            match next {
                None => break,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(Chunk::Bytes(bytes))) if bytes.is_empty() => {}
                Some(Ok(Chunk::Bytes(bytes))) => return Poll::Ready(Some(Ok(bytes))),
                Some(Ok(Chunk::File(_))) => return Poll::Ready(Some(Err(BodyError::Truncated))),
            }
        }
        let Some(error) = self.failed.take() else {
            return Poll::Ready(None);
        };
        let disk = self
            .file
            .as_ref()
            .and_then(|range| range.file.disk_health());
        if !is_late(&error) || disk.is_some_and(|disk| disk.is_out()) {
            return Poll::Ready(Some(Err(error)));
        }
        // It is slow, and nothing else has it.
        self.reader.limit = self.limit.take();
        Poll::Ready(None)
    }

    /// As [`Source::poll_ahead`].
    pub fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        self.body.poll_ahead(cx);
    }

    /// Whether the next bytes are still being read from a disk. Then there is more, and nothing has to be flushed.
    #[must_use]
    pub fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// The number of bytes, if it was known before the first one was taken.
    #[must_use]
    pub fn len(&self) -> Option<u64> {
        self.body.len()
    }

    /// Whether it is known to be empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    /// Whether there may be trailers; only after the end.
    #[must_use]
    pub fn may_have_trailers(&self) -> bool {
        !self.body.is_over()
    }

    /// Whether the body takes that of its request while it is read.
    #[must_use]
    pub fn takes_request(&self) -> bool {
        self.body.takes_request()
    }

    /// The trailers of the body, after its end.
    pub fn trailers(&mut self) -> Vec<Header> {
        match &mut self.body {
            Body::Stream(source) => source.trailers(),
            _ => Vec::new(),
        }
    }
}

/// What has the rest of this file, and of no other one that is in the body.
fn takeover_of(request: &Request, file: &Rc<OpenFile>) -> Takeover<FileRange<Rc<OpenFile>>> {
    let Some(successor) = request.successor(file) else {
        return Takeover::No;
    };
    let (stand_in, file) = (request.stand_in(), Rc::clone(file));
    Takeover::by(move |missing: FileRange<Rc<OpenFile>>, why| {
        match Rc::ptr_eq(&missing.file, &file) {
            true => successor(stand_in, missing, why),
            false => Box::pin(std::future::ready(None)),
        }
    })
}

/// The next part to read of a range.
fn part_of(range: &FileRange<Rc<OpenFile>>) -> FileRange<Rc<OpenFile>> {
    FileRange {
        file: Rc::clone(&range.file),
        offset: range.offset,
        len: range.len.min(READ_LEN),
    }
}

/// Goes on behind that part.
fn next_part(range: &mut FileRange<Rc<OpenFile>>) {
    let len = range.len.min(READ_LEN);
    range.offset += len;
    range.len -= len;
}

/// All that reading an answer's files needs, independent of the request, which may have ended.
#[derive(Clone)]
struct Reader {
    loop_: Rc<Loop>,
    generation: Rc<Generation>,
    location: LocationId,
    pool: Option<disk::Pool>,
    limit: Option<DiskLimit>,
}

impl Reader {
    /// Reads the part if it is in memory.
    fn try_read(&self, part: &FileRange<Rc<OpenFile>>) -> Option<Result<Bytes, BodyError>> {
        let disk = &self.loop_.disk;
        let read = disk.try_read(&part.file, part.offset, part.len as usize);
        read.ok().map(|read| whole(read, part))
    }

    async fn read(self, part: FileRange<Rc<OpenFile>>) -> Result<Bytes, BodyError> {
        // A missing pool has been logged already.
        let pool = self.pool.as_ref().ok_or(BodyError::Logged)?;
        let location = self.generation.settings.location(self.location);
        let access = files::reading(location, pool);
        let disk = &self.loop_.disk;
        let read = disk.read(&part.file, part.offset, part.len as usize, &access);
        whole(DiskLimit::within(self.limit.as_ref(), read).await, &part)
    }
}

/// The complete part: a file that has become shorter ends its answer.
fn whole(
    read: Result<Bytes, disk::Error>,
    part: &FileRange<Rc<OpenFile>>,
) -> Result<Bytes, BodyError> {
    let bytes = read.map_err(|error| BodyError::Io(std::io::Error::other(error)))?;
    match bytes.len() as u64 == part.len {
        true => Ok(bytes),
        false => Err(BodyError::Truncated),
    }
}

/// Whether a read has failed since its disk is slow.
fn is_late(error: &BodyError) -> bool {
    let BodyError::Io(error) = error else {
        return false;
    };
    let error = error.get_ref().and_then(|error| error.downcast_ref());
    matches!(error, Some(disk::Error::Late(_)))
}

/// A body behind a filter.
struct Filtered<T> {
    filter: T,
    inside: Inside,
    /// The next bytes for the filter.
    bytes: Bytes,
    out: Out,
    /// Whether the filter was fed since its last flush.
    is_kept: bool,
    is_over: bool,
}

impl<T: Filter> Source<Rc<OpenFile>> for Filtered<T> {
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Chunk<Rc<OpenFile>>, BodyError>>> {
        loop {
            if let Some(bytes) = self.out.take() {
                return Poll::Ready(Some(Ok(Chunk::Bytes(bytes))));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            if self.bytes.is_empty() {
                match self.inside.poll_bytes(cx) {
                    Poll::Ready(Some(Ok(bytes))) => self.bytes = bytes,
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                    Poll::Ready(None) => {
                        self.is_over = true;
                        if let Err(error) = self.filter.end(&mut self.out) {
                            return Poll::Ready(Some(Err(error)));
                        }
                        continue;
                    }
                    // If only the turn's budget is used up, more may be ready: no flush yet.
                    Poll::Pending if turn::is_over() => return Poll::Pending,
                    Poll::Pending if self.is_kept && !self.inside.is_reading() => {
                        self.is_kept = false;
                        self.filter.flush(&mut self.out);
                        match self.out.take() {
                            Some(bytes) => return Poll::Ready(Some(Ok(Chunk::Bytes(bytes)))),
                            None => return Poll::Pending,
                        }
                    }
                    Poll::Pending => return Poll::Pending,
                }
            }
            let part = self
                .bytes
                .split_to(self.bytes.len().min(self.filter.feed_len()));
            self.is_kept = true;
            if let Err(error) = self.filter.feed(part, &mut self.out) {
                return Poll::Ready(Some(Err(error)));
            }
            turn::spend_time();
            if self.out.is_empty() {
                ready!(turn::poll_go_on(cx));
            }
        }
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        self.inside.poll_ahead(cx);
    }

    fn is_over(&self) -> bool {
        self.is_over && self.out.is_empty() && !self.inside.may_have_trailers()
    }

    fn takes_request(&self) -> bool {
        self.inside.takes_request()
    }

    fn trailers(&mut self) -> Vec<Header> {
        self.inside.trailers()
    }
}

/// Runs `work` on a request that knows the head of its answer (`$sent_http_content_type`, `$status`).
pub fn with_head<T>(
    request: &mut Request,
    response: &Response,
    work: impl FnOnce(&mut Request) -> T,
) -> T {
    request.response = Some(Box::new(response.with_body(Body::Empty)));
    let done = work(request);
    request.response = None;
    done
}

/// Removes the validators from a head whose body differs at every answer; `is_kept`: the date stays, and the entity tag
/// as a weak one.
pub fn forget_version(response: &mut Response, is_kept: bool) {
    if is_kept {
        response.weaken_etag();
        return;
    }
    response.last_modified = None;
    response.headers.remove(b"Last-Modified");
    response.etag = None;
    response.headers.remove(b"ETag");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_piece_is_given_as_it_is_and_several_in_order() {
        let mut out = Out::default();
        assert_eq!(out.take(), None);
        let piece = Bytes::from(vec![7; 3]);
        out.push(piece.clone());
        assert_eq!(out.take().unwrap().as_ptr(), piece.as_ptr());
        out.push(Bytes::from_static(b"a"));
        out.push(Bytes::new());
        out.extend(b"b");
        out.place().push(b'c');
        out.push(Bytes::from_static(b"d"));
        assert_eq!(out.take().unwrap(), "abcd");
        assert_eq!(out.take(), None);
    }
}
