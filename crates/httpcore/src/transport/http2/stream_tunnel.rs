//! A stream of HTTP/2 as the client's end of a tunnel (CONNECT: RFC 9113, 8.5; WebSocket: RFC 8441): its DATA frames are the
//! bytes.
//!
//! Not here: who asked for it, and the end of the stream ([`super::Http2`]).

use std::io;
use std::task::{Context, Poll};

use wire::http2::StreamKey;
use wire::turn;

use super::connection::{Http2Connection, Rest};

/// A stream whose data is a tunnel's.
pub struct StreamTunnel<'a> {
    pub(super) connection: &'a Http2Connection,
    pub(super) key: StreamKey,
    /// Maximum payload of a frame, in bytes.
    pub(super) frame_max: usize,
}

impl StreamTunnel<'_> {
    pub(in crate::transport) fn read_into(&self, out: &mut Vec<u8>) -> io::Result<usize> {
        let before = out.len();
        let rest = self.connection.read(self.key, out);
        let count = out.len() - before;
        match rest {
            None | Some(Rest::Malformed) => Err(io::ErrorKind::ConnectionReset.into()),
            Some(_) if count > 0 => Ok(count),
            Some(Rest::Nothing) => Ok(0),
            Some(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    pub(in crate::transport) fn poll_readable(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        // Nothing has come since the read that said so: that takes another task.
        self.connection.watch(self.key, context);
        Poll::Pending
    }

    pub(in crate::transport) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        if !turn::may_go_on() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let sent = self
            .connection
            .send_data(self.key, bytes, false, self.frame_max);
        match sent {
            Err(_) => Err(io::ErrorKind::ConnectionReset.into()),
            Ok((0, _)) => Err(io::ErrorKind::WouldBlock.into()),
            Ok((taken, _)) => {
                self.connection.end_wait(self.key);
                Ok(taken)
            }
        }
    }

    pub(in crate::transport) fn poll_writable(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        // The wait for the turn ends with the write, which may come before this is asked again.
        match turn::poll_go_on(context).is_ready() && self.connection.may_send(self.key, context) {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }
}

impl Drop for StreamTunnel<'_> {
    fn drop(&mut self) {
        self.connection.end_wait(self.key);
    }
}
