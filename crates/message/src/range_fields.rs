//! Parses the range fields (RFC 9110, 14.2 and 14.4) of one range, as far as slices and caches need them.

/// `Content-Range` of a 206: the bytes from `start` up to `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// First byte.
    pub start: u64,
    /// The byte after the last one.
    pub end: u64,
    /// Bytes of the whole, if the answer gives them.
    pub complete: Option<u64>,
}

impl ContentRange {
    /// Number of bytes.
    #[must_use]
    pub fn body_len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Parses `bytes 0-1/100` or `bytes 0-1/*`; blanks may stand between the parts.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<ContentRange> {
        let mut rest = value.strip_prefix(b"bytes ")?;
        let start = number(&mut rest)?;
        sign(&mut rest, b'-')?;
        let last = number(&mut rest)?;
        sign(&mut rest, b'/')?;
        let complete = match sign(&mut rest, b'*') {
            Some(()) => None,
            None => Some(number(&mut rest)?),
        };
        rest.trim_ascii().is_empty().then_some(ContentRange {
            start,
            end: last.checked_add(1)?,
            complete,
        })
    }
}

/// The start of the only range in a `Range` header; 0 for several, for ranges counted from the end, and for none.
#[must_use]
pub fn start_of(value: &[u8]) -> u64 {
    const UNIT: &[u8] = b"bytes=";
    let is_bytes = value.len() > UNIT.len() && value[..UNIT.len()].eq_ignore_ascii_case(UNIT);
    if !is_bytes || value.contains(&b',') {
        return 0;
    }
    number(&mut &value[UNIT.len()..]).unwrap_or(0)
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let text = rest.trim_ascii_start();
    let digits = text.iter().take_while(|c| c.is_ascii_digit()).count();
    let (number, more) = text.split_at(digits);
    *rest = more;
    let number: u64 = std::str::from_utf8(number).ok()?.parse().ok()?;
    (number <= i64::MAX as u64).then_some(number)
}

fn sign(rest: &mut &[u8], sign: u8) -> Option<()> {
    let more = rest.trim_ascii_start().strip_prefix(&[sign])?;
    *rest = more;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges() {
        let parse = |text: &str| {
            let found = ContentRange::parse(text.as_bytes())?;
            Some((found.start, found.end, found.complete))
        };
        assert_eq!(parse("bytes 0-1/100"), Some((0, 2, Some(100))));
        let part = ContentRange::parse(b"bytes 5-9/10").unwrap();
        assert_eq!(part.body_len(), 5);
        assert_eq!(parse("bytes  2 - 3 / * "), Some((2, 4, None)));
        for bad in [
            "bytes",
            "bytes 0-1",
            "bytes */100",
            "items 0-1/2",
            "bytes 0-1/100x",
            "bytes 0-9223372036854775808/9",
            "bytes -1/9",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn starts_of_ranges() {
        for (text, start) in [
            ("bytes=5-9", 5),
            ("Bytes= 7-", 7),
            ("bytes=-9", 0),
            ("bytes=5-9,11-", 0),
            ("items=5-9", 0),
            ("bytes=", 0),
            ("bytes=99999999999999999999-", 0),
        ] {
            assert_eq!(start_of(text.as_bytes()), start, "{text}");
        }
    }
}
