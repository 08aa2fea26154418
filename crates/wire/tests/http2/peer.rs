//! A peer that writes any bytes, and reads what comes back as words.

use wire::http2::frame::{Frame, FrameHeader, HEADER_LEN};
use wire::http2::hpack::{BlockLimits, Decoder, encode};
use wire::http2::session::PREFACE;
use wire::http2::{ErrorCode, Event, Session, SessionConfig, StreamKey};

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const WHOLE: u8 = END_STREAM | END_HEADERS;
pub const PADDED: u8 = 8;
pub const PRIORITY: u8 = 0x20;

pub struct Peer {
    pub session: Session,
    pub now: u64,
    unused: Vec<u8>,
    unread: Vec<u8>,
    keys: Vec<StreamKey>,
    decoder: Decoder,
    /// Whether data is taken as soon as it comes.
    pub takes: bool,
}

impl Peer {
    pub fn new(session: Session) -> Peer {
        Peer {
            session,
            now: 0,
            unused: Vec::new(),
            unread: Vec::new(),
            keys: Vec::new(),
            decoder: Decoder::default(),
            takes: true,
        }
    }

    /// A server that has exchanged SETTINGS with us.
    pub fn server() -> Peer {
        Peer::server_with(SessionConfig::default())
    }

    pub fn server_with(config: SessionConfig) -> Peer {
        let mut peer = Peer::new(Session::server(config));
        let start = [PREFACE.to_vec(), frame(4, 0, 0, b""), frame(4, ACK, 0, b"")].concat();
        assert!(peer.give(&start).is_empty());
        peer.read();
        peer
    }

    /// A client that has exchanged SETTINGS with us.
    pub fn client_with(config: SessionConfig) -> Peer {
        let mut peer = Peer::new(Session::client(config));
        let start = [frame(4, 0, 0, b""), frame(4, ACK, 0, b"")].concat();
        assert!(peer.give(&start).is_empty());
        assert_eq!(peer.session.output()[..24], PREFACE[..]);
        peer.session.sent(24);
        peer.read();
        peer
    }

    /// Gives bytes to the session; what it says of them, in words.
    pub fn give(&mut self, bytes: &[u8]) -> Vec<String> {
        self.unused.extend_from_slice(bytes);
        self.session.begin_read();
        let input = std::mem::take(&mut self.unused);
        let (mut at, mut said) = (0, Vec::new());
        loop {
            let (used, event) = self.session.receive(&input[at..], self.now, &mut |_| None);
            at += used;
            let mut taken = None;
            match event {
                Event::Partial => break,
                Event::TurnEnds => self.session.begin_turn(self.now),
                event => said.push(self.words(event, &mut taken)),
            }
            if let Some((key, bytes)) = taken.filter(|_| self.takes) {
                self.session.consume(key, bytes);
            }
        }
        self.unused = input[at..].to_vec();
        said
    }

    fn words(&mut self, event: Event<'_>, taken: &mut Option<(StreamKey, usize)>) -> String {
        let end = |is_end| if is_end { " end" } else { "" };
        match event {
            Event::Request(key, head, is_end) => {
                self.keys.push(key);
                let line = String::from_utf8_lossy(head.line()).into_owned();
                format!("{} {line}{}", key.id(), end(is_end))
            }
            Event::Refused(key, refusal, reason) => {
                self.keys.push(key);
                format!("{} refused {} {reason:?}", key.id(), refusal.status)
            }
            Event::Unopened(id, reason) => format!("{id} unopened {reason:?}"),
            Event::Response(key, head, is_end) => {
                format!("{} {}{}", key.id(), head.status, end(is_end))
            }
            Event::Data(key, data, is_end) => {
                *taken = Some((key, data.len()));
                format!("{} data {}{}", key.id(), data.len(), end(is_end))
            }
            Event::Trailers(key, lines) => format!("{} trailers {}", key.id(), lines.len()),
            Event::Malformed(key, reason) => format!("{} malformed {reason:?}", key.id()),
            Event::Reset(key, cause) => format!("{} reset {cause:?}", key.id()),
            Event::GoAway(last, code) => format!("goaway {last} {}", name(code)),
            Event::Pong(_) => "pong".into(),
            Event::Closed(reason) => format!("closed {reason:?}"),
            Event::Partial | Event::TurnEnds => String::new(),
        }
    }

    /// The key of a request that came.
    pub fn key(&self, id: u32) -> StreamKey {
        *self.keys.iter().find(|key| key.id() == id).unwrap()
    }

    /// Reads all output; its frames in words.
    pub fn read(&mut self) -> Vec<String> {
        self.unread.extend_from_slice(self.session.output());
        self.session.sent(self.session.output().len());
        let mut rest = &self.unread[..];
        let mut said = Vec::new();
        while let Some((head, behind)) = rest.split_first_chunk::<HEADER_LEN>() {
            let header = FrameHeader::parse(head);
            header
                .check(wire::http2::frame::CLIENT_PAYLOAD_MAX)
                .unwrap();
            let frame = Frame::parse(&header, &behind[..header.len]).unwrap();
            said.push(frame_words(&mut self.decoder, &header, frame));
            rest = &behind[header.len..];
        }
        self.unread = rest.to_vec();
        said
    }

    /// Answers a request with this status and no body.
    pub fn answer(&mut self, id: u32, status: u16) {
        let key = self.key(id);
        let write = |out: &mut Vec<u8>| encode::status(out, status);
        self.session.respond(key, true, write).unwrap();
    }

    /// Answers a request with a head; the body follows.
    pub fn answer_head(&mut self, id: u32) -> StreamKey {
        let key = self.key(id);
        let write = |out: &mut Vec<u8>| encode::status(out, 200);
        self.session.respond(key, false, write).unwrap();
        key
    }
}

fn frame_words(decoder: &mut Decoder, header: &FrameHeader, frame: Frame<'_>) -> String {
    let id = header.stream;
    let end = if header.has(END_STREAM) { " end" } else { "" };
    match frame {
        Frame::Data(data) => format!("{id} DATA {}{end}", data.len()),
        Frame::Headers(block) if header.has(END_HEADERS) => {
            let mut out = Vec::new();
            let mut block = decoder.block(block, &BlockLimits::default());
            while block.next(&mut out).unwrap().is_some() {}
            let text = String::from_utf8(out).unwrap();
            format!(
                "{id} HEADERS {}{end}",
                text.trim_end().replace("\r\n", ", ")
            )
        }
        Frame::Headers(block) => format!("{id} HEADERS {}…{end}", block.len()),
        Frame::Continuation(block) => format!("{id} CONTINUATION {}", block.len()),
        Frame::RstStream(code) => format!("{id} RST_STREAM {}", name(code)),
        Frame::GoAway(last, code) => format!("GOAWAY {last} {}", name(code)),
        Frame::WindowUpdate(by) => format!("{id} WINDOW_UPDATE {by}"),
        Frame::Settings(_) => "SETTINGS".into(),
        Frame::SettingsAck => "SETTINGS ACK".into(),
        Frame::Ping(_) => "PING".into(),
        Frame::Pong(_) => "PING ACK".into(),
        other => format!("{other:?}"),
    }
}

fn name(code: ErrorCode) -> &'static str {
    const NAMES: [&str; 14] = [
        "NO_ERROR",
        "PROTOCOL_ERROR",
        "INTERNAL_ERROR",
        "FLOW_CONTROL_ERROR",
        "SETTINGS_TIMEOUT",
        "STREAM_CLOSED",
        "FRAME_SIZE_ERROR",
        "REFUSED_STREAM",
        "CANCEL",
        "COMPRESSION_ERROR",
        "CONNECT_ERROR",
        "ENHANCE_YOUR_CALM",
        "INADEQUATE_SECURITY",
        "HTTP_1_1_REQUIRED",
    ];
    NAMES.get(code.0 as usize).copied().unwrap_or("unknown")
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
    let head = [&[a, b, c, kind, flags][..], &stream.to_be_bytes()].concat();
    [&head[..], payload].concat()
}

pub fn fields(list: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in list {
        out.extend([0, name.len() as u8]);
        out.extend(name.bytes());
        encode::string(&mut out, value.as_bytes());
    }
    out
}

pub const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "http"),
    (":path", "/"),
    (":authority", "h"),
];
pub const POST: [(&str, &str); 4] = [(":method", "POST"), GET[1], GET[2], GET[3]];

/// A request without a body.
pub fn get(stream: u32) -> Vec<u8> {
    frame(1, WHOLE, stream, &fields(&GET))
}

/// A request whose body follows.
pub fn post(stream: u32) -> Vec<u8> {
    frame(1, END_HEADERS, stream, &fields(&POST))
}

pub fn post_of(stream: u32, length: &str) -> Vec<u8> {
    let list = [&POST[..], &[("content-length", length)]].concat();
    frame(1, END_HEADERS, stream, &fields(&list))
}

pub fn setting(id: u16, value: u32) -> Vec<u8> {
    let payload = [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    frame(4, 0, 0, &payload)
}

pub fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(8, 0, stream, &increment.to_be_bytes())
}

pub fn rst(stream: u32) -> Vec<u8> {
    frame(3, 0, stream, &8u32.to_be_bytes())
}
