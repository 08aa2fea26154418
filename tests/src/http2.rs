//! A client over HTTP/2 without TLS, by prior knowledge: requests out, answers in, each wait bounded.
//!
//! Frames and header fields are those of `wire::http2` in the client's role, whose own tests put it beside other
//! implementations. What is wrong on purpose goes out by [`Http2Client::send`], as bytes.

use crate::client::PATIENCE;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use wire::http2::session::{Event, ResetCause};
use wire::http2::{ErrorCode, Session, SessionConfig, StreamKey, hpack::encode};

/// An answer, or the part of one that has come.
#[derive(Debug, Default, Clone)]
pub struct Http2Reply {
    /// The status; 0: no head has come.
    pub status: u16,
    /// The statuses of interim answers.
    pub interim: Vec<u16>,
    /// The fields, as lines.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
    /// The trailers, as names and values.
    pub trailers: Vec<(String, String)>,
    /// Whether it is at its end.
    pub is_whole: bool,
    /// The code by which the stream was reset.
    pub reset: Option<u32>,
}

impl Http2Reply {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// A field's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value.trim_end())
        })
    }
}

/// A connection.
pub struct Http2Client {
    stream: TcpStream,
    session: Session,
    unread: Vec<u8>,
    replies: BTreeMap<u32, Http2Reply>,
    keys: BTreeMap<u32, StreamKey>,
    /// The server's GOAWAY: the last stream that it takes, and its code.
    pub goaway: Option<(u32, ErrorCode)>,
    /// Whether room is given back for bodies that came.
    pub consumes: bool,
    /// Whether reading sends nothing: neither room nor acknowledgements.
    pub is_silent: bool,
}

impl Http2Client {
    /// Wraps a connected socket.
    pub fn new(stream: TcpStream) -> Http2Client {
        Http2Client::with_window(stream, 65_536)
    }

    /// As [`Http2Client::new`], with this window for each answer, in bytes.
    pub fn with_window(stream: TcpStream, window: u32) -> Http2Client {
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a timeout above zero is valid");
        let config = SessionConfig {
            stream_window: window,
            ..SessionConfig::default()
        };
        Http2Client {
            stream,
            session: Session::client(config),
            unread: Vec::new(),
            replies: BTreeMap::new(),
            keys: BTreeMap::new(),
            goaway: None,
            consumes: true,
            is_silent: false,
        }
    }

    /// Sends a request without a body; returns its stream.
    pub fn get(&mut self, path: &str) -> u32 {
        self.begin("GET", path, &[], true)
    }

    /// Sends a request's head; returns its stream.
    pub fn begin(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        is_whole: bool,
    ) -> u32 {
        let key = self.session.open(method.as_bytes(), is_whole, |out| {
            let pseudo = [
                (":method", method),
                (":scheme", "http"),
                (":path", path),
                (":authority", "localhost"),
            ];
            for (name, value) in pseudo.iter().chain(fields) {
                encode::field(out, name.as_bytes(), value.as_bytes());
            }
        });
        let key = key.expect("a stream may be opened");
        self.keys.insert(key.id(), key);
        self.flush();
        key.id()
    }

    /// Sends a request's head of these fields as they are, in literals; returns its stream.
    pub fn begin_raw(&mut self, fields: &[(&[u8], &[u8])], is_whole: bool) -> u32 {
        let key = self.session.open(b"GET", is_whole, |out| {
            for (name, value) in fields {
                literal(out, name, value);
            }
        });
        let key = key.expect("a stream may be opened");
        self.keys.insert(key.id(), key);
        self.flush();
        key.id()
    }

    /// Opens a tunnel to an address; returns its stream.
    pub fn connect(&mut self, authority: &str) -> u32 {
        let key = self.session.open(b"CONNECT", false, |out| {
            for (name, value) in [(":method", "CONNECT"), (":authority", authority)] {
                encode::field(out, name.as_bytes(), value.as_bytes());
            }
        });
        let key = key.expect("a stream may be opened");
        self.keys.insert(key.id(), key);
        self.flush();
        key.id()
    }

    /// Sends a part of a body, as the server gives room for it.
    pub fn body(&mut self, stream: u32, mut bytes: &[u8], is_last: bool) {
        let key = self.keys[&stream];
        while !bytes.is_empty() || is_last {
            let Ok(sent) = self.session.data(key, bytes, is_last) else {
                return;
            };
            let is_over = sent == bytes.len();
            bytes = &bytes[sent..];
            self.flush();
            if is_over {
                return;
            }
            // Only without room: the server has nothing to say while there is some.
            if sent == 0 && !self.read() {
                return;
            }
        }
    }

    /// Sends at least so many zeros of a body; returns the largest number that went without a word of the server's.
    ///
    /// # Panics
    /// The server gives no more room.
    pub fn most_at_once(&mut self, stream: u32, total: usize) -> usize {
        let (mut sent, mut most) = (0, 0);
        while sent < total {
            let mut count = 0;
            while let Ok(more @ 1..) = self.session.data(self.keys[&stream], &[0; 16_384], false) {
                count += more;
                self.flush();
            }
            sent += count;
            most = most.max(count);
            assert!(self.read(), "after {sent} bytes");
        }
        most
    }

    /// Sends trailers, which end a request.
    pub fn trailers(&mut self, stream: u32, name: &str, value: &str) {
        let write = |out: &mut Vec<u8>| literal(out, name.as_bytes(), value.as_bytes());
        let sent = self.session.trailers(self.keys[&stream], write);
        sent.expect("the stream is open");
        self.flush();
    }

    /// Takes a request back.
    pub fn cancel(&mut self, stream: u32) {
        self.session.reset(self.keys[&stream], ErrorCode::CANCEL);
        self.flush();
    }

    /// Sends bytes as they are, behind what was said before.
    pub fn send(&mut self, bytes: &[u8]) {
        self.flush();
        let _ = self.stream.write_all(bytes);
    }

    /// The answer on a stream, once it is whole or reset, or the connection is closed.
    pub fn reply(&mut self, stream: u32) -> Http2Reply {
        let is_over = |reply: &Http2Reply| reply.is_whole || reply.reset.is_some();
        while !self.replies.get(&stream).is_some_and(is_over) && self.read() {}
        self.replies.get(&stream).cloned().unwrap_or_default()
    }

    /// What has come on a stream so far.
    pub fn so_far(&self, stream: u32) -> Http2Reply {
        self.replies.get(&stream).cloned().unwrap_or_default()
    }

    /// Reads until at least so many bytes of a body have come, or the connection is closed.
    pub fn read_until(&mut self, stream: u32, count: usize) {
        while self.so_far(stream).body.len() < count && self.read() {}
    }

    /// Gives room back for what has come of an answer.
    pub fn catch_up(&mut self, stream: u32) {
        let count = self.so_far(stream).body.len();
        self.session.consume(self.keys[&stream], count);
        self.flush();
    }

    /// Reads to the connection's end.
    pub fn read_to_end(&mut self) {
        while self.read() {}
    }

    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    fn flush(&mut self) {
        let count = self.session.output().len();
        let _ = self.stream.write_all(self.session.output());
        self.session.sent(count);
    }

    /// Sends what reading has to answer.
    fn answer(&mut self) {
        if !self.is_silent {
            self.flush();
        }
    }

    /// Reads once; false at the end of the connection.
    pub fn read(&mut self) -> bool {
        self.answer();
        let mut buffer = vec![0; 65_536];
        let count = match self.stream.read(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("nothing came: {error}"),
        };
        if count == 0 {
            return false;
        }
        self.unread.extend_from_slice(&buffer[..count]);
        let input = std::mem::take(&mut self.unread);
        let mut at = 0;
        self.session.begin_turn(0);
        self.session.begin_read();
        loop {
            let (used, event) = self.session.receive(&input[at..], 0, &mut |_| None);
            at += used;
            let mut consumed = None;
            match event {
                Event::Partial | Event::TurnEnds => break,
                Event::Response(key, head, is_whole) => {
                    let reply = self.replies.entry(key.id()).or_default();
                    if head.is_interim() {
                        reply.interim.push(head.status);
                        continue;
                    }
                    reply.status = head.status;
                    reply.head = String::from_utf8_lossy(&head.bytes).into_owned();
                    reply.is_whole = is_whole;
                }
                Event::Data(key, data, is_last) => {
                    let reply = self.replies.entry(key.id()).or_default();
                    reply.body.extend_from_slice(data);
                    reply.is_whole |= is_last;
                    consumed = Some((key, data.len()));
                }
                Event::Trailers(key, fields) => {
                    let reply = self.replies.entry(key.id()).or_default();
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let named = fields.iter().map(|it| (text(&it.name), text(&it.value)));
                    reply.trailers = named.collect();
                    reply.is_whole = true;
                }
                Event::Reset(key, cause) => {
                    let code = match cause {
                        ResetCause::Peer(code) => code.0,
                        ResetCause::Fault(reason) => panic!("the server {reason}"),
                        ResetCause::Unprocessed => ErrorCode::REFUSED_STREAM.0,
                    };
                    self.replies.entry(key.id()).or_default().reset = Some(code);
                }
                Event::GoAway(last, code) => self.goaway = Some((last, code)),
                Event::Closed(reason) => panic!("the server {reason}"),
                Event::Request(..)
                | Event::Unopened(..)
                | Event::Refused(..)
                | Event::Malformed(..)
                | Event::Pong(_) => {}
            }
            if let Some((key, count)) = consumed.filter(|_| self.consumes) {
                self.session.consume(key, count);
            }
        }
        self.unread = input[at..].to_vec();
        self.answer();
        true
    }
}

/// Appends a field without a look at it (RFC 7541, 6.2.2).
fn literal(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    const LENGTH_MAX: usize = 126;
    assert!(name.len() <= LENGTH_MAX, "the length takes one byte");
    out.extend([0, name.len() as u8]);
    out.extend_from_slice(name);
    encode::string(out, value);
}
