//! Reads a response's head as an upstream sends it, by nginx's rules: strict about framing, lenient about names. The head of a CGI
//! program's answer (RFC 3875, 6.2) is one without a status line, whose `Status` says what it would.
//!
//! Knows no socket. A [`ResponseParser`] goes on where it stopped; every fault is a 502, and its words are nginx's.

use bytes::Bytes;
use message::{Field, HeaderId, ResponseFraming, ResponseHead, Span, Version};

use super::head_buffers::copied;
use super::line::{self, Fault};
use super::read::{contains_word, parse_length};
use super::request::is_token;

/// Header lines of a response; the buffer that it must fit in (`proxy_buffer_size`) usually ends it earlier.
pub const RESPONSE_HEADERS_MAX: usize = 4096;

/// What has been found.
#[derive(Debug)]
pub enum ParsedResponse {
    /// More bytes are needed.
    Partial,
    /// A head that took so many bytes. An interim one (1xx) may be followed by another: begin anew behind it.
    Complete(Box<ResponseHead>, usize),
    /// It does not begin as HTTP. nginx takes all of it for the body of an HTTP/0.9 response.
    NotHttp,
    /// It cannot be passed on; nginx's words.
    Refused(String),
}

/// How a head may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beginning {
    /// With a status line.
    Http,
    /// With a status line or without one: nothing has come yet.
    Either,
    /// Without a status line.
    Cgi,
}

/// A response's head on its way. Each call gets all of the bytes from the head's first one on.
#[derive(Debug)]
pub struct ResponseParser {
    bytes_max: usize,
    beginning: Beginning,
    head: Option<Box<ResponseHead>>,
    at: usize,
    scanned: usize,
    length: Option<u64>,
    is_chunked: bool,
}

/// Parses a head of at most `bytes_max` bytes that is there as a whole.
pub fn parse_response_head(bytes: &[u8], bytes_max: usize) -> ParsedResponse {
    ResponseParser::new(bytes_max).advance(bytes)
}

enum Stop {
    NotHttp,
    Refused(String),
}

impl ResponseParser {
    /// For a head of at most `bytes_max` bytes (`proxy_buffer_size`).
    pub fn new(bytes_max: usize) -> ResponseParser {
        ResponseParser::of(Beginning::Http, bytes_max)
    }

    /// For the head of a CGI program's answer, which has no status line.
    pub fn of_cgi(bytes_max: usize) -> ResponseParser {
        ResponseParser::of(Beginning::Cgi, bytes_max)
    }

    /// For the head of a gateway's answer (SCGI, uwsgi), which may have one.
    pub fn of_gateway(bytes_max: usize) -> ResponseParser {
        ResponseParser::of(Beginning::Either, bytes_max)
    }

    fn of(beginning: Beginning, bytes_max: usize) -> ResponseParser {
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

    /// Goes on with `bytes`, which begin with what the last call got.
    pub fn advance(&mut self, bytes: &[u8]) -> ParsedResponse {
        let mut head = self
            .head
            .take()
            .unwrap_or_else(|| Box::new(ResponseHead::new(Bytes::new())));
        match self.lines(bytes, &mut head) {
            Ok(true) => {
                head.bytes = copied(&bytes[..self.at]);
                ParsedResponse::Complete(head, self.at)
            }
            Ok(false) => {
                self.head = Some(head);
                ParsedResponse::Partial
            }
            Err(Stop::NotHttp) => ParsedResponse::NotHttp,
            Err(Stop::Refused(why)) => ParsedResponse::Refused(why),
        }
    }

    /// Is the head complete?
    fn lines(&mut self, bytes: &[u8], head: &mut ResponseHead) -> Result<bool, Stop> {
        if head.status == 0
            && self.beginning != Beginning::Cgi
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
            if head.status == 0 && self.beginning != Beginning::Cgi {
                match status_line(bytes, start, end, head) {
                    Err(Stop::NotHttp) => self.go_on_without_status()?,
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

    /// What came begins with no status line. (A line that only begins as one is left out, as a second one is.)
    fn go_on_without_status(&mut self) -> Result<(), Stop> {
        match self.beginning {
            Beginning::Http => Err(Stop::NotHttp),
            Beginning::Either | Beginning::Cgi => {
                self.beginning = Beginning::Cgi;
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
    ) -> Result<(), Stop> {
        let text = line::without_returns(&bytes[start..end]);
        if text.starts_with(b"HTTP/") {
            return Ok(()); // a second status line, as IIS sent it
        }
        let found = line::parse_header(text, true).map_err(|fault| invalid_header(fault, text))?;
        if head.fields.len() == RESPONSE_HEADERS_MAX {
            return Err(Stop::Refused("upstream sent too many header lines".into()));
        }
        let field = found.field.moved(start);
        if !head.is_interim() {
            self.framing_line(bytes, field, head)?;
        }
        // nginx passes a line without a colon on as a name without a value, and any name; what is no field is not sent (RFC 9110, 2.2).
        if found.has_colon && (!found.is_invalid || is_token(field.name.of(bytes))) {
            head.push(field);
        }
        Ok(())
    }

    /// Lines that say where the response ends: any doubt about them is a fault.
    fn framing_line(
        &mut self,
        bytes: &[u8],
        field: Field,
        head: &mut ResponseHead,
    ) -> Result<(), Stop> {
        let value = field.value.of(bytes);
        match field.id {
            HeaderId::Connection => head.is_last |= contains_word(value, b"close"),
            HeaderId::ContentLength => {
                self.check_alone(bytes, field, head)?;
                self.length = Some(parse_length(value).ok_or_else(|| {
                    let line = shown(bytes, field);
                    Stop::Refused(format!(
                        "upstream sent invalid \"Content-Length\" header: \"{line}\""
                    ))
                })?);
            }
            HeaderId::TransferEncoding => {
                self.check_alone(bytes, field, head)?;
                if !value.eq_ignore_ascii_case(b"chunked") {
                    let coding = String::from_utf8_lossy(value);
                    return Err(Stop::Refused(format!(
                        "upstream sent unknown \"Transfer-Encoding\": \"{coding}\""
                    )));
                }
                self.is_chunked = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// Is it the first line that says where the body ends?
    fn check_alone(&self, bytes: &[u8], field: Field, head: &ResponseHead) -> Result<(), Stop> {
        if let Some(before) = head.fields.iter().find(|before| before.id == field.id) {
            return Err(Stop::Refused(format!(
                "upstream sent duplicate header line: \"{}\", previous value: \"{}\"",
                shown(bytes, field),
                shown(bytes, *before)
            )));
        }
        if self.length.is_some() || self.is_chunked {
            return Err(Stop::Refused(
                "upstream sent \"Content-Length\" and \"Transfer-Encoding\" headers at the same time".into(),
            ));
        }
        Ok(())
    }

    fn finish(&self, bytes: &[u8], head: &mut ResponseHead) -> Result<(), Stop> {
        head.framing = match self.length {
            _ if self.is_chunked => ResponseFraming::Chunked,
            Some(length) => ResponseFraming::Length(length),
            None => ResponseFraming::UntilClose,
        };
        if self.beginning != Beginning::Http {
            return gateway_status(bytes, head);
        }
        head.is_last |= head.version < Version::HTTP_11;
        Ok(())
    }
}

/// What a gateway's head means for HTTP: its status, where no status line says it. `Status` says it, or `Location` that it is a
/// redirect (RFC 3875, 6.2.3). It is no HTTP connection that it came through: nothing is in chunks, and nothing comes behind it.
fn gateway_status(bytes: &[u8], head: &mut ResponseHead) -> Result<(), Stop> {
    if head.framing == ResponseFraming::Chunked {
        head.framing = ResponseFraming::UntilClose;
    }
    head.is_last = true;
    // Of several the first one counts, as in nginx.
    let mut is_first = true;
    head.fields.retain(|field| {
        let is_status = field.name.of(bytes).eq_ignore_ascii_case(b"Status");
        !is_status || std::mem::replace(&mut is_first, false)
    });
    if head.status == 0 {
        head.version = Version::HTTP_11;
        let mut fields = head.fields.iter();
        match fields.find(|field| field.name.of(bytes).eq_ignore_ascii_case(b"Status")) {
            Some(field) => {
                let value = field.value.of(bytes);
                let shown = || String::from_utf8_lossy(value);
                head.status = leading_code(value).ok_or_else(|| {
                    Stop::Refused(format!("upstream sent invalid status \"{}\"", shown()))
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
        status => Err(Stop::Refused(format!(
            "upstream sent unexpected status \"{status}\""
        ))),
    }
}

/// The three digits that a `Status` begins with.
fn leading_code(value: &[u8]) -> Option<u16> {
    let code = value.get(..3)?;
    let is_number = code.iter().all(u8::is_ascii_digit);
    is_number.then(|| {
        code.iter()
            .fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'))
    })
}

fn too_big() -> Stop {
    Stop::Refused("upstream sent too big header".into())
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

/// `HTTP/1.1 404 Not Found`; the text may be absent, the code has three digits.
fn status_line(
    bytes: &[u8],
    start: usize,
    end: usize,
    head: &mut ResponseHead,
) -> Result<(), Stop> {
    let text = &bytes[start..end];
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    let (version, code) = scan_status(text).ok_or(Stop::NotHttp)?;
    head.version = version;
    head.status = text[code..code + 3]
        .iter()
        .fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    head.status_line = Span::new(start + code, start + text.len());
    match (head.status, version) {
        (0..100, _) => Err(Stop::NotHttp),
        (103, version) if version < Version::HTTP_11 => Err(Stop::Refused(
            "upstream sent HTTP/1.0 response with early hints".into(),
        )),
        _ => Ok(()),
    }
}

/// The version, and where the code begins.
fn scan_status(text: &[u8]) -> Option<(Version, usize)> {
    let rest = text.strip_prefix(b"HTTP/")?;
    let digits = |text: &[u8]| text.iter().take_while(|c| c.is_ascii_digit()).count();
    let number = |text: &[u8]| {
        text.iter()
            .fold(0u16, |sum, digit| sum * 10 + u16::from(digit - b'0'))
    };
    let major = digits(rest);
    let minor = digits(rest[major..].strip_prefix(b".")?);
    if !(1..=3).contains(&major) || !(1..=3).contains(&minor) || rest[0] == b'0' {
        return None;
    }
    let behind = &rest[major + 1 + minor..];
    let blanks = behind.iter().take_while(|c| **c == b' ').count();
    let code = &behind[blanks..];
    if blanks == 0
        || digits(code) != 3
        || !matches!(code.get(3), None | Some(b' ' | b'.'))
        || text.contains(&b'\r')
    {
        return None;
    }
    let version = Version {
        major: number(&rest[..major]),
        minor: number(&rest[major + 1..major + 1 + minor]),
    };
    Some((version, text.len() - code.len()))
}

fn invalid_header(fault: Fault, line: &[u8]) -> Stop {
    let at = match fault {
        Fault::Header(at) => at as usize,
        _ => 0,
    };
    let shown = String::from_utf8_lossy(&line[..at]);
    let byte = line.get(at).copied().unwrap_or(b'\r'); // the line's end
    Stop::Refused(format!(
        "upstream sent invalid header: \"{shown}\\x{byte:02x}...\""
    ))
}
