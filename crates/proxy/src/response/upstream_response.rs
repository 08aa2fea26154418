//! A response of an upstream server whose head has arrived.

use std::sync::Arc;

use bytes::Bytes;
use message::{BodyError, Header, ResponseHead, Source};

use crate::response::response_body::BodyStream;

/// A response whose head has arrived.
pub(crate) struct UpstreamResponse {
    /// The head.
    pub head: Arc<ResponseHead>,
    /// The body.
    pub body: UpstreamBody,
}

/// The body of a response.
pub(crate) enum UpstreamBody {
    /// All of it came with the head: the connection is already kept or closed.
    Whole(Bytes),
    /// It is on its way.
    Stream(Box<BodyStream>),
}

impl UpstreamBody {
    /// Whether it is here completely, and at most this long.
    #[must_use]
    pub(crate) fn is_whole_within(&self, len: usize) -> bool {
        matches!(self, UpstreamBody::Whole(bytes) if bytes.len() <= len)
    }

    /// The next piece; `None` at the end.
    pub(crate) async fn piece(&mut self) -> Option<Result<Bytes, BodyError>> {
        match self {
            UpstreamBody::Whole(bytes) if bytes.is_empty() => None,
            UpstreamBody::Whole(bytes) => Some(Ok(std::mem::take(bytes))),
            UpstreamBody::Stream(stream) => stream.piece().await,
        }
    }

    /// The trailers; asked for once, after the end.
    pub(crate) fn trailers(&mut self) -> Vec<Header> {
        match self {
            UpstreamBody::Whole(_) => Vec::new(),
            UpstreamBody::Stream(stream) => Source::trailers(&mut **stream),
        }
    }

    /// Waits for its reader to take a piece, and reads ahead of the reader meanwhile, where that is wanted then.
    pub(crate) async fn ahead_of<T>(
        &mut self,
        reader: impl Future<Output = T>,
        is_wanted: impl Fn() -> bool,
    ) -> T {
        match self {
            UpstreamBody::Whole(_) => reader.await,
            UpstreamBody::Stream(stream) => stream.ahead_of(reader, is_wanted).await,
        }
    }
}
