//! A response: the fields that modules access by name, an ordered list of all other lines, and a body.
//!
//! Invariant: a field that has a member of its own (`content_type`, `content_length`, `last_modified`, `etag`,
//! `location`, `content_encoding`) is never in `headers` too. `wire` writes Server, Date, Connection, Keep-Alive and
//! Transfer-Encoding, except Server or Date where `headers` has one (a proxied response with `proxy_pass_header`).

use bytes::Bytes;

use crate::body::Body;
use crate::date::Seconds;
use crate::etag::ETag;
use crate::field::HeaderId;
use crate::headers::Headers;

/// Whether byte ranges of a response may be served, and how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ranges {
    /// None: `Range` is ignored and `Accept-Ranges` not sent.
    #[default]
    Refused,
    /// At most one (a cache entry that is read through a single window).
    Single,
    /// As many as `max_ranges` allows.
    Allowed,
}

/// What becomes of a response whose client leaves while the next piece of the body is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAbort {
    /// No step has said anything: as [`ClientAbort::Ignored`], until one does.
    #[default]
    Unset,
    /// The body is given up.
    EndsBody,
    /// The body goes on, and the loss is noticed when the next piece is sent.
    Ignored,
}

/// A response before it is written.
#[derive(Debug)]
pub struct Response<F> {
    /// The status code, including nginx's own 444 and 494 to 499.
    pub status: u16,
    /// Code and reason phrase as an upstream sent them (`404 Gone fishing`); otherwise nginx's text for `status` is
    /// used.
    pub status_line: Option<Bytes>,
    /// The media type, with a charset where that is not in `charset`; if empty, no `Content-Type` is written.
    pub content_type: Bytes,
    /// Whether a charset that `content_type` names is declared and no part of the media type, as in what an upstream
    /// sent. The text of a configuration (`default_type`) is a media type as a whole.
    pub type_declares_charset: bool,
    /// Whether what made the content names its type, whatever the tables of types say of the URI (an autoindex in JSON).
    pub names_type: bool,
    /// The charset to append to the type as `; charset=…`, unless empty.
    pub charset: Bytes,
    /// Length of the body in bytes, where known. Kept for HEAD, where no body is sent.
    pub content_length: Option<u64>,
    /// Modification time of the content.
    pub last_modified: Option<Seconds>,
    /// Whether it is sent with any status: it was a line of a server's response, or is one of the configuration.
    pub keeps_last_modified: bool,
    /// Entity tag.
    pub etag: Option<ETag>,
    /// `Location`; the server completes one that begins with `/` before it is written.
    pub location: Option<Bytes>,
    /// `Content-Encoding`.
    pub content_encoding: Option<Bytes>,
    /// All other header lines, in order.
    pub headers: Headers,
    /// Trailers of a chunked body, in addition to those of the body's own source.
    pub trailers: Headers,
    /// Whether ranges may be served.
    pub ranges: Ranges,
    /// Whether `Accept-Ranges: bytes` is sent. Set by the range step.
    pub accept_ranges: bool,
    /// Whether the not-modified step may answer 304 or 412 instead. (Not for responses passed on from an upstream.)
    pub conditional: bool,
    /// Whether `Vary: Accept-Encoding` must be sent (`gzip_vary`).
    pub vary_accept_encoding: bool,
    /// Whether to write no `Server` line of our own. (A proxy passes on the absence of one, too.)
    pub omits_server: bool,
    /// Whether to write no `Date` line of our own.
    pub omits_date: bool,
    /// Whether the head waits for the first piece of a body that streams: until then the response may fail as a whole.
    pub delays_head: bool,
    /// What becomes of the body when the client leaves.
    pub client_abort: ClientAbort,
    /// Number of `Expires` lines that the configuration added behind the response's own.
    pub added_expires: usize,
    /// The body.
    pub body: Body<F>,
}

impl<F> Response<F> {
    /// Returns a response of this status with everything else empty.
    #[inline]
    pub fn new(status: u16) -> Response<F> {
        Response {
            status,
            status_line: None,
            content_type: Bytes::new(),
            type_declares_charset: false,
            names_type: false,
            charset: Bytes::new(),
            content_length: None,
            last_modified: None,
            keeps_last_modified: false,
            etag: None,
            location: None,
            content_encoding: None,
            headers: Headers::new(),
            trailers: Headers::new(),
            ranges: Ranges::Refused,
            accept_ranges: false,
            conditional: false,
            vary_accept_encoding: false,
            omits_server: false,
            omits_date: false,
            delays_head: false,
            client_abort: ClientAbort::Unset,
            added_expires: 0,
            body: Body::Empty,
        }
    }

    /// Returns the same head with another body.
    #[must_use]
    pub fn with_body(&self, body: Body<F>) -> Response<F> {
        Response {
            status: self.status,
            status_line: self.status_line.clone(),
            content_type: self.content_type.clone(),
            type_declares_charset: self.type_declares_charset,
            names_type: self.names_type,
            charset: self.charset.clone(),
            content_length: self.content_length,
            last_modified: self.last_modified,
            keeps_last_modified: self.keeps_last_modified,
            etag: self.etag.clone(),
            location: self.location.clone(),
            content_encoding: self.content_encoding.clone(),
            headers: self.headers.clone(),
            trailers: self.trailers.clone(),
            ranges: self.ranges,
            accept_ranges: self.accept_ranges,
            conditional: self.conditional,
            vary_accept_encoding: self.vary_accept_encoding,
            omits_server: self.omits_server,
            omits_date: self.omits_date,
            delays_head: self.delays_head,
            client_abort: self.client_abort,
            added_expires: self.added_expires,
            body,
        }
    }

    /// [`Response::new`], constructed in its heap allocation.
    #[inline]
    pub fn boxed(status: u16) -> Box<Response<F>> {
        Box::write(Box::new_uninit(), Response::new(status))
    }

    /// Returns a response with a text in memory as its body.
    pub fn text(
        status: u16,
        content_type: impl Into<Bytes>,
        text: impl Into<Bytes>,
    ) -> Response<F> {
        let text = text.into();
        let mut response = Response::new(status);
        response.content_type = content_type.into();
        response.content_length = Some(text.len() as u64);
        response.body = Body::bytes(text);
        response
    }

    /// Drops the body, as for 304, and with it type, length and encoding (nginx's not_modified filter).
    pub fn become_not_modified(&mut self) {
        self.status = 304;
        self.status_line = None;
        self.content_type = Bytes::new();
        self.charset = Bytes::new();
        self.content_length = None;
        self.content_encoding = None;
        self.refuse_ranges();
        self.body = Body::Empty;
    }

    /// Adapts the head to a body whose bytes a filter changes: unknown length, no ranges, only a weak tag (what those
    /// filters of nginx do).
    pub fn becomes_another(&mut self) {
        self.content_length = None;
        self.refuse_ranges();
        self.weaken_etag();
    }

    /// Forbids ranges of this response, whatever was set before.
    pub fn refuse_ranges(&mut self) {
        self.ranges = Ranges::Refused;
        self.accept_ranges = false;
        self.headers.remove(b"Accept-Ranges");
    }

    /// Modification time of the content, also if its line has another format than ours and is therefore in `headers`.
    pub fn modified(&self) -> Option<Seconds> {
        self.last_modified.or_else(|| {
            let line = self.headers.get(b"Last-Modified")?;
            crate::date::parse(line)
        })
    }

    /// Sets `Last-Modified` to a text. One that is written as it came has the place of its own, which is written with
    /// some statuses only; any other is among the lines. An empty one removes it.
    pub fn set_last_modified(&mut self, name: Bytes, value: Bytes) {
        let parsed = crate::date::parse(&value);
        let is_plain = parsed.is_some_and(|time| crate::date::format(time)[..] == value[..]);
        let has_place = is_plain && matches!(self.status, 200 | 206 | 304);
        self.last_modified = parsed.filter(|_| has_place);
        self.keeps_last_modified = has_place;
        if !has_place && !value.is_empty() {
            self.headers.push(name, value);
        }
    }

    /// The `Last-Modified` that is sent: not that of a file with a failure.
    pub fn sent_last_modified(&self) -> Option<Seconds> {
        let is_sent = self.keeps_last_modified || matches!(self.status, 200 | 206 | 304);
        self.last_modified.filter(|_| is_sent)
    }

    /// Makes the entity tag weak; removes it if it is not a valid tag.
    pub fn weaken_etag(&mut self) {
        self.etag = self.etag.take().and_then(|tag| tag.weakened());
    }

    /// The value of a header, whichever field holds it, as text (`$sent_http_…`). Does not see the lines that `wire`
    /// adds.
    pub fn header(&self, name: &[u8]) -> Option<Bytes> {
        match HeaderId::find(name) {
            HeaderId::ContentType if !self.content_type.is_empty() => {
                Some(self.content_type_text())
            }
            HeaderId::ContentLength => self
                .content_length
                .map(|n| Bytes::copy_from_slice(itoa::Buffer::new().format(n).as_bytes())),
            HeaderId::LastModified if self.last_modified.is_some() => self
                .last_modified
                .map(|time| Bytes::copy_from_slice(&crate::date::format(time))),
            HeaderId::ETag => self.etag.as_ref().map(ETag::to_bytes),
            HeaderId::Location if self.location.is_some() => self.location.clone(),
            HeaderId::ContentEncoding => self.content_encoding.clone(),
            HeaderId::AcceptRanges if self.accept_ranges => Some(Bytes::from_static(b"bytes")),
            _ => self.headers.get(name).cloned(),
        }
    }

    /// Gives the body up when the client leaves, unless another step has said what is to become of it.
    pub fn ends_with_client(&mut self) {
        if self.client_abort == ClientAbort::Unset {
            self.client_abort = ClientAbort::EndsBody;
        }
    }

    /// The media type: without its parameters if one of them is a declared charset, as in nginx.
    pub fn media_type(&self) -> &[u8] {
        const CHARSET: &[u8] = b"charset=";
        let text = &self.content_type[..];
        if !self.type_declares_charset {
            return text;
        }
        for at in memchr::memchr_iter(b';', text) {
            let rest = text[at + 1..].trim_ascii_start();
            if rest.len() >= CHARSET.len() && rest[..CHARSET.len()].eq_ignore_ascii_case(CHARSET) {
                return &text[..at];
            }
        }
        text
    }

    /// Takes the type of another response, without the charset beside it.
    pub fn take_type_of(&mut self, other: &Self) {
        self.content_type = other.content_type.clone();
        self.type_declares_charset = other.type_declares_charset;
    }

    /// The charset that the head declares; empty: none.
    pub fn declared_charset(&self) -> Bytes {
        if !self.charset.is_empty() {
            return self.charset.clone();
        }
        let parameters = &self.content_type[self.media_type().len()..];
        let Some(at) = memchr::memchr(b'=', parameters) else {
            return Bytes::new();
        };
        let text = &parameters[at + 1..];
        let text = text.strip_prefix(b"\"").unwrap_or(text);
        self.content_type
            .slice_ref(text.strip_suffix(b"\"").unwrap_or(text))
    }

    /// The media type with its charset, as written to the client.
    pub fn content_type_text(&self) -> Bytes {
        if self.charset.is_empty() || self.content_type.is_empty() {
            return self.content_type.clone();
        }
        [&self.content_type[..], b"; charset=", &self.charset[..]]
            .concat()
            .into()
    }
}
