//! The forms of values: numbers, seconds, joined lines. Each function appends to a buffer and returns whether there is a
//! value, as nginx distinguishes "not found" from "empty".

use std::io::Write as _;

/// Appends a text, which may be empty.
pub fn put(text: &[u8], out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(text);
    true
}

/// Like [`put`], but an empty text counts as "not found", which logs show as `-`.
pub fn put_if_any(text: &[u8], out: &mut Vec<u8>) -> bool {
    put(text, out) && !text.is_empty()
}

/// Appends a number.
pub fn number(value: u64, out: &mut Vec<u8>) -> bool {
    put(itoa::Buffer::new().format(value).as_bytes(), out)
}

/// Appends a port; none is empty.
pub fn port(port: Option<u16>, out: &mut Vec<u8>) -> bool {
    match port {
        Some(port) => number(u64::from(port), out),
        None => put(b"", out),
    }
}

/// Appends milliseconds as seconds with three decimals.
pub fn milliseconds(value: u64, out: &mut Vec<u8>) -> bool {
    // Writing to memory cannot fail.
    write!(out, "{}.{:03}", value / 1000, value % 1000).is_ok()
}

/// Appends nanoseconds as seconds with six decimals.
pub fn nanoseconds(value: u64, out: &mut Vec<u8>) -> bool {
    let (whole, rest) = (value / 1_000_000_000, value / 1000 % 1_000_000);
    write!(out, "{whole}.{rest:06}").is_ok()
}

/// Appends the values of the lines whose name, lower-cased and with `_` for `-`, is `rest`, joined.
pub fn joined<'a>(
    lines: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    rest: &[u8],
    separator: &[u8],
    out: &mut Vec<u8>,
) -> bool {
    let mut is_found = false;
    for (_, value) in lines.filter(|(name, _)| is_name(name, rest)) {
        if is_found {
            out.extend_from_slice(separator);
        }
        out.extend_from_slice(value);
        is_found = true;
    }
    is_found
}

/// Whether a header's name, lower-cased and with `_` for `-`, is `rest`.
#[must_use]
pub fn is_name(name: &[u8], rest: &[u8]) -> bool {
    let same = |(a, b): (&u8, &u8)| {
        (if *a == b'-' {
            b'_'
        } else {
            a.to_ascii_lowercase()
        }) == *b
    };
    name.len() == rest.len() && name.iter().zip(rest).all(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_name_are_joined() {
        let lines = [(&b"X-A"[..], &b"1"[..]), (b"x-a", b"2"), (b"X-B", b"3")];
        let mut out = Vec::new();
        assert!(joined(lines.into_iter(), b"x_a", b", ", &mut out));
        assert_eq!(out, b"1, 2");
        assert!(!joined(lines.into_iter(), b"x_c", b", ", &mut out));
    }

    #[test]
    fn times_have_three_digits() {
        let mut out = Vec::new();
        assert!(milliseconds(1005, &mut out));
        assert_eq!(out, b"1.005");
    }
}
