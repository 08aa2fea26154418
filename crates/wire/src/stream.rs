//! A connected stream of bytes: a socket, in clear or with TLS on it.
//!
//! Not here: the calls ([`crate::socket`]), records ([`crate::tls_layer`]). Invariant: what is said to be written is in
//! the kernel, with TLS as well as in clear.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::event_loop::Loop;
use crate::loop_clock;
use crate::socket::Socket;
use crate::timers::Timer;
use crate::tls_layer::TlsLayer;

/// A connected stream.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    tls: Option<Box<TlsLayer>>,
}

impl<S: Into<Socket>> From<S> for Stream {
    fn from(socket: S) -> Self {
        let socket = socket.into();
        Self { socket, tls: None }
    }
}

impl Stream {
    /// A stream from an accepted socket, which is connected and non-blocking.
    ///
    /// # Errors
    /// The runtime cannot register it.
    pub fn from_accepted(socket: OwnedFd, is_tcp: bool) -> io::Result<Stream> {
        Socket::from_accepted(socket, is_tcp).map(Stream::from)
    }

    /// Encrypts from here on.
    pub fn begin_tls(&mut self, tls: TlsLayer) {
        self.tls = Some(Box::new(tls));
    }

    /// The TCP socket; `None`: it is of another kind.
    pub fn tcp_socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.tcp_socket()
    }

    /// The socket, where bytes may go to it unchanged (`sendfile`); `None`: there is TLS on it.
    pub fn clear_socket(&self) -> Option<BorrowedFd<'_>> {
        self.tls.is_none().then(|| self.socket.as_fd())
    }

    /// Reads the bytes available; 0 is the end. `WouldBlock`: wait for [`Stream::poll_readable`].
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], and that of read(2); with TLS that of a record.
    #[inline]
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            None => self.socket.try_read(buffer),
            Some(tls) => tls.try_read(&self.socket, buffer),
        }
    }

    /// As [`Stream::try_read`], into a buffer of its own; only where there is no TLS ([`Stream::clear_socket`]).
    ///
    /// # Errors
    /// As [`Stream::try_read`].
    pub(crate) fn try_read_apart(&self, max: usize) -> io::Result<Vec<u8>> {
        debug_assert!(self.tls.is_none(), "its records are not for others");
        self.socket.try_read_apart(max)
    }

    /// Appends the bytes available to `out`, as many as it has room for; only where there is no TLS.
    ///
    /// # Errors
    /// As [`Stream::try_read`].
    pub(crate) fn try_read_behind(&self, out: &mut Vec<u8>) -> io::Result<usize> {
        debug_assert!(self.tls.is_none(), "its records are not for others");
        self.socket.try_read_behind(out)
    }

    /// Writes as much as the socket takes. What was not written has to be written next, with TLS: it may be sealed
    /// already.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], and that of write(2).
    #[inline]
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.tls {
            None => self.socket.try_write(bytes),
            Some(tls) => tls.try_write(&self.socket, &[bytes]),
        }
    }

    /// Writes as much as the socket takes, to be sent together with the next write (MSG_MORE).
    ///
    /// # Errors
    /// As [`Stream::try_write`].
    pub(crate) fn try_write_more(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.tls {
            None => self.socket.try_write_more(bytes),
            Some(tls) => tls.try_write(&self.socket, &[bytes]),
        }
    }

    /// Writes as much of several buffers as the socket takes, in one call.
    ///
    /// # Errors
    /// As [`Stream::try_write`].
    pub fn try_write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.tls {
            None => self.socket.try_write_vectored(buffers),
            Some(tls) => {
                let parts: smallvec::SmallVec<[&[u8]; 8]> =
                    buffers.iter().map(|part| &**part).collect();
                tls.try_write(&self.socket, &parts)
            }
        }
    }

    /// Writes by a system call of the caller (`sendfile`), which gets the descriptor and returns the number of bytes
    /// sent.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], also where there is TLS on the socket, and the error of the call.
    pub(crate) fn try_write_with(
        &self,
        write: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        match &self.tls {
            None => self.socket.try_write_with(write),
            Some(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Whether a read finds something (or the end, or an error). Asks the kernel only if the loop's last events say that
    /// something came. TLS opens a little ahead for that: its own messages, session tickets for example, are nothing to
    /// read.
    pub(crate) fn has_unread(&self) -> bool {
        match &self.tls {
            Some(tls) => tls.has_unread(&self.socket),
            None => self.socket.has_unread(),
        }
    }

    /// As [`Stream::has_unread`], without a question to the kernel where there is no TLS: it may be wrong.
    pub(crate) fn may_have_unread(&self) -> bool {
        match &self.tls {
            Some(tls) => tls.has_unread(&self.socket),
            None => self.socket.may_be_readable(),
        }
    }

    /// Whether the peer's end came without the word that TLS has for it: what came before may lack its end.
    pub fn is_cut_off(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_cut_off())
    }

    /// Whether the handshake of TLS is not over: the client's Finished is on its way behind early data.
    pub fn is_early(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_early().get())
    }

    /// What of the peer's ended the connection, where records of TLS did.
    pub fn tls_fault(&self) -> Option<tls::Cause> {
        self.tls.as_ref().and_then(|tls| tls.fault())
    }

    /// Ready when a read may find something (or the end). Wakes only the task that called last.
    #[inline]
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.tls {
            Some(tls) if tls.has_plain() => crate::turn::poll_not_over(cx).map(Ok),
            Some(tls) if tls.is_early().get() => tls.poll_behind_early(&self.socket, cx),
            _ => self.socket.poll_readable(cx),
        }
    }

    /// Whether a read may find something (or the end). Consults the loop's last events, not the kernel, and registers
    /// no waker.
    pub(crate) fn may_be_readable(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_plain()) || self.socket.may_be_readable()
    }

    /// Ready when a write may take something. Wakes only the task that called last.
    #[inline]
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_writable(cx)
    }

    /// Waits until the peer has closed its side of the socket. With TLS, its word that nothing follows (close_notify) is
    /// not enough, since it may still read (RFC 8446, 6.1). Never returns while there are unread bytes; with TLS, while
    /// there are more than it looks at ahead.
    pub async fn peer_closed(&self) {
        if let Some(tls) = &self.tls {
            poll_fn(|cx| tls.poll_closed(&self.socket, cx)).await;
            if !tls.has_said_end() {
                return;
            }
        }
        self.socket.peer_closed().await;
    }

    /// `tcp_nodelay`. No effect on Unix sockets.
    ///
    /// # Errors
    /// Those of setsockopt(2).
    pub fn set_nodelay(&self, is_on: bool) -> io::Result<()> {
        self.socket.set_nodelay(is_on)
    }

    /// Acknowledges at once what was read, unless something was written since (TCP_QUICKACK, tcp(7)): call where the peer is
    /// to go on, with the rest of a message or, after a handshake, with its first one.
    ///
    /// A peer under Nagle's algorithm (RFC 9293, 3.7.4) that writes a message in pieces, its head and its body for example,
    /// holds back a small piece until the one before is acknowledged. The kernel holds back that acknowledgement for 40 ms
    /// and more, since something may be sent that could carry it (RFC 9293, 3.8.6.3); while the peer is to go on,
    /// nothing is. Where the call fails, the peer waits. No effect on Unix sockets.
    #[inline]
    pub fn acknowledge(&self) {
        self.socket.acknowledge();
    }

    /// `tcp_nopush`: holds back packets that are not full. No effect on Unix sockets.
    ///
    /// # Errors
    /// Those of setsockopt(2).
    pub fn set_nopush(&self, is_on: bool) -> io::Result<()> {
        self.socket.set_nopush(is_on)
    }

    /// Makes close(2) send a reset (`reset_timedout_connection`), so that no memory is kept for bytes that the peer
    /// does not take.
    ///
    /// # Errors
    /// Those of setsockopt(2).
    pub fn set_reset_on_close(&self) -> io::Result<()> {
        if let Some(tls) = &self.tls {
            tls.break_off();
        }
        self.socket.set_reset_on_close()
    }

    /// Tells the peer of TLS that nothing more will be sent, as far as the socket takes it. Without this an end looks cut
    /// off, as one should that comes too early.
    pub fn close_notify(&self) {
        if let Some(tls) = &self.tls {
            tls.close(&self.socket);
        }
    }

    /// Tells the peer that nothing more will be sent.
    ///
    /// # Errors
    /// Those of shutdown(2).
    pub fn shutdown_write(&self) -> io::Result<()> {
        self.close_notify();
        self.socket.shutdown_write()
    }

    /// Lingers before a close (RFC 9112, 9.6): shuts down the sending side and drops what the peer still sends, for `total`
    /// at most, not longer than `between` without anything, and not beyond `bytes_max` bytes, so that the peer sees the last
    /// response and not a reset. What comes under TLS is dropped as it comes, sealed.
    pub async fn linger(
        &self,
        owner: &Loop,
        timer: &mut Timer,
        total: Duration,
        between: Duration,
        bytes_max: u64,
    ) {
        if self.shutdown_write().is_err() {
            return;
        }
        let until = loop_clock::monotonic_ms() + total.as_millis() as u64;
        let mut dropped = 0;
        while dropped <= bytes_max {
            match owner.with_scratch(|scratch| self.socket.try_discard(scratch)) {
                Ok(0) => return,
                Ok(count) => dropped += count as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = until.saturating_sub(loop_clock::monotonic_ms());
                    let wait = between.min(Duration::from_millis(left));
                    let readable = poll_fn(|context| self.socket.poll_readable(context));
                    if left == 0 || timer.guard(wait, readable).await.is_err() {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }

    /// The socket's own address; `None` for Unix sockets.
    ///
    /// # Errors
    /// Those of getsockname(2).
    pub fn local_addr(&self) -> io::Result<Option<SocketAddr>> {
        self.socket.local_addr()
    }

    /// Writes by a system call of the caller that returns more than the number of bytes sent.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], and the error of the call.
    pub fn try_write_by<T>(&self, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.socket.try_write_by(call)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
