//! Parses request heads from the bytes received so far, by nginx's rules.
//!
//! Knows no socket. A [`RequestParser`] continues where it stopped, so that a head that arrives byte by byte costs no
//! more than one that arrives at once; the result does not depend on how the bytes were split.

use bytes::Bytes;
use message::head::HostText;
use message::{
    ConnectionType, Field, Framing, HeaderId, Method, RequestHead, Span, Version, host, uri,
};

use super::head_buffers::copied;
pub use super::head_limits::HeadLimits;
use super::header_line;
use super::line::{self, LineFault};

/// Maximum number of bytes of empty lines skipped before a request line (nginx: unlimited, in a buffer that it reuses).
pub const BLANK_LINES_MAX: usize = 4096;

/// The result of parsing.
#[derive(Debug)]
pub enum ParsedRequest {
    /// More bytes are needed.
    Partial,
    /// A complete head, and its length in bytes.
    Complete(Box<RequestHead>, usize),
    /// A request to answer with an error; the connection is then closed.
    Refused(Box<HeadRefusal>),
}

/// A refused request.
#[derive(Debug)]
pub struct HeadRefusal {
    /// 400, 405, 414, 494, 501 or 505.
    pub status: u16,
    /// The reason in nginx's words, for the log (level info).
    pub why: String,
    /// The part of the head that could be read; without a URI if that is the cause.
    pub head: RequestHead,
    /// Whether more of the request is likely to follow, so that the connection must linger.
    pub must_linger: bool,
    /// Whether the head was received completely.
    pub is_whole: bool,
    /// Whether it is only logged, and no response is sent (the client left or was too slow).
    pub is_silent: bool,
}

/// Chooses the server by its name: returns the limits of the virtual server, or `None` to keep the current ones.
pub type Choose<'a> = &'a mut dyn FnMut(&[u8]) -> Option<HeadLimits>;

/// Parses a complete head, with the same limits for every host.
pub fn parse_head(bytes: &[u8], limits: &HeadLimits) -> ParsedRequest {
    RequestParser::new(limits).advance(bytes, &mut |_| None)
}

/// The state of a head that is being received. Each call gets all bytes from the start of the head.
#[derive(Debug)]
pub struct RequestParser {
    limits: HeadLimits,
    head: Option<Box<RequestHead>>,
    /// Offset at which the current line begins.
    at: usize,
    /// Offset up to which there is no line feed.
    scanned: usize,
    /// Number of bytes of the current line that have been checked.
    checked: usize,
    /// Total length in bytes of the lines read.
    counted: usize,
    has_line: bool,
    /// Whether the empty line after the head has been read.
    is_whole: bool,
    headers: usize,
    has_host_field: bool,
    content_length: Option<Span>,
    transfer_encoding: Option<Span>,
    room: usize,
    large_used: usize,
}

struct RequestStop {
    status: u16,
    why: String,
}

impl RequestStop {
    fn new(status: u16, why: impl Into<String>) -> RequestStop {
        RequestStop {
            status,
            why: why.into(),
        }
    }
}

impl RequestParser {
    /// A parser for a new request.
    pub fn new(limits: &HeadLimits) -> RequestParser {
        RequestParser {
            limits: *limits,
            head: None,
            at: 0,
            scanned: 0,
            checked: 0,
            counted: 0,
            has_line: false,
            is_whole: false,
            headers: 0,
            has_host_field: false,
            content_length: None,
            transfer_encoding: None,
            room: limits.client_header_buffer_size,
            large_used: 0,
        }
    }

    /// Whether nothing has come yet, not even an empty line.
    pub(crate) fn is_untouched(&self) -> bool {
        !self.has_line && self.scanned == 0
    }

    /// Turns the received part of an incomplete head into a refusal for the log; no response is sent.
    pub(crate) fn broken_off(mut self, bytes: &[u8], status: u16, why: String) -> HeadRefusal {
        let head = self.head.take().unwrap_or_else(RequestHead::boxed);
        let mut refusal = self.refuse(bytes, *head, RequestStop::new(status, why));
        refusal.is_silent = true;
        refusal
    }

    /// Continues with `bytes`, which begin with the bytes of the previous call.
    pub fn advance(&mut self, bytes: &[u8], choose: Choose<'_>) -> ParsedRequest {
        let mut head = self.head.take().unwrap_or_else(RequestHead::boxed);
        match self.lines(bytes, &mut head, choose) {
            Ok(true) => {
                head.bytes = copied(&bytes[..self.at]);
                head.length = self.counted as u32;
                ParsedRequest::Complete(head, self.at)
            }
            Ok(false) => {
                self.head = Some(head);
                ParsedRequest::Partial
            }
            Err(stop) => ParsedRequest::Refused(Box::new(self.refuse(bytes, *head, stop))),
        }
    }

    /// Parses lines; returns whether the head is complete.
    fn lines(
        &mut self,
        bytes: &[u8],
        head: &mut RequestHead,
        choose: Choose<'_>,
    ) -> Result<bool, RequestStop> {
        if !self.has_line {
            self.skip_blank_lines(bytes)?;
        }
        while let Some(offset) = memchr::memchr(b'\n', &bytes[self.scanned..]) {
            let (start, end) = (self.at, self.scanned + offset);
            self.occupy(end + 1 - start, bytes)?;
            self.at = end + 1;
            self.scanned = self.at;
            self.checked = 0;
            if !self.has_line {
                self.request_line(bytes, start, end, head, choose)?;
                if head.version == Version::HTTP_09 {
                    return self.finish(bytes, head).map(|()| true);
                }
            } else if matches!(&bytes[start..end], [] | [b'\r']) {
                self.counted += end + 1 - start;
                self.is_whole = true;
                return self.finish(bytes, head).map(|()| true);
            } else {
                self.header_line(bytes, start, end, head, choose)?;
            }
        }
        self.scanned = bytes.len();
        self.check_begun(bytes)?;
        Ok(false)
    }

    fn skip_blank_lines(&mut self, bytes: &[u8]) -> Result<(), RequestStop> {
        while self.at < bytes.len() && matches!(bytes[self.at], b'\r' | b'\n') {
            self.at += 1;
            self.room = match self.room {
                0 | 1 => self.limits.client_header_buffer_size,
                room => room - 1,
            };
        }
        self.scanned = self.scanned.max(self.at);
        if self.at > BLANK_LINES_MAX {
            return Err(RequestStop::new(400, "client sent too many empty lines"));
        }
        Ok(())
    }

    /// Counts a complete line of `len` bytes against nginx's buffers.
    fn occupy(&mut self, len: usize, bytes: &[u8]) -> Result<(), RequestStop> {
        if len <= self.room {
            self.room -= len;
            return Ok(());
        }
        if self.room >= self.limits.large_buffer_size
            || self.large_used >= self.limits.large_buffers
            || len > self.limits.large_buffer_size
        {
            return Err(self.too_large(bytes));
        }
        self.large_used += 1;
        self.room = self.limits.large_buffer_size - len;
        Ok(())
    }

    /// Checks an incomplete line: its length at every call, its bytes whenever their number has doubled.
    fn check_begun(&mut self, bytes: &[u8]) -> Result<(), RequestStop> {
        let begun = &bytes[self.at..];
        let fits_large = self.room < self.limits.large_buffer_size
            && self.large_used < self.limits.large_buffers
            && begun.len() < self.limits.large_buffer_size;
        if begun.len() >= self.room.max(1) && !fits_large {
            return Err(self.too_large(bytes));
        }
        if begun.len() < 2 * self.checked {
            return Ok(());
        }
        self.checked = begun.len();
        self.check_start(begun)
    }

    /// Checks the start of a line, whose end is not known.
    fn check_start(&self, begun: &[u8]) -> Result<(), RequestStop> {
        if self.has_line {
            return header_line::check(begun).map_err(|fault| describe(fault, begun));
        }
        let begun = begun.strip_suffix(b"\r").unwrap_or(begun);
        line::parse_request(begun, false)
            .map(|_| ())
            .map_err(|fault| describe(fault, begun))
    }

    /// The refusal of a line that does not fit. A fault in the part that does fit comes first, however the bytes came.
    fn too_large(&self, bytes: &[u8]) -> RequestStop {
        let begun = &bytes[self.at..];
        let has_large = self.room < self.limits.large_buffer_size
            && self.large_used < self.limits.large_buffers;
        let room = match has_large {
            true => self.limits.large_buffer_size,
            false => self.room,
        };
        let end = memchr::memchr(b'\n', begun).unwrap_or(begun.len());
        if let Err(fault) = self.check_start(&begun[..end.min(room)]) {
            return fault;
        }
        if !self.has_line {
            return RequestStop::new(414, "client sent too long URI");
        }
        const SHOWN_MAX: usize = 2048 - 300;
        // Of this line alone, and nothing that could end a line of the log.
        let shown = begun[..end.min(SHOWN_MAX)].escape_ascii();
        RequestStop::new(
            494,
            format!("client sent too long header line: \"{shown}...\""),
        )
    }

    fn request_line(
        &mut self,
        bytes: &[u8],
        start: usize,
        end: usize,
        head: &mut RequestHead,
        choose: Choose<'_>,
    ) -> Result<(), RequestStop> {
        let text = &bytes[start..end];
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        head.line = Span::new(start, start + text.len());
        let found = match line::parse_request(text, true) {
            Ok(Some(found)) => found,
            Ok(None) => return Err(describe(LineFault::Request, text)),
            Err(fault) => {
                if matches!(fault, LineFault::Method09) {
                    head.version = Version::HTTP_09;
                }
                return Err(describe(fault, text));
            }
        };
        self.counted = end + 1 - start;
        let moved = |span: Span| Span {
            start: span.start + start as u32,
            len: span.len,
        };
        head.method = found.method.unwrap_or(Method::Other);
        head.method_text = moved(found.method_text);
        head.version = found.version.unwrap_or(Version::HTTP_09);
        head.protocol = moved(found.protocol);
        head.target = moved(found.target);
        head.scheme = moved(found.scheme);
        head.authority = moved(found.authority);
        head.is_path_empty = found.is_path_empty;
        head.is_complex = found.is_complex;
        if found.is_complex {
            let normal = uri::normalise(found.target.of(text), self.limits.merge_slashes)
                .map_err(|_| RequestStop::new(400, "client sent invalid request"))?;
            head.args = Span {
                start: normal.args.start + head.target.start,
                len: normal.args.len,
            };
            head.extension = normal.extension;
            head.normal = Some(normal.path.into());
        } else {
            head.path = moved(found.path);
            head.args = moved(found.args);
            head.extension = moved(found.extension);
        }
        if !found.authority.is_empty() || !found.scheme.is_empty() {
            self.take_host(bytes, head.authority, head, choose)
                .map_err(|host::InvalidHost| {
                    RequestStop::new(400, "client sent invalid host in request line")
                })?;
        }
        self.has_line = true;
        Ok(())
    }

    /// Validates a host; the first one becomes the request's.
    fn take_host(
        &mut self,
        bytes: &[u8],
        span: Span,
        head: &mut RequestHead,
        choose: Choose<'_>,
    ) -> Result<(), host::InvalidHost> {
        let found = host::parse(span.of(bytes))?;
        if head.host.is_some() {
            return Ok(());
        }
        head.port = found.port;
        if let Some(limits) = choose(&found.name) {
            self.limits = limits;
        }
        head.host = Some(match found.name {
            std::borrow::Cow::Borrowed(name) => HostText::Raw(Span {
                start: span.start,
                len: name.len() as u32,
            }),
            std::borrow::Cow::Owned(name) => HostText::Lowered(name.into()),
        });
        Ok(())
    }

    fn header_line(
        &mut self,
        bytes: &[u8],
        start: usize,
        end: usize,
        head: &mut RequestHead,
        choose: Choose<'_>,
    ) -> Result<(), RequestStop> {
        let text = header_line::without_returns(&bytes[start..end]);
        let text_end = start + text.len();
        let underscores = self.limits.underscores_in_headers;
        let found = header_line::parse(bytes, start, text_end, underscores)
            .map_err(|fault| describe(fault, text))?;
        if !found.has_colon {
            return Err(describe(LineFault::Header(text.len() as u32), text));
        }
        self.counted += end + 1 - start;
        if found.is_invalid && self.limits.ignore_invalid_headers {
            head.dropped.push(Span::new(start, text_end));
            return Ok(());
        }
        self.headers += 1;
        if self.headers > self.limits.max_headers {
            return Err(RequestStop::new(494, "client sent too many header lines"));
        }
        let field = found.field;
        let is_first = head.known & field.id.bit() == 0;
        let judged = match field.id {
            HeaderId::Other => Ok(()),
            _ => self.known_header(bytes, field, head, choose),
        };
        // The first line of a name is kept even if it is invalid, for the log.
        if is_first || judged.is_ok() {
            head.push(field);
        }
        judged
    }

    fn known_header(
        &mut self,
        bytes: &[u8],
        field: Field,
        head: &mut RequestHead,
        choose: Choose<'_>,
    ) -> Result<(), RequestStop> {
        let value = field.value.of(bytes);
        if head.known & field.id.bit() != 0 && is_unique(field.id) {
            return Err(duplicate(bytes, field, head));
        }
        match field.id {
            HeaderId::Host => {
                self.has_host_field = true;
                self.take_host(bytes, field.value, head, choose)
                    .map_err(|host::InvalidHost| {
                        RequestStop::new(400, "client sent invalid host header")
                    })?;
            }
            HeaderId::Connection => {
                if contains_word(value, b"close") {
                    head.connection = Some(ConnectionType::Close);
                } else if contains_word(value, b"keep-alive") {
                    head.connection = Some(ConnectionType::KeepAlive);
                }
            }
            HeaderId::ContentLength => self.content_length = Some(field.value),
            HeaderId::TransferEncoding => self.transfer_encoding = Some(field.value),
            _ => {}
        }
        Ok(())
    }

    /// Checks what depends on the complete set of lines.
    fn finish(&mut self, bytes: &[u8], head: &mut RequestHead) -> Result<(), RequestStop> {
        if !self.has_host_field && head.version > Version::HTTP_10 {
            return Err(RequestStop::new(
                400,
                "client sent HTTP/1.1 request without \"Host\" header",
            ));
        }
        let length = match self.content_length {
            Some(span) => Some(parse_length(span.of(bytes)).ok_or_else(|| {
                RequestStop::new(400, "client sent invalid \"Content-Length\" header")
            })?),
            None => None,
        };
        head.framing = length.map_or(Framing::None, Framing::Length);
        if let Some(span) = self.transfer_encoding {
            let coding = span.of(bytes);
            if head.version < Version::HTTP_11 {
                return Err(RequestStop::new(
                    400,
                    "client sent HTTP/1.0 request with \"Transfer-Encoding\" header",
                ));
            }
            if !coding.eq_ignore_ascii_case(b"chunked") {
                let coding = String::from_utf8_lossy(coding);
                return Err(RequestStop::new(
                    501,
                    format!("client sent unknown \"Transfer-Encoding\": \"{coding}\""),
                ));
            }
            if length.is_some() {
                return Err(RequestStop::new(
                    400,
                    "client sent \"Content-Length\" and \"Transfer-Encoding\" headers at the same time",
                ));
            }
            head.framing = Framing::Chunked;
        }
        match head.method {
            Method::Connect if head.version != Version::HTTP_11 || !self.limits.allow_connect => {
                Err(RequestStop::new(405, "client sent CONNECT method"))
            }
            Method::Connect if head.has_body() => Err(RequestStop::new(
                400,
                "client sent CONNECT request with body",
            )),
            Method::Trace => Err(RequestStop::new(405, "client sent TRACE method")),
            _ => Ok(()),
        }
    }

    fn refuse(&self, bytes: &[u8], mut head: RequestHead, stop: RequestStop) -> HeadRefusal {
        head.length = self.counted as u32;
        head.framing = Framing::None;
        let received = match self.has_line {
            true => bytes,
            false => self.begun_line(bytes, &mut head),
        };
        head.bytes = Bytes::copy_from_slice(received);
        let part = if self.has_line { "headers" } else { "line" };
        HeadRefusal {
            status: stop.status,
            why: format!("{} while reading client request {part}", stop.why),
            head,
            must_linger: !self.is_whole || self.at < bytes.len(),
            is_whole: self.is_whole,
            is_silent: false,
        }
    }

    /// Notes a request line that could not be read, for logs: as in nginx, as far as it was received and fits into one
    /// buffer. Returns the bytes up to there.
    fn begun_line<'a>(&self, bytes: &'a [u8], head: &mut RequestHead) -> &'a [u8] {
        let start = match head.line.is_empty() {
            true => self.at,
            false => head.line.start as usize,
        };
        let limits = &self.limits;
        let room = (limits.client_header_buffer_size).max(limits.large_buffer_size);
        let bytes = &bytes[..bytes.len().min(start + room)];
        let line = &bytes[start..];
        let line = &line[..memchr::memchr2(b'\r', b'\n', line).unwrap_or(line.len())];
        head.line = Span::new(start, start + line.len());
        // The response to HEAD has no body, even if the line is invalid elsewhere. (HTTP/0.9 has no HEAD.)
        if head.method == Method::Other && head.version > Version::HTTP_09 {
            let end = memchr::memchr(b' ', line).unwrap_or(0);
            head.method = Method::find(&line[..end]);
        }
        bytes
    }
}

fn describe(fault: LineFault, line: &[u8]) -> RequestStop {
    match fault {
        LineFault::Method => RequestStop::new(400, "client sent invalid method"),
        LineFault::Request => RequestStop::new(400, "client sent invalid request"),
        LineFault::Version => RequestStop::new(505, "client sent invalid version"),
        LineFault::Method09 => {
            RequestStop::new(400, "client sent invalid method in HTTP/0.9 request")
        }
        LineFault::Header(at) => {
            let shown = String::from_utf8_lossy(&line[..at as usize]);
            let byte = line.get(at as usize).copied().unwrap_or(b'\r'); // the line's end
            RequestStop::new(
                400,
                format!("client sent invalid header line: \"{shown}\\x{byte:02x}...\""),
            )
        }
    }
}

fn duplicate(bytes: &[u8], field: Field, head: &RequestHead) -> RequestStop {
    let text = |span: Span| String::from_utf8_lossy(span.of(bytes));
    let before = head
        .fields
        .iter()
        .find(|before| before.id == field.id)
        .copied()
        .unwrap_or(field);
    let what = if field.id == HeaderId::Host {
        "host header"
    } else {
        "header line"
    };
    RequestStop::new(
        400,
        format!(
            "client sent duplicate {what}: \"{}: {}\", previous value: \"{}: {}\"",
            text(field.name),
            text(field.value),
            text(before.name),
            text(before.value)
        ),
    )
}

/// Header names that may occur only once in a request.
pub(crate) fn is_unique(id: HeaderId) -> bool {
    use HeaderId::*;
    let unique = Host.bit()
        | IfModifiedSince.bit()
        | IfUnmodifiedSince.bit()
        | IfMatch.bit()
        | IfNoneMatch.bit()
        | IfRange.bit()
        | ContentLength.bit()
        | ContentRange.bit()
        | TransferEncoding.bit()
        | Expect.bit()
        | Authorization.bit()
        | ProxyAuthorization.bit();
    unique & id.bit() != 0
}

/// Parses digits only: at least one, and a value of at most `i64::MAX`.
pub(crate) fn parse_length(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |sum, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        sum.checked_mul(10)?
            .checked_add(digit)
            .filter(|sum| *sum <= i64::MAX as u64)
    })
}

pub(crate) fn contains_word(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len())
        .any(|window| window.eq_ignore_ascii_case(word))
}
