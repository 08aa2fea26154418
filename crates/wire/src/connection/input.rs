//! What is read of a client's connection: into the loop's scratch buffer, and from there to where it belongs; data of a
//! large body straight to where there is room for it.
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

/// Minimum of room, in bytes, that is read into without a copy; smaller reads would cost more calls than they save.
const STRAIGHT_MIN: usize = 32 * 1024;

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
            match self.try_next_piece(stream, decoder, Some(out))? {
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

    /// Takes what has come, once; data goes behind the content of `out`, or nowhere.
    pub(super) fn try_next_piece(
        &mut self,
        stream: &Stream,
        decoder: &mut Decoder,
        mut out: Option<&mut Vec<u8>>,
    ) -> Result<ReadProgress, Error> {
        if decoder.is_end() {
            return Ok(ReadProgress::Data);
        }
        let before = decoder.received();
        if !self.unread.is_empty() {
            let used = decode(decoder, &self.unread, |data| keep(&mut out, data))?;
            self.unread.drain(..used);
            if self.unread.is_empty() {
                self.unread = Vec::new();
            }
        } else {
            let read = match out {
                Some(out) if is_straight(stream, decoder, out) => {
                    self.read_straight(stream, decoder, out)
                }
                out => self.read_decoded(stream, decoder, out),
            };
            let is_closed = match read {
                Ok(count) => count == 0,
                Err(Error::Io(error)) if is_would_block(&error) => {
                    return Ok(ReadProgress::Nothing);
                }
                Err(error) => return Err(error),
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

    /// Reads data into the room that `out` has; the number of bytes, 0 at the end.
    fn read_straight(
        &mut self,
        stream: &Stream,
        decoder: &mut Decoder,
        out: &mut Vec<u8>,
    ) -> Result<usize, Error> {
        let before = out.len();
        let count = stream.try_read_behind(out)?;
        self.received += count as u64;
        turn::spend_part(decoder.decode(&out[before..])?.used);
        Ok(count)
    }

    /// Reads into the scratch buffer, and keeps what is data of it; the number of bytes, 0 at the end.
    fn read_decoded(
        &mut self,
        stream: &Stream,
        decoder: &mut Decoder,
        mut out: Option<&mut Vec<u8>>,
    ) -> Result<usize, Error> {
        let read = self.read_once(stream, |bytes, unread| {
            let used = decode(decoder, bytes, |data| keep(&mut out, data))?;
            unread.extend_from_slice(&bytes[used..]);
            Ok::<usize, BodyFault>(bytes.len())
        });
        Ok(read??)
    }
}

/// Whether what comes next is nothing but data, and may be read into the room that `out` has, past the scratch buffer.
fn is_straight(stream: &Stream, decoder: &Decoder, out: &Vec<u8>) -> bool {
    let room = out.capacity() - out.len();
    room >= STRAIGHT_MIN && room as u64 <= decoder.plain_bytes() && stream.clear_socket().is_some()
}

fn keep(out: &mut Option<&mut Vec<u8>>, data: &[u8]) {
    if let Some(out) = out {
        out.extend_from_slice(data);
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
