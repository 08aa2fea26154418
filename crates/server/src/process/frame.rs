//! Messages with descriptors between master and worker, over a SEQPACKET socket pair.
//!
//! Not here: what the messages mean ([`super::bundle`]). Invariant: a message arrives whole or not at all; its
//! descriptors arrive in order, all of them or, where the process can have no more, none.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// Descriptors that Linux takes with one message (SCM_MAX_FD, unix(7)).
pub(crate) const DESCRIPTORS_MAX: usize = 253;
/// Bytes of one packet; well below the default socket buffer (net.core.wmem_default, 208 KiB).
const PACKET_MAX: usize = 32 << 10;
/// Bytes of a whole message.
pub(crate) const MESSAGE_MAX: usize = 1 << 30;
/// Descriptors of a whole message.
const MESSAGE_DESCRIPTORS_MAX: usize = 1 << 20;
/// How long either side waits for the other in the middle of a message.
const PATIENCE: Duration = Duration::from_secs(30);

const LAST: u8 = 1;

/// One message.
#[derive(Debug)]
pub(crate) struct Frame {
    /// Its kind.
    pub kind: u8,
    /// Its bytes.
    pub body: Vec<u8>,
    /// Its descriptors, close-on-exec.
    pub descriptors: Vec<OwnedFd>,
    /// Whether it had more of them than this process may have (RLIMIT_NOFILE). None is kept then.
    pub lacks_descriptors: bool,
}

/// One end of the pair.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

impl Channel {
    /// Both ends.
    ///
    /// # Errors
    /// That of socketpair(2).
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let kind = SocketType::SEQPACKET;
        let (a, b) =
            rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        Ok((Self::from_socket(a)?, Self::from_socket(b)?))
    }

    /// An end that another process made.
    ///
    /// # Errors
    /// That of setsockopt(2): the descriptor is no socket.
    pub(crate) fn from_socket(socket: OwnedFd) -> io::Result<Self> {
        let options = socket2::SockRef::from(&socket);
        options.set_read_timeout(Some(PATIENCE))?;
        options.set_write_timeout(Some(PATIENCE))?;
        Ok(Self(socket))
    }

    /// The socket, to be given to another process.
    #[must_use]
    pub(crate) fn into_socket(self) -> OwnedFd {
        self.0
    }

    /// Sends one message.
    ///
    /// # Errors
    /// That of sendmsg(2); EPIPE when the other end is gone.
    pub(crate) fn send(
        &self,
        kind: u8,
        body: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let mut chunks = body.chunks(PACKET_MAX).peekable();
        let mut groups = descriptors.chunks(DESCRIPTORS_MAX).peekable();
        loop {
            let chunk = chunks.next().unwrap_or_default();
            let group = groups.next().unwrap_or_default();
            let is_last = chunks.peek().is_none() && groups.peek().is_none();
            let head = [kind, if is_last { LAST } else { 0 }];
            self.send_packet(&head, chunk, group)?;
            if is_last {
                return Ok(());
            }
        }
    }

    fn send_packet(
        &self,
        head: &[u8],
        chunk: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let mut space =
            vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            let is_pushed = ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
            assert!(is_pushed, "the space is made for DESCRIPTORS_MAX");
        }
        let parts = [IoSlice::new(head), IoSlice::new(chunk)];
        loop {
            match rustix::net::sendmsg(&self.0, &parts, &mut ancillary, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Receives one message; `None` when the other end is gone, be it in the middle of one.
    ///
    /// # Errors
    /// That of recvmsg(2); a message that is too long.
    pub(crate) fn receive(&self) -> io::Result<Option<Frame>> {
        let mut frame = Frame {
            kind: 0,
            body: Vec::new(),
            descriptors: Vec::new(),
            lacks_descriptors: false,
        };
        loop {
            let (kind, is_last) = match self.receive_packet(&mut frame) {
                Ok(Some(packet)) => packet,
                Ok(None) => return Ok(None),
                Err(error) if is_gone(&error) => return Ok(None),
                Err(error) => return Err(error),
            };
            frame.kind = kind;
            if frame.body.len() > MESSAGE_MAX || frame.descriptors.len() > MESSAGE_DESCRIPTORS_MAX {
                return Err(io::Error::other(
                    "a message between master and worker is too long",
                ));
            }
            if is_last {
                if frame.lacks_descriptors {
                    frame.descriptors.clear();
                }
                return Ok(Some(frame));
            }
        }
    }

    fn receive_packet(&self, frame: &mut Frame) -> io::Result<Option<(u8, bool)>> {
        let mut space =
            vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut packet = vec![0; PACKET_MAX + 2];
        let received = loop {
            let mut parts = [IoSliceMut::new(&mut packet)];
            match rustix::net::recvmsg(&self.0, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
            {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?,
            }
        };
        if received.bytes == 0 {
            return Ok(None);
        }
        if received.flags.contains(ReturnFlags::TRUNC) || received.bytes < 2 {
            return Err(io::Error::other("bytes got lost between master and worker"));
        }
        frame.lacks_descriptors |= received.flags.contains(ReturnFlags::CTRUNC);
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                frame.descriptors.extend(descriptors);
            }
        }
        frame.body.extend_from_slice(&packet[2..received.bytes]);
        Ok(Some((packet[0], packet[1] == LAST)))
    }
}

/// Whether a call failed because the other end is gone: also with messages there that it had not read (unix(7),
/// ECONNRESET).
#[must_use]
pub(crate) fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Puts values into a message's body.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub Vec<u8>);

impl Writer {
    /// A number.
    pub(crate) fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// Bytes, with their length.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }
}

/// Takes values out of a message's body; `None` when it is shorter than it says.
#[derive(Debug)]
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// A number.
    pub(crate) fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    /// A number that counts things in memory.
    pub(crate) fn count(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    /// Bytes.
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.count()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_long_message_with_many_descriptors_arrives_whole_and_in_order() {
        let (a, b) = Channel::pair().unwrap();
        let body: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
        let sent = body.clone();
        let sender = std::thread::spawn(move || {
            let pipes: Vec<_> = (0..400).map(|_| std::io::pipe().unwrap()).collect();
            let ends: Vec<_> = pipes.iter().map(|(read, _)| read.as_fd()).collect();
            a.send(7, &sent, &ends).unwrap();
            for (number, (_, write)) in pipes.into_iter().enumerate() {
                io::Write::write_all(&mut { write }, &[(number % 256) as u8]).unwrap();
            }
            a.send(8, &[], &[]).unwrap();
        });
        let frame = b.receive().unwrap().unwrap();
        assert_eq!(
            (frame.kind, frame.body == body, frame.descriptors.len()),
            (7, true, 400)
        );
        for (number, descriptor) in frame.descriptors.into_iter().enumerate() {
            let mut byte = [0];
            std::io::PipeReader::from(descriptor)
                .read_exact(&mut byte)
                .unwrap();
            assert_eq!(usize::from(byte[0]), number % 256);
        }
        let empty = b.receive().unwrap().unwrap();
        assert_eq!((empty.kind, empty.body.len()), (8, 0));
        sender.join().unwrap();
        assert!(b.receive().unwrap().is_none());
    }

    #[test]
    fn an_end_that_goes_is_no_error_whatever_it_has_left() {
        let (a, b) = Channel::pair().unwrap();
        // The first packet of several alone.
        a.send_packet(&[7, 0], b"begun", &[]).unwrap();
        drop(a);
        assert!(b.receive().unwrap().is_none());
        assert!(is_gone(&b.send(1, &[], &[]).unwrap_err()));
        let (a, b) = Channel::pair().unwrap();
        b.send(1, b"never read", &[]).unwrap();
        drop(a);
        assert!(b.receive().unwrap().is_none());
    }

    #[test]
    fn values_come_back_and_a_short_body_is_noticed() {
        let mut writer = Writer::default();
        writer.number(5);
        writer.bytes(b"abc");
        let mut reader = Reader(&writer.0);
        assert_eq!(
            (reader.number(), reader.bytes()),
            (Some(5), Some(&b"abc"[..]))
        );
        assert_eq!(reader.number(), None);
        assert_eq!(Reader(&writer.0[..10]).bytes(), None);
    }
}
