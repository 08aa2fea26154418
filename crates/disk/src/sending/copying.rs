//! Sending a range of a file through buffers: what is transformed, what is likely to be evicted at any moment, and what
//! has no proof.
//!
//! Not here: which windows go this way (`send`).

use crate::files::error::{Error, WouldBlock};
use crate::memory::{Holder, charge};
use crate::sending::send::FileSending;
use crate::sending::sink::Sink;
use bytes::Bytes;
use std::io::ErrorKind;

/// Bytes of one buffer at most.
const BUFFER_MAX: usize = 128 << 10;
/// Bytes of a buffer that stands in for `sendfile`.
const BUFFER_STRAIGHT: usize = 64 << 10;
/// The same where the loop's own buffer does: about as long a turn of the loop as one `sendfile` takes, since each piece
/// waits for its turn behind those.
const PASSED_STRAIGHT: usize = 256 << 10;

impl<S: Sink> FileSending<'_, S> {
    /// Sends one buffer, within the bound on the buffers of the whole process.
    pub(super) async fn copy_bounded(&mut self, until: u64) -> Result<(), Error> {
        let len = self.buffer_len(until);
        let kib = u32::try_from(len.div_ceil(1024)).unwrap_or(u32::MAX);
        let permit = self.local.disk().buffers.acquire_many(kib).await;
        let _charge = charge(Holder::Buffers, len);
        let bytes = self.read(len).await?;
        self.write(&bytes).await?;
        drop(permit);
        Ok(())
    }

    /// Sends from a buffer what the socket takes at once; false: it is not in memory, or only a pool may ask. (A read
    /// notices an evicted page where `sendfile` would wait for it. It costs more than twice as much per byte.) No buffer is
    /// held while waiting for the socket, of which a peer may have many (the streams of HTTP/2).
    pub(super) async fn copy_at_once(&mut self, until: u64) -> Result<bool, Error> {
        let len = match self.straight {
            true => self.left(until).min(PASSED_STRAIGHT),
            false => self.buffer_len(until),
        };
        let (len, sink) = (len.min(self.sink.room()), self.sink);
        if len == 0 {
            self.wait_for_socket().await?;
            return Ok(true);
        }
        let sent = self.local.pass_on(self.file, *self.offset, len, |bytes| {
            (sink.try_write(bytes), bytes.len())
        });
        let Ok(sent) = sent else {
            return Ok(false);
        };
        let (sent, all) = match sent? {
            (_, 0) => return Err(Error::Truncated { len: *self.offset }),
            (Ok(sent), all) => (sent, all),
            (Err(error), all) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => (0, all),
                _ => return Err(Error::Socket(error)),
            },
        };
        self.moved(sent).await;
        match sent < all {
            true if sink.socket().is_some() => self.until_writable().await?,
            true => self.wait_for_socket().await?,
            false => {}
        }
        Ok(true)
    }

    /// Sends up to `until` from buffers.
    pub(super) async fn copy_until(&mut self, until: u64) -> Result<(), Error> {
        while *self.offset < until {
            self.copy_once(until).await?;
        }
        Ok(())
    }

    /// Sends one buffer, which is kept until the socket has taken it: to read it again could wait again.
    pub(super) async fn copy_once(&mut self, until: u64) -> Result<(), Error> {
        let bytes = self.read(self.buffer_len(until)).await?;
        self.write(&bytes).await
    }

    fn left(&self, until: u64) -> usize {
        usize::try_from(until - *self.offset).unwrap_or(usize::MAX)
    }

    fn buffer_len(&self, until: u64) -> usize {
        // `output_buffers` was not meant for what would have been `sendfile`: fewer, larger reads.
        let wished = if self.straight {
            BUFFER_STRAIGHT
        } else {
            self.access.output_buffer
        };
        self.left(until).min(wished.clamp(4096, BUFFER_MAX))
    }

    async fn read(&self, len: usize) -> Result<Bytes, Error> {
        let bytes = match self.local.try_read(self.file, *self.offset, len) {
            Ok(answer) => answer?,
            Err(WouldBlock) => {
                let read = self.local.read(self.file, *self.offset, len, self.access);
                self.within_limit(read).await??
            }
        };
        if bytes.is_empty() {
            Err(Error::Truncated { len: *self.offset })
        } else {
            Ok(bytes)
        }
    }

    async fn write(&mut self, bytes: &Bytes) -> Result<(), Error> {
        let mut left = &bytes[..];
        while !left.is_empty() {
            match self.sink.try_write(left) {
                Ok(sent) => {
                    left = &left[sent..];
                    self.moved(sent).await;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.sink.writable().await.map_err(Error::Socket)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::Socket(error)),
            }
        }
        Ok(())
    }
}
