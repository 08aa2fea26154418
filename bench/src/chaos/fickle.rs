//! A connection that breaks off by itself, after a number of bytes that were sent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// One connection in so many of an origin breaks off.
const ONE_IN: u8 = 4;

/// A socket with a number of bytes that it still sends.
pub struct Fickle {
    stream: TcpStream,
    left: u64,
}

impl Fickle {
    /// Breaks off sometimes.
    pub fn new(stream: TcpStream) -> Fickle {
        let left = if fastrand::u8(..ONE_IN) == 0 {
            fastrand::u64(..1 << fastrand::u32(4..24))
        } else {
            u64::MAX
        };
        let _ = stream.set_nodelay(true);
        Fickle { stream, left }
    }
}

/// Lets a connection end with RST where it ends with something unsent or unread, or for good.
pub fn reset_at_end(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

impl AsyncRead for Fickle {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Fickle {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.left == 0 && !bytes.is_empty() {
            if fastrand::bool() {
                reset_at_end(&self.stream);
            }
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let most = usize::try_from(self.left).map_or(bytes.len(), |left| bytes.len().min(left));
        let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, &bytes[..most]))?;
        self.left -= sent as u64;
        Poll::Ready(Ok(sent))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
