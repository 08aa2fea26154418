//! Writes the fields of responses and requests into a header block, in the order of HTTP/1's heads.
//!
//! Decides nothing itself: the caller passes what is not in the message. Not here: frames (`session`). Invariant: no
//! field that belongs to a connection of HTTP/1 (RFC 9113, 8.2.2), no name that is not a token, no CR, LF or NUL, and
//! no blank around a value.

use message::{Framing, Header, HeaderId, Response, date};

use super::field_class::is_value_valid;
use super::hpack::encode::{field, indexed, indexed_name, status};
use crate::http1::request_writer::{RequestFault, is_token, unfolded};

/// Static indexes (RFC 7541, appendix A).
mod index {
    pub(super) const AUTHORITY: usize = 1;
    pub(super) const GET: usize = 2;
    pub(super) const POST: usize = 3;
    pub(super) const PATH: usize = 4;
    pub(super) const SCHEME_HTTP: usize = 6;
    pub(super) const SCHEME_HTTPS: usize = 7;
    pub(super) const ACCEPT_RANGES: usize = 18;
    pub(super) const CONTENT_ENCODING: usize = 26;
    pub(super) const CONTENT_LENGTH: usize = 28;
    pub(super) const CONTENT_TYPE: usize = 31;
    pub(super) const ETAG: usize = 34;
    pub(super) const LAST_MODIFIED: usize = 44;
    pub(super) const LOCATION: usize = 46;
    pub(super) const VARY: usize = 59;
}

/// The parts of a response's head that are not in the response, as encoded fields: an encoded field means the same in
/// every block, so that the caller keeps them, and encodes the date once a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct FieldContext<'a> {
    /// `server`; if empty, none is written.
    pub server: &'a [u8],
    /// `date`.
    pub date: &'a [u8],
}

/// Appends the fields of a response.
pub fn response<F>(out: &mut Vec<u8>, response: &Response<F>, context: &FieldContext<'_>) {
    let has_own =
        |name: &[u8]| !response.headers.is_empty() && response.headers.get(name).is_some();
    status(out, response.status);
    if !response.omits_server && !has_own(b"Server") {
        out.extend_from_slice(context.server);
    }
    if !response.omits_date && !has_own(b"Date") {
        out.extend_from_slice(context.date);
    }
    if response.status != 204 {
        entity_fields(out, response);
    }
    if let Some(location) = &response.location {
        clean(location, |value| indexed_name(out, index::LOCATION, value));
    }
    if response.vary_accept_encoding {
        indexed_name(out, index::VARY, b"Accept-Encoding");
    }
    if let Some(tag) = &response.etag {
        clean(&tag.to_bytes(), |value| {
            indexed_name(out, index::ETAG, value);
        });
    }
    fields(out, &response.headers);
    if let Some(encoding) = &response.content_encoding {
        clean(encoding, |value| {
            indexed_name(out, index::CONTENT_ENCODING, value);
        });
    }
    if response.accept_ranges {
        indexed_name(out, index::ACCEPT_RANGES, b"bytes");
    }
}

fn entity_fields<F>(out: &mut Vec<u8>, response: &Response<F>) {
    if !response.content_type.is_empty() {
        clean(&response.content_type_text(), |value| {
            indexed_name(out, index::CONTENT_TYPE, value);
        });
    }
    if let Some(length) = response.content_length {
        content_length(out, length);
    }
    if let Some(time) = response.sent_last_modified() {
        indexed_name(out, index::LAST_MODIFIED, &date::format(time));
    }
}

fn content_length(out: &mut Vec<u8>, length: u64) {
    let mut buffer = itoa::Buffer::new();
    indexed_name(out, index::CONTENT_LENGTH, buffer.format(length).as_bytes());
}

/// Appends the fields of an interim head (103 with the `Link` lines of an upstream).
pub fn interim(out: &mut Vec<u8>, code: u16, headers: &[Header]) {
    status(out, code);
    fields(out, headers);
}

/// Appends fields: of a response, or trailers. Those that HTTP/2 does not have are dropped.
pub fn fields<'a>(out: &mut Vec<u8>, headers: impl IntoIterator<Item = &'a Header>) {
    for header in headers {
        let id = HeaderId::find(&header.name);
        if is_token(&header.name) && !is_of_connection(id) {
            clean(&header.value, |value| field(out, &header.name, value));
        }
    }
}

fn is_of_connection(id: HeaderId) -> bool {
    matches!(
        id,
        HeaderId::Connection
            | HeaderId::KeepAlive
            | HeaderId::ProxyConnection
            | HeaderId::TransferEncoding
            | HeaderId::Upgrade
    )
}

/// Gives `write` the value without what must not be in one.
fn clean(value: &[u8], write: impl FnOnce(&[u8])) {
    if is_value_valid(value) {
        return write(value);
    }
    let is_kept = |c: &u8| !matches!(c, b'\r' | b'\n' | 0);
    let kept: Vec<u8> = value.iter().copied().filter(is_kept).collect();
    write(kept.trim_ascii());
}

/// The pseudo-headers of a request.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingRequest<'a> {
    /// The method as it is sent.
    pub method: &'a [u8],
    /// Whether the scheme is `https`.
    pub is_https: bool,
    /// Host and port; if empty, none is written.
    pub authority: &'a [u8],
    /// Path and arguments, escaped as they are sent.
    pub path: &'a [u8],
    /// How the body ends; only a length is written.
    pub framing: Framing,
}

/// Appends a request. `fields` keep their order; Host, framing fields and `Expect` among them are dropped, and `TE` is
/// only sent as `trailers`.
///
/// # Errors
/// The request would not be read as exactly this one; `out` is then unchanged.
pub fn request<'a>(
    out: &mut Vec<u8>,
    request: &OutgoingRequest<'_>,
    fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<(), RequestFault> {
    let start = out.len();
    let outcome = append_request(out, request, fields);
    if outcome.is_err() {
        out.truncate(start);
    }
    outcome
}

fn append_request<'a>(
    out: &mut Vec<u8>,
    request: &OutgoingRequest<'_>,
    fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<(), RequestFault> {
    let shown = |text: &[u8]| text.escape_ascii().to_string();
    let is_target = |text: &[u8]| text.iter().all(|c| *c > 0x20 && *c != 0x7f);
    if !is_token(request.method) {
        return Err(RequestFault::Method(shown(request.method)));
    }
    if !request.path.starts_with(b"/") || !is_target(request.path) {
        return Err(RequestFault::Target(shown(request.path)));
    }
    if !is_target(request.authority) {
        return Err(RequestFault::Header(shown(request.authority)));
    }
    match request.method {
        b"GET" => indexed(out, index::GET),
        b"POST" => indexed(out, index::POST),
        method => indexed_name(out, index::GET, method),
    }
    indexed(
        out,
        match request.is_https {
            true => index::SCHEME_HTTPS,
            false => index::SCHEME_HTTP,
        },
    );
    indexed_name(out, index::PATH, request.path);
    if !request.authority.is_empty() {
        indexed_name(out, index::AUTHORITY, request.authority);
    }
    if let Framing::Length(length) = request.framing {
        content_length(out, length);
    }
    for (name, value) in fields {
        if !is_token(name) {
            return Err(RequestFault::Header(shown(name)));
        }
        let value = unfolded(name, value)?;
        match HeaderId::find(name) {
            HeaderId::Host | HeaderId::ContentLength | HeaderId::Expect => {}
            HeaderId::Te if !value.eq_ignore_ascii_case(b"trailers") => {}
            id if is_of_connection(id) => {}
            _ => field(out, name, value.trim_ascii()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use message::ETag;

    use super::*;
    use crate::http2::hpack::{BlockLimits, Decoder};

    fn lines(block: &[u8]) -> String {
        let mut out = Vec::new();
        let mut decoder = Decoder::default();
        let mut block = decoder.block(block, &BlockLimits::default());
        while block.next(&mut out).unwrap().is_some() {}
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_file() {
        let mut answer: Response<()> = Response::new(200);
        answer.content_type = "text/html".into();
        answer.charset = "utf-8".into();
        answer.content_length = Some(12);
        answer.last_modified = Some(1);
        answer.etag = Some(ETag::of_file(1, 12));
        answer.headers.push("X-A", " b\r\nc\0 ");
        answer.headers.push("Connection", "close");
        answer.headers.push("Transfer-Encoding", "chunked");
        answer.headers.push("b ad", "1");
        answer.accept_ranges = true;
        let (mut server, mut out) = (Vec::new(), Vec::new());
        field(&mut server, b"server", b"s");
        let context = FieldContext {
            server: &server,
            date: b"",
        };
        response(&mut out, &answer, &context);
        let expected = ":status: 200\r\nserver: s\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: 12\r\n\
            last-modified: Thu, 01 Jan 1970 00:00:01 GMT\r\netag: \"1-c\"\r\nx-a: bc\r\naccept-ranges: bytes\r\n";
        assert_eq!(lines(&out), expected);
        answer.headers.push("Server", "theirs");
        answer.status = 204;
        let mut out = Vec::new();
        response(&mut out, &answer, &context);
        assert!(!lines(&out).contains("server: s\r") && !lines(&out).contains("content-type"));
    }

    #[test]
    fn requests() {
        let mut outgoing = OutgoingRequest {
            method: b"PUT",
            is_https: true,
            authority: b"h:1",
            path: b"/a?b",
            framing: Framing::Length(3),
        };
        let list: [(&[u8], &[u8]); 6] = [
            (b"Host", b"x"),
            (b"TE", b"gzip"),
            (b"te", b"trailers"),
            (b"Upgrade", b"h2c"),
            (b"Content-Length", b"9"),
            (b"X-Y", b"z"),
        ];
        let mut out = Vec::new();
        request(&mut out, &outgoing, list).unwrap();
        let expected = ":method: PUT\r\n:scheme: https\r\n:path: /a?b\r\n:authority: h:1\r\ncontent-length: 3\r\n\
            te: trailers\r\nx-y: z\r\n";
        assert_eq!(lines(&out), expected);
        let before = out.len();
        let bad: [(&[u8], &[u8]); 1] = [(b"a", b"b\0c")];
        assert!(request(&mut out, &outgoing, bad).is_err());
        for path in ["", "a", "/a b", "/a\r\n"] {
            outgoing.path = path.as_bytes();
            assert!(request(&mut out, &outgoing, []).is_err(), "{path:?}");
        }
        assert_eq!(out.len(), before, "nothing is written");
        outgoing.path = b"/";
        let folded: [(&[u8], &[u8]); 1] = [(b"a", b"b\r\n\tc\n")];
        let mut out = Vec::new();
        request(&mut out, &outgoing, folded).unwrap();
        assert!(lines(&out).ends_with("\r\na: b c\r\n"));
    }
}
