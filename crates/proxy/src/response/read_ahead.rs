//! Reading a response ahead of a slow client, so that its server is let go (`proxy_buffering`): into memory, and from
//! there into a temporary file.
//!
//! Begins when a client has not taken a piece for [`PATIENCE`]; clients that keep up have no part in it. Not here:
//! whether a response may be buffered (`accel`), the server's side (`response_body`), the file (`temp_file`).
//! Invariants: bytes are given out in their order, and once; they leave the memory only when they are in the file.
//! Where nothing can be written, or not fast enough, nothing more is read until the client has taken some, so the
//! server is held back. Besides the piece that is being sent, memory holds `proxy_buffers`, and somewhat more only
//! while a part is being written, so that a server is not held for the time until a pool's thread gets to that part.

use crate::response::response_body::{BodyAttempt, BodyStream};
use crate::response::temp_file::TempFile;
use crate::settings::directives::ProxyAnswers;
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use disk::OpenFile;
use disk::memory::level::level;
use disk::memory::{self, Charge, Holder, MemoryLevel, charge};
use message::{BodyError, Chunk, FileRange};
use wire::{Timer, turn};

/// A client counts as slow that has not taken a piece for this long, plus the millisecond or two by which a timer may
/// be late. Clients that keep up take the largest piece in less. Each further millisecond would hold a server for as
/// long, and with it the requests that wait for that server.
const PATIENCE: Duration = Duration::ZERO;

/// Maximum of bytes kept beyond `proxy_buffers` while a part is being written: of one response, and of all responses of
/// a loop.
const BEYOND_MAX: usize = 512 << 10;
const BEYOND_OF_LOOP_MAX: usize = 8 << 20;

thread_local! {
    /// Bytes that the responses of this loop keep beyond `proxy_buffers`.
    static BEYOND: Cell<usize> = const { Cell::new(0) };
}

/// Bytes that all responses of a loop may keep beyond `proxy_buffers` now.
fn beyond_of_loop() -> usize {
    if level() >= MemoryLevel::Windows {
        return 0;
    }
    let share = usize::try_from(memory::buffers_of_a_loop()).unwrap_or(usize::MAX);
    share.min(BEYOND_OF_LOOP_MAX)
}

type FileChunk = Chunk<Rc<OpenFile>>;

/// The client's speed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientPace {
    /// It takes pieces at once.
    KeepsUp,
    /// It has not taken the last piece since the timer was armed.
    IsWaitedFor,
    /// It is slow: the response is read ahead of it.
    IsSlow,
}

/// The part of a response that was read ahead.
pub(crate) struct ReadAhead {
    client: ClientPace,
    timer: Timer,
    /// Maximum of bytes in memory.
    memory: usize,
    /// With less room than this nothing is read.
    room_min: usize,
    spool: TempFile,
    /// Bytes in the file that were not given out.
    saved: Range<u64>,
    /// The bytes after them. The first of these are being written, unless that was refused.
    unsaved: Bytes,
    /// Whether the bytes that are being written were given out meanwhile.
    is_part_given: bool,
    /// The bytes after those.
    tail: Vec<u8>,
    charge: Charge,
    /// Its share of [`BEYOND`].
    beyond: usize,
    /// Whether the server sends no more.
    is_over: bool,
    /// Whether it broke off.
    broken: Option<BodyError>,
}

impl ReadAhead {
    pub(crate) fn of(trying: &BodyAttempt) -> ReadAhead {
        let context = &trying.upstream_request.context;
        let settings = context.location().own::<ProxyAnswers>();
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let buffers = settings.proxy_buffers.value;
        let memory = bytes(buffers.count.saturating_mul(buffers.size));
        ReadAhead {
            client: ClientPace::KeepsUp,
            timer: context.loop_().wire.wheel.timer(),
            memory,
            room_min: bytes(buffers.size),
            spool: TempFile::of(settings),
            saved: 0..0,
            unsaved: Bytes::new(),
            is_part_given: false,
            tail: Vec::new(),
            charge: charge(Holder::ProxyBuffers, 0),
            beyond: 0,
            is_over: false,
            broken: None,
        }
    }

    /// Whether nothing is kept, nor any error to be reported.
    pub(crate) fn is_empty(&self) -> bool {
        self.saved.is_empty()
            && self.unsaved.is_empty()
            && self.tail.is_empty()
            && self.broken.is_none()
    }

    /// The next piece for the client; of the file at most `file_max` bytes. `Pending`: the server is to be read.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        file_max: u64,
        trying: &BodyAttempt,
    ) -> Poll<Option<Result<FileChunk, BodyError>>> {
        if self.client == ClientPace::IsWaitedFor {
            self.timer.disarm();
            self.client = ClientPace::KeepsUp;
        }
        if self.spool.is_writing() {
            let _ = self.poll_written(cx, trying);
        }
        if let Some(chunk) = self.take(file_max) {
            self.count();
            return Poll::Ready(Some(Ok(chunk)));
        }
        if let Some(error) = self.broken.take() {
            return Poll::Ready(Some(Err(error)));
        }
        if self.is_over {
            return Poll::Ready(None);
        }
        self.client = ClientPace::KeepsUp;
        Poll::Pending
    }

    fn take(&mut self, file_max: u64) -> Option<FileChunk> {
        if !self.saved.is_empty() {
            let file = self.spool.file()?;
            let offset = self.saved.start;
            let len = (self.saved.end - offset).min(file_max);
            self.saved.start += len;
            return Some(Chunk::File(FileRange { file, offset, len }));
        }
        if !self.unsaved.is_empty() {
            self.is_part_given = self.spool.is_writing();
            return Some(Chunk::Bytes(std::mem::take(&mut self.unsaved)));
        }
        let tail = self.take_tail();
        (!tail.is_empty()).then_some(Chunk::Bytes(tail))
    }

    /// Reads ahead while the client is busy with a piece.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, stream: &mut BodyStream) {
        if !self.is_slow(cx) {
            return;
        }
        // As long as this turn may do more; reading and keeping count as work.
        while turn::poll_go_on(cx).is_ready() {
            if self.spool.is_writing() {
                let _ = self.poll_written(cx, &stream.attempt);
            }
            let is_ended = self.is_over || self.broken.is_some();
            if is_ended && self.beyond == 0 {
                return self.spool.close();
            }
            let room = self.room();
            if is_ended || room < self.room_min {
                if self.spool.is_writing() || !self.write(&stream.attempt) {
                    return stream.poll_upload(cx);
                }
                continue;
            }
            match stream.poll_piece_of(cx, room) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(piece))) => self.keep(&piece),
                Poll::Ready(Some(Err(error))) => self.broken = Some(error),
                Poll::Ready(None) => self.is_over = true,
            }
        }
    }

    fn is_slow(&mut self, cx: &mut Context<'_>) -> bool {
        if self.client == ClientPace::KeepsUp {
            self.timer.arm(PATIENCE);
            self.client = ClientPace::IsWaitedFor;
        }
        if self.client == ClientPace::IsWaitedFor && self.timer.poll_expired(cx).is_ready() {
            self.timer.disarm();
            self.client = ClientPace::IsSlow;
        }
        self.client == ClientPace::IsSlow
    }

    fn room(&self) -> usize {
        let kept = self.unsaved.len() + self.tail.len();
        let more = match self.spool.is_writing() {
            true => BEYOND_MAX.min(self.beyond + beyond_of_loop().saturating_sub(BEYOND.get())),
            false => 0,
        };
        (self.memory + more).saturating_sub(kept)
    }

    /// Copies: the data may be in a larger buffer.
    fn keep(&mut self, piece: &[u8]) {
        let len = self.tail.len() + piece.len();
        if len > self.tail.capacity() {
            let most = match len <= self.memory {
                true => self.memory,
                false => self.memory + BEYOND_MAX,
            };
            let wanted = len.max(self.tail.capacity() * 2).min(most.max(len));
            self.tail.reserve_exact(wanted - self.tail.len());
        }
        self.tail.extend_from_slice(piece);
        turn::spend(piece.len());
        self.count();
    }

    /// Without the room that it has left: it may live for long.
    fn take_tail(&mut self) -> Bytes {
        let mut tail = std::mem::take(&mut self.tail);
        tail.shrink_to_fit();
        tail.into()
    }

    fn count(&mut self) {
        self.charge.set(self.unsaved.len() + self.tail.capacity());
        let kept = self.unsaved.len() + self.tail.len();
        let beyond = kept.saturating_sub(self.memory);
        BEYOND.set(BEYOND.get() + beyond - self.beyond);
        self.beyond = beyond;
    }

    /// Starts writing the next part; false: that is not possible.
    fn write(&mut self, trying: &BodyAttempt) -> bool {
        if self.unsaved.is_empty() {
            self.unsaved = self.take_tail();
        }
        self.spool.begin(&self.unsaved, trying)
    }

    fn poll_written(&mut self, cx: &mut Context<'_>, trying: &BodyAttempt) -> Poll<()> {
        self.spool.poll_written(cx, trying).map(|written| {
            self.saved.end = self.spool.len();
            if std::mem::take(&mut self.is_part_given) {
                self.saved.start = self.saved.end;
            } else {
                drop(self.unsaved.split_to(written));
            }
            self.count();
        })
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        BEYOND.set(BEYOND.get() - self.beyond);
    }
}
