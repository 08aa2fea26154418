//! Parses request lines.
//!
//! A line is parsed when it is complete. The beginning of a line can be checked too, so that garbage (a TLS hello on a
//! plain port) is refused at once and not after a timeout. Not here: header lines (`header_line`).

use message::{Method, Span, Version};

/// A syntax error in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineFault {
    /// A method with bytes other than upper case letters, `_` and `-`.
    Method,
    /// Another error in a request line.
    Request,
    /// A major version above 1.
    Version,
    /// A request without a version that is not a GET.
    Method09,
    /// An error in a header line, at this byte.
    Header(u32),
}

/// A request line, as spans from its first byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestLine {
    /// The text of the method.
    pub method_text: Span,
    /// The method.
    pub method: Option<Method>,
    /// Path, arguments and fragment.
    pub target: Span,
    /// The path alone; valid unless `is_complex`.
    pub path: Span,
    /// The arguments; valid unless `is_complex`.
    pub args: Span,
    /// The extension; valid unless `is_complex`.
    pub extension: Span,
    /// Whether the path must be normalised.
    pub is_complex: bool,
    /// Whether the target has an authority but no path.
    pub is_path_empty: bool,
    /// The scheme of an absolute target.
    pub scheme: Span,
    /// Host and port of an absolute or CONNECT target.
    pub authority: Span,
    /// `HTTP/1.1`; empty for 0.9.
    pub protocol: Span,
    /// The version.
    pub version: Option<Version>,
}

const PLAIN: u8 = 0;
const MARK: u8 = 1; // . / % ? # in a target
const BLANK: u8 = 2;
const CONTROL: u8 = 3;

/// Classes of the bytes in a target.
static TARGET: [u8; 256] = {
    let mut classes = [PLAIN; 256];
    let mut byte = 0;
    while byte < 0x20 {
        classes[byte] = CONTROL;
        byte += 1;
    }
    classes[0x7f] = CONTROL;
    classes[b' ' as usize] = BLANK;
    let marks = b"./%?#";
    let mut index = 0;
    while index < marks.len() {
        classes[marks[index] as usize] = MARK;
        index += 1;
    }
    classes
};

/// Parses a request line without its line end. Unless it `is_complete`, only checks the bytes so far and returns
/// `None`.
///
/// # Errors
/// The first byte that is not allowed.
pub(crate) fn parse_request(
    line: &[u8],
    is_complete: bool,
) -> Result<Option<RequestLine>, LineFault> {
    let mut scan = LineScan {
        line,
        at: 0,
        is_complete,
    };
    match scan.request() {
        Ok(found) => Ok(Some(found)),
        Err(LineStop::Fault(fault)) => Err(fault),
        Err(LineStop::End) if is_complete => Err(LineFault::Request),
        Err(LineStop::End) => Ok(None),
    }
}

/// Parses the target of a request line that is only a path with arguments (`:path` of HTTP/2), to its end. The spans are
/// `offset` bytes further on.
///
/// # Errors
/// [`LineFault::Request`]: it does not begin with a slash, or holds a space or control byte.
pub(crate) fn parse_path(path: &[u8], offset: usize) -> Result<RequestLine, LineFault> {
    let mut scan = LineScan {
        line: path,
        at: 0,
        is_complete: true,
    };
    let mut found = RequestLine::default();
    if path.first() != Some(&b'/') || scan.target(&mut found, 0).is_err() || scan.at != path.len() {
        return Err(LineFault::Request);
    }
    for span in [
        &mut found.target,
        &mut found.path,
        &mut found.args,
        &mut found.extension,
    ] {
        span.start += offset as u32;
    }
    Ok(found)
}

/// Whether a method has only the bytes that nginx accepts.
pub(crate) fn is_method(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|c| is_method_byte(*c))
}

fn is_method_byte(c: u8) -> bool {
    c.is_ascii_uppercase() || matches!(c, b'_' | b'-')
}

enum LineStop {
    Fault(LineFault),
    End,
}

struct LineScan<'a> {
    line: &'a [u8],
    at: usize,
    is_complete: bool,
}

impl LineScan<'_> {
    fn request(&mut self) -> Result<RequestLine, LineStop> {
        let mut found = RequestLine::default();
        let end = self.skip(is_method_byte);
        match self.line.get(end) {
            Some(b' ') if end > 0 => {}
            None if !self.is_complete => return Err(LineStop::End),
            _ => return Err(LineStop::Fault(LineFault::Method)),
        }
        found.method_text = Span::new(0, end);
        let method = Method::find(&self.line[..end]);
        found.method = Some(method);
        self.skip(|c| c == b' ');
        match self.peek()? {
            _ if method == Method::Connect => self.authority(&mut found, true)?,
            b'/' => self.target(&mut found, self.at)?,
            c if c.is_ascii_alphabetic() => self.absolute(&mut found)?,
            _ => return Err(LineStop::Fault(LineFault::Request)),
        }
        self.version(&mut found)?;
        if method == Method::Connect {
            // CONNECT has no path; as in nginx the slash of "HTTP/" serves as one, so that its URI is "/".
            let slash = found.protocol.start as usize + 4;
            found.target = Span::new(slash, slash + 1);
            found.path = found.target;
        }
        if found.version == Some(Version::HTTP_09) && method != Method::Get {
            return Err(LineStop::Fault(LineFault::Method09));
        }
        Ok(found)
    }

    fn peek(&self) -> Result<u8, LineStop> {
        self.line.get(self.at).copied().ok_or(LineStop::End)
    }

    /// Advances while `is_wanted` accepts the byte; returns the offset at which it stopped.
    fn skip(&mut self, is_wanted: impl Fn(u8) -> bool) -> usize {
        while self.at < self.line.len() && is_wanted(self.line[self.at]) {
            self.at += 1;
        }
        self.at
    }

    fn expect(&mut self, text: &[u8]) -> Result<(), LineStop> {
        for wanted in text {
            if self.peek()? != *wanted {
                return Err(LineStop::Fault(LineFault::Request));
            }
            self.at += 1;
        }
        Ok(())
    }

    /// `scheme://host:port/path`
    fn absolute(&mut self, found: &mut RequestLine) -> Result<(), LineStop> {
        let start = self.at;
        let end = self.skip(|c| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'-' | b'.'));
        self.expect(b"://")?;
        found.scheme = Span::new(start, end);
        self.authority(found, false)?;
        match self.peek() {
            Ok(b'/') => self.target(found, self.at),
            Ok(b'?') => {
                found.is_path_empty = true;
                self.target(found, self.at)
            }
            // No path: the URI is "/", which the scheme's "//" provides.
            Ok(b' ') => {
                found.target = Span::new(end + 1, end + 2);
                found.path = found.target;
                Ok(())
            }
            Ok(_) => Err(LineStop::Fault(LineFault::Request)),
            Err(end) => Err(end),
        }
    }

    /// Parses host and port; for CONNECT the port is required, and a space after it.
    fn authority(&mut self, found: &mut RequestLine, is_connect: bool) -> Result<(), LineStop> {
        let start = self.at;
        if self.peek()? == b'[' {
            self.at += 1;
            self.skip(|c| c.is_ascii_alphanumeric() || b":-._~!$&'()*+,;=".contains(&c));
            self.expect(b"]")?;
        } else {
            self.skip(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-'));
        }
        let has_colon = self.peek()? == b':';
        if has_colon {
            self.at += 1;
        }
        let digits = self.at;
        let end = if has_colon {
            self.skip(|c| c.is_ascii_digit())
        } else {
            self.at
        };
        found.authority = Span::new(start, end);
        if is_connect && (self.peek()? != b' ' || end == digits) {
            return Err(LineStop::Fault(LineFault::Request));
        }
        Ok(())
    }

    /// Parses from the first byte of the path (or a `?`) to a space.
    fn target(&mut self, found: &mut RequestLine, start: usize) -> Result<(), LineStop> {
        let line = self.line;
        let (mut query, mut dot, mut slash) = (None, None, start);
        found.is_complex |= found.is_path_empty;
        let mut at = start;
        loop {
            let Some(byte) = line.get(at).copied() else {
                if self.is_complete {
                    break;
                }
                return Err(LineStop::End);
            };
            match TARGET[byte as usize] {
                PLAIN => {}
                BLANK => break,
                CONTROL => return Err(LineStop::Fault(LineFault::Request)),
                _ => match byte {
                    b'#' | b'%' if query.is_none() || byte == b'#' => found.is_complex = true,
                    b'?' if query.is_none() => query = Some(at),
                    b'/' if query.is_none() => {
                        found.is_complex |= at > start && slash + 1 == at;
                        slash = at;
                        dot = None;
                    }
                    b'.' if query.is_none() => {
                        found.is_complex |= slash + 1 == at;
                        dot = Some(at);
                    }
                    _ => {}
                },
            }
            at += 1;
        }
        self.at = at;
        let path_end = query.unwrap_or(at);
        found.target = Span::new(start, at);
        found.path = Span::new(start, path_end);
        found.args = query.map_or(Span::default(), |mark| Span::new(mark + 1, at));
        found.extension = dot.map_or(Span::default(), |dot| Span::new(dot + 1, path_end));
        Ok(())
    }

    fn version(&mut self, found: &mut RequestLine) -> Result<(), LineStop> {
        self.skip(|c| c == b' ');
        let start = self.at;
        if self.at == self.line.len() && self.is_complete {
            found.version = Some(Version::HTTP_09);
            return Ok(());
        }
        self.expect(b"HTTP/")?;
        if self.peek()? == b'0' {
            return Err(LineStop::Fault(LineFault::Request));
        }
        let major = self.digits(LineFault::Version)?;
        if major > 1 {
            return Err(LineStop::Fault(LineFault::Version));
        }
        self.expect(b".")?;
        let minor = self.digits(LineFault::Request)?;
        // RFC 9112, 2.3: the minor version has one digit.
        if self.line[self.at - 2].is_ascii_digit() {
            return Err(LineStop::Fault(LineFault::Request));
        }
        found.protocol = Span::new(start, self.at);
        found.version = Some(Version { major, minor });
        self.skip(|c| c == b' ');
        if self.at < self.line.len() {
            return Err(LineStop::Fault(LineFault::Request));
        }
        Ok(())
    }

    /// Parses one to three digits.
    fn digits(&mut self, too_many: LineFault) -> Result<u16, LineStop> {
        let start = self.at;
        let end = self.skip(|c| c.is_ascii_digit());
        if end == start {
            self.peek()?;
            return Err(LineStop::Fault(LineFault::Request));
        }
        if end - start > 3 {
            return Err(LineStop::Fault(too_many));
        }
        Ok(self.line[start..end]
            .iter()
            .fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Result<RequestLine, LineFault> {
        parse_request(line.as_bytes(), true).map(|found| found.unwrap())
    }

    fn part(line: &str, span: Span) -> &str {
        std::str::from_utf8(span.of(line.as_bytes())).unwrap()
    }

    #[test]
    fn request_lines() {
        #[rustfmt::skip]
        let cases = [
            ("GET / HTTP/1.1", "/", "/", "", "", ""),
            ("GET /a.b/c.tar.gz?x=1 HTTP/1.0", "/a.b/c.tar.gz?x=1", "/a.b/c.tar.gz", "x=1", "gz", ""),
            ("GET    /a   HTTP/1.1  ", "/a", "/a", "", "", ""),
            ("GET /a", "/a", "/a", "", "", ""),
            ("OPTIONS http://h:81/a?b HTTP/1.1", "/a?b", "/a", "b", "", "h:81"),
            ("GET http://h HTTP/1.1", "/", "/", "", "", "h"),
            ("GET http://[::1]:80 HTTP/1.1", "/", "/", "", "", "[::1]:80"),
            ("CONNECT h:443 HTTP/1.1", "/", "/", "", "", "h:443"),
            ("GET /?a%20.b/..//c HTTP/1.1", "/?a%20.b/..//c", "/", "a%20.b/..//c", "", ""),
        ];
        for (line, target, path, args, extension, authority) in cases {
            let found = request(line).unwrap();
            assert!(!found.is_complex, "{line}");
            let parts = [
                found.target,
                found.path,
                found.args,
                found.extension,
                found.authority,
            ]
            .map(|span| part(line, span));
            assert_eq!(parts, [target, path, args, extension, authority], "{line}");
        }
        for line in [
            "GET /%41",
            "GET //a",
            "GET /a/./b",
            "GET /.a",
            "GET /a#b",
            "GET /?#",
            "GET http://h?a",
        ] {
            assert!(request(line).unwrap().is_complex, "{line}");
        }
    }

    #[test]
    fn faults() {
        #[rustfmt::skip]
        let cases = [
            ("", LineFault::Method), ("get / HTTP/1.1", LineFault::Method), (" GET / HTTP/1.1", LineFault::Method), ("\x16\x03\x01", LineFault::Method),
            ("GET", LineFault::Method), ("GET ", LineFault::Request), ("GET a", LineFault::Request), ("GET * HTTP/1.1", LineFault::Request),
            ("GET ?a HTTP/1.1", LineFault::Request), ("GET /a b HTTP/1.1", LineFault::Request), ("GET /a\x01 HTTP/1.1", LineFault::Request),
            ("GET /a\t HTTP/1.1", LineFault::Request), ("GET / http/1.1", LineFault::Request), ("GET / HTTP/0.9", LineFault::Request),
            ("GET / HTTP/2.0", LineFault::Version), ("PRI / HTTP/2.0", LineFault::Version), ("GET / HTTP/11.1", LineFault::Version),
            ("GET / HTTP/1", LineFault::Request), ("GET / HTTP/1.", LineFault::Request), ("GET / HTTP/1.1000", LineFault::Request),
            ("GET / HTTP/1.01", LineFault::Request), ("GET / HTTP/1.10", LineFault::Request),
            ("GET / HTTP/1.1x", LineFault::Request), ("GET / HTTP/1.1 x", LineFault::Request), ("GET /\r HTTP/1.1", LineFault::Request),
            ("POST /", LineFault::Method09), ("GET http:/h HTTP/1.1", LineFault::Request), ("GET http://h:8x/ HTTP/1.1", LineFault::Request),
            ("GET http://u@h/ HTTP/1.1", LineFault::Request), ("GET http://[::1 HTTP/1.1", LineFault::Request),
            ("CONNECT h HTTP/1.1", LineFault::Request), ("CONNECT h: HTTP/1.1", LineFault::Request), ("CONNECT h:1/ HTTP/1.1", LineFault::Request),
            ("CONNECT / HTTP/1.1", LineFault::Request),
        ];
        for (line, fault) in cases {
            assert_eq!(request(line), Err(fault), "{line:?}");
        }
    }

    #[test]
    fn the_beginning_of_a_good_line_is_no_fault() {
        for line in [
            "GET /a.b?c HTTP/1.1 ",
            "CONNECT [::1]:443 HTTP/1.1",
            "GET http://h.x:80/a HTTP/1.0",
        ] {
            for end in 0..line.len() {
                let begun = parse_request(&line.as_bytes()[..end], false);
                assert!(begun.is_ok(), "{:?} {begun:?}", &line[..end]);
            }
        }
        assert_eq!(parse_request(b"\x16\x03", false), Err(LineFault::Method));
    }
}
