//! The way of one request's bytes from the client and back: the operations that the core needs of a protocol.
//!
//! There is one variant for each protocol, and one for requests without a client. A connection of a multiplexed protocol
//! (HTTP/2) has many at a time, each a variant of its own. Not here: the meaning of a
//! request, the client's address ([`crate::client::Client`]), what is counted and logged. Invariant: the enum is
//! closed, and each operation is a match, so that the way of a small response costs no dynamic call.

mod detached;
mod disk_limit;
pub mod http1;
pub mod http2;
#[cfg(any(test, feature = "testing"))]
mod test_client;
mod tunnel;

use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use disk::{Access, Local, OpenFile};
use message::Header;

use crate::Response;
use crate::request::body::Pipe;

pub use detached::{Detached, Leave};
pub use disk_limit::{DiskLimit, FileWaits};
pub use http1::Http1;
pub use http2::Http2;
pub(crate) use http2::{OtherStreams, StreamBody};
#[cfg(any(test, feature = "testing"))]
pub use test_client::TestClient;
pub use tunnel::{ClientSide, ClientStream, Tunnel, TunnelEnd, TunnelOutcome};

/// What a request came on, and its response goes out on.
pub enum Transport {
    /// An HTTP/1 connection in the hands of its request.
    Http1(Http1),
    /// A stream of an HTTP/2 connection.
    Http2(Box<Http2>),
    /// None: a sub-request, or one that goes on after its response was sent.
    None(Detached),
    /// No socket, but the client of a test.
    #[cfg(any(test, feature = "testing"))]
    Test(Box<TestClient>),
}

/// The reason why no more of a body can be read.
#[derive(Debug)]
pub enum BodyStop {
    /// The client stands still, and its place is wanted for another one.
    GaveWay,
    /// The transport failed, or the body is malformed.
    Failed(wire::Error),
}

/// The facts of a response that decide how its end is marked.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// Whether there is a body, perhaps an empty one.
    pub has_body: bool,
    /// Whether trailers may follow the body.
    pub has_trailers: bool,
    /// Whether chunks are allowed (`chunked_transfer_encoding`).
    pub may_chunk: bool,
    /// Maximum size of a frame of the body in bytes, where the protocol has frames (`http2_chunk_size`).
    pub frame_max: usize,
}

/// A head to be sent.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    /// The response.
    pub response: &'a Response,
    /// `Server` as a complete line with its end; empty: none.
    pub server_line: &'a [u8],
    /// Idle time that the client is told, in seconds (second argument of `keepalive_timeout`).
    pub keepalive_told: Option<u64>,
}

/// A part of a response that can be sent at once.
#[derive(Clone, Copy)]
pub struct Piece<'a> {
    /// The head, where it goes before the body's bytes.
    pub head: Option<Head<'a>>,
    /// Bytes of the body; may be empty.
    pub body: &'a [u8],
    /// Whether the end goes with it. Only where [`Transport::frame`] has said that the end is explicit.
    pub is_last: bool,
}

/// The part of a [`Piece`] that was not taken at once.
#[derive(Debug, Default)]
pub struct Unsent {
    /// The head, and the framing before the body's bytes.
    pub head: Vec<u8>,
    /// Length of the response's head in bytes, sent or not.
    pub head_len: u64,
    /// Number of the body's bytes that were sent.
    pub gone: usize,
    /// The rest of the framing behind them.
    pub behind: &'static [u8],
}

/// Calls an operation of the protocol; `none` is its result where there is no client.
macro_rules! on {
    ($self:ident, $transport:ident => $call:expr, none => $none:expr) => {
        match $self {
            Self::Http1($transport) => $call,
            Self::Http2($transport) => $call,
            Self::None(_) => $none,
            #[cfg(any(test, feature = "testing"))]
            Self::Test($transport) => $call,
        }
    };
}

impl Transport {
    /// The transport of a request that belongs to this one's and has no client: it reads nothing, and sends nothing.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self::None(Detached::new(match self {
            Self::None(above) => above.leave(),
            _ => Leave::default(),
        }))
    }

    /// The transport of what is no request and asks for the values of variables.
    #[must_use]
    pub fn none() -> Self {
        Self::None(Detached::new(Leave::default()))
    }

    /// As [`Transport::detached`], for this request itself: what is shown of the transport stays the same.
    #[must_use]
    pub fn stand_in(&self) -> Self {
        let mut stand_in = self.detached();
        if let Self::None(detached) = &mut stand_in {
            detached.is_persistent = self.is_persistent();
            detached.is_pipelined = self.is_pipelined();
        }
        stand_in
    }

    /// Whether there is no client.
    #[must_use]
    pub const fn is_detached(&self) -> bool {
        matches!(self, Self::None(_))
    }

    /// The flag by which a request without a client learns that the client has left.
    #[must_use]
    pub fn leave(&self) -> Option<Leave> {
        match self {
            Self::None(detached) => Some(detached.leave()),
            _ => None,
        }
    }

    /// Whether the request came whole with the event for which the loop was last woken.
    #[must_use]
    pub fn is_prompt(&self) -> bool {
        match self {
            Self::Http1(it) => it.is_prompt(),
            Self::Http2(_) | Self::None(_) => false,
            #[cfg(any(test, feature = "testing"))]
            Self::Test(it) => it.is_prompt(),
        }
    }

    /// Whether bytes of the next request came together with this one's head (`$pipe`).
    #[must_use]
    pub fn is_pipelined(&self) -> bool {
        match self {
            Self::Http1(it) => it.is_pipelined(),
            Self::Http2(_) => false,
            Self::None(detached) => detached.is_pipelined,
            #[cfg(any(test, feature = "testing"))]
            Self::Test(it) => it.is_pipelined(),
        }
    }

    /// The client's TCP socket, where there is one.
    #[must_use]
    pub fn tcp_socket(&self) -> Option<BorrowedFd<'_>> {
        on!(self, it => it.tcp_socket(), none => None)
    }

    /// Waits until the client has closed its side; without a client, until that was reported ([`Leave::tell`]).
    pub async fn peer_closed(&self) {
        match self {
            Self::Http1(it) => it.peer_closed().await,
            Self::Http2(it) => it.peer_closed().await,
            Self::None(detached) => detached.peer_closed().await,
            #[cfg(any(test, feature = "testing"))]
            Self::Test(it) => it.peer_closed().await,
        }
    }

    /// Whether the body of the request was read to its end.
    #[must_use]
    pub fn is_body_over(&self) -> bool {
        on!(self, it => it.is_body_over(), none => true)
    }

    /// Whether all bytes of the body were read: those that were announced, or all up to its end. Over HTTP/2 the end may
    /// come behind the last byte.
    #[must_use]
    pub fn is_body_whole(&self) -> bool {
        match self {
            Self::Http2(it) => it.is_body_whole(),
            _ => self.is_body_over(),
        }
    }

    /// Bytes of the body that were read for the request, with their framing.
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        on!(self, it => it.body_bytes(), none => 0)
    }

    /// Sets the maximum size of a body whose length is not announced, in bytes; 0: none.
    pub fn limit_body(&mut self, limit: u64) {
        on!(self, it => it.limit_body(limit), none => ());
    }

    /// Appends bytes of the body that have arrived to `out`; false: there are none.
    ///
    /// # Errors
    /// The body is malformed, or the transport failed.
    pub fn try_read_body(&mut self, out: &mut Vec<u8>) -> Result<bool, wire::Error> {
        on!(self, it => it.try_read_body(out), none => Ok(false))
    }

    /// Appends the next bytes of the body to `out`; nothing only at the end. `timeout` applies to this piece.
    ///
    /// # Errors
    /// [`BodyStop`]
    pub async fn read_body(
        &mut self,
        timeout: Duration,
        out: &mut Vec<u8>,
    ) -> Result<(), BodyStop> {
        match self {
            Self::Http1(it) => it.read_body(timeout, out).await,
            Self::Http2(it) => Box::pin(it.read_body(timeout, out)).await,
            Self::None(_) => Ok(()),
            #[cfg(any(test, feature = "testing"))]
            Self::Test(it) => it.read_body(timeout, out).await,
        }
    }

    /// Reads the rest of the body and throws it away, for at most `total`, with at most `between` from one piece to the
    /// next.
    ///
    /// # Errors
    /// [`BodyStop`]
    pub async fn discard_body(
        &mut self,
        total: Duration,
        between: Duration,
    ) -> Result<(), BodyStop> {
        match self {
            Self::Http1(it) => it.discard_body(total, between).await,
            Self::Http2(it) => {
                it.discard_body();
                Ok(())
            }
            Self::None(_) => Ok(()),
            #[cfg(any(test, feature = "testing"))]
            Self::Test(it) => it.discard_body(total, between).await,
        }
    }

    /// Whether the client may use the connection for another request.
    #[must_use]
    pub fn is_persistent(&self) -> bool {
        match self {
            Self::Http1(it) => it.is_persistent(),
            Self::Http2(it) => it.is_persistent(),
            Self::None(detached) => detached.is_persistent,
            #[cfg(any(test, feature = "testing"))]
            Self::Test(it) => it.is_persistent(),
        }
    }

    /// Has the connection closed behind the response.
    pub fn close_after_response(&mut self) {
        match self {
            Self::Http1(it) => it.close_after_response(),
            Self::Http2(it) => it.close_after_response(),
            Self::None(detached) => detached.is_persistent = false,
            #[cfg(any(test, feature = "testing"))]
            Self::Test(it) => it.close_after_response(),
        }
    }

    /// Answers `Expect: 100-continue`, unless that was done.
    ///
    /// # Errors
    /// Those of the socket.
    pub async fn invite(&mut self, timeout: Duration) -> Result<(), wire::Error> {
        match self {
            Self::Http1(it) => it.invite(timeout).await,
            Self::Http2(it) => it.invite(),
            Self::None(_) => Ok(()),
            #[cfg(any(test, feature = "testing"))]
            Self::Test(it) => it.invite(timeout).await,
        }
    }

    /// The body of its request, where it can be read while the response is sent.
    #[must_use]
    pub(crate) fn body_apart(&self) -> Option<Rc<StreamBody>> {
        match self {
            Self::Http2(it) => Some(it.body_apart()),
            _ => None,
        }
    }

    /// Has the rest of a body that is passed on go on while the client takes nothing of the response. Of a stream of
    /// HTTP/2 it is read by itself ([`Transport::body_apart`]).
    pub(crate) fn pass_meanwhile(&mut self, pipe: Rc<Pipe>) {
        if let Self::Http1(it) = self {
            it.pass_meanwhile(pipe);
        }
    }

    /// Whether a 101 that was not asked for can be passed on to the client.
    #[must_use]
    pub fn takes_switching(&self) -> bool {
        match self {
            Self::Http1(it) => it.takes_interim(),
            Self::Http2(_) | Self::None(_) => false,
            #[cfg(any(test, feature = "testing"))]
            Self::Test(_) => false,
        }
    }

    /// Whether the client may be sent interim responses (RFC 9110, 15.2).
    #[must_use]
    pub fn takes_interim(&self) -> bool {
        match self {
            Self::Http1(it) => it.takes_interim(),
            Self::Http2(_) => true,
            Self::None(_) => false,
            #[cfg(any(test, feature = "testing"))]
            Self::Test(it) => it.takes_interim(),
        }
    }

    /// Sends an interim response.
    ///
    /// # Errors
    /// Those of the socket.
    pub async fn interim(
        &mut self,
        timeout: Duration,
        status: u16,
        lines: &[Header],
    ) -> Result<(), wire::Error> {
        match self {
            Self::Http1(it) => it.interim(timeout, status, lines).await,
            Self::Http2(it) => it.interim(status, lines),
            Self::None(_) => Ok(()),
            #[cfg(any(test, feature = "testing"))]
            Self::Test(it) => it.interim(timeout, status, lines).await,
        }
    }

    /// Decides how the end of a response is marked, and whether the connection must be closed for that. Returns whether
    /// the end is explicit: to be sent by itself ([`Transport::end`]), or with the last piece.
    pub fn frame(&mut self, response: &mut Response, extent: &Extent) -> bool {
        on!(self, it => it.frame(response, extent), none => false)
    }

    /// Whether the response is sent in chunks (RFC 9112, 7.1).
    #[must_use]
    pub fn is_chunked(&self) -> bool {
        match self {
            Self::Http1(it) => it.is_chunked(),
            Self::Http2(_) | Self::None(_) => false,
            #[cfg(any(test, feature = "testing"))]
            Self::Test(it) => it.is_chunked(),
        }
    }

    /// Whether the client can tell the end of a response, with or without a body, before the connection ends.
    #[must_use]
    pub fn tells_end(&self, response: &Response, has_body: bool) -> bool {
        match self {
            Self::Http1(it) => it.tells_end(response, has_body),
            Self::Http2(_) | Self::None(_) => true,
            #[cfg(any(test, feature = "testing"))]
            Self::Test(it) => it.tells_end(response, has_body),
        }
    }

    /// Whether head and body of a response may be sent by one [`Transport::send_now`].
    #[must_use]
    pub fn sends_at_once(&self) -> bool {
        match self {
            Self::Http1(it) => it.sends_at_once(),
            Self::Http2(_) => true,
            Self::None(_) => false,
            #[cfg(any(test, feature = "testing"))]
            Self::Test(it) => it.sends_at_once(),
        }
    }

    /// Whether pages of a file are sent as they are: not where they are encrypted or framed.
    pub(crate) fn takes_pages(&self) -> bool {
        matches!(self, Self::Http1(it) if it.takes_pages())
    }

    /// Lets the next piece wait for the bytes that follow it, for at most 200 ms.
    pub fn hold_next(&mut self, holds: bool) {
        // The driver of HTTP/2 gathers by itself.
        if let Self::Http1(it) = self {
            it.hold_next(holds);
        }
    }

    /// The other streams of a connection of HTTP/2, which may go before this one.
    pub(crate) fn other_streams(&self) -> Option<OtherStreams> {
        match self {
            Self::Http2(it) => Some(it.other_streams()),
            _ => None,
        }
    }

    /// Gathers small pieces to full packets from here on, or no longer (no `tcp_nodelay`).
    pub fn gather(&self, gathers: bool) {
        match self {
            Self::Http1(it) => it.gather(gathers),
            // Its driver gathers by itself.
            Self::Http2(_) | Self::None(_) => {}
            #[cfg(any(test, feature = "testing"))]
            Self::Test(it) => it.gather(gathers),
        }
    }

    /// Holds back packets that are not full from here on, or no longer (`tcp_nopush`).
    pub fn cork(&self, corks: bool) {
        match self {
            Self::Http1(it) => it.cork(corks),
            // Its driver gathers by itself.
            Self::Http2(_) | Self::None(_) => {}
            #[cfg(any(test, feature = "testing"))]
            Self::Test(it) => it.cork(corks),
        }
    }

    /// Sends as much of a piece as is taken at once.
    ///
    /// # Errors
    /// Those of the socket; nothing was sent then.
    #[inline]
    pub fn send_now(&mut self, piece: &Piece<'_>) -> Result<Unsent, wire::Error> {
        on!(self, it => it.send_now(piece), none => Err(wire::Error::Closed))
    }

    /// Announces a piece of the body that is sent in parts; `len` is its length in bytes.
    ///
    /// # Errors
    /// As [`Transport::send_bytes`].
    pub async fn open_piece(&mut self, timeout: Duration, len: u64) -> Result<(), wire::Error> {
        match self {
            Self::Http1(it) => it.open_piece(timeout, len).await,
            Self::Http2(_) => Ok(()),
            Self::None(_) => Err(wire::Error::Closed),
            #[cfg(any(test, feature = "testing"))]
            Self::Test(it) => it.open_piece(timeout, len).await,
        }
    }

    /// Sends bytes of an announced piece, of a body whose end is not explicit, or what [`Transport::send_now`] left;
    /// `timeout` applies between two writes.
    ///
    /// # Errors
    /// [`wire::Error::Timeout`]: the client takes nothing; [`wire::Error::Io`]: it is gone.
    pub async fn send_bytes(&mut self, timeout: Duration, bytes: &[u8]) -> Result<(), wire::Error> {
        match self {
            Self::Http1(it) => it.send_bytes(timeout, bytes).await,
            Self::Http2(_) if bytes.is_empty() => Ok(()),
            Self::Http2(it) => Box::pin(it.send_bytes(timeout, bytes)).await,
            Self::None(_) => Err(wire::Error::Closed),
            #[cfg(any(test, feature = "testing"))]
            Self::Test(it) => it.send_bytes(timeout, bytes).await,
        }
    }

    /// Ends an announced piece.
    ///
    /// # Errors
    /// As [`Transport::send_bytes`].
    pub async fn close_piece(&mut self, timeout: Duration) -> Result<(), wire::Error> {
        match self {
            Self::Http1(it) => it.close_piece(timeout).await,
            Self::Http2(_) => Ok(()),
            Self::None(_) => Err(wire::Error::Closed),
            #[cfg(any(test, feature = "testing"))]
            Self::Test(it) => it.close_piece(timeout).await,
        }
    }

    /// Sends bytes of a file's copy in memory, without waiting; returns their number.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], and those of the socket.
    pub fn send_copy(&mut self, file: &OpenFile, offset: u64, len: usize) -> io::Result<usize> {
        match self {
            Self::Http1(it) => it.send_copy(file, offset, len),
            // It goes the way of all other files.
            Self::Http2(_) => Err(io::ErrorKind::WouldBlock.into()),
            Self::None(_) => Err(io::ErrorKind::NotConnected.into()),
            #[cfg(any(test, feature = "testing"))]
            Self::Test(it) => it.send_copy(file, offset, len),
        }
    }

    /// Sends the bytes of a file from `offset`, which follows them, to before `end`. They are not counted by
    /// [`Transport::sent`].
    ///
    /// # Errors
    /// Those of the disk and the socket.
    pub async fn send_file(
        &mut self,
        disk: &Local,
        file: &Rc<OpenFile>,
        (offset, end): (&mut u64, u64),
        waits: FileWaits,
        access: &Access<'_>,
    ) -> Result<(), disk::Error> {
        match self {
            Self::Http1(it) => {
                let sink = it.sink(waits);
                disk.send(file, offset, end, &sink, access).await
            }
            Self::Http2(it) => {
                let sending = it.send_file(disk, file, (offset, end), waits, access);
                Box::pin(sending).await
            }
            Self::None(_) => Err(disk::Error::Socket(io::ErrorKind::NotConnected.into())),
            #[cfg(any(test, feature = "testing"))]
            Self::Test(it) => disk.send(file, offset, end, &**it, access).await,
        }
    }

    /// Ends a body whose end is explicit, with its trailers.
    ///
    /// # Errors
    /// As [`Transport::send_bytes`].
    pub async fn end(&mut self, timeout: Duration, trailers: &[Header]) -> Result<(), wire::Error> {
        match self {
            Self::Http1(it) => it.end(timeout, trailers).await,
            Self::Http2(it) => it.end(trailers),
            Self::None(_) => Ok(()),
            #[cfg(any(test, feature = "testing"))]
            Self::Test(it) => it.end(timeout, trailers).await,
        }
    }

    /// Bytes sent so far, with those before this request, and without those of files.
    #[must_use]
    pub fn sent(&self) -> u64 {
        on!(self, it => it.sent(), none => 0)
    }

    /// The client's side of a tunnel, which takes the place of a body; `None`: there is no client. `patience`: see
    /// [`ClientSide::patience`].
    pub fn tunnel(&mut self, patience: Duration) -> Option<ClientSide<'_>> {
        match self {
            Self::Http1(it) => Some(it.tunnel(patience)),
            Self::Http2(it) => Some(it.tunnel(patience)),
            _ => None,
        }
    }

    /// Ends the tunnel, where the connection goes on.
    pub fn end_tunnel(&mut self) {
        if let Self::Http2(it) = self {
            // A stream that is closed needs no end.
            let _ = it.end(&[]);
        }
    }

    /// The HTTP/1 connection, taken out.
    #[must_use]
    pub fn into_http1(self) -> Option<Http1> {
        match self {
            Self::Http1(it) => Some(it),
            _ => None,
        }
    }
}
