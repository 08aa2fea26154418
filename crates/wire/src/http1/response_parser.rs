//! Parses response heads from upstreams, by nginx's rules: strict about framing, lenient about names. The head of a CGI
//! program's response (RFC 3875, 6.2) has no status line; its `Status` line takes that role.
//!
//! Knows no socket. A [`ResponseParser`] continues where it stopped; every error is a 502, in nginx's words.

use std::sync::Arc;

use message::{Field, HeaderId, ResponseFraming, ResponseHead, Span, Version, words};

use super::head_buffers::copied;
use super::header_line;
use super::line::LineFault;
use super::request_parser::{contains_word, parse_length};
use super::request_writer::is_token;

/// Maximum number of header lines; the buffer that a head must fit in (`proxy_buffer_size`) is usually the lower limit.
pub const RESPONSE_HEADERS_MAX: usize = 4096;

/// The result of parsing.
#[derive(Debug)]
pub enum ParsedResponse {
    /// More bytes are needed.
    Partial,
    /// A complete head, and its length in bytes. After an interim one (1xx) parse the next head with a new parser.
    Complete(Arc<ResponseHead>, usize),
    /// The bytes do not begin as HTTP. nginx takes all of them as the body of an HTTP/0.9 response.
    NotHttp,
    /// The head cannot be passed on, for this reason in nginx's words.
    Refused(String),
}

/// The permitted beginning of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeadBeginning {
    /// A status line.
    Http,
    /// A status line or a header line; nothing has been received yet.
    Either,
    /// A header line.
    Cgi,
}

/// The state of a response head that is being received. Each call gets all bytes from the start of the head.
#[derive(Debug)]
pub struct ResponseParser {
    bytes_max: usize,
    beginning: HeadBeginning,
    head: Option<Arc<ResponseHead>>,
    at: usize,
    scanned: usize,
    length: Option<u64>,
    is_chunked: bool,
}

enum ResponseStop {
    NotHttp,
    Refused(String),
}

impl ResponseParser {
    /// A parser for a head of at most `bytes_max` bytes (`proxy_buffer_size`).
    pub fn new(bytes_max: usize) -> ResponseParser {
        ResponseParser::of(HeadBeginning::Http, bytes_max)
    }

    /// A parser for the head of a CGI program's response, which has no status line.
    pub fn of_cgi(bytes_max: usize) -> ResponseParser {
        ResponseParser::of(HeadBeginning::Cgi, bytes_max)
    }

    /// A parser for the head of a gateway's response (SCGI, uwsgi), which may have a status line.
    pub fn of_gateway(bytes_max: usize) -> ResponseParser {
        ResponseParser::of(HeadBeginning::Either, bytes_max)
    }

    fn of(beginning: HeadBeginning, bytes_max: usize) -> ResponseParser {
        ResponseParser {
            bytes_max,
            beginning,
            head: None,
            at: 0,
            scanned: 0,
            length: None,
            is_chunked: false,
        }
    }

    /// Continues with `bytes`, which begin with the bytes of the previous call.
    pub fn advance(&mut self, bytes: &[u8]) -> ParsedResponse {
        // `default` builds it in place.
        let mut head = self.head.take().unwrap_or_default();
        let own = Arc::get_mut(&mut head).expect("it is not shared before it is complete");
        match self.lines(bytes, own) {
            Ok(true) => {
                own.bytes = copied(&bytes[..self.at]);
                ParsedResponse::Complete(head, self.at)
            }
            Ok(false) => {
                self.head = Some(head);
                ParsedResponse::Partial
            }
            Err(ResponseStop::NotHttp) => ParsedResponse::NotHttp,
            Err(ResponseStop::Refused(why)) => ParsedResponse::Refused(why),
        }
    }

    /// Parses lines; returns whether the head is complete.
    fn lines(&mut self, bytes: &[u8], head: &mut ResponseHead) -> Result<bool, ResponseStop> {
        if head.status == 0
            && self.beginning != HeadBeginning::Cgi
            && !begins_as_http(&bytes[self.at..])
        {
            self.go_on_without_status()?;
        }
        while let Some(offset) = memchr::memchr(b'\n', &bytes[self.scanned..]) {
            let (start, end) = (self.at, self.scanned + offset);
            self.at = end + 1;
            self.scanned = self.at;
            if self.at > self.bytes_max {
                return Err(too_big());
            }
            if head.status == 0 && self.beginning != HeadBeginning::Cgi {
                match status_line(bytes, start, end, head) {
                    Err(ResponseStop::NotHttp) => self.go_on_without_status()?,
                    outcome => outcome?,
                }
            } else if matches!(&bytes[start..end], [] | [b'\r']) {
                self.finish(bytes, head)?;
                return Ok(true);
            } else {
                self.header_line(bytes, start, end, head)?;
            }
        }
        self.scanned = bytes.len();
        if bytes.len() >= self.bytes_max {
            return Err(too_big());
        }
        Ok(false)
    }

    /// Continues without a status line. (A line that only looks like one is dropped, like a second status line.)
    fn go_on_without_status(&mut self) -> Result<(), ResponseStop> {
        match self.beginning {
            HeadBeginning::Http => Err(ResponseStop::NotHttp),
            HeadBeginning::Either | HeadBeginning::Cgi => {
                self.beginning = HeadBeginning::Cgi;
                Ok(())
            }
        }
    }

    fn header_line(
        &mut self,
        bytes: &[u8],
        start: usize,
        end: usize,
        head: &mut ResponseHead,
    ) -> Result<(), ResponseStop> {
        let text = header_line::without_returns(&bytes[start..end]);
        if text.starts_with(b"HTTP/") {
            return Ok(()); // a second status line, as IIS sent it
        }
        let found = header_line::parse(bytes, start, start + text.len(), true)
            .map_err(|fault| invalid_header(fault, text))?;
        if head.fields.len() == RESPONSE_HEADERS_MAX {
            return Err(ResponseStop::Refused(
                "upstream sent too many header lines".into(),
            ));
        }
        let field = found.field;
        if !head.is_interim() {
            self.framing_line(bytes, field, head)?;
        }
        // nginx passes on a line without a colon as a name without a value, and accepts any name; a line that is not a
        // field is dropped here (RFC 9110, 2.2).
        if found.has_colon && (!found.is_invalid || is_token(field.name.of(bytes))) {
            head.push(field);
        }
        Ok(())
    }

    /// Parses the lines that frame the body; anything ambiguous is an error.
    fn framing_line(
        &mut self,
        bytes: &[u8],
        field: Field,
        head: &mut ResponseHead,
    ) -> Result<(), ResponseStop> {
        let value = field.value.of(bytes);
        match field.id {
            HeaderId::Connection => head.is_last |= contains_word(value, b"close"),
            HeaderId::ContentLength => {
                self.check_alone(bytes, field, head)?;
                self.length = Some(parse_length(value).ok_or_else(|| {
                    let line = shown(bytes, field);
                    ResponseStop::Refused(format!(
                        "upstream sent invalid \"Content-Length\" header: \"{line}\""
                    ))
                })?);
            }
            HeaderId::TransferEncoding => {
                self.check_alone(bytes, field, head)?;
                if !value.eq_ignore_ascii_case(b"chunked") {
                    let coding = String::from_utf8_lossy(value);
                    return Err(ResponseStop::Refused(format!(
                        "upstream sent unknown \"Transfer-Encoding\": \"{coding}\""
                    )));
                }
                self.is_chunked = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// Refuses a second line that frames the body.
    fn check_alone(
        &self,
        bytes: &[u8],
        field: Field,
        head: &ResponseHead,
    ) -> Result<(), ResponseStop> {
        if let Some(before) = head.fields.iter().find(|before| before.id == field.id) {
            return Err(ResponseStop::Refused(format!(
                "upstream sent duplicate header line: \"{}\", previous value: \"{}\"",
                shown(bytes, field),
                shown(bytes, *before)
            )));
        }
        if self.length.is_some() || self.is_chunked {
            return Err(ResponseStop::Refused(
                "upstream sent \"Content-Length\" and \"Transfer-Encoding\" headers at the same time".into(),
            ));
        }
        Ok(())
    }

    fn finish(&self, bytes: &[u8], head: &mut ResponseHead) -> Result<(), ResponseStop> {
        head.framing = match self.length {
            _ if self.is_chunked => ResponseFraming::Chunked,
            Some(length) => ResponseFraming::Length(length),
            None => ResponseFraming::UntilClose,
        };
        if self.beginning != HeadBeginning::Http {
            return gateway_status(bytes, head);
        }
        head.is_last |= head.version < Version::HTTP_11;
        Ok(())
    }
}

/// Determines the HTTP status of a gateway's head without a status line: given by `Status`, or implied by `Location`
/// (RFC 3875, 6.2.3). The head came over a connection that is not HTTP: nothing is chunked, and no response follows.
fn gateway_status(bytes: &[u8], head: &mut ResponseHead) -> Result<(), ResponseStop> {
    if head.framing == ResponseFraming::Chunked {
        head.framing = ResponseFraming::UntilClose;
    }
    head.is_last = true;
    if head.status == 0 {
        head.version = Version::HTTP_11;
        // The first of several counts, as in nginx.
        let mut fields = head.fields.iter();
        match fields.find(|field| field.id == HeaderId::Status) {
            Some(field) => {
                let value = field.value.of(bytes);
                let shown = || String::from_utf8_lossy(value);
                head.status = leading_code(value).ok_or_else(|| {
                    ResponseStop::Refused(format!("upstream sent invalid status \"{}\"", shown()))
                })?;
                if value.len() > 3 {
                    head.status_line = field.value;
                }
            }
            None if head.fields.iter().any(|f| f.id == HeaderId::Location) => head.status = 302,
            None => head.status = 200,
        }
    }
    match head.status {
        101 | 200.. => Ok(()),
        status => Err(ResponseStop::Refused(format!(
            "upstream sent unexpected status \"{status}\""
        ))),
    }
}

/// The three digits at the start of a `Status` value.
fn leading_code(value: &[u8]) -> Option<u16> {
    let code = value.get(..3)?;
    let is_number = code.iter().all(u8::is_ascii_digit);
    is_number.then(|| {
        code.iter()
            .fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'))
    })
}

fn too_big() -> ResponseStop {
    ResponseStop::Refused("upstream sent too big header".into())
}

fn shown(bytes: &[u8], field: Field) -> String {
    let part = |span: Span| String::from_utf8_lossy(span.of(bytes));
    format!("{}: {}", part(field.name), part(field.value))
}

fn begins_as_http(begun: &[u8]) -> bool {
    const START: &[u8] = b"HTTP/";
    let len = begun.len().min(START.len());
    begun[..len] == START[..len]
}

/// Parses `HTTP/1.1 404 Not Found`; the text may be missing, the code has three digits.
fn status_line(
    bytes: &[u8],
    start: usize,
    end: usize,
    head: &mut ResponseHead,
) -> Result<(), ResponseStop> {
    let text = &bytes[start..end];
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    let (version, code, status) = scan_status(text).ok_or(ResponseStop::NotHttp)?;
    head.version = version;
    head.status = status;
    head.status_line = Span::new(start + code, start + text.len());
    match (head.status, version) {
        (0..100, _) => Err(ResponseStop::NotHttp),
        (103, version) if version < Version::HTTP_11 => Err(ResponseStop::Refused(
            "upstream sent HTTP/1.0 response with early hints".into(),
        )),
        _ => Ok(()),
    }
}

/// The version, the offset of the code, and the code.
fn scan_status(text: &[u8]) -> Option<(Version, usize, u16)> {
    let rest = text.strip_prefix(b"HTTP/")?;
    let (major, major_len) = number(rest);
    let rest = rest[major_len..].strip_prefix(b".")?;
    let (minor, minor_len) = number(rest);
    let is_version = |len: usize| (1..=3).contains(&len);
    if !is_version(major_len) || !is_version(minor_len) || text[5] == b'0' {
        return None;
    }
    let mut code = &rest[minor_len..];
    let before = code.len();
    while let [b' ', behind @ ..] = code {
        code = behind;
    }
    let (status, digits) = number(code);
    if code.len() == before
        || digits != 3
        || !matches!(code.get(3), None | Some(b' ' | b'.'))
        || words::has_any(text, [b'\r'])
    {
        return None;
    }
    Some((Version { major, minor }, text.len() - code.len(), status))
}

/// The number that the first digits of a text are, and how many of them there are; no more than four are read.
fn number(text: &[u8]) -> (u16, usize) {
    let (mut value, mut len) = (0, 0);
    while len < 4
        && let Some(digit @ b'0'..=b'9') = text.get(len)
    {
        value = value * 10 + u16::from(digit - b'0');
        len += 1;
    }
    (value, len)
}

fn invalid_header(fault: LineFault, line: &[u8]) -> ResponseStop {
    let at = match fault {
        LineFault::Header(at) => at as usize,
        _ => 0,
    };
    let shown = String::from_utf8_lossy(&line[..at]);
    let byte = line.get(at).copied().unwrap_or(b'\r'); // the line's end
    ResponseStop::Refused(format!(
        "upstream sent invalid header: \"{shown}\\x{byte:02x}...\""
    ))
}
