//! What is read of a client's connection: into the loop's scratch buffer, and from there to where it belongs.
//!
//! Apart from the connection, since a body may go on while something is sent. Invariant: only bytes that came too early are
//! kept (`unread`).

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use super::{Error, is_would_block};
use crate::event_loop::Loop;
use crate::http1::body_decoder::{BodyFault, Decoder, decode};
use crate::stream::Stream;
use crate::turn;

/// What is read of a connection: bytes that came too early, and the way to more.
pub struct Input {
    pub(super) owner: Rc<Loop>,
    pub(super) unread: Vec<u8>,
    pub(super) received: u64,
}

impl Input {
    pub(super) fn new(owner: &Rc<Loop>) -> Self {
        Input {
            owner: Rc::clone(owner),
            unread: Vec::new(),
            received: 0,
        }
    }

    /// Appends the next bytes of a body to `out`, none only at its end. No time limits it.
    ///
    /// # Errors
    /// As [`super::Connection::read_body_into`], except [`Error::Timeout`].
    pub fn poll_body_into(
        &mut self,
        stream: &Stream,
        decoder: &mut Decoder,
        out: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        loop {
            ready!(turn::poll_go_on(cx));
            let mut keep = |bytes: &[u8]| out.extend_from_slice(bytes);
            match self.try_next_piece(stream, decoder, &mut keep)? {
                ReadProgress::Data => return Poll::Ready(Ok(())),
                ReadProgress::Framing => {}
                ReadProgress::Nothing => {
                    stream.acknowledge();
                    ready!(stream.poll_readable(cx))?;
                }
            }
        }
    }

    /// Reads once into the scratch buffer; passes the bytes (none at the end) and `unread` to `take`.
    pub(super) fn read_once<T>(
        &mut self,
        stream: &Stream,
        take: impl FnOnce(&[u8], &mut Vec<u8>) -> T,
    ) -> io::Result<T> {
        let mut scratch = self.owner.scratch.borrow_mut();
        let count = stream.try_read(&mut scratch)?;
        self.received += count as u64;
        Ok(take(&scratch[..count], &mut self.unread))
    }

    pub(super) fn try_next_piece(
        &mut self,
        stream: &Stream,
        decoder: &mut Decoder,
        keep: &mut impl FnMut(&[u8]),
    ) -> Result<ReadProgress, Error> {
        if decoder.is_end() {
            return Ok(ReadProgress::Data);
        }
        let before = decoder.received();
        if !self.unread.is_empty() {
            let used = decode(decoder, &self.unread, keep)?;
            self.unread.drain(..used);
            if self.unread.is_empty() {
                self.unread = Vec::new();
            }
        } else {
            let outcome = self.read_once(stream, |bytes, unread| {
                let used = decode(decoder, bytes, keep)?;
                unread.extend_from_slice(&bytes[used..]);
                Ok::<bool, BodyFault>(bytes.is_empty())
            });
            let is_closed = match outcome {
                Ok(outcome) => outcome?,
                Err(error) if is_would_block(&error) => return Ok(ReadProgress::Nothing),
                Err(error) => return Err(error.into()),
            };
            if is_closed {
                return if decoder.may_close() {
                    Ok(ReadProgress::Data)
                } else {
                    Err(Error::Closed)
                };
            }
        }
        let has_come = decoder.received() > before || decoder.is_end();
        Ok(if has_come {
            ReadProgress::Data
        } else {
            ReadProgress::Framing
        })
    }
}

#[derive(PartialEq, Eq)]
pub(super) enum ReadProgress {
    /// Data, or the end.
    Data,
    /// Bytes were received, but no data.
    Framing,
    /// Nothing was received.
    Nothing,
}
