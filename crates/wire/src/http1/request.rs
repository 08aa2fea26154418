//! Writes requests as a client: the head, and what stands around the pieces of a body.
//!
//! Says nothing of its own accord but where the body ends. Invariant: what is written is one request and no other, to whoever
//! reads it: one length or one coding, no byte that ends a line inside of a line, no name that is not a token (RFC 9110, 5.6.2).
//! What cannot be written so is refused, and nothing is written.

use message::{Framing, Header, HeaderId};

use super::write;
use crate::fastcgi;

/// A request's head.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// As it is to be sent.
    pub method: &'a [u8],
    /// The request's target, escaped as it is to be sent.
    pub target: &'a [u8],
    /// Is it HTTP/1.0 that is spoken (`proxy_http_version`)?
    pub is_http10: bool,
    /// How the body ends.
    pub framing: Framing,
}

/// What cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestFault {
    /// The method is no token.
    #[error("invalid method \"{0}\" for upstream")]
    Method(String),
    /// The target is empty, or holds a blank, a control byte, or what would be taken for the line's end.
    #[error("invalid URI \"{0}\" for upstream")]
    Target(String),
    /// A name is no token, or a value holds NUL, CR or LF.
    #[error("invalid header \"{0}\" for upstream")]
    Header(String),
    /// A chunked body to a server of which only HTTP/1.0 is expected.
    #[error("chunked body for an HTTP/1.0 upstream")]
    Chunked10,
    /// The body is longer or shorter than its head said.
    #[error("request body of {found} bytes where {announced} were announced")]
    Length {
        /// Bytes that the head announced.
        announced: u64,
        /// Bytes that came, up to where it showed.
        found: u64,
    },
}

/// Appends a request's head, empty line included. `fields` stand in their order, and behind them the line that says where the body
/// ends; lines that say so themselves are left out, and so is `Expect`: nobody waits for a 100.
///
/// # Errors
/// What would not be read as this one request; `out` is then as it was.
pub fn head<'a>(
    out: &mut Vec<u8>,
    request: &Outgoing<'_>,
    fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<(), RequestFault> {
    head_with(out, request, fields, std::iter::empty())
}

/// As [`head`], with lines behind them that were read from a request and are passed on; of these, one whose name is no token is
/// left out.
///
/// # Errors
/// As [`head`].
pub fn head_with<'a>(
    out: &mut Vec<u8>,
    request: &Outgoing<'_>,
    fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    passed_on: impl Iterator<Item = (&'a [u8], &'a [u8], HeaderId)>,
) -> Result<(), RequestFault> {
    let start = out.len();
    let outcome = append(out, request, fields, passed_on);
    if outcome.is_err() {
        out.truncate(start);
    }
    outcome
}

fn append<'a>(
    out: &mut Vec<u8>,
    request: &Outgoing<'_>,
    fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    passed_on: impl Iterator<Item = (&'a [u8], &'a [u8], HeaderId)>,
) -> Result<(), RequestFault> {
    let shown = |text: &[u8]| text.escape_ascii().to_string();
    if !is_token(request.method) {
        return Err(RequestFault::Method(shown(request.method)));
    }
    if !is_target(request.target) {
        return Err(RequestFault::Target(shown(request.target)));
    }
    if request.is_http10 && request.framing == Framing::Chunked {
        return Err(RequestFault::Chunked10);
    }
    let version: &[u8] = if request.is_http10 {
        b" HTTP/1.0\r\n"
    } else {
        b" HTTP/1.1\r\n"
    };
    for part in [request.method, b" ", request.target, version] {
        out.extend_from_slice(part);
    }
    for (name, value) in fields {
        field(out, name, value)?;
    }
    framing_line(out, request.framing);
    for (name, value, id) in passed_on {
        if is_token(name) && !is_own(id) {
            line(out, name, value)?;
        }
    }
    out.extend_from_slice(write::CRLF);
    Ok(())
}

fn framing_line(out: &mut Vec<u8>, framing: Framing) {
    match framing {
        Framing::None => {}
        Framing::Length(length) => {
            out.extend_from_slice(b"Content-Length: ");
            out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
            out.extend_from_slice(write::CRLF);
        }
        Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
    }
}

fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Result<(), RequestFault> {
    if is_own(HeaderId::find(name)) {
        return Ok(());
    }
    if !is_token(name) {
        return Err(RequestFault::Header(name.escape_ascii().to_string()));
    }
    line(out, name, value)
}

/// Is it said by what is written itself, or not at all?
fn is_own(id: HeaderId) -> bool {
    use HeaderId::{ContentLength, Expect, TransferEncoding};
    matches!(id, ContentLength | TransferEncoding | Expect)
}

fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Result<(), RequestFault> {
    if memchr::memchr3(0, b'\r', b'\n', value).is_some() {
        return Err(RequestFault::Header(name.escape_ascii().to_string()));
    }
    for part in [name, b": ", value, write::CRLF] {
        out.extend_from_slice(part);
    }
    Ok(())
}

/// Bytes of a method or a header's name (RFC 9110, 5.6.2).
static TOKEN: [bool; 256] = {
    let mut is_token = [false; 256];
    let mut byte = 0usize;
    while byte < 256 {
        is_token[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let odd = b"!#$%&'*+-.^_`|~";
    let mut at = 0;
    while at < odd.len() {
        is_token[odd[at] as usize] = true;
        at += 1;
    }
    is_token
};

/// Is it a name or a method that can be sent (RFC 9110, 5.6.2)?
pub fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| TOKEN[*byte as usize])
}

/// Bytes over 126 pass, as nginx sends them.
fn is_target(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| *byte > 0x20 && *byte != 0x7f)
}

/// The body of a request on its way out.
#[derive(Clone, Debug)]
pub struct BodyWriter {
    framing: Framing,
    is_in_records: bool,
    written: u64,
}

impl BodyWriter {
    /// For the body behind a head that announced `framing`.
    pub fn new(framing: Framing) -> BodyWriter {
        BodyWriter {
            framing,
            is_in_records: false,
            written: 0,
        }
    }

    /// Is it known to have no byte?
    pub fn is_empty(&self) -> bool {
        matches!(self.framing, Framing::None | Framing::Length(0))
    }

    /// For a body in FastCGI's records; `framing` says how long it is, chunks: that this is not known.
    pub fn in_records(framing: Framing) -> BodyWriter {
        BodyWriter {
            is_in_records: true,
            ..BodyWriter::new(framing)
        }
    }

    /// A piece has at most so many bytes.
    pub fn piece_max(&self) -> usize {
        match self.is_in_records {
            true => fastcgi::CONTENT_MAX,
            false => usize::MAX,
        }
    }

    /// A piece of `len` bytes, at most [`BodyWriter::piece_max`], comes next: appends to `out` what stands before it, and gives what
    /// stands behind it.
    ///
    /// # Errors
    /// The body is longer than its head said; no byte of the piece may be sent.
    pub fn piece(&mut self, out: &mut Vec<u8>, len: u64) -> Result<&'static [u8], RequestFault> {
        if len == 0 {
            return Ok(b"");
        }
        self.written = self.written.saturating_add(len);
        match self.announced() {
            Some(announced) if self.written > announced => Err(self.mismatch(announced)),
            _ if self.is_in_records => Ok(fastcgi::write::body_piece(out, len as usize)),
            Some(_) => Ok(b""),
            None => {
                write::chunk_head(out, len);
                Ok(write::CRLF)
            }
        }
    }

    /// The body has ended: appends what says so.
    ///
    /// # Errors
    /// The body is shorter than its head said: all that is left is to close the connection.
    pub fn end(&mut self, out: &mut Vec<u8>, trailers: &[Header]) -> Result<(), RequestFault> {
        match self.announced() {
            Some(announced) if self.written != announced => Err(self.mismatch(announced)),
            _ if self.is_in_records => {
                fastcgi::write::end_body(out);
                Ok(())
            }
            Some(_) => Ok(()),
            None => {
                write::last_chunk(out, trailers);
                Ok(())
            }
        }
    }

    /// Bytes of the body so far, what stands around its pieces not counted.
    pub fn written(&self) -> u64 {
        self.written
    }

    fn announced(&self) -> Option<u64> {
        match self.framing {
            Framing::None => Some(0),
            Framing::Length(length) => Some(length),
            Framing::Chunked => None,
        }
    }

    fn mismatch(&self, announced: u64) -> RequestFault {
        RequestFault::Length {
            announced,
            found: self.written,
        }
    }
}
