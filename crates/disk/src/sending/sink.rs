//! [`Sink`]: the socket that a range of a file is sent to.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

/// A non-blocking byte sink on a loop.
pub trait Sink {
    /// The socket, if bytes of a file may go to it unchanged with sendfile(2). None where they must be transformed
    /// (TLS): they then come through [`Sink::try_write`].
    fn socket(&self) -> Option<BorrowedFd<'_>>;

    /// Does one non-blocking operation on the socket; on `WouldBlock` the readiness is cleared, so that
    /// [`Sink::writable`] waits.
    ///
    /// # Errors
    /// Those of the operation.
    fn try_io<R>(&self, operation: impl FnOnce() -> io::Result<R>) -> io::Result<R>;

    /// At most this many bytes are taken by the next write, as far as that is known: no more are read for it.
    fn room(&self) -> usize {
        usize::MAX
    }

    /// Writes as many of these bytes as the socket takes now.
    ///
    /// # Errors
    /// `WouldBlock`, or the socket's error.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Waits as long as one wait for the disk may take at most, and returns that time. By default for ever.
    fn disk_limit(&self) -> impl Future<Output = Duration> {
        std::future::pending()
    }

    /// Waits until the socket is writable again; an error (a timeout, say) ends the send.
    fn writable(&self) -> impl Future<Output = io::Result<()>>;
}

macro_rules! sink {
    ($($stream:ty),*) => {$(
        impl Sink for $stream {
            fn socket(&self) -> Option<BorrowedFd<'_>> {
                Some(self.as_fd())
            }

            fn try_io<R>(&self, operation: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
                <$stream>::try_io(self, Interest::WRITABLE, operation)
            }

            fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
                <$stream>::try_write(self, bytes)
            }

            fn writable(&self) -> impl Future<Output = io::Result<()>> {
                <$stream>::writable(self)
            }
        }
    )*};
}

sink!(TcpStream, UnixStream);
