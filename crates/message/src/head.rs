//! A request head as it was read: the bytes, stored once, and the spans of its parts in them.
//!
//! Made by `wire::http1::request_parser` and never changed; rewrites change the server's own request instead.
//! Invariant: every span lies in `bytes`; `host` and `path` differ from the raw text only where it had to be
//! normalised.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::field::{Field, HeaderId, Span};
use crate::method::Method;

/// Number of header lines that a head holds without another allocation.
pub const FIELDS_INLINE: usize = 12;

/// A protocol version: 0.9, 1.0, 1.1 (nginx accepts any minor version of 1), 2.0 or 3.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major.
    pub major: u16,
    /// Minor.
    pub minor: u16,
}

impl Version {
    /// A request line without a version; the response has no head.
    pub const HTTP_09: Version = Version { major: 0, minor: 9 };
    /// HTTP/1.0.
    pub const HTTP_10: Version = Version { major: 1, minor: 0 };
    /// HTTP/1.1.
    pub const HTTP_11: Version = Version { major: 1, minor: 1 };
    /// HTTP/2.
    pub const HTTP_2: Version = Version { major: 2, minor: 0 };
}

/// The connection option that the client asks for in `Connection`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionType {
    /// `close`.
    Close,
    /// `keep-alive`.
    KeepAlive,
}

/// How the end of a request's body is found (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    #[default]
    None,
    /// This number of bytes; may be 0.
    Length(u64),
    /// Chunked transfer coding; over HTTP/2, a body without `Content-Length`, which the stream's end ends.
    Chunked,
}

/// A request's head. All positions are spans into `bytes`.
#[derive(Clone, Debug)]
pub struct RequestHead {
    /// The head as received, from the first byte of the request line to the empty line.
    pub bytes: Bytes,
    /// `$request_length` without the body: the length of the head; for a refused head, of the lines that could be read.
    pub length: u32,
    /// `$request`: the request line without its line end.
    pub line: Span,
    /// The method.
    pub method: Method,
    /// The text of the method.
    pub method_text: Span,
    /// `$request_uri`: from the path on, with arguments and fragment, not decoded.
    pub target: Span,
    /// `$server_protocol`; empty for 0.9.
    pub protocol: Span,
    /// The version.
    pub version: Version,
    /// The scheme of an absolute target.
    pub scheme: Span,
    /// Host and port of an absolute or CONNECT target.
    pub authority: Span,
    /// The path in the raw target; valid if `normal` is `None`.
    pub path: Span,
    /// `$args`.
    pub args: Span,
    /// The extension of the path, as a span of the text that `uri()` returns.
    pub extension: Span,
    /// `$uri` where it differs from the raw path.
    pub normal: Option<Box<[u8]>>,
    /// The protocol that an extended CONNECT of HTTP/2 asks for (`:protocol`, RFC 8441); empty for any other request.
    pub connect_protocol: Span,
    /// Whether the target held an escape or anything else that normalising changed. (Decides what a proxy may send on.)
    pub is_complex: bool,
    /// Whether the target had no path (`http://host?x`).
    pub is_path_empty: bool,
    /// The host of the request: from the target, else from `Host`.
    pub host: Option<HostText>,
    /// The port given with the host (`$request_port`).
    pub port: Option<u16>,
    /// The header lines that were not dropped, in order.
    pub fields: SmallVec<[Field; FIELDS_INLINE]>,
    /// The lines dropped for an invalid name (`ignore_invalid_headers`), for the log.
    pub dropped: Vec<Span>,
    /// The well-known names that occur in `fields`, as a set of `HeaderId::bit`.
    pub known: u64,
    /// The connection option in `Connection`.
    pub connection: Option<ConnectionType>,
    /// How the body ends.
    pub framing: Framing,
}

/// A validated host name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostText {
    /// As it stands in the head.
    Raw(Span),
    /// A copy, because the name had to be lower-cased.
    Lowered(Box<[u8]>),
}

impl RequestHead {
    /// Returns a head with these bytes, of which nothing has been parsed yet.
    #[inline]
    pub fn new(bytes: Bytes) -> RequestHead {
        RequestHead {
            bytes,
            length: 0,
            line: Span::default(),
            method: Method::Other,
            method_text: Span::default(),
            target: Span::default(),
            protocol: Span::default(),
            version: Version::HTTP_10,
            scheme: Span::default(),
            authority: Span::default(),
            path: Span::default(),
            args: Span::default(),
            extension: Span::default(),
            normal: None,
            connect_protocol: Span::default(),
            is_complex: false,
            is_path_empty: false,
            host: None,
            port: None,
            fields: SmallVec::new(),
            dropped: Vec::new(),
            known: 0,
            connection: None,
            framing: Framing::None,
        }
    }

    /// [`RequestHead::new`], constructed in its heap allocation.
    #[inline]
    pub fn boxed() -> Box<RequestHead> {
        Box::write(Box::new_uninit(), RequestHead::new(Bytes::new()))
    }

    /// The bytes of a span.
    pub fn text(&self, span: Span) -> &[u8] {
        span.of(&self.bytes)
    }

    /// `$request`.
    pub fn line(&self) -> &[u8] {
        self.text(self.line)
    }

    /// `$request_method`.
    pub fn method_text(&self) -> &[u8] {
        self.text(self.method_text)
    }

    /// `$request_uri`.
    pub fn target(&self) -> &[u8] {
        self.text(self.target)
    }

    /// `$uri` before any rewrite; empty when the request could not be read.
    pub fn uri(&self) -> &[u8] {
        self.normal
            .as_deref()
            .unwrap_or_else(|| self.text(self.path))
    }

    /// `$args`.
    pub fn args(&self) -> &[u8] {
        self.text(self.args)
    }

    /// The extension of `uri()`, without its dot.
    pub fn extension(&self) -> &[u8] {
        self.extension
            .of(self.normal.as_deref().unwrap_or(&self.bytes))
    }

    /// The host that the client asked for, validated and in lower case.
    pub fn host(&self) -> Option<&[u8]> {
        self.host.as_ref().map(|host| match host {
            HostText::Raw(span) => self.text(*span),
            HostText::Lowered(text) => text,
        })
    }

    /// `$server_protocol`, `HTTP/1.1`.
    pub fn protocol(&self) -> &[u8] {
        self.text(self.protocol)
    }

    /// The value of the first line of a well-known name.
    pub fn get(&self, id: HeaderId) -> Option<&[u8]> {
        self.place(id).map(|value| self.text(value))
    }

    /// The span of the value of the first line of a well-known name.
    pub fn place(&self, id: HeaderId) -> Option<Span> {
        if self.known & id.bit() == 0 {
            return None;
        }
        let mut fields = self.fields.iter();
        fields.find(|field| field.id == id).map(|field| field.value)
    }

    /// The values of every line of a well-known name.
    pub fn get_each(&self, id: HeaderId) -> impl Iterator<Item = &[u8]> {
        let fields: &[Field] = if self.known & id.bit() == 0 {
            &[]
        } else {
            &self.fields
        };
        fields
            .iter()
            .filter(move |field| field.id == id)
            .map(|field| self.text(field.value))
    }

    /// The values of every line with this name, in any case.
    pub fn get_all<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.fields
            .iter()
            .filter(move |field| self.text(field.name).eq_ignore_ascii_case(name))
            .map(|field| self.text(field.value))
    }

    /// Name, value and id of every line.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], HeaderId)> {
        self.fields
            .iter()
            .map(|field| (self.text(field.name), self.text(field.value), field.id))
    }

    /// The value of a cookie (`$cookie_name`). Names are compared without case; pairs are split at `;` only.
    pub fn cookie(&self, name: &[u8]) -> Option<&[u8]> {
        self.get_each(HeaderId::Cookie)
            .flat_map(|line| line.split(|c| *c == b';'))
            .find_map(|pair| {
                let pair = trim_blanks_start(pair);
                let behind = pair.get(name.len()..)?;
                let value = trim_blanks_start(behind).strip_prefix(b"=")?;
                pair[..name.len()]
                    .eq_ignore_ascii_case(name)
                    .then(|| trim_blanks_start(value))
            })
    }

    /// Whether the client allows the connection to be kept after this request. Never after a CONNECT, answered or not.
    pub fn wants_keepalive(&self) -> bool {
        if self.method == Method::Connect {
            return false;
        }
        match self.connection {
            Some(ConnectionType::Close) => false,
            Some(ConnectionType::KeepAlive) => true,
            None => self.version > Version::HTTP_10,
        }
    }

    /// Whether the client waits for `100 Continue` before it sends the body.
    pub fn expects_continue(&self) -> bool {
        self.version >= Version::HTTP_11
            && self
                .get(HeaderId::Expect)
                .is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"))
    }

    /// Whether the head announces a body that is not empty.
    pub fn has_body(&self) -> bool {
        matches!(self.framing, Framing::Chunked | Framing::Length(1..))
    }

    /// Appends a line whose spans lie in `bytes`.
    pub fn push(&mut self, field: Field) {
        self.known |= field.id.bit();
        self.fields.push(field);
    }

    /// Returns a head `GET / HTTP/1.1` with these header lines, as if it had been read.
    #[cfg(test)]
    pub(crate) fn of_fields(fields: &[(&str, &str)]) -> RequestHead {
        let mut bytes = b"GET / HTTP/1.1\r\n".to_vec();
        let mut spans = Vec::new();
        for (name, value) in fields {
            let start = bytes.len();
            bytes.extend_from_slice(name.as_bytes());
            let colon = bytes.len();
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value.as_bytes());
            let id = HeaderId::find(name.as_bytes());
            spans.push(Field {
                name: Span::new(start, colon),
                value: Span::new(colon + 2, bytes.len()),
                id,
            });
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        let mut head = RequestHead::new(bytes.into());
        head.line = Span::new(0, 14);
        head.method = Method::Get;
        head.method_text = Span::new(0, 3);
        head.target = Span::new(4, 5);
        head.path = head.target;
        head.protocol = Span::new(6, 14);
        head.version = Version::HTTP_11;
        spans.into_iter().for_each(|field| head.push(field));
        head
    }
}

fn trim_blanks_start(text: &[u8]) -> &[u8] {
    let blanks = text.iter().take_while(|c| **c == b' ').count();
    &text[blanks..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_by_id_and_by_name() {
        let head = RequestHead::of_fields(&[
            ("host", "a"),
            ("X-A", "1"),
            ("Cookie", "a=1; B=2;c"),
            ("x-a", "2"),
            ("Cookie", "d = 4 x"),
        ]);
        assert_eq!(head.get(HeaderId::Host), Some(&b"a"[..]));
        assert_eq!(head.get(HeaderId::Range), None);
        assert_eq!(head.get_all(b"X-a").collect::<Vec<_>>(), [b"1", b"2"]);
        assert_eq!(head.get_each(HeaderId::Cookie).count(), 2);
        assert_eq!(head.cookie(b"b"), Some(&b"2"[..]));
        assert_eq!(head.cookie(b"c"), None);
        assert_eq!(head.cookie(b"d"), Some(&b"4 x"[..]));
        assert_eq!(head.uri(), b"/");
    }

    #[test]
    fn keepalive_and_expect_follow_version_and_headers() {
        let mut head = RequestHead::of_fields(&[("Expect", "100-Continue")]);
        assert!(head.wants_keepalive() && head.expects_continue());
        head.version = Version::HTTP_10;
        assert!(!head.wants_keepalive() && !head.expects_continue());
        head.connection = Some(ConnectionType::KeepAlive);
        assert!(head.wants_keepalive());
    }
}
