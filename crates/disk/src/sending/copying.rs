//! Sending a range of a file through buffers: what is transformed, what is likely to be evicted at any moment, and what
//! has no proof.
//!
//! Not here: which windows go this way (`send`).

use crate::files::error::{Error, WouldBlock};
use crate::memory::{Holder, charge};
use crate::sending::send::FileSending;
use crate::sending::sink::Sink;
use bytes::Bytes;
use std::io::{self, ErrorKind};

/// Bytes of one buffer at least, while the range has them, however few the socket takes.
const BUFFER_MIN: usize = 4096;
/// Bytes of one buffer at most.
pub(super) const BUFFER_MAX: usize = 128 << 10;
/// Bytes of a buffer that stands in for `sendfile`.
const BUFFER_STRAIGHT: usize = 64 << 10;
/// The same where the loop's own buffer does: about as long a turn of the loop as one `sendfile` takes, since each piece
/// waits for its turn behind those.
const PASSED_STRAIGHT: usize = 256 << 10;

impl<S: Sink> FileSending<'_, S> {
    /// Sends from one buffer what the socket takes at once, within the bound on the buffers of the whole process. A
    /// buffer waits for the disk only, never for the socket: peers that take nothing would hold all of them. What was
    /// not taken is read again, so the next buffer is about as large as what was.
    pub(super) async fn copy_bounded(&mut self, until: u64) -> Result<(), Error> {
        self.until_writable().await?;
        let buffers = self.local.disk().buffers_of(self.access.pool);
        let sink = self.sink;
        let wished = self.buffer_len(until).min(self.taken).min(sink.room());
        if wished == 0 {
            return self.wait_for_socket().await;
        }
        let kib = u32::try_from(wished.div_ceil(1024)).unwrap_or(u32::MAX);
        let permit = self.within_limit(buffers.acquire_many(kib)).await?;
        let charge = charge(Holder::Buffers, wished);
        let bytes = self.read(wished).await?;
        let (sent, all) = (taken(sink.try_write(&bytes))?, bytes.len());
        drop((bytes, charge, permit));
        self.taken = match sent < all {
            true => sent.max(BUFFER_MIN),
            false => (2 * wished).min(BUFFER_MAX),
        };
        self.moved(sent).await;
        self.until_it_takes(sent, all).await
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
            (sent, all) => (taken(sent)?, all),
        };
        self.moved(sent).await;
        self.until_it_takes(sent, all).await?;
        Ok(true)
    }

    /// Waits for the socket if it took less than all.
    async fn until_it_takes(&mut self, sent: usize, all: usize) -> Result<(), Error> {
        match sent < all {
            true if self.sink.socket().is_some() => self.until_writable().await,
            true => self.wait_for_socket().await,
            false => Ok(()),
        }
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
        self.left(until).min(wished.clamp(BUFFER_MIN, BUFFER_MAX))
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

/// Bytes that a socket took at once.
fn taken(written: io::Result<usize>) -> Result<usize, Error> {
    match written {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(0)
        }
        written => written.map_err(Error::Socket),
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
mod tests {
    use super::*;
    use crate::Access;
    use crate::tests::{block_on, local};
    use std::os::unix::ffi::OsStrExt as _;
    use std::time::Duration;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::UnixStream;

    /// The wait for what must come.
    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn readers_of_one_pool_take_no_buffers_of_another_one() {
        let disk = crate::Disk::new(crate::Disk::prepare());
        let one = disk.define_pool("one", 1, 10);
        let two = disk.define_pool("two", 1, 10);
        let buffers = disk.buffers_of(&one);
        buffers.forget_permits(buffers.available_permits());
        assert!(disk.buffers_of(&two).available_permits() >= BUFFER_MAX / 1024);
    }

    #[test]
    fn a_peer_that_takes_nothing_holds_no_buffer_that_another_waits_for() {
        block_on(async {
            let (local, pool) = local();
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a");
            let contents: Vec<u8> = (0..1 << 20).map(|at| (at % 251) as u8).collect();
            std::fs::write(&path, &contents).unwrap();
            let access = Access::new(&pool);
            let path = path.as_os_str().as_bytes();
            let file = &local.open(path, &access).await.unwrap();
            // One buffer for all.
            let buffers = local.disk().buffers_of(&pool);
            buffers.forget_permits(buffers.available_permits() - BUFFER_STRAIGHT / 1024);
            let end = contents.len() as u64;
            let (stalled, mut peer) = UnixStream::pair().unwrap();
            let (fast, mut other) = UnixStream::pair().unwrap();
            let send = async |socket: UnixStream| {
                let mut offset = 0;
                let range = (&mut offset, end);
                let mut sending = FileSending::new(&local, file, range, &socket, &access);
                while *sending.offset < end {
                    sending.copy_bounded(end).await.unwrap();
                }
            };
            let mut stalled = std::pin::pin!(send(stalled));
            // It sends until its socket is full.
            let mut got = vec![0; 4096];
            tokio::select! {
                () = &mut stalled => unreachable!("no socket takes all"),
                read = peer.read_exact(&mut got) => { read.unwrap(); }
            }
            let work = async {
                tokio::join!(send(fast), async {
                    let mut all = Vec::new();
                    other.read_to_end(&mut all).await.unwrap();
                    assert!(all == contents);
                });
            };
            tokio::select! {
                () = &mut stalled => unreachable!("its peer reads nothing"),
                done = tokio::time::timeout(PATIENCE, work) => done.expect("it has the buffer"),
            }
            // Nothing of what was read again is sent twice.
            tokio::join!(stalled, async { peer.read_to_end(&mut got).await.unwrap() });
            assert!(got == contents);
        });
    }
}
