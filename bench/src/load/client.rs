//! One connection that asks and takes answers with a length, and throws bodies away inside the kernel, or compares them with what the
//! origin says.

use bench::content::{self, Bytes};
use socket2::SockRef;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpSocket;
use tokio::time::{Instant, sleep_until};

use crate::http2::Http2;
use crate::link::Link;
use crate::protocol;

const HEAD_MAX: usize = 16_384;
/// Bytes read per call to be compared.
const CHECKED: usize = 65_536;
/// Bytes thrown away per call.
const DISCARD: usize = 1 << 20;
/// MSG_TRUNC of recv(2): on TCP the bytes are dropped without being copied (tcp(7)); the same number on every Linux.
const MSG_TRUNC: i32 = 0x20;

/// Why there is no complete answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No connection.
    Connect,
    /// The connection ended before the first byte of the answer.
    Closed,
    /// It ended within the answer.
    Cut,
    /// Not an answer that this client understands: no status or no length.
    Unclear,
    /// Complete, and not what the origin gives for this path.
    Wrong,
}

impl Failure {
    /// For the report.
    pub fn name(self) -> &'static str {
        match self {
            Failure::Connect => "connect",
            Failure::Closed => "closed",
            Failure::Cut => "cut",
            Failure::Unclear => "unclear",
            Failure::Wrong => "wrong",
        }
    }
}

/// A complete answer.
#[derive(Debug)]
pub struct Answer {
    /// 200 …
    pub status: u16,
    /// Of the body.
    pub bytes: u64,
    /// The server closes behind it.
    pub is_last: bool,
    /// When its head was there.
    pub first: Instant,
}

/// A connection between two requests.
pub struct Client {
    link: Link,
    ahead: Vec<u8>,
    http2: Option<Box<Http2>>,
}

impl Client {
    /// Connects. `window`: size of the receive buffer in bytes, for readers that are to be slow.
    pub async fn connect(address: SocketAddr, window: Option<u32>) -> Result<Client, Failure> {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        }
        .map_err(|_| Failure::Connect)?;
        if let Some(window) = window {
            socket
                .set_recv_buffer_size(window)
                .map_err(|_| Failure::Connect)?;
        }
        let stream = socket
            .connect(address)
            .await
            .map_err(|_| Failure::Connect)?;
        stream.set_nodelay(true).map_err(|_| Failure::Connect)?;
        let link = Link::new(stream).await.map_err(|_| Failure::Connect)?;
        let is_http2 = protocol::get().is_http2;
        Ok(Client {
            link,
            ahead: Vec::new(),
            http2: is_http2.then(|| Box::new(Http2::new(window))),
        })
    }

    /// Sends one request; `close` asks for the end of the connection behind it.
    pub async fn send(&mut self, target: &str, close: bool) -> Result<(), Failure> {
        if let Some(http2) = &mut self.http2 {
            let sent = http2.send(&mut self.link, target).await;
            return sent.map_err(|_| Failure::Closed);
        }
        let connection = if close { "Connection: close\r\n" } else { "" };
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{connection}\r\n");
        self.link
            .write_all(request.as_bytes())
            .await
            .map_err(|_| Failure::Closed)
    }

    /// Sends a request and takes its answer.
    pub async fn exchange(
        &mut self,
        target: &str,
        close: bool,
        drain: &mut Drain,
    ) -> Result<Answer, Failure> {
        self.send(target, close).await?;
        self.finish(target, drain).await
    }

    /// Takes the answer to what was sent.
    pub async fn finish(&mut self, target: &str, drain: &mut Drain) -> Result<Answer, Failure> {
        let head = self.take_head(drain).await?;
        let first = Instant::now();
        let bytes = match head.length {
            Some(length) if drain.is_checking() && head.status == 200 => {
                self.compare(target, head.tag, length, drain).await?;
                length
            }
            Some(length) => {
                let ahead = self.ahead.len() as u64;
                self.ahead.clear();
                self.discard(length.checked_sub(ahead).ok_or(Failure::Unclear)?, drain)
                    .await?;
                length
            }
            None => self.take_chunks(drain).await?,
        };
        let is_last = head.is_last || self.http2.as_ref().is_some_and(|http2| !http2.goes_on());
        Ok(Answer {
            status: head.status,
            bytes,
            is_last,
            first,
        })
    }

    /// Reads a body of the origin and compares every byte.
    async fn compare(
        &mut self,
        target: &str,
        tag: Option<(u64, u64)>,
        length: u64,
        drain: &mut Drain,
    ) -> Result<(), Failure> {
        let path = target.split('?').next().unwrap_or(target);
        let (version, size) = tag.unwrap_or((0, length));
        let wanted = content::Wanted::parse(path).map(|wanted| wanted.size);
        let mut is_right = size == length && wanted == Some(length);
        let place = content::place(path, version);
        is_right &= drain.is_part(place, 0, &self.ahead);
        let mut at = self.ahead.len() as u64;
        self.ahead.clear();
        let begun = Instant::now();
        while at < length {
            if let Some(rate) = drain.rate {
                sleep_until(begun + Duration::from_secs_f64(at as f64 / rate as f64)).await;
            }
            let count = match self.read(drain).await {
                Ok(0) | Err(_) => return Err(Failure::Cut),
                Ok(count) => count,
            };
            is_right &= drain.is_part(place, at, &drain.scratch[..count]);
            at += count as u64;
        }
        if is_right && at == length {
            Ok(())
        } else {
            Err(Failure::Wrong)
        }
    }

    /// Reads a chunked body, for lists of directories: nothing large. Their text holds no last chunk.
    async fn take_chunks(&mut self, drain: &mut Drain) -> Result<u64, Failure> {
        if self.http2.is_some() {
            return self.take_rest(drain).await;
        }
        while !self.ahead.ends_with(b"0\r\n\r\n") {
            if self.ahead.len() > DISCARD {
                return Err(Failure::Unclear);
            }
            match self.read(drain).await {
                Ok(0) | Err(_) => return Err(Failure::Cut),
                Ok(count) => self.ahead.extend_from_slice(&drain.scratch[..count]),
            }
        }
        let bytes = self.ahead.len() as u64;
        self.ahead.clear();
        Ok(bytes)
    }

    /// Reads a body without a length, whose end the protocol tells.
    async fn take_rest(&mut self, drain: &mut Drain) -> Result<u64, Failure> {
        let mut bytes = 0;
        loop {
            match self.read(drain).await {
                Ok(0) => return Ok(bytes),
                Ok(count) => bytes += count as u64,
                Err(_) => return Err(Failure::Cut),
            }
        }
    }

    /// Reads the head; what came behind it stays in `self.ahead`.
    pub async fn take_head(&mut self, drain: &mut Drain) -> Result<Head, Failure> {
        self.ahead.clear();
        if let Some(http2) = &mut self.http2 {
            let head = http2.head(&mut self.link).await;
            return head.map_err(|error| match error.kind() {
                ErrorKind::ConnectionReset => Failure::Closed,
                _ => Failure::Cut,
            });
        }
        loop {
            if let Some(end) = self
                .ahead
                .windows(4)
                .position(|window| window == b"\r\n\r\n")
            {
                let parsed = parse_head(&self.ahead[..end]).ok_or(Failure::Unclear);
                self.ahead.drain(..end + 4);
                return parsed;
            }
            if self.ahead.len() > HEAD_MAX {
                return Err(Failure::Unclear);
            }
            let closed = if self.ahead.is_empty() {
                Failure::Closed
            } else {
                Failure::Cut
            };
            match self.read(drain).await {
                Ok(0) | Err(_) => return Err(closed),
                Ok(count) => self.ahead.extend_from_slice(&drain.scratch[..count]),
            }
        }
    }

    async fn read(&mut self, drain: &mut Drain) -> io::Result<usize> {
        match &mut self.http2 {
            Some(http2) => http2.read(&mut self.link, &mut drain.scratch).await,
            None => self.link.read(&mut drain.scratch).await,
        }
    }

    /// Throws `left` bytes of a body away.
    pub async fn discard(&mut self, mut left: u64, drain: &mut Drain) -> Result<(), Failure> {
        let socket = self.link.clear_socket().filter(|_| self.http2.is_none());
        let Some(stream) = socket else {
            return self.discard_read(left, drain).await;
        };
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(DISCARD).min(DISCARD);
            let socket = SockRef::from(stream);
            let taken = stream.try_io(Interest::READABLE, || {
                socket.recv_with_flags(&mut drain.nowhere[..want], MSG_TRUNC)
            });
            match taken {
                Ok(0) => return Err(Failure::Cut),
                Ok(count) => left -= count as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    stream.readable().await.map_err(|_| Failure::Cut)?
                }
                Err(_) => return Err(Failure::Cut),
            }
        }
        Ok(())
    }

    /// The same, of bytes that are read first.
    async fn discard_read(&mut self, mut left: u64, drain: &mut Drain) -> Result<(), Failure> {
        while left > 0 {
            let all = drain.scratch.len();
            let want = usize::try_from(left).unwrap_or(all).min(all);
            let read = match &mut self.http2 {
                Some(http2) => http2.read(&mut self.link, &mut drain.scratch[..want]).await,
                None => self.link.read(&mut drain.scratch[..want]).await,
            };
            match read {
                Ok(0) | Err(_) => return Err(Failure::Cut),
                Ok(count) => left -= count as u64,
            }
        }
        Ok(())
    }

    /// Whether the server still holds the connection.
    pub fn is_open(&mut self) -> bool {
        self.link.is_open()
    }
}

/// Buffers that all connections of a thread share: no answer is looked at across an await.
pub struct Drain {
    scratch: Vec<u8>,
    nowhere: Vec<MaybeUninit<u8>>,
    expected: Option<Rc<Bytes>>,
    /// Bytes a second that are taken of a body that is compared.
    rate: Option<u64>,
}

impl Drain {
    /// 1 MiB that is never written, and room for a head.
    pub fn new() -> Drain {
        Drain {
            scratch: vec![0; HEAD_MAX],
            nowhere: vec![MaybeUninit::uninit(); DISCARD],
            expected: None,
            rate: None,
        }
    }

    /// For answers that are compared with the origin's.
    pub fn checking(expected: Rc<Bytes>) -> Drain {
        Drain {
            scratch: vec![0; CHECKED],
            expected: Some(expected),
            ..Drain::new()
        }
    }

    /// The same, so many bytes a second, a tenth of them at a time.
    pub fn paced(self, rate: u64) -> Drain {
        let part = usize::try_from(rate / 10)
            .unwrap_or(CHECKED)
            .clamp(1, CHECKED);
        Drain {
            scratch: vec![0; part],
            rate: Some(rate),
            ..self
        }
    }

    fn is_checking(&self) -> bool {
        self.expected.is_some()
    }

    fn is_part(&self, place: usize, at: u64, seen: &[u8]) -> bool {
        self.expected
            .as_ref()
            .is_none_or(|expected| expected.part(place, at, seen.len()) == seen)
    }
}

/// What counts of an answer's head.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    /// 200 …
    pub status: u16,
    /// Of the body; none: it is not told.
    pub length: Option<u64>,
    /// The server closes behind it.
    pub is_last: bool,
    /// Version and size that the origin's entity tag names.
    pub tag: Option<(u64, u64)>,
}

/// None: no status, or neither length nor chunks.
fn parse_head(head: &[u8]) -> Option<Head> {
    let text = std::str::from_utf8(head).ok()?;
    let status = text.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
    // Neither has a body (RFC 9112, 6.3).
    let mut length = matches!(status, 204 | 304).then_some(0);
    let mut is_chunked = false;
    let mut is_last = false;
    let mut tag = None;
    for line in text.split("\r\n").skip(1) {
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(value.trim().parse().ok()?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            is_chunked = true;
        } else if name.eq_ignore_ascii_case("connection") {
            is_last = value.trim().eq_ignore_ascii_case("close");
        } else if name.eq_ignore_ascii_case("etag") {
            tag = content::read_tag(value.trim());
        }
    }
    (is_chunked || length.is_some()).then_some(Head {
        status,
        length,
        is_last,
        tag,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_gives_status_length_and_end() {
        let head = b"HTTP/1.1 404 Not Found\r\ncontent-length: 12\r\nConnection: close";
        assert_eq!(
            parse_head(head),
            Some(Head {
                status: 404,
                length: Some(12),
                is_last: true,
                tag: None
            })
        );
        assert_eq!(parse_head(b"HTTP/1.1 200 OK\r\nServer: x"), None);
    }
}
