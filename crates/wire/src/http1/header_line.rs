//! Parses the header lines of requests, responses and trailers.
//!
//! A line is parsed when it is complete; the beginning of one can be checked too. Not here: request lines (`line`), and
//! status lines (`response_parser`).

use message::{Field, HeaderId, Span, words};

use super::line::LineFault;

/// Length in bytes of a value from which on `memchr` is quicker than [`words`].
const LONG: usize = 64;

const NAME_OK: u8 = 0;
const NAME_UNDERSCORE: u8 = 1;
const NAME_ODD: u8 = 2;
const NAME_COLON: u8 = 3;
const NAME_BAD: u8 = 4;

/// Classes of the bytes in a header name. nginx accepts only letters, digits and `-`: fewer than RFC 9110's token.
static NAME: [u8; 256] = {
    let mut classes = [NAME_ODD; 256];
    let mut byte = 0usize;
    while byte < 256 {
        let c = byte as u8;
        if c.is_ascii_alphanumeric() || c == b'-' {
            classes[byte] = NAME_OK;
        } else if c <= 0x20 || c == 0x7f {
            classes[byte] = NAME_BAD;
        }
        byte += 1;
    }
    classes[b'_' as usize] = NAME_UNDERSCORE;
    classes[b':' as usize] = NAME_COLON;
    classes
};

/// A header line, and whether nginx drops it by default because of its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeaderLine {
    /// The spans, in the text that holds the line.
    pub field: Field,
    /// Whether the name has bytes other than letters, digits, `-` (and `_` if allowed).
    pub is_invalid: bool,
    /// Whether there is a colon. nginx takes a line without one as a name with an empty value; RFC 9112, 5.1 has no
    /// such line.
    pub has_colon: bool,
}

/// Parses the header line from `start` to before `end`, where its line end begins. The caller must look for an empty
/// line first.
///
/// # Errors
/// The first byte that is not allowed, counted from `start`; an empty line.
pub(crate) fn parse(
    text: &[u8],
    start: usize,
    end: usize,
    allows_underscores: bool,
) -> Result<HeaderLine, LineFault> {
    let line = &text[start..end];
    if line.is_empty() {
        return Err(LineFault::Header(0));
    }
    let (name_len, id, is_invalid) = match known_name(&text[start..], line.len()) {
        Some((len, id)) => (len, id, false),
        None => {
            let (len, is_invalid) = scan_name(line, allows_underscores)?;
            let id = match is_invalid {
                true => HeaderId::Other,
                false => HeaderId::of_start(line, len),
            };
            (len, id, is_invalid)
        }
    };
    let is_blank = |byte: u8| matches!(byte, b' ' | b'\t');
    let (mut from, mut to) = ((name_len + 1).min(line.len()), line.len());
    while from < to && is_blank(line[from]) {
        from += 1;
    }
    while to > from && is_blank(line[to - 1]) {
        to -= 1;
    }
    let value = &line[from..to];
    let may_be_broken = value.len() > LONG || words::has_any(value, [0, b'\r']);
    if may_be_broken && let Some(offset) = memchr::memchr2(0, b'\r', value) {
        return Err(LineFault::Header((from + offset) as u32));
    }
    Ok(HeaderLine {
        field: Field {
            name: Span::new(start, start + name_len),
            value: Span::new(start + from, start + to),
            id,
        },
        is_invalid,
        has_colon: name_len < line.len(),
    })
}

/// The length of a well-known name, and which it is, if the line of `len` bytes at the start of `text` begins with one.
fn known_name(text: &[u8], len: usize) -> Option<(usize, HeaderId)> {
    let colon = words::find_soon(text, b':')?;
    if colon >= len {
        return None;
    }
    match HeaderId::of_start(text, colon) {
        HeaderId::Other => None,
        id => Some((colon, id)),
    }
}

/// Checks the beginning of a header line.
///
/// # Errors
/// As [`parse`].
pub(crate) fn check(line: &[u8]) -> Result<(), LineFault> {
    match without_returns(line) {
        [] => Ok(()),
        line => scan_name(line, true).map(|_| ()),
    }
}

/// The offset at which the name ends, and whether it is invalid.
fn scan_name(line: &[u8], allows_underscores: bool) -> Result<(usize, bool), LineFault> {
    let mut is_invalid = false;
    for (at, byte) in line.iter().enumerate() {
        match NAME[*byte as usize] {
            NAME_OK => {}
            NAME_COLON if at > 0 => return Ok((at, is_invalid)),
            NAME_UNDERSCORE => is_invalid |= !allows_underscores,
            NAME_ODD => is_invalid = true,
            _ => return Err(LineFault::Header(at as u32)),
        }
    }
    Ok((line.len(), is_invalid))
}

/// The line without the carriage returns before its line feed (nginx accepts several after a header line).
pub(crate) fn without_returns(line: &[u8]) -> &[u8] {
    let mut line = line;
    while let [rest @ .., b'\r'] = line {
        line = rest;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(text: &str, span: Span) -> &str {
        std::str::from_utf8(span.of(text.as_bytes())).unwrap()
    }

    #[test]
    fn header_lines() {
        for (line, name, value, id, is_invalid) in [
            ("Host: a b ", "Host", "a b", HeaderId::Host, false),
            ("host:a", "host", "a", HeaderId::Host, false),
            ("X: \t\u{e9} \t", "X", "\u{e9}", HeaderId::Other, false),
            ("X-Y", "X-Y", "", HeaderId::Other, false),
            ("X:", "X", "", HeaderId::Other, false),
            ("X_Y: 1", "X_Y", "1", HeaderId::Other, true),
            ("X.Y: :1", "X.Y", ":1", HeaderId::Other, true),
        ] {
            // Alone, and as it lies in a head.
            for (before, behind) in [("", ""), ("A: 1\r\n", "\r\nB: 22222222222222222222\r\n")] {
                let text = format!("{before}{line}{behind}");
                let (start, end) = (before.len(), before.len() + line.len());
                let found = parse(text.as_bytes(), start, end, false).unwrap();
                let parts = [found.field.name, found.field.value].map(|span| part(&text, span));
                assert_eq!(parts, [name, value]);
                assert_eq!(
                    (found.field.id, found.is_invalid),
                    (id, is_invalid),
                    "{line}"
                );
            }
        }
        assert!(!parse(b"X_Y: 1", 0, 6, true).unwrap().is_invalid);
        for (line, at) in [
            (": a", 0),
            (" a: b", 0),
            ("a : b", 1),
            ("a\tb: c", 1),
            ("a: b\0c", 4),
            ("a: b\rc", 4),
            ("\x7fa: b", 0),
            ("Host: a long name of a\0 host", 22),
            ("Ho\0st: a", 2),
            ("Host : a", 4),
        ] {
            for (before, behind) in [("", ""), ("A: 1\r\n", "\r\nB: 22222222222222222222\r\n")] {
                let text = format!("{before}{line}{behind}");
                let (start, end) = (before.len(), before.len() + line.len());
                assert_eq!(
                    parse(text.as_bytes(), start, end, false).unwrap_err(),
                    LineFault::Header(at),
                    "{line:?}"
                );
            }
        }
    }
}
