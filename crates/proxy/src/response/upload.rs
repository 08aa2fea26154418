//! The rest of a request's body, sent while its response is received: both sides of a stream may talk at once (gRPC).
//!
//! Not here: the part before the response's head (`exchange::attempt`). Invariant: one piece is taken at a time, when the
//! server has taken the one before.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use wire::exchange::{Exchange, ExchangeError};

use httpcore::request_body::{PieceError, Pieces};

/// The next piece, with the pieces behind it.
type Next = Pin<Box<dyn Future<Output = (Box<Pieces>, Result<Option<Bytes>, PieceError>)>>>;

/// The reason why a response broke off beside which a body was sent.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) enum BesideError {
    /// An error of the response, or of the connection.
    Exchange(#[from] ExchangeError),
    /// The request's body cannot be read from its file: the server waits for the rest in vain.
    Body(#[from] PieceError),
}

/// A body that is sent beside its response.
pub(super) enum Upload {
    /// A piece is awaited.
    Waiting(Next),
    /// The server has not taken the last one.
    Full(Box<Pieces>),
    /// All of it was queued, or no more of it is wanted.
    Over,
    /// It broke off, which the response's reader is told next.
    Broken(BesideError),
}

impl Upload {
    /// The rest of a body.
    pub(super) fn new(rest: Box<Pieces>) -> Upload {
        Upload::Full(rest)
    }

    /// Whether there is nothing more to send.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Upload::Over)
    }

    /// As [`Exchange::poll_piece_of`]; sends the body in the meantime.
    pub(super) fn poll_beside(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
        timeout: Duration,
        read_max: usize,
    ) -> Poll<Result<Option<Bytes>, BesideError>> {
        if let Some(error) = self.take_error() {
            return Poll::Ready(Err(error));
        }
        // Terminates: each turn queues a piece, and the server's window or the socket ends what it takes.
        loop {
            let came = exchange.poll_piece_of(cx, timeout, read_max);
            if came.is_ready() || !self.advance(cx, exchange)? {
                return came.map_err(BesideError::from);
            }
        }
    }

    /// Sends the body as far as it goes without the response, for which there is no room now.
    pub(super) fn poll_aside(&mut self, cx: &mut Context<'_>, exchange: &mut Exchange) {
        // Terminates as above.
        while !matches!(self, Upload::Broken(_)) {
            exchange.poll_send(cx);
            match self.advance(cx, exchange) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return *self = Upload::Broken(error),
            }
        }
    }

    fn take_error(&mut self) -> Option<BesideError> {
        match std::mem::replace(self, Upload::Over) {
            Upload::Broken(error) => Some(error),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Queues the next piece; returns whether it did.
    fn advance(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
    ) -> Result<bool, BesideError> {
        if !self.is_over() && !exchange.takes_more() {
            *self = Upload::Over;
        }
        if !exchange.has_room() {
            return Ok(false);
        }
        let mut next = match std::mem::replace(self, Upload::Over) {
            Upload::Over | Upload::Broken(_) => return Ok(false),
            Upload::Waiting(next) => next,
            Upload::Full(mut pieces) => Box::pin(async move {
                let next = pieces.next().await;
                (pieces, next)
            }),
        };
        let Poll::Ready((pieces, piece)) = next.as_mut().poll(cx) else {
            *self = Upload::Waiting(next);
            return Ok(false);
        };
        let Some(piece) = piece? else {
            end(exchange)?;
            return Ok(true);
        };
        exchange.queue_piece(piece).map_err(ExchangeError::from)?;
        // The end goes with the last piece.
        match pieces.is_over() {
            true => end(exchange)?,
            false => *self = Upload::Full(pieces),
        }
        Ok(true)
    }
}

fn end(exchange: &mut Exchange) -> Result<(), ExchangeError> {
    exchange.end_body(&[]).map_err(ExchangeError::from)
}
