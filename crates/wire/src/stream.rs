//! Sockets of a loop: TCP and Unix streams and listeners, read and written without ever waiting in a call.
//!
//! A read that fills less than its buffer has drained the socket, and a write that takes less than it was given has filled
//! it: both mark the socket as not ready, which saves the call that would only say so. Each counts against the task's turn
//! ([`crate::turn`]): when that is over, a socket would block, and is waited for until the next one.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::turn;

/// A connected socket.
#[derive(Debug)]
pub enum Stream {
    /// TCP.
    Tcp(TcpStream),
    /// Unix.
    Unix(UnixStream),
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// An internet address.
    Inet(SocketAddr),
    /// A Unix socket; clients of these have no address.
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
        match $self {
            Stream::Tcp($socket) => $call,
            Stream::Unix($socket) => $call,
        }
    };
}

impl Stream {
    /// Reads what is there; 0 is the end. `WouldBlock`: wait for [`Stream::poll_readable`].
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

    /// Writes what goes.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], and that of write(2).
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_io(Interest::WRITABLE, bytes.len(), || {
            Ok(send(self, bytes, SendFlags::NOSIGNAL)?)
        })
    }

    /// Writes what goes, to be sent together with what is written next (MSG_MORE).
    ///
    /// # Errors
    /// As [`Stream::try_write`].
    pub fn try_write_more(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_io(Interest::WRITABLE, bytes.len(), || {
            Ok(send(self, bytes, SendFlags::NOSIGNAL | SendFlags::MORE)?)
        })
    }

    /// Writes what goes of several buffers, in one call.
    ///
    /// # Errors
    /// As [`Stream::try_write`].
    pub fn try_write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let wanted = buffers.iter().map(|buffer| buffer.len()).sum();
        self.try_io(Interest::WRITABLE, wanted, || {
            Ok(rustix::io::writev(self, buffers)?)
        })
    }

    /// Writes by a call of the caller's own (`sendfile`), who gets the descriptor and says how much went.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], and what the call fails with.
    pub fn try_write_with(
        &self,
        mut write: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.try_io(Interest::WRITABLE, 0, || write(self.as_fd()))
    }

    /// Looks at what is there without taking it; 0 is the end.
    ///
    /// # Errors
    /// As [`Stream::try_read`].
    pub fn try_peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // Whoever looks asks how it stands, and is not to hear of turns.
        self.call(Interest::READABLE, 0, || {
            let (got, _) = recv(self, &mut *buffer, RecvFlags::PEEK)?;
            Ok(got)
        })
    }

    /// Ready when a read may find something (or the end). Only the task that asked last is woken.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(turn::poll_not_over(cx));
        on_socket!(self, socket => socket.poll_read_ready(cx))
    }

    /// May a read find something (or the end)? Asks the loop's last events, not the kernel, and leaves alone who waits.
    pub fn may_be_readable(&self) -> bool {
        // The call is made only where the socket is thought ready.
        on_socket!(self, socket => socket.try_io(Interest::READABLE, || Ok(()))).is_ok()
    }

    /// Ready when a write may take something. Only the task that asked last is woken.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(turn::poll_not_over(cx));
        on_socket!(self, socket => socket.poll_write_ready(cx))
    }

    /// Waits until the peer has closed its side. Never ends while bytes are there that nobody has read.
    pub async fn peer_closed(&self) {
        // Not by the task's turn: whoever looks after the peer while he works would else never see it.
        let is_closed = poll_fn(|cx| {
            loop {
                let ready = on_socket!(self, socket => socket.poll_read_ready(cx));
                if ready!(ready).is_err() {
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
        // Bytes hide the end; the kernel may have told of it all the same.
        let ready = on_socket!(self, socket => socket.ready(Interest::READABLE).await);
        if ready.is_ok_and(|ready| !ready.is_read_closed()) {
            std::future::pending().await
        }
    }

    /// `tcp_nodelay`. Nothing on Unix sockets.
    ///
    /// # Errors
    /// That of setsockopt(2).
    pub fn set_nodelay(&self, is_on: bool) -> io::Result<()> {
        match self {
            Stream::Tcp(socket) => Ok(sockopt::set_tcp_nodelay(socket, is_on)?),
            Stream::Unix(_) => Ok(()),
        }
    }

    /// `tcp_nopush`: hold back packets that are not full. Nothing on Unix sockets.
    ///
    /// # Errors
    /// Those of setsockopt(2).
    pub fn set_nopush(&self, is_on: bool) -> io::Result<()> {
        match self {
            Stream::Tcp(socket) => Ok(sockopt::set_tcp_cork(socket, is_on)?),
            Stream::Unix(_) => Ok(()),
        }
    }

    /// Makes the close to come a reset (`reset_timedout_connection`): no memory is kept for bytes that nobody takes.
    ///
    /// # Errors
    /// That of setsockopt(2).
    pub fn set_reset_on_close(&self) -> io::Result<()> {
        Ok(sockopt::set_socket_linger(self, Some(Duration::ZERO))?)
    }

    /// Says to the peer that nothing more will come.
    ///
    /// # Errors
    /// That of shutdown(2).
    pub fn shutdown_write(&self) -> io::Result<()> {
        Ok(shutdown(self, Shutdown::Write)?)
    }

    /// The socket's own address; `None` for Unix sockets.
    ///
    /// # Errors
    /// That of getsockname(2).
    pub fn local_addr(&self) -> io::Result<Option<SocketAddr>> {
        match self {
            Stream::Tcp(socket) => socket.local_addr().map(Some),
            Stream::Unix(_) => Ok(None),
        }
    }

    /// Writes by a call of the caller's own that says more than how much went.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], and what the call fails with.
    pub fn try_write_by<T>(&self, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if !turn::may_go_on() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let outcome = on_socket!(self, socket => socket.try_io(Interest::WRITABLE, call));
        turn::spend_time();
        outcome
    }

    /// Runs `call` if the task's turn may do more and the socket is thought ready. When it moved less than `wanted` bytes (0: not
    /// known), or would block, the socket is not ready any more.
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
            Ok(count) if is_read => turn::spend_read(count),
            Ok(count) => turn::spend_call(count),
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

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        on_socket!(self, socket => socket.as_fd())
    }
}

impl Listener {
    /// From a socket that listens already and does not block.
    ///
    /// # Errors
    /// The runtime cannot watch it.
    pub fn tcp(socket: std::net::TcpListener) -> io::Result<Listener> {
        TcpListener::from_std(socket).map(Listener::Tcp)
    }

    /// From a socket that listens already and does not block.
    ///
    /// # Errors
    /// The runtime cannot watch it.
    pub fn unix(socket: std::os::unix::net::UnixListener) -> io::Result<Listener> {
        UnixListener::from_std(socket).map(Listener::Unix)
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// That of accept(2).
    pub async fn accept(&self) -> io::Result<(Stream, Peer)> {
        std::future::poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// The next connection, if one waits (`multi_accept`).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Stream, Peer)>> {
        match self {
            Listener::Tcp(socket) => socket
                .poll_accept(cx)
                .map_ok(|(stream, address)| (Stream::Tcp(stream), Peer::Inet(address))),
            Listener::Unix(socket) => socket
                .poll_accept(cx)
                .map_ok(|(stream, _)| (Stream::Unix(stream), Peer::Unix)),
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
