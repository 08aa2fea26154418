//! Lines of logs as JSON objects, one a line: the predefined format `json` of access logs, and error logs with `json`.
//!
//! Not here: which logs are written so ([`crate::directives`]). Invariant: a line is one object of valid UTF-8, whatever the
//! values are: bytes that are not UTF-8 become U+FFFD, and a number that is none becomes a string.

use bytes::Bytes;
use config::{Problem, Scope, VariableIndex};

use crate::level::Level;
use crate::line::Parts;
use crate::template::Variables;
use crate::wall_clock::Clock;

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Text,
    Number,
}

/// The members of a line of an access log: the name, the variable, its form. Members without a value are left out.
const MEMBERS: &[(&str, &str, Shape)] = &[
    ("time", "time_iso8601", Shape::Text),
    ("msec", "msec", Shape::Number),
    ("remote_addr", "remote_addr", Shape::Text),
    ("remote_user", "remote_user", Shape::Text),
    ("method", "request_method", Shape::Text),
    ("scheme", "scheme", Shape::Text),
    ("host", "host", Shape::Text),
    ("uri", "request_uri", Shape::Text),
    ("protocol", "server_protocol", Shape::Text),
    ("request", "request", Shape::Text),
    ("status", "status", Shape::Number),
    ("body_bytes_sent", "body_bytes_sent", Shape::Number),
    ("bytes_sent", "bytes_sent", Shape::Number),
    ("request_length", "request_length", Shape::Number),
    ("request_time", "request_time", Shape::Number),
    ("referer", "http_referer", Shape::Text),
    ("user_agent", "http_user_agent", Shape::Text),
    ("forwarded_for", "http_x_forwarded_for", Shape::Text),
    ("connection", "connection", Shape::Number),
    ("upstream_addr", "upstream_addr", Shape::Text),
    ("upstream_status", "upstream_status", Shape::Text),
    (
        "upstream_response_time",
        "upstream_response_time",
        Shape::Text,
    ),
    (
        "upstream_cache_status",
        "upstream_cache_status",
        Shape::Text,
    ),
];

/// The members of the format `json`, ready to be filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Members(Box<[(Bytes, VariableIndex, Shape)]>);

impl Members {
    /// All of them.
    ///
    /// # Errors
    /// Too many variables.
    pub(crate) fn all(scope: &mut Scope) -> Result<Self, Problem> {
        let member = |(name, variable, shape): &(&str, &str, Shape)| {
            let name = Bytes::from(format!("\"{name}\":"));
            Ok((name, scope.intern(variable, None)?, *shape))
        };
        let all: Result<Vec<_>, Problem> = MEMBERS.iter().map(member).collect();
        Ok(Self(all?.into()))
    }

    /// Appends a request's line without its newline.
    pub(crate) fn append(&self, variables: &impl Variables, out: &mut Vec<u8>) {
        out.push(b'{');
        let mut value = Vec::new();
        let mut is_first = true;
        for (name, index, shape) in &self.0 {
            value.clear();
            if !variables.variable(*index, &mut value) || value.is_empty() {
                continue;
            }
            if !std::mem::replace(&mut is_first, false) {
                out.push(b',');
            }
            out.extend_from_slice(name);
            match shape {
                Shape::Number => append_number(&value, out),
                Shape::Text => append_text(&value, out),
            }
        }
        out.push(b'}');
    }
}

/// Appends a line of an error log, newline included. `line` is the same line as text.
pub(crate) fn append_error_line(line: &[u8], level: Level, clock: &Clock, out: &mut Vec<u8>) {
    let parts = Parts::of(line, level);
    out.extend_from_slice(b"{\"time\":");
    append_text(&clock.time_iso8601(), out);
    out.extend_from_slice(b",\"level\":\"");
    out.extend_from_slice(level.name().as_bytes());
    out.push(b'"');
    let numbers = [
        (&b",\"pid\":"[..], Some(parts.pid)),
        (b",\"tid\":", Some(parts.tid)),
        (b",\"connection\":", parts.connection),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            out.extend_from_slice(name);
            append_number(number, out);
        }
    }
    out.extend_from_slice(b",\"message\":");
    append_text(parts.text, out);
    out.extend_from_slice(b"}\n");
}

/// Appends a number of digits with at most one dot, as JSON has it: without zeros in front. Anything else is a string.
fn append_number(value: &[u8], out: &mut Vec<u8>) {
    let (whole, part) = match value.iter().position(|byte| *byte == b'.') {
        Some(dot) => (&value[..dot], Some(&value[dot + 1..])),
        None => (value, None),
    };
    let is_digits = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    if !is_digits(whole) || part.is_some_and(|part| !is_digits(part)) {
        return append_text(value, out);
    }
    let zeros = whole.iter().take_while(|digit| **digit == b'0').count();
    out.extend_from_slice(&whole[zeros.min(whole.len() - 1)..]);
    if let Some(part) = part {
        out.push(b'.');
        out.extend_from_slice(part);
    }
}

/// Appends a string in quotes.
fn append_text(value: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for chunk in value.utf8_chunks() {
        for byte in chunk.valid().bytes() {
            append_json(byte, out);
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    out.push(b'"');
}

/// Appends a byte of a string.
pub(crate) fn append_json(byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    match byte {
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        8 => out.extend_from_slice(b"\\b"),
        12 => out.extend_from_slice(b"\\f"),
        0..0x20 => {
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&[
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]);
        }
        _ => out.push(byte),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(append: fn(&[u8], &mut Vec<u8>), value: &[u8]) -> String {
        let mut out = Vec::new();
        append(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_those_of_json() {
        for (value, number) in [
            (&b"0"[..], "0"),
            (b"000", "0"),
            (b"0.005", "0.005"),
            (b"007.10", "7.10"),
            (b"1764115200.123", "1764115200.123"),
            (b"", "\"\""),
            (b"1.", "\"1.\""),
            (b".5", "\".5\""),
            (b"-", "\"-\""),
            (b"0.1, 0.2", "\"0.1, 0.2\""),
        ] {
            assert_eq!(written(append_number, value), number);
        }
    }

    #[test]
    fn texts_are_utf8_and_escaped() {
        assert_eq!(
            written(append_text, b"a\"\\\n\x01\xff\xc3\xa4\xe2\x82"),
            "\"a\\\"\\\\\\n\\u0001\u{fffd}\u{e4}\u{fffd}\""
        );
    }
}
