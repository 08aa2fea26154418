//! Takes frames: what each of them does to the connection and its streams (RFC 9113, 5 and 6).

use super::{
    DataLeft, Event, GOAWAY_PING, GoAway, LongFrame, PREFACE, Phase, ResetCause, Role, Session,
};
use crate::http1::request_parser::Choose;
use crate::http2::frame::{self, Frame, FrameHeader, FrameType, HEADER_LEN, PAYLOAD_MAX, flags};
use crate::http2::priority::Priority;
use crate::http2::settings;
use crate::http2::streams::{Closed, Side, Sink, StreamKey};
use crate::http2::{ErrorCode, Fault, Reason};

/// An event, if there is one.
pub(super) type Outcome<'a> = Result<Option<Event<'a>>, Fault>;

impl Session {
    /// Takes one frame, or a piece of DATA; 0 bytes and no event: more are needed.
    pub(super) fn step<'a>(&mut self, input: &'a [u8], choose: Choose<'_>) -> (usize, Outcome<'a>) {
        if let Phase::Preface(at) = self.phase {
            return self.preface(at, input);
        }
        if let Some(left) = self.data {
            return self.data_piece(left, input);
        }
        if let Some(long) = self.long.take() {
            return self.long_piece(long, input, choose);
        }
        let Some((head, rest)) = input.split_first_chunk::<HEADER_LEN>() else {
            return (0, Ok(None));
        };
        let header = FrameHeader::parse(head);
        let checked = header.check(self.frame_max);
        if let Err(fault @ Fault::Connection(_)) = checked {
            return (HEADER_LEN, Err(fault));
        }
        if let Err(reason) = self.expects(&header) {
            return (HEADER_LEN, Err(Fault::Connection(reason)));
        }
        if header.kind == FrameType::DATA {
            return self.data_begins(&header, rest.first().copied());
        }
        if header.len > PAYLOAD_MAX {
            return (HEADER_LEN, self.long_begins(header));
        }
        let Some(payload) = rest.get(..header.len) else {
            return (0, Ok(None));
        };
        let used = HEADER_LEN + header.len;
        if let Err(reason) = self.counters.bytes(used) {
            return (used, Err(Fault::Connection(reason)));
        }
        let frame = checked.and_then(|()| Frame::parse(&header, payload));
        let outcome = match frame {
            // There is no stream to reset.
            Err(Fault::Stream(id, reason)) if self.is_idle(id) => Err(Fault::Connection(reason)),
            frame => frame.and_then(|frame| self.take(&header, frame, choose)),
        };
        (used, outcome)
    }

    /// Takes the header of a frame that is longer than the caller may hold: of a header block, or of no known type.
    fn long_begins<'a>(&mut self, header: FrameHeader) -> Outcome<'a> {
        let counted = self.counters.bytes(HEADER_LEN + header.len);
        counted.map_err(Fault::Connection)?;
        if !matches!(header.kind, FrameType::HEADERS | FrameType::CONTINUATION) {
            self.data = Some(DataLeft {
                key: None,
                data: header.len,
                padding: 0,
                is_end: false,
            });
            return self.glitch();
        }
        if header.len > self.block_bytes_max() + frame::BESIDE_FRAGMENT_MAX {
            return Err(Fault::Connection(Reason::BlockTooLarge));
        }
        self.long = Some(Box::new(LongFrame {
            header,
            payload: Vec::new(),
        }));
        Ok(None)
    }

    /// Takes a piece of a long frame.
    fn long_piece<'a>(
        &mut self,
        mut long: Box<LongFrame>,
        input: &[u8],
        choose: Choose<'_>,
    ) -> (usize, Outcome<'a>) {
        let taken = (long.header.len - long.payload.len()).min(input.len());
        long.payload.extend_from_slice(&input[..taken]);
        if long.payload.len() < long.header.len {
            self.long = Some(long);
            return (taken, Ok(None));
        }
        let frame = Frame::parse(&long.header, &long.payload);
        let outcome = frame.and_then(|frame| match frame {
            Frame::Headers(fragment) => self.headers(&long.header, fragment, choose),
            Frame::Continuation(fragment) => self.continuation(&long.header, fragment, choose),
            // No other is gathered.
            _ => Ok(None),
        });
        (taken, outcome)
    }

    fn preface<'a>(&mut self, at: usize, input: &'a [u8]) -> (usize, Outcome<'a>) {
        let wanted = &PREFACE[at..];
        let len = wanted.len().min(input.len());
        if input[..len] != wanted[..len] {
            return (len, Err(Fault::Connection(Reason::Preface)));
        }
        self.phase = match at + len {
            24 => Phase::Open,
            at => Phase::Preface(at),
        };
        (len, Ok(None))
    }

    /// Whether a frame may come now (RFC 9113, 3.4 and 6.10).
    fn expects(&mut self, header: &FrameHeader) -> Result<(), Reason> {
        if self.phase == Phase::Settings {
            if header.kind != FrameType::SETTINGS || header.has(flags::ACK) {
                return Err(Reason::FirstFrame);
            }
            self.phase = Phase::Open;
        }
        let is_continuation = header.kind == FrameType::CONTINUATION;
        match &self.block {
            None if is_continuation => Err(Reason::Continuation),
            Some(block) if !is_continuation || block.stream != header.stream => {
                Err(Reason::BlockInterrupted)
            }
            _ => Ok(()),
        }
    }

    fn take<'a>(
        &mut self,
        header: &FrameHeader,
        frame: Frame<'a>,
        choose: Choose<'_>,
    ) -> Outcome<'a> {
        match frame {
            Frame::Headers(fragment) => self.headers(header, fragment, choose),
            Frame::Continuation(fragment) => self.continuation(header, fragment, choose),
            Frame::RstStream(code) => self.reset_by_peer(header.stream, code),
            Frame::Settings(payload) => self.settings(payload),
            Frame::SettingsAck => self.settings_ack(),
            Frame::Ping(opaque) => {
                self.has_pinged = true;
                frame::write_ping(self.output.bytes(), opaque, true);
                self.answered().map_err(Fault::Connection)?;
                Ok(None)
            }
            Frame::Pong(GOAWAY_PING) if self.goaway == GoAway::Announced => {
                self.finish_goaway();
                Ok(None)
            }
            Frame::Pong(opaque) if self.pings > 0 => {
                self.pings -= 1;
                Ok(Some(Event::Pong(opaque)))
            }
            Frame::Pong(_) => self.glitch(),
            Frame::GoAway(last, code) => {
                if self.peer_goaway.is_some() {
                    self.glitch()?;
                }
                let last = self.peer_goaway.map_or(last, |before| before.min(last));
                self.peer_goaway = Some(last);
                Ok(Some(Event::GoAway(last, code)))
            }
            Frame::WindowUpdate(increment) => self.window_update(header.stream, increment),
            Frame::PriorityUpdate(stream, value) => self.priority_update(stream, value),
            Frame::PushPromise => Err(Fault::Connection(Reason::Push)),
            Frame::Priority | Frame::Unknown if header.stream > 0 => self.stream_glitch(),
            Frame::Priority | Frame::Unknown => self.glitch(),
            // DATA does not come here.
            Frame::Data(_) => Ok(None),
        }
    }

    /// Counts a frame of no use.
    pub(super) fn glitch<'a>(&mut self) -> Outcome<'a> {
        let counted = self.counters.glitch(self.now_ms);
        counted.map(|()| None).map_err(Fault::Connection)
    }

    /// Counts a frame of no use on a stream. A server's is not counted: it is a trait of its responses, or one has crossed
    /// our reset of its stream, and the connection carries those to other clients, too. `Counters::bytes` limits them.
    pub(super) fn stream_glitch<'a>(&mut self) -> Outcome<'a> {
        match self.role {
            Role::Server => self.glitch(),
            Role::Client => Ok(None),
        }
    }

    /// Whether a stream was never opened.
    pub(super) fn is_idle(&self, id: u32) -> bool {
        match (id % 2 == 1, self.role) {
            (true, Role::Server) => id > self.last_peer,
            (true, Role::Client) => id >= self.next_own,
            // Nothing is pushed.
            (false, _) => true,
        }
    }

    fn reset_by_peer<'a>(&mut self, id: u32, code: ErrorCode) -> Outcome<'a> {
        let Some(key) = self.streams.find(id) else {
            return match self.is_idle(id) {
                true => Err(Fault::Connection(Reason::IdleStream)),
                false if self.take_unended(id) => Ok(None),
                // A server may send it behind its response (RFC 9113, 8.1).
                false => self.stream_glitch(),
            };
        };
        let is_answered = self
            .streams
            .get(key)
            .is_none_or(|stream| stream.local != Side::Head);
        self.close(key, Closed::ByPeer);
        if self.role == Role::Server && !is_answered {
            let counted = self.counters.reset(self.now_ms);
            counted.map_err(Fault::Connection)?;
        }
        Ok(Some(Event::Reset(key, ResetCause::Peer(code))))
    }

    /// RFC 9113, 6.5.3 and 6.9.2.
    fn settings<'a>(&mut self, payload: &[u8]) -> Outcome<'a> {
        let before = self.peer.initial_window;
        let has_table_size = self
            .peer
            .take(payload, self.role == Role::Server)
            .map_err(Fault::Connection)?;
        if has_table_size {
            self.encoder.note_table_size();
        }
        let change = i64::from(self.peer.initial_window) - i64::from(before);
        if change != 0 {
            let mut streams = self.streams.iter_mut();
            streams
                .try_for_each(|stream| stream.send.change(change))
                .map_err(Fault::Connection)?;
        }
        settings::write_ack(self.output.bytes());
        self.answered().map_err(Fault::Connection)?;
        self.glitch()
    }

    /// Our settings hold now: the peer's streams have the window that we want.
    fn settings_ack<'a>(&mut self) -> Outcome<'a> {
        // Settings are sent once.
        if std::mem::replace(&mut self.is_acknowledged, true) {
            return self.glitch();
        }
        let change = i64::from(self.config.stream_window) - i64::from(self.window_known);
        if change == 0 {
            return Ok(None);
        }
        self.window_known = self.config.stream_window;
        for stream in self.streams.iter_mut() {
            // What was widened before the change is narrower than it is to be now.
            let increment = stream.recv.change(change);
            if let Some(increment) = increment.filter(|_| stream.remote != Side::Ended) {
                frame::write_window_update(self.output.bytes(), stream.id, increment);
            }
        }
        Ok(None)
    }

    fn window_update<'a>(&mut self, id: u32, increment: u32) -> Outcome<'a> {
        self.counters.update().map_err(Fault::Connection)?;
        if id == 0 {
            self.send.widen(increment).map_err(Fault::Connection)?;
            return Ok(None);
        }
        if self.is_idle(id) {
            return Err(Fault::Connection(Reason::IdleStream));
        }
        let found = self.streams.find(id);
        match found.and_then(|key| self.streams.get(key)) {
            Some(stream) => match stream.send.widen(increment) {
                Ok(()) => Ok(None),
                Err(reason) => Err(Fault::Stream(id, reason)),
            },
            None => Ok(None),
        }
    }

    /// RFC 9218, 7.1.
    fn priority_update<'a>(&mut self, id: u32, value: &[u8]) -> Outcome<'a> {
        if self.role == Role::Client || id.is_multiple_of(2) {
            return Err(Fault::Connection(Reason::StreamIdentifier));
        }
        let priority = Priority::parse(value);
        self.has_priorities = true;
        if let Some(key) = self.streams.find(id) {
            if let Some(scheduler) = &mut self.scheduler {
                scheduler.change(key.slot(), priority);
            }
            return Ok(None);
        }
        if self.is_idle(id) {
            self.priorities_ahead.retain(|(ahead, _)| *ahead != id);
            if self.priorities_ahead.len() < super::PRIORITIES_AHEAD_MAX {
                self.priorities_ahead.push((id, priority));
                return Ok(None);
            }
        }
        self.glitch()
    }

    /// Takes the header of a DATA frame, and the length of its padding.
    fn data_begins<'a>(&mut self, header: &FrameHeader, first: Option<u8>) -> (usize, Outcome<'a>) {
        if header.has(flags::PADDED) && header.len > 0 && first.is_none() {
            return (0, Ok(None));
        }
        let (before, padding) = match header.padding(first) {
            Ok(found) => found,
            Err(fault) => return (HEADER_LEN, Err(fault)),
        };
        let mut left = DataLeft {
            key: None,
            data: header.len - before - padding,
            padding,
            is_end: header.has(flags::END_STREAM),
        };
        let outcome = self.admit_data(header, &mut left);
        let outcome = match (left.key, left.data) {
            (Some(key), 0) => self.empty_data(key, left.is_end, outcome),
            _ => outcome,
        };
        if left.data == 0 {
            left.key = None;
        }
        self.data = (left.data + left.padding > 0).then_some(left);
        (HEADER_LEN + before, outcome)
    }

    /// A DATA frame without data, which may end the stream.
    fn empty_data<'a>(
        &mut self,
        key: StreamKey,
        is_end: bool,
        outcome: Outcome<'a>,
    ) -> Outcome<'a> {
        if !is_end {
            let glitch = self.stream_glitch()?;
            return outcome.map(|event| event.or(glitch));
        }
        // A stream at fault is still to be reset, and its caller told.
        let event = outcome?;
        let sink = self.streams.get(key).map(|stream| stream.sink);
        self.remote_ended(key);
        match (event, sink) {
            (None, Some(Sink::Caller)) => Ok(Some(Event::Data(key, &[], true))),
            (event, _) => Ok(event),
        }
    }

    /// Checks a DATA frame against windows and states (RFC 9113, 5.1 and 6.1); `left.key` is set if it is taken.
    fn admit_data<'a>(&mut self, header: &FrameHeader, left: &mut DataLeft) -> Outcome<'a> {
        let len = header.len;
        self.recv.receive(len).map_err(Fault::Connection)?;
        self.counters.payload(left.data);
        let counted = self.counters.bytes(HEADER_LEN + len);
        counted.map_err(Fault::Connection)?;
        let Some(key) = self.streams.find(header.stream) else {
            self.release(len);
            if header.has(flags::END_STREAM) {
                self.take_unended(header.stream);
            }
            return self.late_data(header);
        };
        let Some(stream) = self.streams.get(key) else {
            return Ok(None);
        };
        let fault = match stream.remote {
            Side::Ended => Err(Reason::ClosedStream),
            Side::Head => Err(Reason::UnexpectedData),
            // nginx gives a body room as soon as it sees its request: what came together with that may be more than the
            // client was allowed, and is no more than one read.
            Side::Body if self.role == Role::Server && stream.read == self.reads => {
                stream.recv.receive_any(len);
                Ok(())
            }
            Side::Body => stream.recv.receive(len),
        };
        if let Err(reason) = fault {
            self.release(len);
            return Err(Fault::Stream(header.stream, reason));
        }
        left.key = Some(key);
        self.consume(key, len - left.data);
        self.check_length(key, left.data as u64, left.is_end)
    }

    /// DATA on a stream that is not live. Without data and end it is of no use there, either.
    fn late_data<'a>(&mut self, header: &FrameHeader) -> Outcome<'a> {
        let id = header.stream;
        if self.is_idle(id) {
            return Err(Fault::Connection(Reason::IdleStream));
        }
        match self.streams.closed(id) {
            Some(Closed::ByPeer) => Err(Fault::Stream(id, Reason::ClosedStream)),
            // It was on its way when we reset the stream.
            Some(Closed::ByUs) | None if header.len == 0 && !header.has(flags::END_STREAM) => {
                self.stream_glitch()
            }
            Some(Closed::ByUs) | None => Ok(None),
        }
    }

    /// Counts data against `Content-Length` (RFC 9113, 8.1.1).
    pub(super) fn check_length<'a>(
        &mut self,
        key: StreamKey,
        data: u64,
        is_end: bool,
    ) -> Outcome<'a> {
        let Some(stream) = self.streams.get(key) else {
            return Ok(None);
        };
        let Some(left) = stream.length_left else {
            return Ok(None);
        };
        match left.checked_sub(data) {
            Some(left) if left == 0 || !is_end => {
                stream.length_left = Some(left);
                Ok(None)
            }
            _ => self.malformed(key, Reason::LengthDiffers),
        }
    }

    /// The rest of a message is malformed. A server may answer before it resets the stream (RFC 9113, 8.1.1).
    pub(super) fn malformed<'a>(&mut self, key: StreamKey, reason: Reason) -> Outcome<'a> {
        let role = self.role;
        let Some(stream) = self.streams.get(key) else {
            return Ok(None);
        };
        if stream.sink == Sink::Nobody {
            return Ok(None);
        }
        if role == Role::Client || stream.local != Side::Head {
            return Err(Fault::Stream(key.id(), reason));
        }
        stream.sink = Sink::Nobody;
        stream.length_left = None;
        stream.reset_after = Some(reason.code());
        self.counters.malformed(self.now_ms);
        Ok(Some(Event::Malformed(key, reason)))
    }

    /// Takes a piece of the payload of DATA.
    fn data_piece<'a>(&mut self, left: DataLeft, input: &'a [u8]) -> (usize, Outcome<'a>) {
        let taken = left.data.min(input.len());
        let sink = left.key.and_then(|key| self.streams.get(key));
        let Some((key, sink)) = left.key.zip(sink.map(|stream| stream.sink)) else {
            return self.data_dropped(left, input.len());
        };
        if taken == 0 {
            return (0, Ok(None));
        }
        let is_last = taken == left.data;
        self.data = match (is_last, left.padding) {
            (true, 0) => None,
            (true, _) => Some(DataLeft {
                key: None,
                data: 0,
                ..left
            }),
            (false, _) => Some(DataLeft {
                data: left.data - taken,
                ..left
            }),
        };
        let is_end = is_last && left.is_end;
        if is_end {
            self.remote_ended(key);
        }
        if sink == Sink::Nobody {
            self.consume(key, taken);
            return (taken, Ok(None));
        }
        (taken, Ok(Some(Event::Data(key, &input[..taken], is_end))))
    }

    /// Drops payload, and padding.
    fn data_dropped<'a>(&mut self, left: DataLeft, available: usize) -> (usize, Outcome<'a>) {
        let all = left.data + left.padding;
        let taken = all.min(available);
        let rest = all - taken;
        self.data = (rest > 0).then_some(DataLeft {
            key: None,
            data: rest,
            padding: 0,
            is_end: false,
        });
        (taken, Ok(None))
    }

    /// The peer has sent END_STREAM.
    pub(super) fn remote_ended(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        stream.remote = Side::Ended;
        if stream.local == Side::Ended {
            self.close(key, Closed::ByPeer);
        }
    }
}
