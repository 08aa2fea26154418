//! Request heads from header blocks, in the form that HTTP/1's parser gives them: a request line with `HTTP/2.0`, and
//! lines `name: value`, in one piece of memory (RFC 9113, 8.3; RFC 8441, 4).
//!
//! What is refused, and with which status, is what HTTP/1 refuses, and what RFC 9113, 8.1.1 calls malformed. As in
//! nginx, cookie crumbs become one line, and `:authority` becomes Host; both stand behind the other fields. Invariant: a
//! block is decoded to its end, whatever is wrong with its fields, so that the tables of both ends stay the same.

use std::borrow::Cow;
use std::cell::Cell;

use message::head::HostText;
use message::{Field, Framing, HeaderId, Method, RequestHead, Span, Version, host, uri};

use super::field_class::{NameKind, Pseudo, without_blanks};
use super::hpack::{BlockLimits, DecodedLine, Decoder, HpackFault};
use super::{Priority, Reason};
use crate::http1::head_buffers::joined;
use crate::http1::line;
use crate::http1::request_parser::{Choose, HeadLimits, HeadRefusal, is_unique, parse_length};
use crate::http1::request_writer::is_token;

/// Capacity in bytes that a thread keeps of each buffer that heads are decoded into.
const SCRATCH_KEPT: usize = 16 * 1024;
/// The end of a request line.
const VERSION: &[u8] = b" HTTP/2.0\r\n";

/// The buffers that a thread decodes into.
#[derive(Default)]
pub(super) struct Scratch {
    /// The lines of pseudo-headers, then those of fields.
    pub(super) lines: Vec<u8>,
    /// The cookie crumbs, joined.
    cookies: Vec<u8>,
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// Lends the thread's buffers, empty.
pub(super) fn with_scratch<T>(decode: impl FnOnce(&mut Scratch) -> T) -> T {
    let mut scratch = SCRATCH.take().unwrap_or_default();
    scratch.lines.clear();
    scratch.cookies.clear();
    let outcome = decode(&mut scratch);
    scratch.lines.shrink_to(SCRATCH_KEPT);
    scratch.cookies.shrink_to(SCRATCH_KEPT);
    SCRATCH.set(Some(scratch));
    outcome
}

/// A decoded request.
#[derive(Debug)]
pub enum DecodedRequest {
    /// A head, and the priority that the client gave it (RFC 9218, 5).
    Head(Box<RequestHead>, Option<Priority>),
    /// A request to be answered with an error; if the reason is malformed, the stream is reset after the answer.
    Refused(Box<HeadRefusal>, Reason),
}

/// The method of a request for an upgrade.
const UPGRADING: &[u8] = b"GET";
/// What a server of WebSocket wants to see. The answer to it proves that the server speaks WebSocket, which a client of
/// HTTP/2 does not ask for (RFC 8441, 5).
const WEBSOCKET_KEY: (&[u8], &[u8]) = (b"sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ==");
impl DecodedRequest {
    /// The head, as far as it could be read.
    pub(super) fn head(&self) -> &RequestHead {
        match self {
            DecodedRequest::Head(head, _) => head,
            DecodedRequest::Refused(refusal, _) => &refusal.head,
        }
    }
}

/// The parts of a request that are not in its fields, and the options that they are judged by.
#[derive(Clone, Copy, Debug)]
pub struct RequestContext {
    /// The limits of the server that answers if no other is chosen.
    pub limits: HeadLimits,
    /// Whether the head ends the stream.
    pub is_end: bool,
    /// Whether extended CONNECT was offered (RFC 8441, 3).
    pub allows_protocol: bool,
}

/// Decodes the block of a request.
///
/// # Errors
/// The connection must end.
pub fn decode(
    decoder: &mut Decoder,
    block: &[u8],
    context: &RequestContext,
    choose: Choose<'_>,
) -> Result<DecodedRequest, HpackFault> {
    with_scratch(|scratch| {
        let mut assembly = RequestAssembly::new(context, choose);
        let mut fields = decoder.block(block, &BlockLimits::of(&context.limits));
        let mut outcome = Ok(());
        while let Some(line) = fields.next(&mut scratch.lines)? {
            if outcome.is_err() {
                scratch.lines.truncate(line.name.start as usize);
                continue;
            }
            outcome = assembly.take(scratch, line);
        }
        let outcome = outcome.and_then(|()| assembly.finish(scratch));
        assembly.head.length = block.len() as u32;
        Ok(assembly.into_request(scratch, outcome))
    })
}

impl BlockLimits {
    /// nginx's `large_client_header_buffers`, as it takes them for HTTP/2.
    pub fn of(limits: &HeadLimits) -> BlockLimits {
        BlockLimits {
            string_max: limits.large_buffer_size,
            block_max: limits
                .large_buffers
                .saturating_mul(limits.large_buffer_size),
            dropped_max: 0,
        }
    }
}

struct RequestAssembly<'a> {
    limits: HeadLimits,
    context: &'a RequestContext,
    choose: Choose<'a>,
    head: Box<RequestHead>,
    priority: Option<Priority>,
    /// The values of pseudo-headers in the scratch, by [`Pseudo`].
    pseudo: [Option<Span>; 6],
    /// Offset in the scratch of the first field, once there is one.
    fields_at: Option<usize>,
    /// Length of the request line with its end.
    line_len: usize,
    headers: usize,
    content_length: Option<Span>,
}

impl<'a> RequestAssembly<'a> {
    fn new(context: &'a RequestContext, choose: Choose<'a>) -> RequestAssembly<'a> {
        let mut head = RequestHead::boxed();
        head.version = Version::HTTP_2;
        RequestAssembly {
            limits: context.limits,
            context,
            choose,
            head,
            priority: None,
            pseudo: [None; 6],
            fields_at: None,
            line_len: 0,
            headers: 0,
            content_length: None,
        }
    }

    fn pseudo(&self, pseudo: Pseudo) -> Option<Span> {
        self.pseudo[pseudo as usize]
    }

    /// Takes a line that was just appended to the scratch.
    #[inline]
    fn take(&mut self, scratch: &mut Scratch, mut line: DecodedLine) -> Result<(), Reason> {
        let start = line.name.start as usize;
        if let NameKind::Pseudo(pseudo) = line.kind {
            return self.take_pseudo(pseudo, line);
        }
        if self.fields_at.is_none() {
            self.begin_fields(&scratch.lines, start)?;
        }
        if !line.is_value_valid {
            let inner = without_blanks(line.kind, line.value, &scratch.lines);
            line.value = inner.ok_or(Reason::FieldValue)?;
        }
        let is_kept = match line.kind {
            NameKind::PseudoUnknown | NameKind::Pseudo(_) => return Err(Reason::PseudoUnknown),
            NameKind::Invalid => return Err(Reason::FieldName),
            NameKind::Plain(HeaderId::Cookie) => return self.take_cookie(scratch, line),
            NameKind::Plain(_) => true,
            NameKind::Underscored => self.limits.underscores_in_headers,
            NameKind::Odd => false,
        };
        let (name, value) = (self.moved(line.name), self.moved(line.value));
        if !is_kept && self.limits.ignore_invalid_headers {
            let whole = Span::new(name.start as usize, value.end());
            self.head.dropped.push(whole);
            return Ok(());
        }
        let id = match line.kind {
            NameKind::Plain(id) => id,
            _ => HeaderId::Other,
        };
        self.push(Field { name, value, id }, &scratch.lines, line)
    }

    fn take_pseudo(&mut self, pseudo: Pseudo, line: DecodedLine) -> Result<(), Reason> {
        let is_known = match pseudo {
            Pseudo::Status => false,
            Pseudo::Protocol => self.context.allows_protocol,
            _ => true,
        };
        if !is_known {
            return Err(Reason::PseudoUnknown);
        }
        if self.fields_at.is_some() {
            return Err(Reason::PseudoOrder);
        }
        if self.pseudo(pseudo).is_some() {
            return Err(Reason::PseudoDuplicate);
        }
        if !line.is_value_valid {
            return Err(Reason::FieldValue);
        }
        if line.value.is_empty() {
            return Err(Reason::PseudoEmpty);
        }
        self.pseudo[pseudo as usize] = Some(line.value);
        Ok(())
    }

    /// Adds a crumb to the others (RFC 9113, 8.2.3).
    fn take_cookie(&mut self, scratch: &mut Scratch, line: DecodedLine) -> Result<(), Reason> {
        if !scratch.cookies.is_empty() {
            scratch.cookies.extend_from_slice(b"; ");
        }
        let crumb = line.value.of(&scratch.lines);
        scratch.cookies.extend_from_slice(crumb);
        scratch.lines.truncate(line.name.start as usize);
        Ok(())
    }

    fn push(&mut self, field: Field, lines: &[u8], line: DecodedLine) -> Result<(), Reason> {
        self.headers += 1;
        if self.headers > self.limits.max_headers {
            return Err(Reason::FieldCount);
        }
        let is_first = self.head.known & field.id.bit() == 0;
        let value = line.value.of(lines);
        match field.id {
            HeaderId::Other if self.priority.is_none() && line.name.of(lines) == b"priority" => {
                self.priority = Some(Priority::parse(value));
            }
            HeaderId::Other => {}
            id if !is_first && is_unique(id) => return Err(Reason::FieldDuplicate),
            HeaderId::Host => {
                if self.head.host.is_none() {
                    self.take_host(value).map_err(|_| Reason::Host)?;
                }
            }
            HeaderId::ContentLength => {
                let length = parse_length(value).ok_or(Reason::ContentLength)?;
                self.head.framing = Framing::Length(length);
                self.content_length = Some(line.value);
            }
            id => check_connection_field(id, value, is_first)?,
        }
        self.head.push(field);
        Ok(())
    }

    /// Validates a host, and chooses the server by it. Its place is set by [`RequestAssembly::place_host`].
    fn take_host(&mut self, text: &[u8]) -> Result<(), host::InvalidHost> {
        let found = host::parse(text)?;
        self.head.port = found.port;
        if let Some(limits) = (self.choose)(&found.name) {
            self.limits = limits;
        }
        self.head.host = Some(match found.name {
            Cow::Borrowed(name) => HostText::Raw(Span::new(0, name.len())),
            Cow::Owned(name) => HostText::Lowered(name.into()),
        });
        Ok(())
    }

    /// Checks the pseudo-headers, once all are there, and lays out the request line before the fields at `at`.
    fn begin_fields(&mut self, lines: &[u8], at: usize) -> Result<(), Reason> {
        let method = self.pseudo(Pseudo::Method).ok_or(Reason::PseudoMissing)?;
        let method_text = method.of(lines);
        if let Some(authority) = self.pseudo(Pseudo::Authority) {
            self.take_host(authority.of(lines))
                .map_err(|_| Reason::Authority)?;
        }
        self.head.method = Method::find(method_text);
        if self.head.method == Method::Other && !line::is_method(method_text) {
            return Err(Reason::Method);
        }
        self.head.method_text = Span::new(0, method_text.len());
        match (self.head.method, self.pseudo(Pseudo::Protocol)) {
            (Method::Connect, None) => self.connect_line()?,
            (Method::Connect, Some(protocol)) => {
                if !is_protocol(protocol.of(lines)) {
                    return Err(Reason::Protocol);
                }
                self.head.method = Method::Get;
                self.head.method_text = Span::new(0, UPGRADING.len());
                self.request_line(lines)?;
            }
            (_, Some(_)) => return Err(Reason::PseudoConnect),
            (_, None) => self.request_line(lines)?,
        }
        self.fields_at = Some(at);
        Ok(())
    }

    /// RFC 9113, 8.3.1; RFC 8441, 4.
    fn request_line(&mut self, lines: &[u8]) -> Result<(), Reason> {
        let scheme = self.pseudo(Pseudo::Scheme).ok_or(Reason::PseudoMissing)?;
        let path = self.pseudo(Pseudo::Path).ok_or(Reason::PseudoMissing)?;
        if !is_scheme(scheme.of(lines)) {
            return Err(Reason::Scheme);
        }
        let offset = self.head.method_text.end() + 1;
        let text = path.of(lines);
        let found = line::parse_path(text, offset).map_err(|_| Reason::Path)?;
        self.lay_out(offset + text.len());
        let head = &mut *self.head;
        head.target = found.target;
        head.is_complex = found.is_complex;
        if found.is_complex {
            let normal =
                uri::normalise(text, self.limits.merge_slashes).map_err(|_| Reason::Path)?;
            head.args = Span {
                start: normal.args.start + offset as u32,
                len: normal.args.len,
            };
            head.extension = normal.extension;
            head.normal = Some(normal.path.into());
        } else {
            head.path = found.path;
            head.args = found.args;
            head.extension = found.extension;
        }
        Ok(())
    }

    /// RFC 9113, 8.5: CONNECT has an authority with a port, and nothing else.
    fn connect_line(&mut self) -> Result<(), Reason> {
        if !self.limits.allow_connect {
            return Err(Reason::MethodConnect);
        }
        if self.pseudo(Pseudo::Scheme).is_some() || self.pseudo(Pseudo::Path).is_some() {
            return Err(Reason::PseudoConnect);
        }
        let authority = self
            .pseudo(Pseudo::Authority)
            .ok_or(Reason::PseudoMissing)?;
        if self.head.port.is_none() {
            return Err(Reason::Authority);
        }
        let offset = self.head.method_text.end() + 1;
        let end = offset + authority.len as usize;
        self.lay_out(end);
        self.head.authority = Span::new(offset, end);
        // As in HTTP/1, the slash of "HTTP/" serves as the path.
        let slash = self.head.protocol.start as usize + 4;
        self.head.target = Span::new(slash, slash + 1);
        self.head.path = self.head.target;
        Ok(())
    }

    /// Sets the spans behind a target that ends at `end`.
    fn lay_out(&mut self, end: usize) {
        self.line_len = end + VERSION.len();
        self.head.line = Span::new(0, self.line_len - 2);
        self.head.protocol = Span::new(end + 1, self.line_len - 2);
    }

    /// Checks what depends on the complete set of fields, and appends the lines that come last.
    fn finish(&mut self, scratch: &mut Scratch) -> Result<(), Reason> {
        if self.fields_at.is_none() {
            self.begin_fields(&scratch.lines, scratch.lines.len())?;
        }
        if !scratch.cookies.is_empty() {
            let lines = &mut scratch.lines;
            self.append(lines, b"cookie", &scratch.cookies, HeaderId::Cookie);
        }
        self.place_host(&mut scratch.lines)?;
        let protocol = self.pseudo(Pseudo::Protocol);
        if let Some(protocol) = protocol {
            let name = protocol.of(&scratch.lines).to_vec();
            self.ask_for_upgrade(&mut scratch.lines, &name);
        }
        let is_tunnel = self.head.method == Method::Connect || protocol.is_some();
        match (self.head.framing, self.context.is_end) {
            // What follows is the tunnel's: a server would take the first of it for a body (RFC 9110, 9.3.6).
            (Framing::Length(_), _) if is_tunnel => return Err(Reason::ContentLength),
            (Framing::Length(1..), true) => return Err(Reason::LengthDiffers),
            (Framing::None, false) if !is_tunnel => self.head.framing = Framing::Chunked,
            _ => {}
        }
        if self.head.method == Method::Trace {
            return Err(Reason::MethodTrace);
        }
        scratch.lines.extend_from_slice(b"\r\n");
        if let Some(protocol) = protocol {
            let start = scratch.lines.len();
            let text = protocol.start as usize..protocol.end();
            scratch.lines.extend_from_within(text);
            self.head.connect_protocol = self.moved(Span::new(start, scratch.lines.len()));
        }
        Ok(())
    }

    /// Writes an extended CONNECT as the request for an upgrade that it is over HTTP/1.1 (RFC 8441, 5; RFC 6455, 4.1).
    fn ask_for_upgrade(&mut self, lines: &mut Vec<u8>, protocol: &[u8]) {
        self.append(lines, b"upgrade", protocol, HeaderId::Upgrade);
        self.append(lines, b"connection", b"upgrade", HeaderId::Connection);
        let is_missing = !self.has_field(lines, WEBSOCKET_KEY.0);
        if is_missing && protocol.eq_ignore_ascii_case(b"websocket") {
            let id = HeaderId::find(WEBSOCKET_KEY.0);
            self.append(lines, WEBSOCKET_KEY.0, WEBSOCKET_KEY.1, id);
        }
    }

    /// Whether the client sent a field of this name, which must not stand twice.
    #[cold]
    fn has_field(&self, lines: &[u8], name: &[u8]) -> bool {
        let fields_at = self.fields_at.unwrap_or_default();
        let mut fields = self.head.fields.iter();
        fields.any(|field| {
            let start = field.name.start as usize + fields_at - self.line_len;
            lines[start..start + field.name.len as usize] == *name
        })
    }

    /// Compares `:authority` with Host, or writes it as Host.
    fn place_host(&mut self, lines: &mut Vec<u8>) -> Result<(), Reason> {
        let place = match (
            self.head.place(HeaderId::Host),
            self.pseudo(Pseudo::Authority),
        ) {
            (None, None) => return Err(Reason::HostMissing),
            (Some(host), None) => host,
            (Some(host), Some(authority)) => {
                let fields_at = self.fields_at.unwrap_or_default();
                let start = host.start as usize + fields_at - self.line_len;
                if lines[start..start + host.len as usize] != *authority.of(lines) {
                    return Err(Reason::HostDiffers);
                }
                host
            }
            (None, Some(authority)) => {
                let start = lines.len();
                lines.extend_from_slice(b"host: ");
                lines.extend_from_within(authority.start as usize..authority.end());
                self.note(start, 4, lines, HeaderId::Host)
            }
        };
        if let Some(HostText::Raw(span)) = &mut self.head.host {
            span.start = place.start;
        }
        Ok(())
    }

    /// The host of a request that is refused before [`RequestAssembly::place_host`]: that of `authority`, if it is not
    /// empty, else of the field.
    fn find_host(&mut self, authority: &[u8]) {
        let Some(HostText::Raw(Span { start: 0, len })) = self.head.host else {
            return;
        };
        self.head.host = match (authority, self.head.place(HeaderId::Host)) {
            ([], None) => None,
            ([], Some(Span { start, .. })) => Some(HostText::Raw(Span { start, len })),
            (text, _) => Some(HostText::Lowered(
                text[..text.len().min(len as usize)].into(),
            )),
        };
    }

    /// Appends a field of our own.
    fn append(&mut self, lines: &mut Vec<u8>, name: &[u8], value: &[u8], id: HeaderId) {
        let start = lines.len();
        lines.extend_from_slice(name);
        lines.extend_from_slice(b": ");
        lines.extend_from_slice(value);
        self.note(start, name.len(), lines, id);
    }

    /// Ends the line from `start` on, and notes it as a field; returns the place of its value.
    fn note(&mut self, start: usize, name_len: usize, lines: &mut Vec<u8>, id: HeaderId) -> Span {
        let name = self.moved(Span::new(start, start + name_len));
        let value = self.moved(Span::new(start + name_len + 2, lines.len()));
        self.head.push(Field { name, value, id });
        lines.extend_from_slice(b"\r\n");
        value
    }

    /// A place in the scratch as a place in the head.
    #[inline]
    fn moved(&self, span: Span) -> Span {
        let fields_at = self.fields_at.unwrap_or_default();
        Span {
            start: span.start - fields_at as u32 + self.line_len as u32,
            len: span.len,
        }
    }

    fn into_request(mut self, scratch: &Scratch, outcome: Result<(), Reason>) -> DecodedRequest {
        let part = |span: Option<Span>| span.map_or(&[][..], |span| span.of(&scratch.lines));
        let method = match self.pseudo(Pseudo::Protocol) {
            Some(_) => UPGRADING,
            None => part(self.pseudo(Pseudo::Method)),
        };
        let is_path_known = self.pseudo(Pseudo::Path).is_some();
        let target = part(match is_path_known {
            true => self.pseudo(Pseudo::Path),
            false => self.pseudo(Pseudo::Authority),
        });
        let fields = scratch.lines.get(self.fields_at.unwrap_or(usize::MAX)..);
        self.head.bytes = joined(&[method, b" ", target, VERSION, fields.unwrap_or_default()]);
        let Err(reason) = outcome else {
            return DecodedRequest::Head(self.head, self.priority);
        };
        self.head.framing = Framing::None;
        self.find_host(part(self.pseudo(Pseudo::Authority)));
        if self.fields_at.is_none() {
            // The line as far as it is known, for the log; nothing was found in it.
            let mut head = RequestHead::new(std::mem::take(&mut self.head.bytes));
            head.version = Version::HTTP_2;
            head.method = Method::find(method);
            if !method.is_empty() && !target.is_empty() {
                head.line = Span::new(0, head.bytes.len() - 2);
            }
            head.length = self.head.length;
            *self.head = head;
        }
        let refusal = HeadRefusal {
            status: status_of(reason),
            why: format!("client {reason} while reading client request headers"),
            head: *self.head,
            must_linger: false,
            is_whole: true,
            is_silent: false,
        };
        DecodedRequest::Refused(Box::new(refusal), reason)
    }
}

/// The status that HTTP/1 answers with.
fn status_of(reason: Reason) -> u16 {
    match reason {
        Reason::FieldCount => 494,
        Reason::MethodConnect | Reason::MethodTrace => 405,
        _ => 400,
    }
}

/// RFC 9113, 8.2.2.
pub(super) fn check_connection_field(
    id: HeaderId,
    value: &[u8],
    is_first: bool,
) -> Result<(), Reason> {
    match id {
        HeaderId::Connection
        | HeaderId::KeepAlive
        | HeaderId::ProxyConnection
        | HeaderId::TransferEncoding
        | HeaderId::Upgrade => Err(Reason::ConnectionField),
        HeaderId::Te if !is_first || !value.eq_ignore_ascii_case(b"trailers") => Err(Reason::Te),
        _ => Ok(()),
    }
}

/// Whether it is one protocol (RFC 8441, 4; RFC 9110, 7.8). Of a list, a server could choose any.
fn is_protocol(text: &[u8]) -> bool {
    let mut parts = text.splitn(2, |c| *c == b'/');
    parts.all(is_token)
}

/// RFC 3986, 3.1.
fn is_scheme(text: &[u8]) -> bool {
    let is_allowed = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'-' | b'.');
    text.first().is_some_and(u8::is_ascii_alphabetic) && text.iter().all(is_allowed)
}
