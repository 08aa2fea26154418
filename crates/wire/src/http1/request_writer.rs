//! Writes the heads of requests to upstreams.
//!
//! Not here: the body (`exchange::body_writer`). Adds nothing of its own except the line that frames the body.
//! Invariant: the output is exactly one request, whichever server reads it: one length or one coding, no byte that ends
//! a line within a line, no name that is not a token (RFC 9110, 5.6.2). A value that was folded is sent unfolded;
//! anything else is refused, and nothing is written.

use std::borrow::Cow;

use message::{Framing, HeaderId};

use super::response_writer;

/// The head of a request.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The method as it is sent.
    pub method: &'a [u8],
    /// The request target, escaped as it is sent.
    pub target: &'a [u8],
    /// Whether HTTP/1.0 is spoken (`proxy_http_version`).
    pub is_http10: bool,
    /// How the body ends.
    pub framing: Framing,
}

/// Why a request cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestFault {
    /// The method is not a token.
    #[error("invalid method \"{0}\" for upstream")]
    Method(String),
    /// The target is empty, or holds a space, a control byte, or a byte that could be read as the end of the line.
    #[error("invalid URI \"{0}\" for upstream")]
    Target(String),
    /// A name is not a token, or a value holds NUL.
    #[error("invalid header \"{0}\" for upstream")]
    Header(String),
    /// A chunked body for a server that may only speak HTTP/1.0.
    #[error("chunked body for an HTTP/1.0 upstream")]
    Chunked10,
    /// The length of the body is not the announced one.
    #[error("request body of {found} bytes where {announced} were announced")]
    Length {
        /// Number of bytes announced by the head.
        announced: u64,
        /// Number of bytes received until the mismatch was detected.
        found: u64,
    },
}

/// Appends the head of a request, including the empty line. `fields` keep their order; the line that frames the body
/// follows them. Framing lines among `fields` are dropped, and so is `Expect`, because no caller waits for a 100.
///
/// # Errors
/// The request would not be read as exactly this one; `out` is then unchanged.
pub fn head<'a>(
    out: &mut Vec<u8>,
    request: &Outgoing<'_>,
    fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<(), RequestFault> {
    head_with(out, request, fields, std::iter::empty())
}

/// As [`head`], followed by lines that were read from a request and are passed on; of these, a line whose name is not a
/// token is dropped.
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
    out.extend_from_slice(response_writer::CRLF);
    Ok(())
}

fn framing_line(out: &mut Vec<u8>, framing: Framing) {
    match framing {
        Framing::None => {}
        Framing::Length(length) => {
            out.extend_from_slice(b"Content-Length: ");
            out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
            out.extend_from_slice(response_writer::CRLF);
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

/// Whether this module writes the line itself, or it is never sent.
fn is_own(id: HeaderId) -> bool {
    use HeaderId::{ContentLength, Expect, TransferEncoding};
    matches!(id, ContentLength | TransferEncoding | Expect)
}

fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Result<(), RequestFault> {
    let value = unfolded(name, value)?;
    for part in [name, b": ", &value, response_writer::CRLF] {
        out.extend_from_slice(part);
    }
    Ok(())
}

/// A value as it can be sent: each end of a line, with the blanks behind it, is a space (RFC 9112, 5.2). nginx sends
/// `$ssl_client_cert` in folded lines.
///
/// # Errors
/// The value holds NUL.
pub(crate) fn unfolded<'a>(name: &[u8], value: &'a [u8]) -> Result<Cow<'a, [u8]>, RequestFault> {
    if memchr::memchr3(0, b'\r', b'\n', value).is_none() {
        return Ok(Cow::Borrowed(value));
    }
    if value.contains(&0) {
        return Err(RequestFault::Header(name.escape_ascii().to_string()));
    }
    let mut out = Vec::with_capacity(value.len());
    let mut is_behind_end = false;
    for &byte in value {
        let is_end = matches!(byte, b'\r' | b'\n');
        let is_left_out = is_behind_end && (is_end || matches!(byte, b' ' | b'\t'));
        is_behind_end = is_end || is_left_out;
        if !is_left_out {
            out.push(if is_end { b' ' } else { byte });
        }
    }
    Ok(Cow::Owned(out))
}

/// The bytes of a token: a method or a header name (RFC 9110, 5.6.2).
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

/// Whether it can be sent as a name or method (RFC 9110, 5.6.2).
pub fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| TOKEN[*byte as usize])
}

/// Whether it can be sent as a target. Bytes over 126 are accepted, as in nginx.
fn is_target(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| *byte > 0x20 && *byte != 0x7f)
}
