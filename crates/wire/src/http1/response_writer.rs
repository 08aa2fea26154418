//! Writes response heads and chunks, in nginx's order of header lines, into a buffer that the caller reuses.
//!
//! Decides nothing itself: the caller passes connection, framing, date and server line. Invariant: a head holds each of
//! Content-Length, Transfer-Encoding and Connection at most once, and no CR or LF within a line.

use message::{ETag, Header, Response, date, status};

/// The `Connection` header of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionHeader {
    /// `Connection: close`
    Close,
    /// `Connection: keep-alive`, with `Keep-Alive: timeout=` if a number of seconds is given (second argument of
    /// `keepalive_timeout`).
    KeepAlive(Option<u64>),
    /// `Connection: upgrade`, for 101.
    Upgrade,
}

/// The parts of a head that are not in the response.
#[derive(Clone, Copy, Debug)]
pub struct HeadContext<'a> {
    /// The complete line with its line end, `Server: freewheel\r\n`; if empty, none is written.
    pub server_line: &'a [u8],
    /// The current date.
    pub date: &'a [u8; date::DATE_LEN],
    /// The `Connection` header.
    pub connection: ConnectionHeader,
    /// Whether the body is sent in chunks.
    pub is_chunked: bool,
}

/// The interim response to `Expect: 100-continue`.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// Bytes reserved for a head; a longer one grows the buffer.
const HEAD_TYPICAL: usize = 512;

/// Appends a response head, including the empty line. Not for HTTP/0.9, which has none.
pub fn head<F>(out: &mut Vec<u8>, response: &Response<F>, context: &HeadContext<'_>) {
    out.reserve(HEAD_TYPICAL);
    status_line(out, response);
    let has_own =
        |name: &[u8]| !response.headers.is_empty() && response.headers.get(name).is_some();
    if !response.omits_server && !has_own(b"Server") {
        out.extend_from_slice(context.server_line);
    }
    if !response.omits_date && !has_own(b"Date") {
        safe_line(out, b"Date: ", context.date);
    }
    if response.status != 204 {
        entity_lines(out, response);
    }
    if let Some(location) = &response.location {
        line(out, b"Location: ", location);
    }
    connection_lines(out, context);
    if response.vary_accept_encoding {
        out.extend_from_slice(b"Vary: Accept-Encoding\r\n");
    }
    if let Some(tag) = &response.etag {
        out.extend_from_slice(b"ETag: ");
        match tag {
            ETag::Text(value) => text(out, value),
            ETag::File { .. } => tag.write(out),
        }
        out.extend_from_slice(b"\r\n");
    }
    for header in &response.headers {
        header_line(out, header);
    }
    if let Some(encoding) = &response.content_encoding {
        line(out, b"Content-Encoding: ", encoding);
    }
    if response.accept_ranges {
        out.extend_from_slice(b"Accept-Ranges: bytes\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends an interim head (103 with the `Link` lines of an upstream).
pub fn interim(out: &mut Vec<u8>, status: u16, headers: &[Header]) {
    out.extend_from_slice(b"HTTP/1.1 ");
    code_and_text(out, status);
    headers.iter().for_each(|header| header_line(out, header));
    out.extend_from_slice(b"\r\n");
}

fn status_line<F>(out: &mut Vec<u8>, response: &Response<F>) {
    match (&response.status_line, response.status) {
        (Some(line), _) => {
            out.extend_from_slice(b"HTTP/1.1 ");
            text(out, line);
            out.extend_from_slice(b"\r\n");
        }
        (None, 200) => out.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
        (None, status) => {
            out.extend_from_slice(b"HTTP/1.1 ");
            code_and_text(out, status);
        }
    }
}

/// Writes the space after the code even if there is no text, as nginx does.
fn code_and_text(out: &mut Vec<u8>, status: u16) {
    let digit = |value: u16| b'0' + (value % 10) as u8;
    out.extend_from_slice(&[digit(status / 100), digit(status / 10), digit(status), b' ']);
    out.extend_from_slice(status::text(status).unwrap_or("").as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn entity_lines<F>(out: &mut Vec<u8>, response: &Response<F>) {
    if !response.content_type.is_empty() {
        out.extend_from_slice(b"Content-Type: ");
        text(out, &response.content_type);
        if !response.charset.is_empty() {
            out.extend_from_slice(b"; charset=");
            text(out, &response.charset);
        }
        out.extend_from_slice(b"\r\n");
    }
    if let Some(length) = response.content_length {
        safe_line(
            out,
            b"Content-Length: ",
            itoa::Buffer::new().format(length).as_bytes(),
        );
    }
    if let Some(time) = response.sent_last_modified() {
        safe_line(out, b"Last-Modified: ", &date::format(time));
    }
}

fn connection_lines(out: &mut Vec<u8>, context: &HeadContext<'_>) {
    if context.is_chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    match context.connection {
        ConnectionHeader::Close => out.extend_from_slice(b"Connection: close\r\n"),
        ConnectionHeader::Upgrade => out.extend_from_slice(b"Connection: upgrade\r\n"),
        ConnectionHeader::KeepAlive(seconds) => {
            out.extend_from_slice(b"Connection: keep-alive\r\n");
            if let Some(seconds) = seconds {
                line(
                    out,
                    b"Keep-Alive: timeout=",
                    itoa::Buffer::new().format(seconds).as_bytes(),
                );
            }
        }
    }
}

fn header_line(out: &mut Vec<u8>, header: &Header) {
    text(out, &header.name);
    line(out, b": ", &header.value);
}

fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    text(out, value);
    out.extend_from_slice(b"\r\n");
}

/// Writes a line whose value is digits or our own date and so needs no check.
///
/// Inlined, since the lengths of names are known where it is called: no calls of memcpy(3).
#[inline(always)]
fn safe_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Writes a text without the bytes that would end its line: a CR or LF that got this far must not split the response.
fn text(out: &mut Vec<u8>, value: &[u8]) {
    if has_control(value) {
        out.extend(value.iter().filter(|c| !matches!(c, b'\r' | b'\n')));
    } else {
        out.extend_from_slice(value);
    }
}

/// Whether a byte is no more than CR, as hardly a value's is: eight at a time, since values are short.
fn has_control(value: &[u8]) -> bool {
    const ONES: u64 = u64::MAX / 255;
    const BEYOND: u64 = b'\r' as u64 + 1;
    let any = |bytes: &[u8; 8]| {
        let bytes = u64::from_ne_bytes(*bytes);
        bytes.wrapping_sub(ONES * BEYOND) & !bytes & (ONES * 128) != 0
    };
    let Some(last) = value.last_chunk() else {
        return value.iter().any(|byte| u64::from(*byte) < BEYOND);
    };
    any(last) || value.as_chunks().0.iter().any(any)
}

/// Appends the size line of a chunk of `len` bytes (not 0, which would end the body). `CRLF` must follow the chunk.
pub fn chunk_head(out: &mut Vec<u8>, len: u64) {
    debug_assert!(len > 0);
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = (64 - len.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        out.push(DIGITS[(len >> (4 * digit) & 15) as usize]);
    }
    out.extend_from_slice(CRLF);
}

/// The line end after a chunk.
pub const CRLF: &[u8] = b"\r\n";

/// Appends a complete chunk; nothing if `data` is empty.
pub fn chunk(out: &mut Vec<u8>, data: &[u8]) {
    if !data.is_empty() {
        chunk_head(out, data.len() as u64);
        out.extend_from_slice(data);
        out.extend_from_slice(CRLF);
    }
}

/// Appends the end of a chunked body.
pub fn last_chunk(out: &mut Vec<u8>, trailers: &[Header]) {
    out.extend_from_slice(b"0\r\n");
    trailers
        .iter()
        .for_each(|trailer| header_line(out, trailer));
    out.extend_from_slice(CRLF);
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: [u8; 29] = *b"Thu, 01 Jan 1970 00:00:00 GMT";

    fn written(response: &Response<()>, connection: ConnectionHeader, is_chunked: bool) -> String {
        let mut out = Vec::new();
        let context = HeadContext {
            server_line: b"Server: s\r\n",
            date: &DATE,
            connection,
            is_chunked,
        };
        head(&mut out, response, &context);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_file() {
        let mut response: Response<()> = Response::new(200);
        response.content_type = "text/html".into();
        response.charset = "utf-8".into();
        response.content_length = Some(12);
        response.last_modified = Some(1);
        response.etag = Some(ETag::of_file(1, 12));
        response.headers.push("X-A", "b\r\nc");
        response.accept_ranges = true;
        let expected = "HTTP/1.1 200 OK\r\nServer: s\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nContent-Type: text/html; charset=utf-8\r\n\
            Content-Length: 12\r\nLast-Modified: Thu, 01 Jan 1970 00:00:01 GMT\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\n\
            ETag: \"1-c\"\r\nX-A: bc\r\nAccept-Ranges: bytes\r\n\r\n";
        assert_eq!(
            written(&response, ConnectionHeader::KeepAlive(Some(5)), false),
            expected
        );
    }

    #[test]
    fn odd_ones() {
        let mut response: Response<()> = Response::text(204, "text/plain", "x");
        response.headers.push("date", "then");
        response.headers.push("SERVER", "theirs");
        let expected =
            "HTTP/1.1 204 No Content\r\nConnection: close\r\ndate: then\r\nSERVER: theirs\r\n\r\n";
        assert_eq!(written(&response, ConnectionHeader::Close, false), expected);
        let mut response: Response<()> = Response::new(799);
        assert!(
            written(&response, ConnectionHeader::Close, true)
                .starts_with("HTTP/1.1 799 \r\nServer")
        );
        response.status_line = Some("799 Odd".into());
        assert!(
            written(&response, ConnectionHeader::Close, true)
                .starts_with("HTTP/1.1 799 Odd\r\nServer")
        );
        response.last_modified = Some(0);
        assert!(!written(&response, ConnectionHeader::Upgrade, false).contains("Last-Modified"));
    }

    #[test]
    fn a_control_is_found_wherever_it_is() {
        for len in 0..40 {
            assert!(!has_control(&vec![b' '; len]));
            assert!(!has_control(&vec![0xff; len]));
            for at in 0..len {
                for control in [b'\r', b'\n'] {
                    let mut value = vec![b'\x80'; len];
                    value[at] = control;
                    assert!(has_control(&value), "{at} of {len}");
                }
            }
        }
    }

    #[test]
    fn no_value_ends_its_line() {
        let value = "a\r\nX-B: c\n\n";
        let mut response: Response<()> = Response::new(200);
        response.content_type = value.into();
        response.charset = value.into();
        response.etag = Some(ETag::Text(value.into()));
        response.location = Some(value.into());
        response.content_encoding = Some(value.into());
        response.status_line = Some(format!("200 {value}").into());
        response.headers.push(value, value);
        let head = written(&response, ConnectionHeader::Close, false);
        assert_eq!(head.matches('\n').count(), 10, "{head}");
        assert_eq!(head.matches("aX-B: c").count(), 8, "{head}");
    }

    #[test]
    fn ends_of_chunked_bodies() {
        let mut out = Vec::new();
        chunk(&mut out, b"");
        chunk(&mut out, &[b'a'; 16]);
        last_chunk(&mut out, &[Header::new("X", "y")]);
        assert_eq!(out, b"10\r\naaaaaaaaaaaaaaaa\r\n0\r\nX: y\r\n\r\n");
        let mut out = Vec::new();
        interim(&mut out, 103, &[Header::new("Link", "</a>")]);
        assert_eq!(out, b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
    }
}
