//! Messages with descriptors between master and worker, over a SEQPACKET socket pair.
//!
//! Not here: what the messages mean ([`super::bundle`]). Invariant: a message arrives whole or not at all, also where the one
//! before it was not sent to its end; its descriptors arrive in order, all of them or, where the process can have no more, none.

use std::cell::RefCell;
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
/// How long a sender waits for the other side to read. Then the message is not sent, and the next one may be.
const PATIENCE: Duration = Duration::from_secs(30);

/// The flag of a message's last packet.
const LAST: u8 = 1;
/// The flag of its first one.
const FIRST: u8 = 2;

/// One message.
#[derive(Debug, Default)]
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

/// What has come from the other end.
#[derive(Debug)]
pub(crate) enum Received {
    /// A message.
    Whole(Frame),
    /// Nothing, or the beginning of a message: the rest may be on its way, or never come.
    Part,
    /// The other end is gone, be it in the middle of a message.
    Gone,
}

/// One end of the pair.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: OwnedFd,
    /// The packets of a message that has not come whole.
    begun: RefCell<Frame>,
}

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
        options.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            socket,
            begun: RefCell::default(),
        })
    }

    /// The socket, to be given to another process.
    #[must_use]
    pub(crate) fn into_socket(self) -> OwnedFd {
        self.socket
    }

    /// Sends one message.
    ///
    /// # Errors
    /// That of sendmsg(2); EPIPE when the other end is gone, EAGAIN when it does not read.
    pub(crate) fn send(
        &self,
        kind: u8,
        body: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let mut chunks = body.chunks(PACKET_MAX).peekable();
        let mut groups = descriptors.chunks(DESCRIPTORS_MAX).peekable();
        let mut flags = FIRST;
        loop {
            let chunk = chunks.next().unwrap_or_default();
            let group = groups.next().unwrap_or_default();
            if chunks.peek().is_none() && groups.peek().is_none() {
                flags |= LAST;
            }
            self.send_packet(&[kind, flags], chunk, group)?;
            if flags & LAST != 0 {
                return Ok(());
            }
            flags = 0;
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
            match rustix::net::sendmsg(&self.socket, &parts, &mut ancillary, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Receives one message, as far as it has come; does not wait.
    ///
    /// # Errors
    /// That of recvmsg(2); a message that is too long.
    pub(crate) fn receive(&self) -> io::Result<Received> {
        let mut frame = self.begun.borrow_mut();
        loop {
            let is_last = match self.receive_packet(&mut frame) {
                Ok(Some(is_last)) => is_last,
                Ok(None) => return Ok(Received::Gone),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Received::Part);
                }
                Err(error) if is_gone(&error) => return Ok(Received::Gone),
                Err(error) => return Err(error),
            };
            if frame.body.len() > MESSAGE_MAX || frame.descriptors.len() > MESSAGE_DESCRIPTORS_MAX {
                return Err(io::Error::other(
                    "a message between master and worker is too long",
                ));
            }
            if is_last {
                if frame.lacks_descriptors {
                    frame.descriptors.clear();
                }
                return Ok(Received::Whole(std::mem::take(&mut frame)));
            }
        }
    }

    /// Adds a packet to a message. Returns whether it is the last one; `None` when the other end is gone.
    fn receive_packet(&self, frame: &mut Frame) -> io::Result<Option<bool>> {
        let mut space =
            vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut packet = vec![0; PACKET_MAX + 2];
        let received = loop {
            let mut parts = [IoSliceMut::new(&mut packet)];
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            match rustix::net::recvmsg(&self.socket, &mut parts, &mut ancillary, flags) {
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
        let (kind, flags) = (packet[0], packet[1]);
        if flags & FIRST != 0 {
            // What is left of a message that the other end has given up.
            *frame = Frame::default();
        }
        frame.kind = kind;
        frame.lacks_descriptors |= received.flags.contains(ReturnFlags::CTRUNC);
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                frame.descriptors.extend(descriptors);
            }
        }
        frame.body.extend_from_slice(&packet[2..received.bytes]);
        Ok(Some(flags & LAST != 0))
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
        self.socket.as_fd()
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
    use rustix::event::{PollFd, PollFlags, poll};
    use std::io::Read;

    /// The next message; `None` when the other end is gone.
    fn next(channel: &Channel) -> Option<Frame> {
        loop {
            match channel.receive().unwrap() {
                Received::Whole(frame) => return Some(frame),
                Received::Gone => return None,
                Received::Part => {
                    let mut events = [PollFd::new(channel, PollFlags::IN)];
                    poll(&mut events, None).unwrap();
                }
            }
        }
    }

    #[test]
    fn a_message_that_was_not_sent_to_its_end_leaves_nothing_in_the_next_one() {
        let (a, b) = Channel::pair().unwrap();
        let impatient = Some(Duration::from_millis(1));
        let options = socket2::SockRef::from(&a);
        options.set_write_timeout(impatient).unwrap();
        let (read, _) = std::io::pipe().unwrap();
        let failed = a
            .send(1, &vec![b'x'; 64 << 20], &[read.as_fd()])
            .unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::WouldBlock);
        assert!(matches!(b.receive().unwrap(), Received::Part));
        a.send(2, &[1], &[]).unwrap();
        let frame = next(&b).unwrap();
        assert_eq!(
            (frame.kind, &frame.body[..], frame.descriptors.len()),
            (2, &[1][..], 0)
        );
        assert!(matches!(b.receive().unwrap(), Received::Part));
    }

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
        let frame = next(&b).unwrap();
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
        let empty = next(&b).unwrap();
        assert_eq!((empty.kind, empty.body.len()), (8, 0));
        sender.join().unwrap();
        assert!(next(&b).is_none());
    }

    #[test]
    fn an_end_that_goes_is_no_error_whatever_it_has_left() {
        let (a, b) = Channel::pair().unwrap();
        // The first packet of several alone.
        a.send_packet(&[7, FIRST], b"begun", &[]).unwrap();
        drop(a);
        assert!(next(&b).is_none());
        assert!(is_gone(&b.send(1, &[], &[]).unwrap_err()));
        let (a, b) = Channel::pair().unwrap();
        b.send(1, b"never read", &[]).unwrap();
        drop(a);
        assert!(next(&b).is_none());
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
