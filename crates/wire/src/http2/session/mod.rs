//! One HTTP/2 connection as a state machine, as server or as client (RFC 9113, 3, 5 and 6).
//!
//! Bytes are given to [`Session::receive`], which returns one event at a time; what must be sent collects in one output
//! buffer, which the caller writes once a turn. Of the input, nothing is kept but header blocks in several or long frames; of
//! the output, DATA is taken up to [`OUTPUT_MAX`]. Not here: sockets, timers, bodies.
//!
//! Invariants: all streams that live have a slot; a stream that is closed is never mentioned in an event again, but for
//! the one that says so; after [`Event::Closed`] nothing is read, and GOAWAY is the end of the output.

mod client;
mod headers;
mod output;
mod receive;
mod send;
mod unended;

use std::sync::Arc;

use message::{Header, RequestHead, ResponseHead};

use self::output::Output;
use self::unended::Unended;
use super::flow::{INITIAL_WINDOW, RecvWindow, SendWindow};
use super::frame::FrameHeader;
use super::hpack::{BlockLimits, Decoder, Encoder};
use super::limits::{Counters, DROPPED_BLOCK_MAX, REQUESTS_PER_TURN_MAX};
use super::priority::{Priority, SLOTS_MAX, Scheduler};
use super::settings::{OwnSettings, PeerSettings};
use super::streams::{Closed, Stream, StreamKey, Streams};
use super::{ErrorCode, Fault, Reason, frame};
use crate::http1::request_parser::{Choose, HeadLimits, HeadRefusal};

pub use self::client::OpenRefused;
pub use self::output::OUTPUT_MAX;
pub use self::send::StreamGone;

/// Bytes of input that the caller must be able to hold: a whole frame. (DATA, and longer ones, are taken in any pieces.)
pub const INPUT_MAX: usize = frame::HEADER_LEN + frame::PAYLOAD_MAX;
/// What a client sends first (RFC 9113, 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Maximum number of priorities kept for streams that are not open yet (RFC 9218, 7.1).
const PRIORITIES_AHEAD_MAX: usize = 8;
/// The payload of the PING by whose answer a graceful GOAWAY becomes final.
const GOAWAY_PING: [u8; 8] = *b"\0goaway\0";

/// The side that we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// We answer requests.
    Server,
    /// We send them.
    Client,
}

/// The options of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// Maximum number of streams that live at once (`http2_max_concurrent_streams`); at most [`SLOTS_MAX`].
    pub streams_max: u32,
    /// The window of a stream in bytes (`http2_body_preread_size`); at most 2^24, so that 128 of them fit into that of
    /// the connection.
    pub stream_window: u32,
    /// The limits of heads, until a server is chosen. For responses, `large_buffers` times `large_buffer_size` counts.
    pub limits: HeadLimits,
    /// Whether extended CONNECT is offered (RFC 8441).
    pub allows_protocol: bool,
}

impl Default for SessionConfig {
    /// nginx's defaults.
    fn default() -> SessionConfig {
        SessionConfig {
            streams_max: 128,
            stream_window: 65_536,
            limits: HeadLimits::default(),
            allows_protocol: false,
        }
    }
}

impl SessionConfig {
    /// Maximum length in bytes of a payload that we accept (SETTINGS_MAX_FRAME_SIZE). A client's may be as long as what
    /// the configuration lets it send at once: a line of a head, or a window that is wider than nginx's. What of a peer
    /// is longer than it was told ends the connection.
    fn frame_max(&self, role: Role) -> usize {
        let default = SessionConfig::default().stream_window;
        let window = match self.stream_window > default {
            true => self.stream_window as usize,
            false => 0,
        };
        match role {
            Role::Server => (self.limits.large_buffer_size)
                .max(window)
                .clamp(frame::PAYLOAD_MAX, frame::CLIENT_PAYLOAD_MAX),
            Role::Client => frame::PAYLOAD_MAX,
        }
    }
}

/// Why a stream was closed before both sides had ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetCause {
    /// The peer sent RST_STREAM with this code.
    Peer(ErrorCode),
    /// We sent RST_STREAM, for this reason.
    Fault(Reason),
    /// The peer's GOAWAY said that it will not do anything with the stream.
    Unprocessed,
}

impl ResetCause {
    /// Whether the peer has done nothing with the request, so that it may be sent again, whatever its method
    /// (RFC 9113, 8.7).
    pub fn may_repeat(self) -> bool {
        match self {
            ResetCause::Unprocessed => true,
            ResetCause::Peer(code) => code == ErrorCode::REFUSED_STREAM,
            ResetCause::Fault(_) => false,
        }
    }
}

/// What the input said.
#[derive(Debug)]
pub enum Event<'a> {
    /// More bytes are needed; those that were not used must be given again.
    Partial,
    /// As many requests were opened as may be in this turn: the rest waits for [`Session::begin_turn`].
    TurnEnds,
    /// A request; whether it has no body.
    Request(StreamKey, Box<RequestHead>, bool),
    /// A stream that was refused; nothing was done of it (RFC 9113, 8.7).
    Unopened(u32, Reason),
    /// A request to answer with an error. What follows of it is dropped, and a malformed one is reset a while after the answer.
    Refused(StreamKey, Box<HeadRefusal>, Reason),
    /// The head of a response, interim or final; whether it has no body.
    Response(StreamKey, Arc<ResponseHead>, bool),
    /// Data; whether it is the last. To be returned with [`Session::consume`].
    Data(StreamKey, &'a [u8], bool),
    /// Trailers, which end the message.
    Trailers(StreamKey, Vec<Header>),
    /// The rest of a request is malformed and dropped; the stream is reset a while after it has been answered (400).
    Malformed(StreamKey, Reason),
    /// The stream is closed, and was not at its end.
    Reset(StreamKey, ResetCause),
    /// The peer opens or takes no more streams above this one; the connection ends with those that live.
    GoAway(u32, ErrorCode),
    /// The answer to [`Session::ping`].
    Pong([u8; 8]),
    /// The connection is broken, for this reason: write the output, then close.
    Closed(Reason),
}

/// What is expected next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The client's preface from this byte on.
    Preface(usize),
    /// The server's SETTINGS. (Of clients it is not demanded that SETTINGS come first; nginx does not, either.)
    Settings,
    /// Frames.
    Open,
    /// Nothing.
    Closed,
}

/// Our own GOAWAY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GoAway {
    Unsent,
    /// Sent with the highest identifier: streams on their way are still taken (RFC 9113, 6.8).
    Announced,
    /// Sent with the last stream that is taken.
    Final(u32),
}

/// A header block in several frames.
#[derive(Debug)]
struct Block {
    stream: u32,
    is_end: bool,
    bytes: Vec<u8>,
    continuations: u32,
}

/// A frame of a header block that is too long for the caller to hold; its payload as far as it has come.
#[derive(Debug)]
struct LongFrame {
    header: FrameHeader,
    payload: Vec<u8>,
}

/// A DATA frame whose payload has not been taken wholly.
#[derive(Clone, Copy, Debug)]
struct DataLeft {
    /// `None`: it is dropped.
    key: Option<StreamKey>,
    data: usize,
    padding: usize,
    is_end: bool,
}

/// An HTTP/2 connection.
#[derive(Debug)]
pub struct Session {
    role: Role,
    /// What the peer was told that a payload may have at most, in bytes.
    frame_max: usize,
    config: SessionConfig,
    phase: Phase,
    now_ms: u64,
    decoder: Decoder,
    encoder: Encoder,
    streams: Streams,
    /// Bytes of memory of the heads of live streams.
    heads: usize,
    /// Boxed, as what else few connections have: an idle one has none.
    scheduler: Option<Box<Scheduler>>,
    counters: Counters,
    send: SendWindow,
    /// The time of the last DATA sent, on any stream.
    moved_ms: u64,
    recv: RecvWindow,
    peer: PeerSettings,
    /// The initial window of streams that the peer knows.
    window_known: u32,
    /// Whether the peer has acknowledged our settings.
    is_acknowledged: bool,
    /// Number of our PINGs that were not answered.
    pings: u32,
    block: Option<Box<Block>>,
    long: Option<Box<LongFrame>>,
    data: Option<DataLeft>,
    /// The highest stream that the peer opened.
    last_peer: u32,
    /// The next stream that we open.
    next_own: u32,
    /// Number of requests that may still be opened in this turn.
    requests_left: u32,
    /// Number of reads from the socket, modulo 2^32.
    reads: u32,
    goaway: GoAway,
    /// The last stream that the peer's GOAWAY takes.
    peer_goaway: Option<u32>,
    /// Whether the peer has sent a PING.
    has_pinged: bool,
    priorities_ahead: Vec<(u32, Priority)>,
    /// Whether the client has given any stream a priority (RFC 9218); without, all share.
    has_priorities: bool,
    /// Closed streams that are to be reset, unless their end comes.
    unended: Vec<Unended>,
    output: Output,
}

impl Session {
    /// The server's side of a new connection; its SETTINGS are in the output.
    pub fn server(config: SessionConfig) -> Session {
        Session::new(Role::Server, config)
    }

    /// The client's side of a new connection; preface and SETTINGS are in the output.
    pub fn client(config: SessionConfig) -> Session {
        Session::new(Role::Client, config)
    }

    fn new(role: Role, config: SessionConfig) -> Session {
        let config = SessionConfig {
            streams_max: config.streams_max.min(SLOTS_MAX as u32),
            stream_window: config.stream_window.min(1 << 24),
            ..config
        };
        // Wide enough for all streams, so that one that is not read holds back no other.
        let width = config.stream_window.max(INITIAL_WINDOW) * SLOTS_MAX as u32;
        let mut recv = RecvWindow::new(INITIAL_WINDOW, width.min(frame::MAX_31));
        let mut output = Output::default();
        if role == Role::Client {
            output.bytes().extend_from_slice(PREFACE);
        }
        own_settings(role, &config).write(output.bytes());
        if let Some(increment) = recv.release(0) {
            frame::write_window_update(output.bytes(), 0, increment);
        }
        Session {
            role,
            frame_max: config.frame_max(role),
            config,
            phase: match role {
                Role::Server => Phase::Preface(0),
                Role::Client => Phase::Settings,
            },
            now_ms: 0,
            decoder: match role {
                Role::Server => Decoder::default(),
                Role::Client => Decoder::of_upstream(),
            },
            encoder: Encoder::default(),
            streams: Streams::default(),
            heads: 0,
            scheduler: None,
            counters: Counters::default(),
            send: SendWindow::new(INITIAL_WINDOW),
            moved_ms: 0,
            recv,
            peer: PeerSettings::default(),
            window_known: INITIAL_WINDOW,
            is_acknowledged: false,
            pings: 0,
            block: None,
            long: None,
            data: None,
            last_peer: 0,
            next_own: 1,
            requests_left: REQUESTS_PER_TURN_MAX,
            reads: 0,
            goaway: GoAway::Unsent,
            peer_goaway: None,
            has_pinged: false,
            priorities_ahead: Vec::new(),
            has_priorities: false,
            unended: Vec::new(),
            output,
        }
    }

    /// Begins a turn of the loop: as many requests may be opened again.
    pub fn begin_turn(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.requests_left = REQUESTS_PER_TURN_MAX;
    }

    /// Notes that bytes were read from the socket.
    pub fn begin_read(&mut self) {
        self.counters.begin_read();
        self.reads = self.reads.wrapping_add(1);
    }

    /// Takes input up to the next event; returns the number of bytes used. `choose` is asked for the limits of the
    /// server of each request (see [`crate::http1::request_parser::Choose`]).
    pub fn receive<'a>(
        &mut self,
        input: &'a [u8],
        now_ms: u64,
        choose: Choose<'_>,
    ) -> (usize, Event<'a>) {
        self.now_ms = now_ms;
        let mut used = 0;
        loop {
            if self.phase == Phase::Closed {
                return (input.len(), Event::Partial);
            }
            if let Some(key) = self.abandoned() {
                return (used, Event::Reset(key, ResetCause::Unprocessed));
            }
            let rest = &input[used..];
            if self.requests_left == 0 && !rest.is_empty() {
                return (used, Event::TurnEnds);
            }
            let (taken, outcome) = self.step(rest, choose);
            used += taken;
            match outcome {
                Ok(Some(event)) => return (used, event),
                Ok(None) if taken == 0 => return (used, Event::Partial),
                Ok(None) => {}
                Err(fault) => match self.settle(fault) {
                    Some(event) => return (used, event),
                    None => continue,
                },
            }
        }
    }

    /// Does what a fault demands (RFC 9113, 5.4).
    fn settle(&mut self, fault: Fault) -> Option<Event<'static>> {
        match fault {
            Fault::Connection(reason) => Some(self.fail(reason)),
            Fault::Stream(id, reason) => {
                // A server's is the end of a request of ours, and no reason to end those of others.
                if self.role == Role::Server
                    && let Err(reason) = self.counters.fault(self.now_ms)
                {
                    return Some(self.fail(reason));
                }
                frame::write_reset(self.output.bytes(), id, reason.code());
                let Some(key) = self.streams.find(id) else {
                    self.streams.remember(id, Closed::ByUs);
                    return self.answered().err().map(|reason| self.fail(reason));
                };
                self.close(key, Closed::ByUs);
                Some(Event::Reset(key, ResetCause::Fault(reason)))
            }
        }
    }

    /// Ends the connection for a reason that its input does not tell.
    pub fn end(&mut self, reason: Reason) {
        if self.phase != Phase::Closed {
            // The caller knows that it is closed.
            let _closed: Event<'static> = self.fail(reason);
        }
    }

    /// Whether the input so far ends within a header block, behind which nothing else may come.
    pub fn is_in_block(&self) -> bool {
        self.block.is_some() || self.long.is_some()
    }

    /// Ends the connection with GOAWAY.
    fn fail(&mut self, reason: Reason) -> Event<'static> {
        self.phase = Phase::Closed;
        self.block = None;
        self.long = None;
        self.data = None;
        self.unended.clear();
        let last = self.last_taken();
        frame::write_goaway(self.output.bytes(), last, reason.code());
        Event::Closed(reason)
    }

    /// The last stream of the peer that we take; a later GOAWAY never names a higher one (RFC 9113, 6.8).
    fn last_taken(&self) -> u32 {
        match self.goaway {
            GoAway::Final(last) => last,
            GoAway::Unsent | GoAway::Announced => self.last_peer,
        }
    }

    /// Counts a control frame that was just written in answer to the peer.
    fn answered(&mut self) -> Result<(), Reason> {
        self.output.mark_answer();
        self.counters.answer()
    }

    /// Frees a stream, and gives the peer the room back that its data took.
    fn close(&mut self, key: StreamKey, closed: Closed) {
        let Some(stream) = self.streams.close(key, closed) else {
            return;
        };
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.close(key.slot());
        }
        self.heads -= stream.head as usize;
        self.narrow(&stream);
        self.release(stream.recv.held());
    }

    /// Takes back what [`Session::widen`] added for a stream.
    fn narrow(&mut self, stream: &Stream) {
        let extra = stream.recv.target() - stream.recv.target().min(self.config.stream_window);
        if extra > 0 {
            let target = self.recv.target().saturating_sub(extra);
            // A narrower window announces nothing.
            let _none: Option<u32> = self.recv.resize(target);
        }
    }

    /// Returns room of the connection to the peer.
    fn release(&mut self, bytes: usize) {
        if let Some(increment) = self.recv.release(bytes) {
            frame::write_window_update(self.output.bytes(), 0, increment);
        }
    }

    /// The bytes to write.
    pub fn output(&self) -> &[u8] {
        self.output.unsent()
    }

    /// Notes that the first `bytes` of the output were written.
    pub fn sent(&mut self, bytes: usize) {
        if self.output.sent(bytes) {
            self.counters.answers_are_read();
        }
    }

    /// Frees the memory of an idle connection that can be had again.
    pub fn release_buffers(&mut self) {
        self.output.release();
        self.streams.release();
        if self.streams.len() == 0 {
            self.scheduler = None;
        }
    }

    /// Bytes of memory that the connection holds: unsent frames, heads of live streams, and data that was received and not
    /// taken.
    pub fn held(&self) -> usize {
        self.output.capacity() + self.heads + self.recv.held()
    }

    /// Whether the peer's settings are known.
    pub fn is_settled(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// Whether the connection ends: no more streams are opened on it.
    pub fn is_going(&self) -> bool {
        let is_left = self.peer_goaway.is_some() || self.goaway != GoAway::Unsent;
        is_left || self.phase == Phase::Closed || self.next_own > frame::MAX_31
    }

    /// Whether a stream is live.
    pub fn is_open(&mut self, key: StreamKey) -> bool {
        self.streams.get(key).is_some()
    }

    /// Whether the peer has sent a PING.
    pub fn has_pinged(&self) -> bool {
        self.has_pinged
    }

    /// Number of requests in this period that were malformed: see [`crate::http2::limits::MALFORMED_MAX`].
    pub fn malformed_count(&self) -> u32 {
        self.counters.malformed_count(self.now_ms)
    }

    /// Number of live streams.
    pub fn live(&self) -> usize {
        self.streams.len()
    }

    /// The keys of all live streams.
    pub fn keys(&self) -> impl Iterator<Item = StreamKey> {
        self.streams.keys()
    }

    /// The settings of the peer.
    pub fn peer(&self) -> &PeerSettings {
        &self.peer
    }

    /// Whether the connection may be closed: after an error, or the server's GOAWAY (or our own) and no live stream. The
    /// output is to be written first.
    pub fn is_done(&self) -> bool {
        // A client's GOAWAY is about streams that we would open (push), and we do not.
        let is_left = self.role == Role::Client && self.peer_goaway.is_some();
        let is_going = is_left || matches!(self.goaway, GoAway::Final(_));
        self.phase == Phase::Closed || (is_going && self.streams.len() == 0)
    }
}

fn own_settings(role: Role, config: &SessionConfig) -> OwnSettings {
    let limits = BlockLimits::of(&config.limits);
    OwnSettings {
        is_server: role == Role::Server,
        streams_max: config.streams_max,
        initial_window: config.stream_window,
        frame_max: config.frame_max(role) as u32,
        header_list_max: u32::try_from(limits.block_max.saturating_add(DROPPED_BLOCK_MAX))
            .unwrap_or(u32::MAX),
        allows_protocol: config.allows_protocol,
    }
}
