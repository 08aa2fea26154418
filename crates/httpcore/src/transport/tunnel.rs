//! What takes over a transport behind a response's head: bytes in both directions that are not HTTP.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use wire::{Loop, Stream, Timer};

use super::http2::StreamTunnel;

/// The client's side of a tunnel.
pub struct ClientSide<'a> {
    /// The bytes that have arrived already.
    pub early: Vec<u8>,
    /// Where bytes come from and go to, from here on without any framing.
    pub stream: ClientStream<'a>,
    /// A timer for both directions.
    pub timer: &'a mut Timer,
    /// The loop that the client's connection belongs to.
    pub owner: Rc<Loop>,
    /// Maximum time for which the client takes none of the bytes for it.
    pub patience: Duration,
}

/// What carries the bytes of a client's tunnel.
pub enum ClientStream<'a> {
    /// The socket.
    Socket(&'a Stream),
    /// A stream of HTTP/2 (RFC 9113, 8.5; RFC 8441).
    Http2(StreamTunnel<'a>),
}

/// One end of a tunnel.
pub trait TunnelEnd {
    /// Appends what has come to `out`; returns the number of bytes, 0 at the end.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], and that the end is broken.
    fn read_into(&self, out: &mut Vec<u8>, owner: &Loop) -> io::Result<usize>;
    /// Ready when something may have come.
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Writes as much as it takes.
    ///
    /// # Errors
    /// As [`TunnelEnd::read_into`].
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;
    /// Ready when it may take more.
    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Whether what it sends may be at its end while it still takes what is for it. Of a socket nginx takes the end for that
    /// of both directions; a browser ends its stream with its last frame and waits for the answer (RFC 8441, 5.1).
    fn ends_apart(&self) -> bool;
}

impl TunnelEnd for Stream {
    fn ends_apart(&self) -> bool {
        false
    }

    fn read_into(&self, out: &mut Vec<u8>, owner: &Loop) -> io::Result<usize> {
        owner.with_scratch(|scratch| {
            let count = self.try_read(scratch)?;
            out.extend_from_slice(&scratch[..count]);
            Ok(count)
        })
    }

    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Stream::poll_readable(self, context)
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        Stream::try_write(self, bytes)
    }

    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Stream::poll_writable(self, context)
    }
}

impl TunnelEnd for ClientStream<'_> {
    fn ends_apart(&self) -> bool {
        matches!(self, Self::Http2(_))
    }

    fn read_into(&self, out: &mut Vec<u8>, owner: &Loop) -> io::Result<usize> {
        match self {
            Self::Socket(stream) => stream.read_into(out, owner),
            Self::Http2(stream) => stream.read_into(out),
        }
    }

    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Socket(stream) => stream.poll_readable(context),
            Self::Http2(stream) => stream.poll_readable(context),
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Socket(stream) => stream.try_write(bytes),
            Self::Http2(stream) => stream.try_write(bytes),
        }
    }

    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Socket(stream) => stream.poll_writable(context),
            Self::Http2(stream) => stream.poll_writable(context),
        }
    }
}

/// How a tunnel ended.
#[derive(Debug, Default)]
pub struct TunnelOutcome {
    /// Number of bytes that the client has taken.
    pub sent: u64,
    /// Whether it ended because the client took none of those for it.
    pub has_client_timed_out: bool,
}

/// The far side of a tunnel, and the rules for moving bytes through it.
pub trait Tunnel {
    /// Moves bytes until one side has closed, or for too long nothing has moved; that is logged.
    fn run<'a>(
        self: Box<Self>,
        client: ClientSide<'a>,
    ) -> Pin<Box<dyn Future<Output = TunnelOutcome> + 'a>>;
}
