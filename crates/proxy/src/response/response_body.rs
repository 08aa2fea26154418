//! The body of a response, on its way from an upstream server: piece after piece, as it is asked for.
//!
//! A slow reader holds the server back, unless the body is buffered ([`BodyStream::buffer`]): then it is read ahead of
//! the reader. Not here: the head (`exchange`), the client, the reading ahead (`read_ahead`). Invariant: the attempt is
//! recorded and the peer given back when the body, or the tunnel in its place, ends, breaks off or is dropped; a
//! connection in a doubtful state is closed.

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use disk::{OpenFile, Pool};
use logs::Level;
use message::{BodyError, Chunk, FileRange, Header, Source, status};
use wire::Timer;
use wire::answer::AnswerFault;
use wire::exchange::RequestKind;
use wire::exchange::{Exchange, ExchangeError};
use wire::rate::{Allowed, Rate};

use crate::response::read_ahead::ReadAhead;
use crate::response::upload::{BesideError, Upload};
use crate::upstream_request::log_context::SENDING;
use crate::upstream_request::request::{UpstreamRequest, shown};
use httpcore::files;
use httpcore::request::Request;
use httpcore::request_body::Pieces;
use httpcore::transport::DiskLimit;
use upstream::ConnectionKey;
use upstream::{Choice, KeepalivePool, Now, PeerOutcome, PeerTimes};

pub(crate) const READING: &str = "reading upstream";

/// A body that is being received.
pub(crate) struct BodyStream {
    /// The exchange, until it has ended.
    exchange: Option<Exchange>,
    trailers: Vec<Header>,
    /// The rest of the request's body, which is sent while the response is received.
    upload: Option<Box<Upload>>,
    /// A piece that was taken and returned.
    begun: Bytes,
    /// `proxy_limit_rate`, which holds where the body is buffered.
    limit: Option<Box<BodyRate>>,
    /// Whether it may be read ahead of its reader.
    is_buffered: bool,
    /// The part read ahead, once its reader has been slow.
    ahead: Option<Box<ReadAhead>>,
    pub(crate) attempt: BodyAttempt,
}

/// The start values of a [`BodyStream`].
pub(crate) struct BodyStart {
    /// The upstream request.
    pub upstream_request: Rc<UpstreamRequest>,
    /// The exchange, whose head has arrived.
    pub exchange: Exchange,
    /// The part of the body that was read already.
    pub begun: Bytes,
    /// The rest of the request's body, if it is still sent.
    pub rest: Option<Box<Pieces>>,
    /// The choice that holds the peer.
    pub choice: Choice,
    /// The key under which the connection may be kept.
    pub like: ConnectionKey,
    /// The peer's name.
    pub name: Arc<str>,
    /// The progress of its attempt.
    pub progress: Progress,
}

/// The progress of an attempt whose head has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// When it began.
    pub begun_ms: u64,
    /// How long its head took.
    pub header_ms: u64,
    /// Bytes of the head.
    pub head_bytes: u64,
}

/// The attempt that the body belongs to.
pub(crate) struct BodyAttempt {
    pub(crate) upstream_request: Rc<UpstreamRequest>,
    choice: Choice,
    like: ConnectionKey,
    name: Arc<str>,
    progress: Progress,
    /// The pool for buffered data, where the location alone does not decide it.
    pool: Option<Pool>,
}

/// The rate at which a body is given out, and so read.
struct BodyRate {
    rate: Rate,
    since_ms: u64,
    given: u64,
    timer: Timer,
    is_waiting: bool,
}

impl BodyRate {
    fn of(upstream_request: &UpstreamRequest, per_second: u64) -> Option<BodyRate> {
        (per_second > 0).then(|| BodyRate {
            rate: Rate {
                per_second,
                after: 0,
            },
            since_ms: wire::loop_clock::monotonic_ms(),
            given: 0,
            timer: upstream_request.context.loop_().wire.wheel.timer(),
            is_waiting: false,
        })
    }

    /// Number of bytes that may be given out now.
    fn poll_allowed(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        loop {
            if self.is_waiting {
                ready!(self.timer.poll_expired(cx));
                self.timer.disarm();
                self.is_waiting = false;
            }
            let elapsed_ms = wire::loop_clock::monotonic_ms().saturating_sub(self.since_ms);
            match self.rate.allow(self.given, elapsed_ms) {
                Allowed::Bytes(bytes) => {
                    return Poll::Ready(usize::try_from(bytes).unwrap_or(usize::MAX));
                }
                Allowed::Wait(pause) => self.timer.arm(pause),
            }
            self.is_waiting = true;
        }
    }
}

impl BodyStream {
    /// A body whose head has arrived.
    #[must_use]
    pub(crate) fn new(from: BodyStart) -> BodyStream {
        let mut stream = BodyStream {
            exchange: Some(from.exchange),
            trailers: Vec::new(),
            upload: from.rest.map(|rest| Box::new(Upload::new(rest))),
            begun: from.begun,
            limit: BodyRate::of(&from.upstream_request, from.upstream_request.limit_rate)
                .map(Box::new),
            is_buffered: false,
            ahead: None,
            attempt: BodyAttempt {
                upstream_request: from.upstream_request,
                choice: from.choice,
                like: from.like,
                name: from.name,
                progress: from.progress,
                pool: None,
            },
        };
        stream.end_if_over();
        stream
    }

    /// Allows reading it ahead of the request's client where that is slow.
    pub(crate) fn buffer(&mut self, request: &Request) {
        self.is_buffered = true;
        if request.location().pool.get().is_none() {
            // Without a pool it is not written; that was logged.
            let pool = files::pool(request).ok().cloned();
            self.attempt.pool = pool.filter(|_| request.location().pool.get().is_none());
        }
    }

    /// The same for a body whose request is known by its pool only.
    pub(crate) fn buffer_by(&mut self, pool: &Pool) {
        self.is_buffered = true;
        self.attempt.pool = Some(pool.clone());
    }

    /// The next piece from the server; `None` at the end.
    pub(crate) fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        self.poll_piece_of(cx, usize::MAX)
    }

    /// The same, with at most `read_max` bytes read for it.
    pub(crate) fn poll_piece_of(
        &mut self,
        cx: &mut Context<'_>,
        read_max: usize,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        if self.limit.is_none() || !self.is_buffered {
            return self.poll_whole_piece(cx, read_max);
        }
        if self.begun.is_empty() {
            match ready!(self.poll_whole_piece(cx, read_max)) {
                Some(Ok(piece)) => self.begun = piece,
                end => return Poll::Ready(end),
            }
        }
        let Some(limit) = &mut self.limit else {
            return Poll::Ready(None);
        };
        let allowed = ready!(limit.poll_allowed(cx));
        let len = self.begun.len().min(allowed);
        limit.given += len as u64;
        Poll::Ready(Some(Ok(self.begun.split_to(len))))
    }

    fn poll_whole_piece(
        &mut self,
        cx: &mut Context<'_>,
        read_max: usize,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        if !self.begun.is_empty() {
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.begun))));
        }
        let Some(exchange) = &mut self.exchange else {
            return Poll::Ready(None);
        };
        let settings = &self.attempt.upstream_request.passing.groups.asking;
        let timeout = settings.proxy_read_timeout.duration();
        let outcome = match &mut self.upload {
            None => {
                ready!(exchange.poll_piece_of(cx, timeout, read_max)).map_err(BesideError::from)
            }
            Some(upload) => ready!(upload.poll_beside(cx, exchange, timeout, read_max)),
        };
        Poll::Ready(match outcome {
            Ok(Some(piece)) => {
                self.end_if_over();
                Some(Ok(piece))
            }
            Ok(None) => {
                self.end_if_over();
                None
            }
            Err(error) => {
                self.break_off(&error);
                Some(Err(match error {
                    BesideError::Exchange(ExchangeError::Answer(
                        AnswerFault::Chunks | AnswerFault::Record(_),
                    )) => BodyError::Invalid,
                    BesideError::Exchange(_) | BesideError::Body(_) => BodyError::Logged,
                }))
            }
        })
    }

    /// The next piece for its reader; data that was written to a file is read again, as much as a window has room for.
    pub(crate) async fn piece(&mut self) -> Option<Result<Bytes, BodyError>> {
        let read_max = || cache::fill::window_now(disk::READ_MAX) as u64;
        let next = std::future::poll_fn(|cx| self.poll_given(cx, read_max())).await?;
        match next {
            Ok(Chunk::Bytes(bytes)) => Some(Ok(bytes)),
            Ok(Chunk::File(range)) => Some(self.attempt.read(&range).await),
            Err(error) => Some(Err(error)),
        }
    }

    /// The next piece for its reader, of a file at most this many bytes.
    fn poll_given(
        &mut self,
        cx: &mut Context<'_>,
        file_max: u64,
    ) -> Poll<Option<Result<Chunk<Rc<OpenFile>>, BodyError>>> {
        if let Some(ahead) = &mut self.ahead
            && let Poll::Ready(next) = ahead.poll_next(cx, file_max, &self.attempt)
        {
            return Poll::Ready(next);
        }
        self.poll_piece(cx)
            .map(|piece| piece.map(|piece| piece.map(Chunk::Bytes)))
    }

    /// Reads ahead while its reader is busy with a piece.
    pub(crate) fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        if !self.is_buffered {
            return self.poll_upload(cx);
        }
        if self.exchange.is_none() && self.ahead.is_none() {
            return;
        }
        let ahead = self.ahead.take();
        let mut ahead = ahead.unwrap_or_else(|| Box::new(ReadAhead::of(&self.attempt)));
        ahead.poll(cx, self);
        self.ahead = Some(ahead);
    }

    /// Sends the rest of the request where nothing of the response may be read: its client may take none of it before it
    /// has sent all.
    pub(crate) fn poll_upload(&mut self, cx: &mut Context<'_>) {
        if let (Some(exchange), Some(upload)) = (&mut self.exchange, &mut self.upload) {
            upload.poll_aside(cx, exchange);
        }
    }

    /// Waits for its reader to take a piece, and reads ahead meanwhile.
    pub(crate) async fn ahead_of<T>(
        &mut self,
        reader: impl Future<Output = T>,
        is_wanted: impl Fn() -> bool,
    ) -> T {
        let mut reader = pin!(reader);
        std::future::poll_fn(|cx| {
            let done = reader.as_mut().poll(cx);
            if done.is_pending() && is_wanted() {
                self.poll_ahead(cx);
            }
            done
        })
        .await
    }

    /// Limits the rate of the body where it is buffered, in bytes per second; 0: no limit.
    pub(crate) fn limit(&mut self, per_second: u64) {
        self.limit = BodyRate::of(&self.attempt.upstream_request, per_second).map(Box::new);
    }

    /// After a 101: the socket, and the data that followed the head. The peer stays taken until
    /// [`BodyStream::end_tunnel`].
    pub(crate) fn take_tunnel(&mut self) -> Option<(wire::Stream, Vec<u8>)> {
        let exchange = self.exchange.take()?;
        record(
            &self.attempt.upstream_request,
            &exchange,
            &self.attempt.progress,
        );
        // The data of a tunnel is no body.
        self.attempt.upstream_request.state.forget_body();
        exchange.into_tunnel()
    }

    /// Records the bytes of the tunnel, to the server and from it.
    pub(crate) fn count_tunnel(&self, sent: u64, received: u64) {
        let response_ms = Now::read()
            .ms
            .saturating_sub(self.attempt.progress.begun_ms);
        if let Some(one) = self
            .attempt
            .upstream_request
            .state
            .tries
            .borrow_mut()
            .last()
        {
            one.response_ms = Some(response_ms);
            one.bytes_sent += sent;
            one.bytes_received += received;
        }
    }

    /// Called when the tunnel has ended: gives the peer back.
    pub(crate) fn end_tunnel(&mut self) {
        let attempt = &mut self.attempt;
        give_back(
            &attempt.upstream_request,
            &mut attempt.choice,
            &attempt.progress,
        );
    }

    /// The server's name.
    #[must_use]
    pub(crate) fn peer(&self) -> &str {
        &self.attempt.name
    }

    /// Whether the end has come.
    #[must_use]
    pub(crate) fn is_over(&self) -> bool {
        self.exchange.is_none()
    }

    /// The upstream request.
    #[must_use]
    pub(crate) fn upstream_request(&self) -> &Rc<UpstreamRequest> {
        &self.attempt.upstream_request
    }

    /// Called at the end: the connection may serve the next request.
    fn end_if_over(&mut self) {
        if !self
            .exchange
            .as_ref()
            .is_some_and(|exchange| exchange.is_ended())
        {
            return;
        }
        let Some(exchange) = self.exchange.take() else {
            return;
        };
        self.attempt.settle(&exchange);
        let upstream_request = &self.attempt.upstream_request;
        let passing = &upstream_request.passing;
        // As in nginx, of HTTP/2 they are shown (`$upstream_trailer_…`) whether or not they are passed on.
        if passing.is_http2() || passing.passes_trailers() {
            let trailers = exchange.trailers();
            *upstream_request.state.trailers.borrow_mut() = trailers.clone();
            if passing.passes_trailers() {
                self.trailers = trailers;
            }
        }
        let like = self.attempt.like.clone();
        keep(upstream_request, exchange, like, &self.attempt.name);
    }

    fn break_off(&mut self, error: &BesideError) {
        let Some(exchange) = self.exchange.take() else {
            return;
        };
        self.attempt.settle(&exchange);
        let action = match error {
            BesideError::Exchange(_) => READING,
            BesideError::Body(_) => SENDING,
        };
        let attempt = &self.attempt;
        attempt.log_while(action, Level::Error, &error.to_string());
    }
}

impl BodyAttempt {
    fn settle(&mut self, exchange: &Exchange) {
        settle(
            &self.upstream_request,
            exchange,
            &mut self.choice,
            &self.progress,
        );
    }

    /// Writes `WHAT while reading upstream, …`.
    pub(crate) fn log(&self, level: Level, what: &str) {
        self.log_while(READING, level, what);
    }

    fn log_while(&self, action: &str, level: Level, what: &str) {
        let upstream = shown(&self.name, &self.upstream_request);
        self.upstream_request
            .context
            .log(level, what, action, &upstream);
    }

    /// The pool that writes and reads what is buffered.
    pub(crate) fn pool(&self) -> Option<Pool> {
        let pool = self.pool.as_ref();
        pool.or(self.upstream_request.context.location().pool.get())
            .cloned()
    }

    /// Reads a part of the file again.
    async fn read(&self, range: &FileRange<Rc<OpenFile>>) -> Result<Bytes, BodyError> {
        let pool = self.pool().ok_or(BodyError::Logged)?;
        let context = &self.upstream_request.context;
        let access = files::reading(context.location(), &pool);
        let len = usize::try_from(range.len).unwrap_or(usize::MAX);
        let disk = &context.loop_().disk;
        let read = disk.read(&range.file, range.offset, len, &access);
        let limit = files::disk_limit_at(context.location(), context.loop_());
        match DiskLimit::within(limit.as_ref(), read).await {
            Ok(bytes) if bytes.len() as u64 == range.len => Ok(bytes),
            Ok(_) => Err(BodyError::Truncated),
            Err(error) => Err(BodyError::Io(std::io::Error::other(error))),
        }
    }
}

/// Records an attempt that has ended and gives its peer back: it has answered, whatever became of the body.
pub(crate) fn settle(
    upstream_request: &UpstreamRequest,
    exchange: &Exchange,
    choice: &mut Choice,
    progress: &Progress,
) {
    record(upstream_request, exchange, progress);
    give_back(upstream_request, choice, progress);
}

/// Records the figures of an attempt.
fn record(upstream_request: &UpstreamRequest, exchange: &Exchange, progress: &Progress) {
    let response_ms = Now::read().ms.saturating_sub(progress.begun_ms);
    if let Some(one) = upstream_request.state.tries.borrow_mut().last() {
        one.response_ms = Some(response_ms);
        one.bytes_sent = exchange.sent();
        one.bytes_received = exchange.received();
        // Some responses have no body, whatever follows their head.
        one.response_length = match upstream_request.asked {
            RequestKind::Head => 0,
            _ if status::is_bodiless(one.status) => 0,
            _ => exchange
                .body_received()
                .unwrap_or_else(|| exchange.received().saturating_sub(progress.head_bytes)),
        };
    }
}

/// Gives the peer of an attempt that has ended back.
fn give_back(upstream_request: &UpstreamRequest, choice: &mut Choice, progress: &Progress) {
    let now = Now::read();
    let times = PeerTimes {
        header_ms: Some(progress.header_ms),
        response_ms: now.ms.saturating_sub(progress.begun_ms),
    };
    choice.give_back(PeerOutcome::Answered, times, now);
    upstream_request.state.end();
}

/// Keeps the connection of a response that was read from the server of this name for the next request, or closes it.
pub(crate) fn keep(
    upstream_request: &UpstreamRequest,
    exchange: Exchange,
    like: ConnectionKey,
    name: &str,
) {
    if let Some(sentence) = exchange.excess() {
        let upstream = shown(name, upstream_request);
        upstream_request
            .context
            .log(Level::Warn, sentence, READING, &upstream);
    }
    if let Some(connection) = exchange.finish() {
        let loop_ = upstream_request.context.loop_();
        KeepalivePool::of(loop_).put(&upstream_request.upstream, connection, like, loop_);
    }
}

impl Drop for BodyStream {
    /// The rest is not needed.
    fn drop(&mut self) {
        if let Some(exchange) = self.exchange.take() {
            self.attempt.settle(&exchange);
        }
    }
}

impl Source<Rc<OpenFile>> for BodyStream {
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Chunk<Rc<OpenFile>>, BodyError>>> {
        self.poll_given(cx, u64::MAX)
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        BodyStream::poll_ahead(self, cx);
    }

    fn is_over(&self) -> bool {
        BodyStream::is_over(self)
            && self.begun.is_empty()
            && self.trailers.is_empty()
            && self.ahead.as_ref().is_none_or(|ahead| ahead.is_empty())
    }

    fn may_have_trailers(&self) -> bool {
        let passing = &self.attempt.upstream_request.passing;
        passing.is_http2() && passing.passes_trailers()
    }

    fn takes_request(&self) -> bool {
        self.exchange.is_some() && self.upload.as_ref().is_some_and(|upload| !upload.is_over())
    }

    fn trailers(&mut self) -> Vec<Header> {
        let upstream_request = &self.attempt.upstream_request;
        let mut trailers = std::mem::take(&mut self.trailers);
        trailers.retain(|line| {
            let id = message::HeaderId::find(&line.name);
            !upstream_request.passing.hidden.has(&line.name, id)
        });
        trailers
    }
}
