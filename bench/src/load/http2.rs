//! HTTP/2 over a connection: one stream at a time, with the framing of the crate `wire`.

use bench::content;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Instant;
use wire::http2::session::Event;
use wire::http2::{Session, SessionConfig, StreamKey, head_writer};

use message::{Framing, ResponseFraming, ResponseHead};

use crate::client::Head;
use crate::link::Link;
use crate::protocol;

/// Window of a stream in bytes, for clients that take all at once.
const WINDOW: u32 = 1 << 22;
/// Bytes of one read.
const INPUT: usize = 64 << 10;

/// The client's side of a connection.
pub struct Http2 {
    session: Session,
    began: Instant,
    /// What was read and not used.
    input: Vec<u8>,
    key: Option<StreamKey>,
    head: Option<Arc<ResponseHead>>,
    /// Of the body: bytes that came and were not taken.
    data: Vec<u8>,
    is_ended: bool,
    is_broken: bool,
    /// Whether the server said that it has done nothing with the request.
    is_untouched: bool,
}

impl Http2 {
    /// `window`: of a stream, in bytes, for readers that are to be slow.
    pub fn new(window: Option<u32>) -> Http2 {
        let config = SessionConfig {
            stream_window: window.unwrap_or(WINDOW),
            ..SessionConfig::default()
        };
        Http2 {
            session: Session::client(config),
            began: Instant::now(),
            input: Vec::new(),
            key: None,
            head: None,
            data: Vec::new(),
            is_ended: false,
            is_broken: false,
            is_untouched: false,
        }
    }

    /// Sends a request.
    pub async fn send(&mut self, link: &mut Link, target: &str) -> io::Result<()> {
        let request = head_writer::OutgoingRequest {
            method: b"GET",
            is_https: protocol::get().is_tls,
            authority: b"localhost",
            path: target.as_bytes(),
            framing: Framing::None,
        };
        self.data.clear();
        (self.head, self.is_ended) = (None, false);
        (self.is_broken, self.is_untouched) = (false, false);
        // A server that has said GOAWAY meanwhile: as one that has closed.
        let key = self.session.open(b"GET", true, |out| {
            let _ = head_writer::request(out, &request, []);
        });
        self.key = Some(key.map_err(|_| io::Error::from(ErrorKind::ConnectionReset))?);
        self.flush(link).await
    }

    /// The head of the answer. `ConnectionReset`: the server has done nothing with the request, and says so.
    pub async fn head(&mut self, link: &mut Link) -> io::Result<Head> {
        loop {
            if let Some(head) = self.head.take() {
                let tag = head.get_all(b"etag").next();
                return Ok(Head {
                    status: head.status,
                    length: match head.framing {
                        ResponseFraming::Length(length) => Some(length),
                        _ if self.is_ended => Some(self.data.len() as u64),
                        _ => None,
                    },
                    is_last: false,
                    tag: tag
                        .and_then(|tag| std::str::from_utf8(tag).ok())
                        .and_then(content::read_tag),
                });
            }
            if self.is_untouched {
                return Err(ErrorKind::ConnectionReset.into());
            }
            if self.is_ended || !self.receive(link).await? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Bytes of the body; 0: its end. An error: the stream or the connection was cut off.
    pub async fn read(&mut self, link: &mut Link, buffer: &mut [u8]) -> io::Result<usize> {
        while self.data.is_empty() {
            if self.is_ended && !self.is_broken {
                return Ok(0);
            }
            if self.is_broken || !self.receive(link).await? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        let count = self.data.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.data[..count]);
        self.data.drain(..count);
        if let Some(key) = self.key {
            self.session.consume(key, count);
        }
        self.flush(link).await?;
        Ok(count)
    }

    /// Whether the server takes another request.
    pub fn goes_on(&self) -> bool {
        self.session.openable() > 0
    }

    /// Reads once, and takes in what came; false: the end.
    async fn receive(&mut self, link: &mut Link) -> io::Result<bool> {
        let before = self.input.len();
        self.input.resize(before + INPUT, 0);
        let count = link.read(&mut self.input[before..]).await;
        self.input.truncate(before + *count.as_ref().unwrap_or(&0));
        if count? == 0 {
            return Ok(false);
        }
        let now_ms = self.began.elapsed().as_millis() as u64;
        self.session.begin_turn(now_ms);
        self.session.begin_read();
        let input = std::mem::take(&mut self.input);
        let mut used = 0;
        loop {
            let (taken, event) = self.session.receive(&input[used..], now_ms, &mut |_| None);
            used += taken;
            match event {
                Event::Partial => break,
                Event::Closed(_) => return Ok(false),
                // Of another stream: the end of one whose answer was taken.
                Event::Response(key, ..)
                | Event::Data(key, ..)
                | Event::Trailers(key, ..)
                | Event::Reset(key, ..)
                    if Some(key) != self.key => {}
                Event::Response(_, head, is_end) if !head.is_interim() => {
                    (self.head, self.is_ended) = (Some(head), is_end);
                }
                Event::Data(_, data, is_last) => {
                    self.data.extend_from_slice(data);
                    self.is_ended = is_last;
                }
                Event::Trailers(..) => self.is_ended = true,
                Event::Reset(_, cause) => {
                    (self.is_ended, self.is_broken) = (true, true);
                    self.is_untouched = cause.may_repeat();
                }
                _ => {}
            }
        }
        self.input = input[used..].to_vec();
        self.flush(link).await?;
        Ok(true)
    }

    async fn flush(&mut self, link: &mut Link) -> io::Result<()> {
        let count = self.session.output().len();
        if count > 0 {
            link.write_all(self.session.output()).await?;
            self.session.sent(count);
        }
        Ok(())
    }
}
