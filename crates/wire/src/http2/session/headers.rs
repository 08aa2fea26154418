//! Header blocks: requests, responses and trailers (RFC 9113, 4.3, 6.2, 6.10 and 8.1).
//!
//! Invariant: every block is decoded, also those of streams that are refused or closed, so that the tables of both ends
//! stay the same.

use disk::memory::MemoryLevel;
use disk::memory::level::level;
use message::{Field, Framing, Method, RequestHead, ResponseFraming};

use super::receive::Outcome;
use super::{Block, Event, GoAway, Role, Session};
use crate::http1::request_parser::Choose;
use crate::http2::flow::{RecvWindow, SendWindow};
use crate::http2::frame::{self, FrameHeader, flags};
use crate::http2::hpack::{BlockLimits, HpackFault};
use crate::http2::limits::{
    CONTINUATIONS_MAX, DROPPED_BLOCK_MAX, HEADS_MAX, HEADS_MIN, REQUEST_HEAD_BYTES,
};
use crate::http2::priority::Priority;
use crate::http2::request_head::{self, DecodedRequest, RequestContext};
use crate::http2::response_head;
use crate::http2::streams::{Closed, Side, Sink, Stream, StreamKey};
use crate::http2::{Fault, Reason};

fn broken(fault: HpackFault) -> Fault {
    Fault::Connection(fault.reason())
}

impl Session {
    pub(super) fn headers<'a>(
        &mut self,
        header: &FrameHeader,
        fragment: &[u8],
        choose: Choose<'_>,
    ) -> Outcome<'a> {
        let is_end = header.has(flags::END_STREAM);
        if header.has(flags::END_HEADERS) {
            return self.block(header.stream, is_end, fragment, choose);
        }
        self.block = Some(Box::new(Block {
            stream: header.stream,
            is_end,
            bytes: fragment.to_vec(),
            continuations: 0,
        }));
        Ok(None)
    }

    pub(super) fn continuation<'a>(
        &mut self,
        header: &FrameHeader,
        fragment: &[u8],
        choose: Choose<'_>,
    ) -> Outcome<'a> {
        let Some(mut block) = self.block.take() else {
            return Err(Fault::Connection(Reason::Continuation));
        };
        block.continuations += 1;
        if block.continuations > CONTINUATIONS_MAX {
            return Err(Fault::Connection(Reason::TooManyContinuations));
        }
        if block.bytes.len() + fragment.len() > self.block_bytes_max() {
            return Err(Fault::Connection(Reason::BlockTooLarge));
        }
        block.bytes.extend_from_slice(fragment);
        if header.has(flags::END_HEADERS) {
            return self.block(block.stream, block.is_end, &block.bytes, choose);
        }
        self.block = Some(block);
        Ok(None)
    }

    pub(super) fn block_limits(&self) -> BlockLimits {
        BlockLimits {
            dropped_max: match self.role {
                Role::Server => 0,
                Role::Client => DROPPED_BLOCK_MAX,
            },
            ..BlockLimits::of(&self.config.limits)
        }
    }

    /// Maximum number of bytes of a block as it was sent.
    pub(super) fn block_bytes_max(&self) -> usize {
        let limits = self.block_limits();
        limits.block_max.saturating_add(limits.dropped_max)
    }

    /// Bytes of memory of live streams' heads from which on no stream is opened.
    fn heads_max(&self) -> usize {
        let count = match level() >= MemoryLevel::Windows {
            true => HEADS_MIN,
            false => HEADS_MAX,
        };
        count.saturating_mul(self.block_limits().block_max)
    }

    /// Takes a whole block.
    fn block<'a>(
        &mut self,
        id: u32,
        is_end: bool,
        block: &[u8],
        choose: Choose<'_>,
    ) -> Outcome<'a> {
        self.counters.payload(block.len());
        if let Some(key) = self.streams.find(id) {
            return match self.streams.get(key).map(|stream| stream.remote) {
                Some(Side::Head) => self.response(key, is_end, block),
                _ => self.trailer_block(key, is_end, block),
            };
        }
        if !self.is_idle(id) {
            return self.late_block(id, block);
        }
        match self.role {
            Role::Client => Err(Fault::Connection(Reason::IdleStream)),
            Role::Server if id.is_multiple_of(2) => {
                Err(Fault::Connection(Reason::StreamIdentifier))
            }
            Role::Server => self.request(id, is_end, block, choose),
        }
    }

    /// Decodes a block that no one wants.
    fn skip_block(&mut self, block: &[u8]) -> Result<(), Fault> {
        let limits = self.block_limits();
        let skipped = response_head::decode_trailers(&mut self.decoder, block, &limits);
        skipped.map(|_| ()).map_err(broken)
    }

    /// Decodes a block that came too late.
    fn glitch_of<'a>(&mut self, block: &[u8]) -> Outcome<'a> {
        self.skip_block(block)?;
        self.stream_glitch()
    }

    /// A block on a stream that is not live, and was (RFC 9113, 5.1).
    fn late_block<'a>(&mut self, id: u32, block: &[u8]) -> Outcome<'a> {
        // Trailers.
        if self.take_unended(id) {
            self.skip_block(block)?;
            return Ok(None);
        }
        match self.streams.closed(id) {
            Some(Closed::ByPeer) => Err(Fault::Connection(Reason::ClosedStream)),
            // It was on its way when we reset the stream.
            Some(Closed::ByUs) => self.glitch_of(block),
            // A client's streams are all its own, those too that it has forgotten.
            None if self.role == Role::Client => self.glitch_of(block),
            None => Err(Fault::Connection(Reason::StreamIdentifier)),
        }
    }

    fn request<'a>(
        &mut self,
        id: u32,
        is_end: bool,
        block: &[u8],
        choose: Choose<'_>,
    ) -> Outcome<'a> {
        self.last_peer = id;
        if matches!(self.goaway, GoAway::Final(_)) {
            self.streams.remember(id, Closed::ByUs);
            self.skip_block(block)?;
            return Ok(None);
        }
        let has_room = self.streams.len() < self.config.streams_max as usize;
        if !self.counters.opens(self.config.streams_max) {
            return self.refuse(id, block, Reason::TooManyAtOnce);
        }
        if !has_room {
            return self.refuse(id, block, Reason::TooManyStreams);
        }
        if self.heads >= self.heads_max() {
            return self.refuse(id, block, Reason::TooManyHeads);
        }
        let context = RequestContext {
            limits: self.config.limits,
            is_end,
            allows_protocol: self.config.allows_protocol,
        };
        let request = request_head::decode(&mut self.decoder, block, &context, choose);
        let request = request.map_err(broken)?;
        let mut stream = self.new_stream(id, Side::Head);
        stream.remote = if is_end { Side::Ended } else { Side::Body };
        stream.head = memory_of(request.head());
        let counted = 1 + stream.head / REQUEST_HEAD_BYTES;
        self.requests_left = self.requests_left.saturating_sub(counted);
        let asked = match &request {
            DecodedRequest::Head(head, priority) => {
                stream.length_left = match head.framing {
                    Framing::Length(length) => Some(length),
                    Framing::None | Framing::Chunked => None,
                };
                *priority
            }
            DecodedRequest::Refused(_, reason) => {
                stream.sink = Sink::Nobody;
                stream.reset_after = reason.is_malformed().then(|| reason.code());
                None
            }
        };
        self.has_priorities |= asked.is_some();
        let priority = self.priority_ahead(id).or(asked).unwrap_or_default();
        let Some(key) = self.insert(stream, priority) else {
            return Ok(None);
        };
        match request {
            DecodedRequest::Head(head, _) => Ok(Some(Event::Request(key, head, is_end))),
            DecodedRequest::Refused(refusal, reason) => {
                if reason.is_malformed() {
                    self.counters.malformed(self.now_ms);
                }
                Ok(Some(Event::Refused(key, refusal, reason)))
            }
        }
    }

    /// A stream that nothing was sent on or received.
    pub(super) fn new_stream(&self, id: u32, remote: Side) -> Stream {
        Stream {
            id,
            local: Side::Head,
            remote,
            send: SendWindow::new(self.peer.initial_window),
            recv: RecvWindow::new(self.window_known, self.config.stream_window),
            length_left: None,
            sink: Sink::Caller,
            reset_after: None,
            is_head_request: false,
            head: 0,
            read: self.reads,
        }
    }

    pub(super) fn insert(&mut self, stream: Stream, priority: Priority) -> Option<StreamKey> {
        let key = self.streams.insert(stream)?;
        self.heads += stream.head as usize;
        self.counters.opened();
        let scheduler = self.scheduler.get_or_insert_default();
        scheduler.open(key.slot(), priority);
        Some(key)
    }

    /// The priority that a PRIORITY_UPDATE gave the stream before it was opened.
    fn priority_ahead(&mut self, id: u32) -> Option<Priority> {
        let ahead = &mut self.priorities_ahead;
        let place = ahead.iter().position(|(stream, _)| *stream == id)?;
        Some(ahead.swap_remove(place).1)
    }

    /// Refuses a stream, of which nothing was done (RFC 9113, 5.1.2 and 8.7).
    fn refuse<'a>(&mut self, id: u32, block: &[u8], reason: Reason) -> Outcome<'a> {
        self.skip_block(block)?;
        self.streams.remember(id, Closed::ByUs);
        frame::write_reset(self.output.bytes(), id, reason.code());
        let counted = self.counters.refuse(self.config.streams_max);
        counted
            .and_then(|()| self.answered())
            .map_err(Fault::Connection)?;
        Ok(Some(Event::Unopened(id, reason)))
    }

    fn response<'a>(&mut self, key: StreamKey, is_end: bool, block: &[u8]) -> Outcome<'a> {
        let limits = self.block_limits();
        let decoded = response_head::decode(&mut self.decoder, block, &limits).map_err(broken)?;
        let fault = |reason| Fault::Stream(key.id(), reason);
        let head = decoded.map_err(fault)?;
        if head.is_interim() {
            return match is_end {
                true => Err(fault(Reason::InterimEnd)),
                false => Ok(Some(Event::Response(key, head, false))),
            };
        }
        let Some(stream) = self.streams.get(key) else {
            return Ok(None);
        };
        stream.remote = Side::Body;
        stream.length_left = match head.framing {
            _ if stream.is_head_request || matches!(head.status, 204 | 304) => Some(0),
            ResponseFraming::Length(length) => Some(length),
            ResponseFraming::Chunked | ResponseFraming::UntilClose => None,
        };
        if is_end {
            self.check_length(key, 0, true)?;
            self.remote_ended(key);
        }
        Ok(Some(Event::Response(key, head, is_end)))
    }

    /// RFC 9113, 8.1: trailers end the stream.
    fn trailer_block<'a>(&mut self, key: StreamKey, is_end: bool, block: &[u8]) -> Outcome<'a> {
        let limits = self.block_limits();
        let trailers = response_head::decode_trailers(&mut self.decoder, block, &limits);
        let trailers = trailers.map_err(broken)?;
        let Some(stream) = self.streams.get(key) else {
            return Ok(None);
        };
        if stream.remote == Side::Ended {
            return Err(Fault::Stream(key.id(), Reason::ClosedStream));
        }
        let sink = stream.sink;
        let wrong = match (&trailers, is_end) {
            (Err(reason), _) => self.malformed(key, *reason)?,
            (Ok(_), false) => self.malformed(key, Reason::TrailersOpen)?,
            (Ok(_), true) => self.check_length(key, 0, true)?,
        };
        if is_end {
            self.remote_ended(key);
        }
        match (wrong, trailers, sink) {
            (None, Ok(trailers), Sink::Caller) => Ok(Some(Event::Trailers(key, trailers))),
            (wrong, ..) => Ok(wrong),
        }
    }
}

/// Bytes of memory of a head.
fn memory_of(head: &RequestHead) -> u32 {
    let bytes = head.bytes.len() + head.fields.len() * size_of::<Field>();
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Whether the response to a method has no body.
pub(super) fn is_head(method: &[u8]) -> bool {
    Method::find(method) == Method::Head
}
