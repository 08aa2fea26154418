//! What a connection sends: heads, DATA, trailers, resets, room for the peer, and its end (RFC 9113, 5.2, 6.8 and 8.1).

use super::{GOAWAY_PING, GoAway, Phase, Role, Session};
use crate::http2::ErrorCode;
use crate::http2::flow::SendWindow;
use crate::http2::frame::{self, FrameHeader, FrameType, HEADER_LEN, MAX_31, PAYLOAD_MAX, flags};
use crate::http2::streams::{Closed, Side, Sink, Stream, StreamKey};

/// The stream is closed, or its head or end was sent already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream is closed")]
pub struct StreamGone;

impl Session {
    /// Sends the final head of a response, whose fields `write` appends with [`crate::http2::hpack::encode`]; whether it
    /// is all.
    ///
    /// # Errors
    /// The stream is closed, or its head was sent.
    pub fn respond(
        &mut self,
        key: StreamKey,
        is_end: bool,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), StreamGone> {
        let stream = self.sending(key, Side::Head)?;
        stream.local = Side::Body;
        self.head_frames(key.id(), is_end, write);
        if is_end {
            self.local_ended(key);
        }
        Ok(())
    }

    /// Sends an interim head (1xx).
    ///
    /// # Errors
    /// The stream is closed, or its final head was sent.
    pub fn interim(
        &mut self,
        key: StreamKey,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), StreamGone> {
        self.sending(key, Side::Head)?;
        self.head_frames(key.id(), false, write);
        Ok(())
    }

    /// Sends trailers, which end the stream.
    ///
    /// # Errors
    /// The stream is closed, or has no head yet.
    pub fn trailers(
        &mut self,
        key: StreamKey,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), StreamGone> {
        self.sending(key, Side::Body)?;
        self.head_frames(key.id(), true, write);
        self.local_ended(key);
        Ok(())
    }

    /// The stream of a key, if our side has come to this.
    fn sending(&mut self, key: StreamKey, side: Side) -> Result<&mut Stream, StreamGone> {
        let stream = self.streams.get(key);
        stream
            .filter(|stream| stream.local == side)
            .ok_or(StreamGone)
    }

    /// Writes a header block, in CONTINUATION frames where it is longer than the peer's frames may be.
    pub(super) fn head_frames(&mut self, id: u32, is_end: bool, write: impl FnOnce(&mut Vec<u8>)) {
        let payload_max = self.peer.frame_size as usize;
        let out = self.output.bytes();
        let at = out.len();
        let end_flag = if is_end { flags::END_STREAM } else { 0 };
        let mut header = FrameHeader {
            len: 0,
            kind: FrameType::HEADERS,
            flags: end_flag,
            stream: id,
        };
        frame::write_header(out, &header);
        self.encoder.begin(out);
        write(out);
        let len = out.len() - at - HEADER_LEN;
        if len <= payload_max {
            frame::patch_header(out, at, len, end_flag | flags::END_HEADERS);
        } else {
            let rest = out.split_off(at + HEADER_LEN + payload_max);
            frame::patch_header(out, at, payload_max, end_flag);
            header.kind = FrameType::CONTINUATION;
            let last = (rest.len() - 1) / payload_max;
            for (count, fragment) in rest.chunks(payload_max).enumerate() {
                header.len = fragment.len();
                header.flags = if count == last { flags::END_HEADERS } else { 0 };
                frame::write_header(out, &header);
                out.extend_from_slice(fragment);
            }
        }
        self.note_sent(len);
    }

    /// Counts payload that was written, and its frame, for the flood formula; what we write cannot break it.
    fn note_sent(&mut self, len: usize) {
        self.counters.payload(len);
    }

    /// Number of bytes of DATA that may be sent on a stream now: by its window, that of the connection, and the room in
    /// the output.
    pub fn sendable(&mut self, key: StreamKey) -> usize {
        let room = self.output.room().min(self.send.available());
        let stream = self.streams.get(key);
        stream.map_or(0, |stream| match stream.local {
            Side::Body => stream.send.available().min(room),
            Side::Head | Side::Ended => 0,
        })
    }

    /// Number of bytes of DATA that the peer takes on the connection now, on all streams together.
    pub fn send_window(&self) -> usize {
        self.send.available()
    }

    /// Whether a stream could send more if the window of the connection were open.
    pub fn waits_for_connection(&mut self, key: StreamKey) -> bool {
        let stream = self.streams.get(key);
        self.send.available() == 0
            && stream.is_some_and(|one| one.local == Side::Body && one.send.available() > 0)
    }

    /// Takes DATA up to `bytes` of unsent output (at least 16 KiB, at most [`super::OUTPUT_MAX`]): what is in the output goes
    /// out before what is more urgent.
    pub fn limit_output(&mut self, bytes: usize) {
        self.output.limit(bytes);
    }

    /// Sends data as far as it may be sent; returns how many bytes were taken. With `is_end` the stream ends behind the
    /// last byte; an empty end is always taken.
    ///
    /// # Errors
    /// The stream is closed, or has no head yet.
    pub fn data(&mut self, key: StreamKey, data: &[u8], is_end: bool) -> Result<usize, StreamGone> {
        self.data_in_frames(key, data, is_end, PAYLOAD_MAX)
    }

    /// As [`Session::data`], in frames of at most `frame_max` bytes (at least 1, at most [`PAYLOAD_MAX`]).
    ///
    /// # Errors
    /// As [`Session::data`].
    pub fn data_in_frames(
        &mut self,
        key: StreamKey,
        data: &[u8],
        is_end: bool,
        frame_max: usize,
    ) -> Result<usize, StreamGone> {
        self.sending(key, Side::Body)?;
        let taken = self.sendable(key).min(data.len());
        let is_end = is_end && taken == data.len();
        if taken == 0 && !is_end {
            return Ok(0);
        }
        let frame_max = frame_max.clamp(1, PAYLOAD_MAX);
        let frames = taken.div_ceil(frame_max).max(1);
        for count in 0..frames {
            let start = count * frame_max;
            let piece = &data[start..taken.min(start + frame_max)];
            let at = self.begin_data(key);
            self.output.bytes().extend_from_slice(piece);
            self.finish_data(key, at, is_end && count + 1 == frames);
        }
        Ok(taken)
    }

    /// Sends one DATA frame, whose payload `fill` appends behind the frame's header: at most as many bytes as it is
    /// told; it returns whether they are the last ones. Returns the number of bytes, 0 if none may be sent now.
    ///
    /// # Errors
    /// The stream is closed, or has no head yet.
    pub fn fill_data(
        &mut self,
        key: StreamKey,
        fill: impl FnOnce(&mut Vec<u8>, usize) -> bool,
    ) -> Result<usize, StreamGone> {
        self.sending(key, Side::Body)?;
        let max = self.sendable(key).min(PAYLOAD_MAX);
        if max == 0 {
            return Ok(0);
        }
        let at = self.begin_data(key);
        let out = self.output.bytes();
        let mut is_end = fill(out, max);
        let end = at + HEADER_LEN + max;
        if out.len() > end {
            debug_assert!(false, "more than asked for");
            out.truncate(end);
            is_end = false;
        }
        let len = out.len() - at - HEADER_LEN;
        if len == 0 && !is_end {
            out.truncate(at);
            return Ok(0);
        }
        self.finish_data(key, at, is_end);
        Ok(len)
    }

    /// Reserves the header of a DATA frame; returns its place.
    fn begin_data(&mut self, key: StreamKey) -> usize {
        let out = self.output.bytes();
        let at = out.len();
        let header = FrameHeader {
            len: 0,
            kind: FrameType::DATA,
            flags: 0,
            stream: key.id(),
        };
        frame::write_header(out, &header);
        at
    }

    fn finish_data(&mut self, key: StreamKey, at: usize, is_end: bool) {
        let out = self.output.bytes();
        let len = out.len() - at - HEADER_LEN;
        let flags = if is_end { flags::END_STREAM } else { 0 };
        frame::patch_header(out, at, len, flags);
        self.send.spend(len);
        self.counters.sent_data(len);
        self.moved_ms = self.now_ms;
        if let Some(stream) = self.streams.get(key) {
            stream.send.spend(len);
        }
        if is_end {
            self.local_ended(key);
        }
    }

    /// We have sent END_STREAM.
    pub(super) fn local_ended(&mut self, key: StreamKey) {
        let is_server = self.role == Role::Server;
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        stream.local = Side::Ended;
        match (stream.reset_after, stream.remote) {
            (None, Side::Ended) => self.close(key, Closed::ByPeer),
            (None, _) if !is_server => self.set_ready(key, false),
            // The request was malformed, or the rest of it is not wanted.
            (code, _) => {
                self.close(key, Closed::ByUs);
                self.note_unended(key.id(), code.unwrap_or(ErrorCode::NO_ERROR));
            }
        }
    }

    /// Resets a stream; nothing if it is closed. One whose request was malformed is reset for that, whatever the code.
    pub fn reset(&mut self, key: StreamKey, code: ErrorCode) {
        if let Some(stream) = self.streams.get(key) {
            let code = stream.reset_after.unwrap_or(code);
            frame::write_reset(self.output.bytes(), key.id(), code);
            self.close(key, Closed::ByUs);
        }
    }

    /// Notes that the consumer has taken `bytes` of a stream's data: the peer gets as much room again.
    pub fn consume(&mut self, key: StreamKey, bytes: usize) {
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        let bytes = bytes.min(stream.recv.held());
        let increment = stream.recv.release(bytes);
        let is_open = stream.remote != Side::Ended;
        if let Some(increment) = increment.filter(|_| is_open) {
            frame::write_window_update(self.output.bytes(), key.id(), increment);
        }
        self.release(bytes);
    }

    /// The window of a stream, in bytes, as far as it is read.
    pub fn window(&mut self, key: StreamKey) -> u32 {
        let stream = self.streams.get(key);
        stream.map_or(0, |stream| stream.recv.target())
    }

    /// Widens the window of a stream to `window` bytes, for an upload that is taken as fast as it comes; returns whether it
    /// was narrower.
    pub fn widen(&mut self, key: StreamKey, window: u32) -> bool {
        let window = window.min(1 << 24);
        let Some(stream) = self.streams.get(key) else {
            return false;
        };
        if stream.remote == Side::Ended || window <= stream.recv.target() {
            return false;
        }
        let more = window - stream.recv.target();
        let increment = stream.recv.resize(window);
        let whole = self.recv.target().saturating_add(more).min(MAX_31);
        let of_connection = self.recv.resize(whole);
        for (id, increment) in [(key.id(), increment), (0, of_connection)] {
            if let Some(increment) = increment {
                frame::write_window_update(self.output.bytes(), id, increment);
            }
        }
        true
    }

    /// Drops the rest of what the peer sends on a stream.
    pub fn discard(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        stream.sink = Sink::Nobody;
        let held = stream.recv.held();
        self.consume(key, held);
    }

    /// Notes whether a stream has data to send.
    pub fn set_ready(&mut self, key: StreamKey, is_ready: bool) {
        if self.streams.get(key).is_some()
            && let Some(scheduler) = &mut self.scheduler
        {
            scheduler.set_ready(key.slot(), is_ready);
        }
    }

    /// The stream that is to send next: by priority, of those that are ready and have an open window; `None` also while
    /// the output is full.
    pub fn next_sender(&mut self) -> Option<StreamKey> {
        if self.output.room() == 0 || self.send.available() == 0 {
            return None;
        }
        let streams = &self.streams;
        let stream_at = |slot| streams.at(slot);
        let may_send = |slot| {
            stream_at(slot)
                .is_some_and(|stream| stream.local == Side::Body && stream.send.available() > 0)
        };
        let age = |slot| stream_at(slot).map_or(u32::MAX, |stream| stream.id);
        // By RFC 9218 the oldest response goes before all others for as long as it lasts: right for the parts of one page,
        // whose browser gives priorities. Requests of clients that give none (proxies, gRPC) have nothing to do with each other.
        let all_share = !self.has_priorities;
        let slot = self.scheduler.as_mut()?.next(all_share, may_send, age)?;
        self.streams.key_at(slot)
    }

    /// Whether the peer is what has kept a stream from sending for `timeout_ms` (`send_timeout`): its window is closed, or
    /// that of the connection was for so long. A stream that others go before is not stalled.
    pub fn is_stalled(&mut self, key: StreamKey, now_ms: u64, timeout_ms: u64) -> bool {
        let is_closed = |window: SendWindow| window.available() == 0;
        let stream = self.streams.get(key);
        if stream.is_some_and(|stream| is_closed(stream.send)) {
            return true;
        }
        is_closed(self.send) && now_ms.saturating_sub(self.moved_ms) >= timeout_ms
    }

    /// Whether a stream cannot send as long as others are ready to: the peer's windows are open.
    pub fn waits_for_others(&mut self, key: StreamKey) -> bool {
        let scheduler = self.scheduler.as_ref();
        scheduler.is_some_and(|scheduler| scheduler.is_another_ready(key.slot()))
            && !self.is_stalled(key, 0, 0)
    }

    /// Begins to end the connection (RFC 9113, 6.8): a server first announces it, takes what is on its way, and names
    /// the last stream once the peer has answered; [`Session::finish_goaway`] does not wait for that.
    pub fn goaway(&mut self) {
        if self.goaway != GoAway::Unsent {
            return;
        }
        if self.role == Role::Client {
            return self.finish_goaway();
        }
        self.goaway = GoAway::Announced;
        frame::write_goaway(self.output.bytes(), MAX_31, ErrorCode::NO_ERROR);
        frame::write_ping(self.output.bytes(), GOAWAY_PING, false);
    }

    /// Takes no more streams; those that live go on.
    pub fn finish_goaway(&mut self) {
        // Of a connection that is broken, the client was told the reason.
        if matches!(self.goaway, GoAway::Final(_)) || self.phase == Phase::Closed {
            return;
        }
        self.goaway = GoAway::Final(self.last_peer);
        frame::write_goaway(self.output.bytes(), self.last_peer, ErrorCode::NO_ERROR);
    }

    /// Sends PING; the answer is [`super::Event::Pong`].
    pub fn ping(&mut self, opaque: [u8; 8]) {
        self.pings = self.pings.saturating_add(1);
        frame::write_ping(self.output.bytes(), opaque, false);
    }
}
