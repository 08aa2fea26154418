//! A response: the fields that modules look at by name, an ordered list for the rest, and a body.
//!
//! Invariant: a field that has a place of its own (`content_type`, `content_length`, `last_modified`, `etag`, `location`,
//! `content_encoding`) never stands in `headers` too. Server, Date, Connection, Keep-Alive and Transfer-Encoding are
//! written by `wire` unless `headers` brings Server or Date (a proxied response with `proxy_pass_header`).

use bytes::Bytes;

use crate::body::Body;
use crate::date::Seconds;
use crate::etag::ETag;
use crate::field::HeaderId;

/// One header line of a response. Static names and values cost nothing (`Bytes::from_static`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The name as it will be written.
    pub name: Bytes,
    /// The value.
    pub value: Bytes,
}

impl Header {
    /// A header line.
    pub fn new(name: impl Into<Bytes>, value: impl Into<Bytes>) -> Header {
        Header {
            name: name.into(),
            value: value.into(),
        }
    }

    /// Has it this name, whatever its case?
    pub fn is(&self, name: &[u8]) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

/// An ordered list of header lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<Header>);

impl Headers {
    /// An empty list.
    pub const fn new() -> Headers {
        Headers(Vec::new())
    }

    /// Adds a line at the end.
    pub fn push(&mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.0.push(Header::new(name, value));
    }

    /// Puts lines before all others.
    pub fn prepend(&mut self, lines: Vec<Header>) {
        self.0.splice(0..0, lines);
    }

    /// The value of the first line of that name.
    pub fn get(&self, name: &[u8]) -> Option<&Bytes> {
        self.0
            .iter()
            .find(|header| header.is(name))
            .map(|header| &header.value)
    }

    /// Every line of that name.
    pub fn get_all<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a Bytes> {
        self.0
            .iter()
            .filter(move |header| header.is(name))
            .map(|header| &header.value)
    }

    /// Replaces every line of that name by one, at the end.
    pub fn set(&mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) {
        let name = name.into();
        self.remove(&name);
        self.push(name, value);
    }

    /// Gives the first line of that name this value and removes its other lines; without one, adds it.
    pub fn replace(&mut self, name: impl Into<Bytes>, value: Bytes) {
        let name = name.into();
        let mut value = Some(value);
        self.0.retain_mut(|header| {
            !header.is(&name) || value.take().map(|value| header.value = value).is_some()
        });
        if let Some(value) = value {
            self.push(name, value);
        }
    }

    /// Removes every line of that name; says whether there was one.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let before = self.0.len();
        self.0.retain(|header| !header.is(name));
        self.0.len() != before
    }

    /// The lines, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Header> {
        self.0.iter()
    }

    /// Keeps the lines for which `keep` says so.
    pub fn retain(&mut self, keep: impl FnMut(&Header) -> bool) {
        self.0.retain(keep);
    }

    /// Keeps the lines for which `keep` says so, which may change them.
    pub fn retain_mut(&mut self, keep: impl FnMut(&mut Header) -> bool) {
        self.0.retain_mut(keep);
    }

    /// How many lines.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// No line?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> IntoIterator for &'a Headers {
    type Item = &'a Header;
    type IntoIter = std::slice::Iter<'a, Header>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// May ranges be taken of a response, and how many?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ranges {
    /// None: `Range` is ignored and `Accept-Ranges` not sent.
    #[default]
    Refused,
    /// One alone (a cached entry read through a single window).
    Single,
    /// As many as `max_ranges` says.
    Allowed,
}

/// A response before it is written.
#[derive(Debug)]
pub struct Response<F> {
    /// The code, nginx's own 444 and 494 to 499 included.
    pub status: u16,
    /// Code and text as an upstream sent them (`404 Gone fishing`); else nginx's text for `status`.
    pub status_line: Option<Bytes>,
    /// The media type without a charset; empty: no `Content-Type`.
    pub content_type: Bytes,
    /// Added to the type as `; charset=…`; empty: not.
    pub charset: Bytes,
    /// Bytes of the body, where known. Kept for HEAD, where no body is sent.
    pub content_length: Option<u64>,
    /// Modification time of what is sent.
    pub last_modified: Option<Seconds>,
    /// Entity tag.
    pub etag: Option<ETag>,
    /// `Location`; one that begins with `/` is completed by the server before it is written.
    pub location: Option<Bytes>,
    /// `Content-Encoding`.
    pub content_encoding: Option<Bytes>,
    /// All other lines, in order.
    pub headers: Headers,
    /// Lines behind a chunked body, beside those that the body itself brings.
    pub trailers: Headers,
    /// May ranges be taken?
    pub ranges: Ranges,
    /// Send `Accept-Ranges: bytes`? Set by the range step.
    pub accept_ranges: bool,
    /// May the not-modified step answer 304 or 412 for it? (All but what is
    /// passed on from an upstream.)
    pub conditional: bool,
    /// Is `Vary: Accept-Encoding` due (`gzip_vary`)?
    pub vary_accept_encoding: bool,
    /// Is no `Server` line of our own to be written? (A proxy passes on the lack of it, too.)
    pub omits_server: bool,
    /// Is no `Date` line of our own to be written?
    pub omits_date: bool,
    /// What is sent.
    pub body: Body<F>,
}

impl<F> Response<F> {
    /// A response of that status with nothing else in it.
    #[inline]
    pub fn new(status: u16) -> Response<F> {
        Response {
            status,
            status_line: None,
            content_type: Bytes::new(),
            charset: Bytes::new(),
            content_length: None,
            last_modified: None,
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
            body: Body::Empty,
        }
    }

    /// The same head with another body.
    #[must_use]
    pub fn with_body(&self, body: Body<F>) -> Response<F> {
        Response {
            status: self.status,
            status_line: self.status_line.clone(),
            content_type: self.content_type.clone(),
            charset: self.charset.clone(),
            content_length: self.content_length,
            last_modified: self.last_modified,
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
            body,
        }
    }

    /// [`Response::new`], made where it is to lie.
    #[inline]
    pub fn boxed(status: u16) -> Box<Response<F>> {
        Box::write(Box::new_uninit(), Response::new(status))
    }

    /// A response with a text in memory.
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

    /// Takes the body away, as for 304: type, length and encoding go too (nginx's not_modified filter).
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

    /// Makes the head that of another body than the one that it came with: of a length not known, without ranges, and only weakly
    /// tagged (what nginx's filters do that change bytes).
    pub fn becomes_another(&mut self) {
        self.content_length = None;
        self.refuse_ranges();
        self.weaken_etag();
    }

    /// No ranges may be taken of it, whatever its maker said.
    pub fn refuse_ranges(&mut self) {
        self.ranges = Ranges::Refused;
        self.accept_ranges = false;
        self.headers.remove(b"Accept-Ranges");
    }

    /// Modification time of what is sent, also where the line was written in another form than ours and stands among the others.
    pub fn modified(&self) -> Option<Seconds> {
        self.last_modified.or_else(|| {
            let line = self.headers.get(b"Last-Modified")?;
            crate::date::parse(line)
        })
    }

    /// Makes the entity tag a weak one; what is no tag goes.
    pub fn weaken_etag(&mut self) {
        self.etag = self.etag.take().and_then(|tag| tag.weakened());
    }

    /// The value of a header wherever it stands, as text (`$sent_http_…`); those that `wire` adds are not seen here.
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

    /// The media type with its charset, as it is written.
    pub fn content_type_text(&self) -> Bytes {
        if self.charset.is_empty() || self.content_type.is_empty() {
            return self.content_type.clone();
        }
        [&self.content_type[..], b"; charset=", &self.charset[..]]
            .concat()
            .into()
    }
}
