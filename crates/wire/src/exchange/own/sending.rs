//! The sending side of an exchange: pieces are queued after the head, and written as fast as the server takes them.
//!
//! Not here: reading. Invariant: queued bytes are sent in order, unless the server stops reading.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use message::Header;

use super::OwnExchange;
use crate::exchange::{ExchangeError, Flushed};
use crate::http1::request_writer::RequestFault;

/// Maximum number of buffers in one write.
const BUFFERS_MAX: usize = 16;
/// The framing around a piece of a chunked body takes less than this number of bytes.
const CHUNK_HEAD_TYPICAL: usize = 24;

impl OwnExchange {
    /// Queues a piece of the request body. To avoid holding the whole body in memory, flush between the pieces.
    ///
    /// # Errors
    /// The body is longer than announced; nothing of the piece is queued.
    pub fn queue_piece(&mut self, mut piece: Bytes) -> Result<(), RequestFault> {
        let max = self.body.piece_max();
        while piece.len() > max {
            self.queue_part(piece.split_to(max))?;
        }
        self.queue_part(piece)
    }

    fn queue_part(&mut self, piece: Bytes) -> Result<(), RequestFault> {
        if piece.is_empty() {
            return Ok(());
        }
        let mut before = Vec::with_capacity(CHUNK_HEAD_TYPICAL);
        let behind = self.body.piece(&mut before, piece.len() as u64)?;
        self.push(before.into());
        self.push(piece);
        self.push(Bytes::from_static(behind));
        Ok(())
    }

    /// Ends the request body.
    ///
    /// # Errors
    /// The body is shorter than announced: the exchange must be dropped.
    pub fn end_body(&mut self, trailers: &[Header]) -> Result<(), RequestFault> {
        if !self.is_body_queued {
            let mut end = Vec::new();
            self.body.end(&mut end, trailers)?;
            self.push(end.into());
            self.is_body_queued = true;
        }
        Ok(())
    }

    /// Sends the queued bytes; `timeout` applies between two writes (`proxy_send_timeout`).
    ///
    /// # Errors
    /// [`ExchangeError::Timeout`], [`ExchangeError::Send`].
    pub async fn flush(&mut self, timeout: Duration) -> Result<Flushed, ExchangeError> {
        match self.write_queue() {
            Ok(()) if self.is_all_written() => Ok(Flushed::All),
            // Boxed: most requests are sent at once.
            first => Box::pin(self.flush_rest(first, timeout)).await,
        }
    }

    /// Sends what is left after a write with this outcome.
    async fn flush_rest(
        &mut self,
        first: io::Result<()>,
        timeout: Duration,
    ) -> Result<Flushed, ExchangeError> {
        let mut written = first;
        loop {
            match written {
                Ok(()) if self.is_all_written() => return Ok(Flushed::All),
                Ok(()) => {}
                Err(_) if self.has_answer() => {
                    self.stop_sending(); // it answered without reading on (413): what it said counts
                    return Ok(Flushed::AnswerCame);
                }
                Err(error) => return Err(ExchangeError::Send(error)),
            }
            if self.has_answer() {
                return Ok(Flushed::AnswerCame);
            }
            let stream = &self.stream;
            let either = poll_fn(|cx| match stream.poll_writable(cx) {
                Poll::Ready(outcome) => Poll::Ready(outcome),
                Poll::Pending => stream.poll_readable(cx),
            });
            let outcome = self.timer.guard(timeout, either).await;
            outcome
                .map_err(|_| ExchangeError::Timeout)?
                .map_err(ExchangeError::Send)?;
            written = self.write_queue();
        }
    }

    /// See [`crate::exchange::Exchange::poll_send`].
    pub(in crate::exchange) fn poll_send(&mut self, cx: &mut Context<'_>) {
        loop {
            if self.write_queue().is_err() {
                self.stop_sending(); // the answer, or the lack of one, says what is wrong
            }
            // An error of the socket is the next write's.
            if self.is_all_written() || self.stream.poll_writable(cx).is_pending() {
                return;
            }
        }
    }

    /// Whether the server still takes the request.
    pub fn takes_more(&self) -> bool {
        !self.has_stopped
    }

    /// Whether everything that was queued is sent.
    pub fn has_room(&self) -> bool {
        self.is_all_written()
    }

    /// Whether the kernel has taken the complete request.
    pub fn is_sent(&self) -> bool {
        self.is_body_queued && self.is_all_written()
    }

    pub(super) fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.queue.push_back(bytes);
        }
    }

    pub(super) fn is_all_written(&self) -> bool {
        self.first.is_empty() && self.queue.is_empty()
    }

    /// Writes until the queue is empty or the socket is full.
    pub(super) fn write_queue(&mut self) -> io::Result<()> {
        while !self.is_all_written() {
            let outcome = if self.queue.is_empty() {
                self.stream.try_write(&self.first)
            } else {
                let mut slices = [IoSlice::new(&[]); BUFFERS_MAX];
                let count = BUFFERS_MAX.min(self.queue.len() + 1);
                let all = std::iter::once(&self.first).chain(&self.queue);
                for (slice, bytes) in slices.iter_mut().zip(all) {
                    *slice = IoSlice::new(bytes);
                }
                self.stream.try_write_vectored(&slices[..count])
            };
            match outcome {
                Ok(count) => self.written(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn written(&mut self, count: usize) {
        self.sent += count as u64;
        let gone = count.min(self.first.len());
        self.first.advance(gone);
        let mut left = count - gone;
        while left > 0 {
            let Some(front) = self.queue.front_mut() else {
                return;
            };
            let gone = left.min(front.len());
            front.advance(gone);
            left -= gone;
            if front.is_empty() {
                self.queue.pop_front();
            }
        }
    }

    /// Stops sending: the server takes no more of the request.
    pub(super) fn stop_sending(&mut self) {
        self.first.clear();
        self.queue.clear();
        self.is_body_queued = false; // so that the connection is not used again
        self.has_stopped = true;
    }
}
