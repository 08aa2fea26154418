//! TLS on a socket, after the handshake: records in, records out.
//!
//! Not here: handshakes, and what a record is (crate `tls`). Invariants: a byte is said to be written once its record, or
//! a proportional part of all that was sealed with it, is in the kernel, so that nothing has to be flushed later; an idle
//! connection keeps no buffer; at most [`BATCH_MAX`] bytes are sealed at once, fewer where memory is scarce. All of it is
//! counted ([`Holder::Tls`]).

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use disk::memory::level::level;
use disk::memory::{self, Charge, Holder, MemoryLevel, charge};
use tls::traffic::{SEALED_BYTES_MAX, Traffic};

use crate::loop_clock;
use crate::socket::Socket;
use crate::turn;

/// Maximum number of bytes that are sealed at once, for a peer that takes them.
const BATCH_MAX: usize = 256 * 1024;
/// The same where the budget is tight.
const BATCH_TIGHT: usize = 64 * 1024;
/// The same for a peer that did not take all of the last ones, and while memory is scarce.
const BATCH_MIN: usize = 16 * 1024;
/// Size in bytes of the buffer that a thread reads into where its caller's is too small for a record.
const SCRATCH: usize = 64 * 1024;
/// Number of opened bytes after which the end of the stream is not looked for any more before they are read.
const AHEAD_MAX: usize = 16 * 1024;
/// Bytes of a connection beside its buffers: the state below, two keys, and what the next keys are made of
/// (`bench/tls`).
const CONNECTION_BYTES: usize = 2 << 10;
/// Maximum number of reads that find only messages of TLS itself before [`TlsLayer::has_unread`] takes them for content.
const OWN_MESSAGES_MAX: usize = 4;
/// Bytes of the handshake of a connection whose early data is answered.
const EARLY_BYTES: usize = 16 << 10;
/// Time without a write, in milliseconds, after which records begin small again.
const REST_MS: u64 = 1000;

thread_local! {
    static INCOMING: RefCell<(Vec<u8>, Charge)> = RefCell::new((vec![0; SCRATCH], charge(Holder::Tls, SCRATCH)));
    static SEALED: Cell<Option<Sealed>> = const { Cell::new(None) };
}

/// The buffer that a thread seals into.
struct Sealed {
    bytes: Vec<u8>,
    charge: Charge,
}

impl Sealed {
    /// The thread's own, empty.
    fn take() -> Self {
        let made = || Sealed {
            bytes: Vec::new(),
            charge: charge(Holder::Tls, 0),
        };
        SEALED.take().unwrap_or_else(made)
    }

    /// Keeps it for the next records, as far as there is memory.
    fn put_back(mut self) {
        let batch = batch_max();
        self.bytes.clear();
        self.bytes.shrink_to(batch + batch / 8);
        self.charge.set(self.bytes.capacity());
        SEALED.set(Some(self));
    }
}

/// Maximum number of bytes that are sealed at once now: those that the socket does not take stay in memory.
fn batch_max() -> usize {
    match level() {
        MemoryLevel::None | MemoryLevel::Copies | MemoryLevel::Buffers => {
            match memory::is_tight(memory::budget()) {
                true => BATCH_TIGHT,
                false => BATCH_MAX,
            }
        }
        MemoryLevel::Windows | MemoryLevel::Files | MemoryLevel::Fills | MemoryLevel::Accept => {
            BATCH_MIN
        }
    }
}

/// TLS on a socket.
pub struct TlsLayer {
    state: RefCell<State>,
    /// Whether the client's Finished has not come.
    is_early: Rc<Cell<bool>>,
}

impl std::fmt::Debug for TlsLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsLayer").finish_non_exhaustive()
    }
}

struct State {
    traffic: Traffic,
    /// The beginning of a record whose end has not come.
    incomplete: Vec<u8>,
    /// Opened bytes that no read had room for.
    plain: Vec<u8>,
    /// Whether the client's Finished has not come.
    is_early: Rc<Cell<bool>>,
    unsent: Unsent,
    /// Maximum number of bytes to seal next.
    batch: usize,
    written_ms: u64,
    is_closed: bool,
    /// Whether the peer's end came without close_notify.
    is_cut_off: bool,
    is_broken_off: bool,
    /// What of the peer's ended the connection.
    fault: Option<tls::Cause>,
    charge: Charge,
}

/// Sealed bytes that the socket has not taken yet.
#[derive(Default)]
struct Unsent {
    bytes: Vec<u8>,
    /// Bytes at the front of `bytes` that it has taken.
    taken: usize,
    /// Sealed bytes of the batch that were taken before.
    before: usize,
    /// Plain bytes in the batch.
    plain: usize,
    /// Plain bytes that the writer was told of.
    told: usize,
}

impl Unsent {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether the socket has taken all of them.
    fn is_taken(&self) -> bool {
        self.taken == self.bytes.len()
    }

    /// Plain bytes of the batch that are in the kernel and not yet told of: in proportion to the sealed ones.
    fn tell(&mut self, limit: usize) -> usize {
        let all = (self.before + self.bytes.len()).max(1);
        let share = match self.is_taken() {
            true => self.plain,
            false => self.plain * (self.before + self.taken) / all,
        };
        let more = share.saturating_sub(self.told).min(limit);
        self.told += more;
        more
    }
}

impl TlsLayer {
    /// TLS with these keys; `rest` are sealed bytes that have been received already, `early` opened ones.
    #[must_use]
    pub fn new(traffic: Traffic, rest: Vec<u8>, early: Vec<u8>) -> Self {
        let is_early = Rc::new(Cell::new(traffic.is_early()));
        Self {
            is_early: Rc::clone(&is_early),
            state: RefCell::new(State {
                traffic,
                incomplete: rest,
                plain: early,
                is_early,
                unsent: Unsent::default(),
                batch: BATCH_MIN,
                written_ms: 0,
                is_closed: false,
                is_cut_off: false,
                is_broken_off: false,
                fault: None,
                charge: charge(Holder::Tls, CONNECTION_BYTES),
            }),
        }
    }

    /// Whether a read finds bytes without asking the socket.
    pub(crate) fn has_plain(&self) -> bool {
        let state = self.state.borrow();
        // What came behind a handshake may hold whole records.
        !state.plain.is_empty() || state.is_closed || state.has_record()
    }

    /// Whether a read finds bytes, or the end: what has come is opened and kept for it, as far as it takes to know.
    pub(crate) fn has_unread(&self, socket: &Socket) -> bool {
        let state = &mut *self.state.borrow_mut();
        for _ in 0..OWN_MESSAGES_MAX {
            if !state.plain.is_empty() || state.is_closed {
                return true;
            }
            if !state.has_record() && !socket.has_unread() {
                return false;
            }
            if !turn::may_go_on() {
                return true; // a read would say that there is nothing
            }
            match state.read_ahead(socket) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    // The next read finds no more than that it is over.
                    (state.is_closed, state.is_cut_off) = (true, true);
                }
                _ => {}
            }
        }
        true
    }

    /// Whether the client's Finished has not come, so that what it has sent may be played again; it changes with a read.
    #[must_use]
    pub fn is_early(&self) -> &Rc<Cell<bool>> {
        &self.is_early
    }

    /// Whether the peer's end came without close_notify.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.state.borrow().is_cut_off
    }

    /// Whether the peer has said that nothing follows (close_notify). It may still read.
    pub(crate) fn has_said_end(&self) -> bool {
        let state = self.state.borrow();
        state.is_closed && !state.is_cut_off
    }

    /// What of the peer's ended the connection, where records did.
    pub(crate) fn fault(&self) -> Option<tls::Cause> {
        self.state.borrow().fault
    }

    /// As [`Socket::try_read`], of opened bytes.
    pub(crate) fn try_read(&self, socket: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
        let state = &mut *self.state.borrow_mut();
        let outcome = state.read_into(socket, buffer);
        state.count();
        outcome
    }

    /// Ready when opened bytes are there, or the end. The client's Finished, which is still to come, is none.
    pub(crate) fn poll_behind_early(
        &self,
        socket: &Socket,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let state = &mut *self.state.borrow_mut();
            if !state.has_record() {
                ready!(socket.poll_readable(cx))?;
            }
            match state.read_ahead(socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return Poll::Ready(outcome),
            }
        }
    }

    /// Ready when the peer has said that nothing follows, or is gone. What comes before is opened and kept for the next
    /// reads, up to [`AHEAD_MAX`].
    pub(crate) fn poll_closed(&self, socket: &Socket, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let state = &mut *self.state.borrow_mut();
            if state.is_closed {
                return Poll::Ready(());
            }
            if state.plain.len() > AHEAD_MAX {
                return Poll::Pending;
            }
            if !state.has_record() && ready!(socket.poll_event(cx)).is_err() {
                return Poll::Ready(());
            }
            // In a turn that is over, a read would find nothing, again and again.
            ready!(turn::poll_go_on(cx));
            match state.read_ahead(socket) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    return Poll::Ready(());
                }
                _ => {}
            }
        }
    }

    /// As [`Socket::try_write`], of bytes to seal. After less than all, or `WouldBlock`, the next write begins with the
    /// first byte that was not written.
    pub(crate) fn try_write(&self, socket: &Socket, parts: &[&[u8]]) -> io::Result<usize> {
        let state = &mut *self.state.borrow_mut();
        let outcome = state.write(socket, parts);
        state.count();
        outcome
    }

    /// Lets the end look cut off.
    pub(crate) fn break_off(&self) {
        self.state.borrow_mut().is_broken_off = true;
    }

    /// Says that nothing follows, as far as the socket takes it.
    pub(crate) fn close(&self, socket: &Socket) {
        let state = &mut *self.state.borrow_mut();
        if state.is_broken_off {
            return;
        }
        let mut last = std::mem::take(&mut state.unsent.bytes).split_off(state.unsent.taken);
        state.unsent = Unsent::default();
        state.traffic.close(&mut last);
        // A peer that takes nothing is not told.
        socket.write_last(&last);
    }
}

impl State {
    /// Counts the memory of the connection.
    fn count(&mut self) {
        let buffers =
            self.incomplete.capacity() + self.plain.capacity() + self.unsent.bytes.capacity();
        let handshake = if self.is_early.get() { EARLY_BYTES } else { 0 };
        self.charge.set(CONNECTION_BYTES + handshake + buffers);
    }

    /// Whether a read finds something without the socket: a whole record, or that nothing more can be opened.
    fn has_record(&self) -> bool {
        has_record(&self.incomplete) || self.traffic.has_failure()
    }

    /// Reads once, no more than it has to, for the reads that follow.
    fn read_ahead(&mut self, socket: &Socket) -> io::Result<()> {
        let outcome = INCOMING.with_borrow_mut(|(scratch, _)| {
            let count = self.read(socket, &mut scratch[..2 * SEALED_BYTES_MAX])?;
            self.plain.extend_from_slice(&scratch[..count]);
            Ok(())
        });
        self.count();
        outcome
    }

    fn read_into(&mut self, socket: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.plain.is_empty() {
            return Ok(take_front(&mut self.plain, buffer));
        }
        if buffer.len() >= 2 * SEALED_BYTES_MAX {
            return self.read(socket, buffer);
        }
        INCOMING.with_borrow_mut(|(scratch, _)| {
            let count = self.read(socket, scratch)?;
            self.plain.extend_from_slice(&scratch[..count]);
            Ok(take_front(&mut self.plain, buffer))
        })
    }

    /// Sends what waits, or seals and sends more.
    fn write(&mut self, socket: &Socket, parts: &[&[u8]]) -> io::Result<usize> {
        let wanted: usize = parts.iter().map(|part| part.len()).sum();
        if !self.unsent.is_empty() {
            let outcome = self.flush(socket);
            let told = self.unsent.tell(wanted);
            let is_over = self.unsent.told == self.unsent.plain;
            if self.unsent.is_taken() && is_over {
                self.unsent = Unsent::default();
            }
            if told > 0 {
                return Ok(told);
            }
            outcome?;
            if !self.unsent.is_empty() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        self.seal(socket, parts, wanted)
    }

    /// Reads once and opens the whole records, in place. `buffer` has room for two records.
    fn read(&mut self, socket: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_closed {
            return Ok(0);
        }
        let begun = self.incomplete.len().min(buffer.len());
        buffer[..begun].copy_from_slice(&self.incomplete[..begun]);
        let mut rest = self.incomplete.split_off(begun);
        // Records that came with the handshake are opened before the socket is asked for more.
        let got = match has_record(&buffer[..begun]) || self.traffic.has_failure() {
            true => 0,
            false => match socket.try_read(&mut buffer[begun..])? {
                0 => {
                    self.is_closed = true;
                    self.is_cut_off = true;
                    return Ok(0);
                }
                got => got,
            },
        };
        let filled = begun + got;
        let mut replies = Vec::new();
        if !self.unsent.is_taken() {
            self.traffic.hold_answers();
        }
        let opened = self.traffic.open(&mut buffer[..filled], &mut replies);
        if self.is_early.get() {
            self.is_early.set(self.traffic.is_early());
        }
        self.reply(socket, &replies);
        let opened = opened.map_err(|failure| {
            self.fault = Some(failure.cause);
            io::Error::new(io::ErrorKind::InvalidData, failure)
        })?;
        let mut left = buffer[opened.consumed..filled].to_vec();
        left.append(&mut rest);
        self.incomplete = left;
        self.is_closed = opened.is_closed;
        match opened.plain {
            0 if !opened.is_closed => Err(io::ErrorKind::WouldBlock.into()),
            plain => Ok(plain),
        }
    }

    /// Sends what a record asked for, behind all that is sealed already.
    fn reply(&mut self, socket: &Socket, replies: &[u8]) {
        if replies.is_empty() {
            return;
        }
        self.unsent.bytes.extend_from_slice(replies);
        // What the socket does not take goes before the next write.
        let _ = self.flush(socket);
        if self.unsent.plain == self.unsent.told && self.unsent.is_taken() {
            self.unsent = Unsent::default();
        }
    }

    /// Seals bytes and sends them; returns how many of them the socket has taken.
    fn seal(&mut self, socket: &Socket, parts: &[&[u8]], wanted: usize) -> io::Result<usize> {
        let now = loop_clock::monotonic_ms();
        if now.saturating_sub(self.written_ms) > REST_MS {
            self.traffic.rest();
        }
        self.written_ms = now;
        let plain = wanted.min(self.batch).min(batch_max());
        let mut buffer = Sealed::take();
        let out = &mut buffer.bytes;
        out.reserve(self.traffic.sealed_bytes(plain));
        let mut room = plain;
        let cut = parts.iter().map(|part| {
            let taken = part.len().min(room);
            room -= taken;
            &part[..taken]
        });
        let cut: smallvec::SmallVec<[&[u8]; 8]> = cut.collect();
        let sealed = self.traffic.seal(&cut, out);
        let outcome = sealed
            .map_err(|failure| io::Error::new(io::ErrorKind::InvalidData, failure))
            .and_then(|()| self.send(socket, out, plain));
        buffer.put_back();
        outcome
    }

    fn send(&mut self, socket: &Socket, sealed: &[u8], plain: usize) -> io::Result<usize> {
        let taken = match socket.try_write(sealed) {
            Ok(taken) => taken,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        if taken == sealed.len() {
            self.batch = (2 * self.batch).min(BATCH_MAX);
            return Ok(plain);
        }
        self.batch = BATCH_MIN;
        self.unsent = Unsent {
            bytes: sealed[taken..].to_vec(),
            taken: 0,
            before: taken,
            plain,
            told: 0,
        };
        match self.unsent.tell(plain) {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            told => Ok(told),
        }
    }

    /// Gives the socket what it takes of the unsent bytes.
    fn flush(&mut self, socket: &Socket) -> io::Result<()> {
        let unsent = &mut self.unsent;
        if unsent.taken < unsent.bytes.len() {
            unsent.taken += socket.try_write(&unsent.bytes[unsent.taken..])?;
        }
        Ok(())
    }
}

/// Whether there is a whole record at the front.
fn has_record(bytes: &[u8]) -> bool {
    let length = |header: &[u8]| usize::from(u16::from_be_bytes([header[3], header[4]]));
    bytes.len() >= 5 && (bytes.len() - 5 >= length(bytes) || length(bytes) > SEALED_BYTES_MAX)
}

/// Moves the front of `from` into `to`.
fn take_front(from: &mut Vec<u8>, to: &mut [u8]) -> usize {
    let count = from.len().min(to.len());
    to[..count].copy_from_slice(&from[..count]);
    from.drain(..count);
    if from.is_empty() {
        *from = Vec::new();
    }
    count
}
