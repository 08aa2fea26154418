//! One request to an upstream and its response, whatever carries them.
//!
//! HTTP/1, FastCGI, uwsgi and SCGI have a connection for themselves (`own`); HTTP/2 has a stream of a connection that
//! several requests share (`http2`); its futures are boxed, so that the others need no room for them. Not here: the
//! choice of the server, the content of the request, and the reaction to a failure. Invariant: the enum is closed, and
//! each operation is a match.

mod answer_reader;
mod body_writer;
pub mod connect;
mod http2;
mod outcome;
mod own;

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use message::Header;

use crate::http1::request_writer::RequestFault;
use crate::stream::Stream;

pub use answer_reader::{AnswerReader, INTERIM_HEADS_MAX, RequestKind};
pub use body_writer::BodyWriter;
pub use http2::{Http2Exchange, STREAMS_MAX, SharedConnection, SharedDriver};
pub use outcome::{AnswerHead, ExchangeError, Flushed};
pub use own::{OwnExchange, UpstreamConnection};

/// A request and its response.
pub enum Exchange {
    /// On a connection that they have for themselves.
    Own(Box<OwnExchange>),
    /// On a stream of HTTP/2.
    Http2(Http2Exchange),
}

impl Exchange {
    /// Waits until the server sends something or closes, even if the request body has not been sent. Sends nothing
    /// itself.
    #[inline]
    pub async fn answer_begins(&self) {
        match self {
            Self::Own(own) => own.answer_begins().await,
            Self::Http2(http2) => Box::pin(http2.answer_begins()).await,
        }
    }

    /// Waits until the server sends more than has been examined, or closes. Sends nothing itself.
    #[inline]
    pub async fn more_comes(&self) {
        match self {
            Self::Own(own) => own.more_comes().await,
            Self::Http2(http2) => Box::pin(http2.answer_begins()).await,
        }
    }

    /// Waits until a part of the response can be read, for as long as [`Exchange::head`] would; reads nothing itself.
    ///
    /// # Errors
    /// Nothing was received.
    #[inline]
    pub async fn answer_comes(&mut self, timeout: Duration) -> Result<(), ExchangeError> {
        match self {
            Self::Own(own) => own.answer_comes(timeout).await,
            Self::Http2(http2) => Box::pin(http2.answer_comes(timeout)).await,
        }
    }

    /// The next head; sends the queue in the meantime. All heads of a response have `timeout` together, which begins when the
    /// request has been sent (`proxy_read_timeout`).
    ///
    /// # Errors
    /// No head was received, or none that can be passed on.
    #[inline]
    pub async fn head(&mut self, timeout: Duration) -> Result<AnswerHead, ExchangeError> {
        match self {
            Self::Own(own) => own.head(timeout).await,
            Self::Http2(http2) => Box::pin(http2.head(timeout)).await,
        }
    }

    /// The next head, or `None` as soon as the queue has been sent and more of the body may be queued. `timeout` as in
    /// [`Exchange::flush`].
    ///
    /// # Errors
    /// As [`Exchange::head`].
    #[inline]
    pub async fn head_or_room(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<AnswerHead>, ExchangeError> {
        match self {
            Self::Own(own) => own.head_or_room(timeout).await,
            Self::Http2(http2) => Box::pin(http2.head_or_room(timeout)).await,
        }
    }

    /// The next piece of the body; `None` at its end. `timeout` applies between two reads; [`Exchange::head`] must have been
    /// called.
    ///
    /// # Errors
    /// The body ended early, or is not what its head said. All data before that has been returned.
    #[inline]
    pub async fn piece(&mut self, timeout: Duration) -> Result<Option<Bytes>, ExchangeError> {
        match self {
            Self::Own(own) => own.piece(timeout).await,
            Self::Http2(http2) => std::future::poll_fn(|cx| http2.poll_piece(cx, timeout)).await,
        }
    }

    /// As [`Exchange::piece`].
    #[inline]
    pub fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
        timeout: Duration,
    ) -> Poll<Result<Option<Bytes>, ExchangeError>> {
        match self {
            Self::Own(own) => own.poll_piece(cx, timeout),
            Self::Http2(http2) => http2.poll_piece(cx, timeout),
        }
    }

    /// As [`Exchange::poll_piece`], with reads of at most `read_max` bytes (not 0). Bytes read before are not limited, nor is HTTP/2,
    /// whose windows limit what comes.
    #[inline]
    pub fn poll_piece_of(
        &mut self,
        cx: &mut Context<'_>,
        timeout: Duration,
        read_max: usize,
    ) -> Poll<Result<Option<Bytes>, ExchangeError>> {
        match self {
            Self::Own(own) => own.poll_piece_of(cx, timeout, read_max),
            Self::Http2(http2) => http2.poll_piece(cx, timeout),
        }
    }

    /// The data of the body received so far, without another read; may be empty.
    #[inline]
    pub fn ready_piece(&mut self) -> Bytes {
        match self {
            Self::Own(own) => own.ready_piece(),
            Self::Http2(http2) => http2.ready_piece(),
        }
    }

    /// Whether the end of the response has been seen. (It may be seen before the last piece is returned.)
    #[inline]
    pub fn is_ended(&self) -> bool {
        match self {
            Self::Own(own) => own.is_ended(),
            Self::Http2(http2) => http2.is_ended(),
        }
    }

    /// The log's sentence about what the server has sent behind the response; `None`: nothing.
    pub fn excess(&self) -> Option<&'static str> {
        match self {
            Self::Own(own) => own.excess(),
            Self::Http2(_) => None,
        }
    }

    /// The trailers, once the body has ended.
    #[inline]
    pub fn trailers(&self) -> Vec<Header> {
        match self {
            Self::Own(own) => own.trailers(),
            Self::Http2(http2) => http2.trailers(),
        }
    }

    /// Whether trailers have come, over HTTP/2.
    #[inline]
    pub fn has_trailers(&self) -> bool {
        match self {
            Self::Own(_) => false,
            Self::Http2(http2) => http2.has_trailers(),
        }
    }

    /// Queues a piece of the request body. To avoid holding the whole body in memory, flush between the pieces.
    ///
    /// # Errors
    /// The body is longer than announced; nothing of the piece is queued.
    #[inline]
    pub fn queue_piece(&mut self, piece: Bytes) -> Result<(), RequestFault> {
        match self {
            Self::Own(own) => own.queue_piece(piece),
            Self::Http2(http2) => http2.queue_piece(piece),
        }
    }

    /// Ends the request body.
    ///
    /// # Errors
    /// The body is shorter than announced: the exchange must be dropped.
    #[inline]
    pub fn end_body(&mut self, trailers: &[Header]) -> Result<(), RequestFault> {
        match self {
            Self::Own(own) => own.end_body(trailers),
            Self::Http2(http2) => http2.end_body(),
        }
    }

    /// Sends the queued bytes; `timeout` applies between two writes (`proxy_send_timeout`).
    ///
    /// # Errors
    /// [`ExchangeError::Timeout`], [`ExchangeError::Send`].
    #[inline]
    pub async fn flush(&mut self, timeout: Duration) -> Result<Flushed, ExchangeError> {
        match self {
            Self::Own(own) => own.flush(timeout).await,
            Self::Http2(http2) => Box::pin(http2.flush(timeout)).await,
        }
    }

    /// Sends the queued bytes as far as the server takes them now, without a look at the response, and has the task woken
    /// when it takes more.
    pub fn poll_send(&mut self, cx: &mut Context<'_>) {
        match self {
            Self::Own(own) => own.poll_send(cx),
            Self::Http2(http2) => http2.poll_send(cx),
        }
    }

    /// Whether the server still takes the request.
    #[inline]
    pub fn takes_more(&self) -> bool {
        match self {
            Self::Own(own) => own.takes_more(),
            Self::Http2(http2) => http2.takes_more(),
        }
    }

    /// Whether the kernel has taken the complete request.
    #[inline]
    pub fn is_sent(&self) -> bool {
        match self {
            Self::Own(own) => own.is_sent(),
            Self::Http2(http2) => http2.is_sent(),
        }
    }

    /// Ends the exchange. Returns the connection if it may be used for another request: the request was sent and the
    /// response read completely, and nothing else was received. (A connection of HTTP/2 is where it was.)
    #[inline]
    pub fn finish(self) -> Option<UpstreamConnection> {
        match self {
            Self::Own(own) => own.finish(),
            Self::Http2(_) => None,
        }
    }

    /// Whether the server said that it did nothing with the request, so that it may be sent again, whatever its method
    /// (RFC 9113, 8.7).
    #[inline]
    pub fn may_repeat(&self) -> bool {
        match self {
            Self::Own(_) => false,
            Self::Http2(http2) => http2.may_repeat(),
        }
    }

    /// Whether a failure before the head counts as one of the server. Where a connection broke that several requests shared,
    /// that of the first one that asks does: it is one failure, however many they were.
    #[inline]
    pub fn counts_failure(&self) -> bool {
        match self {
            Self::Own(_) => true,
            Self::Http2(http2) => http2.counts_failure(),
        }
    }

    /// Whether more of the request body may be queued: what was is sent.
    #[inline]
    pub fn has_room(&self) -> bool {
        match self {
            Self::Own(own) => own.has_room(),
            Self::Http2(http2) => http2.has_room(),
        }
    }

    /// After a 101: the socket, and the bytes after the head. `None` with HTTP/2, which has no 101.
    #[inline]
    pub fn into_tunnel(self) -> Option<(Stream, Vec<u8>)> {
        match self {
            Self::Own(own) => Some(own.into_tunnel()),
            Self::Http2(_) => None,
        }
    }

    /// Bytes sent (`$upstream_bytes_sent`).
    #[inline]
    pub fn sent(&self) -> u64 {
        match self {
            Self::Own(own) => own.sent(),
            Self::Http2(http2) => http2.sent(),
        }
    }

    /// See [`AnswerReader::beside_head`].
    #[inline]
    pub fn beside_head(&self) -> u64 {
        match self {
            Self::Own(own) => own.beside_head(),
            Self::Http2(_) => 0,
        }
    }

    /// Bytes of the body received, where they are counted apart: of HTTP/2, whose head is received encoded.
    #[inline]
    pub fn body_received(&self) -> Option<u64> {
        match self {
            Self::Own(_) => None,
            Self::Http2(http2) => Some(http2.body_received()),
        }
    }

    /// Bytes received (`$upstream_bytes_received`).
    #[inline]
    pub fn received(&self) -> u64 {
        match self {
            Self::Own(own) => own.received(),
            Self::Http2(http2) => http2.received(),
        }
    }
}
