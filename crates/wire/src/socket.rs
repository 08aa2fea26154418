//! Sockets of a loop: TCP and Unix streams and listeners, read and written without blocking.
//!
//! Not here: TLS on them ([`crate::Stream`]).
//!
//! A read that fills less than its buffer has drained the socket, and a write that takes less than it was given has
//! filled it: both mark the socket as not ready, which saves the system call that would only say so. Each counts
//! against the task's turn ([`crate::turn`]): once that is over, a socket reports `WouldBlock` until the next turn.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::turn;

/// A connected socket.
#[derive(Debug)]
pub struct Socket {
    kind: Kind,
    /// Whether something was read, and nothing written since that would carry its acknowledgement.
    has_read: Cell<bool>,
}

#[derive(Debug)]
enum Kind {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl From<TcpStream> for Socket {
    fn from(socket: TcpStream) -> Self {
        Kind::Tcp(socket).into()
    }
}

impl From<UnixStream> for Socket {
    fn from(socket: UnixStream) -> Self {
        Kind::Unix(socket).into()
    }
}

impl From<Kind> for Socket {
    fn from(kind: Kind) -> Self {
        let has_read = Cell::new(false);
        Self { kind, has_read }
    }
}

/// The address of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// An internet address.
    Inet(SocketAddr),
    /// A Unix socket, whose clients have no address.
    Unix,
}

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// Unix.
    Unix(UnixListener),
}

macro_rules! on_socket {
    ($self:expr, $socket:ident => $call:expr) => {
        match &$self.kind {
            Kind::Tcp($socket) => $call,
            Kind::Unix($socket) => $call,
        }
    };
}

impl Socket {
    /// A stream from an accepted socket, which is connected and non-blocking.
    ///
    /// # Errors
    /// The runtime cannot register it.
    pub fn from_accepted(socket: OwnedFd, is_tcp: bool) -> io::Result<Socket> {
        if is_tcp {
            TcpStream::from_std(socket.into()).map(Socket::from)
        } else {
            UnixStream::from_std(socket.into()).map(Socket::from)
        }
    }

    /// The TCP socket; `None`: it is of another kind.
    pub fn tcp_socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.kind {
            Kind::Tcp(socket) => Some(socket.as_fd()),
            Kind::Unix(_) => None,
        }
    }

    /// Reads the bytes available; 0 is the end. `WouldBlock`: wait for [`Socket::poll_readable`].
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], and that of read(2).
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len();
        self.try_io(Interest::READABLE, wanted, || {
            let (got, _) = recv(self, &mut *buffer, RecvFlags::empty())?;
            Ok(got)
        })
    }

    /// Reads the bytes available into a new buffer, at most `max`; none is the end.
    ///
    /// # Errors
    /// As [`Socket::try_read`].
    pub(crate) fn try_read_apart(&self, max: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.try_io(Interest::READABLE, max, || {
            bytes.reserve_exact(max);
            let (got, _) = recv(self, spare_capacity(&mut bytes), RecvFlags::empty())?;
            Ok(got)
        })?;
        Ok(bytes)
    }

    /// Appends the bytes available to `out`, as many as it has room for; returns their number, 0 at the end.
    ///
    /// # Errors
    /// As [`Socket::try_read`].
    pub(crate) fn try_read_behind(&self, out: &mut Vec<u8>) -> io::Result<usize> {
        let room = out.capacity() - out.len();
        self.try_io(Interest::READABLE, room, || {
            let (got, _) = recv(self, spare_capacity(&mut *out), RecvFlags::empty())?;
            Ok(got)
        })
    }

    /// Drops the bytes available; returns their number, 0 at the end. TCP does not even copy them into `scratch`
    /// (MSG_TRUNC, tcp(7)), the length of which is the maximum.
    ///
    /// # Errors
    /// As [`Socket::try_read`].
    pub(crate) fn try_discard(&self, scratch: &mut [u8]) -> io::Result<usize> {
        self.try_io(Interest::READABLE, scratch.len(), || {
            let (got, _) = recv(self, &mut *scratch, RecvFlags::TRUNC)?;
            Ok(got)
        })
    }

    /// Writes as much as the socket takes.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], and that of write(2).
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_io(Interest::WRITABLE, bytes.len(), || {
            Ok(send(self, bytes, SendFlags::NOSIGNAL)?)
        })
    }

    /// Writes the last bytes, as far as the socket takes them, whether the task's turn is over or not: there is no next
    /// one.
    pub(crate) fn write_last(&self, bytes: &[u8]) {
        let _ = send(self, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }

    /// Writes as much as the socket takes, to be sent together with the next write (MSG_MORE).
    ///
    /// # Errors
    /// As [`Socket::try_write`].
    pub(crate) fn try_write_more(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_io(Interest::WRITABLE, bytes.len(), || {
            Ok(send(self, bytes, SendFlags::NOSIGNAL | SendFlags::MORE)?)
        })
    }

    /// Writes as much of several buffers as the socket takes, in one call.
    ///
    /// # Errors
    /// As [`Socket::try_write`].
    pub fn try_write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let wanted = buffers.iter().map(|buffer| buffer.len()).sum();
        self.try_io(Interest::WRITABLE, wanted, || {
            Ok(rustix::io::writev(self, buffers)?)
        })
    }

    /// Writes by a system call of the caller (`sendfile`), which gets the descriptor and returns the number of bytes
    /// sent.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], and the error of the call.
    pub(crate) fn try_write_with(
        &self,
        mut write: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.try_io(Interest::WRITABLE, 0, || write(self.as_fd()))
    }

    /// Reads the bytes available without consuming them; 0 is the end.
    ///
    /// # Errors
    /// As [`Socket::try_read`].
    pub(crate) fn try_peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // A peek asks for the state of the socket, whatever is left of the turn.
        self.call(Interest::READABLE, 0, || {
            let (got, _) = recv(self, &mut *buffer, RecvFlags::PEEK)?;
            Ok(got)
        })
    }

    /// Ready when a read may find something (or the end). Wakes only the task that called last.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(turn::poll_not_over(cx));
        on_socket!(self, socket => socket.poll_read_ready(cx))
    }

    /// Whether a read may find something (or the end). Consults the loop's last events, not the kernel, and registers
    /// no waker.
    pub(crate) fn may_be_readable(&self) -> bool {
        // `try_io` runs the closure only if the socket is marked ready.
        on_socket!(self, socket => socket.try_io(Interest::READABLE, || Ok(()))).is_ok()
    }

    /// Whether a read finds something (or the end, or an error). Asks the kernel only if the loop's last events say that
    /// something came.
    pub(crate) fn has_unread(&self) -> bool {
        let is_empty = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        self.may_be_readable() && !self.try_peek(&mut [0]).is_err_and(|error| is_empty(&error))
    }

    /// Ready when a write may take something. Wakes only the task that called last.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(turn::poll_not_over(cx));
        on_socket!(self, socket => socket.poll_write_ready(cx))
    }

    /// Waits until the peer has closed its side. Never returns while there are unread bytes.
    pub async fn peer_closed(&self) {
        // Ignores the task's turn: a task that watches its peer while it works would otherwise never see it close.
        let is_closed = poll_fn(|cx| {
            loop {
                if ready!(self.poll_event(cx)).is_err() {
                    return Poll::Ready(true);
                }
                match self.try_peek(&mut [0]) {
                    Ok(0) => return Poll::Ready(true),
                    Ok(_) => return Poll::Ready(false),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return Poll::Ready(true),
                }
            }
        });
        if is_closed.await {
            return;
        }
        // Unread bytes hide the end; the kernel may have reported it all the same.
        let ready = on_socket!(self, socket => socket.ready(Interest::READABLE).await);
        if ready.is_ok_and(|ready| !ready.is_read_closed()) {
            std::future::pending().await
        }
    }

    /// As [`Socket::poll_readable`], but whether the task's turn is over or not.
    pub(crate) fn poll_event(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_socket!(self, socket => socket.poll_read_ready(cx))
    }

    /// `tcp_nodelay`. No effect on Unix sockets.
    ///
    /// # Errors
    /// Those of setsockopt(2).
    pub fn set_nodelay(&self, is_on: bool) -> io::Result<()> {
        match &self.kind {
            Kind::Tcp(socket) => Ok(sockopt::set_tcp_nodelay(socket, is_on)?),
            Kind::Unix(_) => Ok(()),
        }
    }

    /// See [`crate::Stream::acknowledge`].
    pub fn acknowledge(&self) {
        if self.has_read.replace(false)
            && let Kind::Tcp(socket) = &self.kind
        {
            let _ = sockopt::set_tcp_quickack(socket, true);
        }
    }

    /// `tcp_nopush`: holds back packets that are not full. No effect on Unix sockets.
    ///
    /// # Errors
    /// Those of setsockopt(2).
    pub fn set_nopush(&self, is_on: bool) -> io::Result<()> {
        match &self.kind {
            Kind::Tcp(socket) => Ok(sockopt::set_tcp_cork(socket, is_on)?),
            Kind::Unix(_) => Ok(()),
        }
    }

    /// Makes close(2) send a reset (`reset_timedout_connection`), so that no memory is kept for bytes that the peer
    /// does not take.
    ///
    /// # Errors
    /// Those of setsockopt(2).
    pub fn set_reset_on_close(&self) -> io::Result<()> {
        Ok(sockopt::set_socket_linger(self, Some(Duration::ZERO))?)
    }

    /// Tells the peer that nothing more will be sent.
    ///
    /// # Errors
    /// Those of shutdown(2).
    pub(crate) fn shutdown_write(&self) -> io::Result<()> {
        Ok(shutdown(self, Shutdown::Write)?)
    }

    /// The socket's own address; `None` for Unix sockets.
    ///
    /// # Errors
    /// Those of getsockname(2).
    pub fn local_addr(&self) -> io::Result<Option<SocketAddr>> {
        match &self.kind {
            Kind::Tcp(socket) => socket.local_addr().map(Some),
            Kind::Unix(_) => Ok(None),
        }
    }

    /// Writes by a system call of the caller that returns more than the number of bytes sent.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], and the error of the call.
    pub fn try_write_by<T>(&self, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if !turn::may_go_on() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let outcome = on_socket!(self, socket => socket.try_io(Interest::WRITABLE, call));
        if outcome.is_ok() {
            self.has_read.set(false);
        }
        turn::spend_time();
        outcome
    }

    /// Runs `call` if the task's turn allows it and the socket is marked ready. If it moved fewer than `wanted` bytes
    /// (0: not known), or would block, the socket is no longer marked ready.
    fn try_io(
        &self,
        interest: Interest,
        wanted: usize,
        call: impl FnMut() -> io::Result<usize>,
    ) -> io::Result<usize> {
        let is_read = interest.is_readable();
        let may_call = if is_read {
            turn::may_go_on()
        } else {
            turn::may_write()
        };
        if !may_call {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let outcome = self.call(interest, wanted, call);
        match outcome {
            Ok(count) if is_read => {
                self.has_read.set(true);
                turn::spend_read(count);
            }
            Ok(count) => {
                self.has_read.set(false);
                turn::spend_call(count);
            }
            Err(_) => {}
        }
        outcome
    }

    fn call(
        &self,
        interest: Interest,
        wanted: usize,
        mut call: impl FnMut() -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut moved = None;
        let outcome = on_socket!(self, socket => socket.try_io(interest, || loop {
            match call() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(count) if count > 0 && count < wanted => {
                    moved = Some(count);
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                other => return other,
            }
        }));
        moved.map_or(outcome, Ok)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        on_socket!(self, socket => socket.as_fd())
    }
}

impl Listener {
    /// A listener from a socket that is already listening and non-blocking.
    ///
    /// # Errors
    /// The runtime cannot register it.
    pub fn tcp(socket: std::net::TcpListener) -> io::Result<Listener> {
        TcpListener::from_std(socket).map(Listener::Tcp)
    }

    /// A listener from a socket that is already listening and non-blocking.
    ///
    /// # Errors
    /// The runtime cannot register it.
    pub fn unix(socket: std::os::unix::net::UnixListener) -> io::Result<Listener> {
        UnixListener::from_std(socket).map(Listener::Unix)
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// Those of accept(2).
    pub async fn accept(&self) -> io::Result<(Socket, Peer)> {
        std::future::poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// The next connection, if one is pending (`multi_accept`).
    pub(crate) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Socket, Peer)>> {
        match self {
            Listener::Tcp(socket) => socket
                .poll_accept(cx)
                .map_ok(|(stream, address)| (stream.into(), Peer::Inet(address))),
            Listener::Unix(socket) => socket
                .poll_accept(cx)
                .map_ok(|(stream, _)| (stream.into(), Peer::Unix)),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(socket) => socket.as_fd(),
            Listener::Unix(socket) => socket.as_fd(),
        }
    }
}
