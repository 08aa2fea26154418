//! DER, as far as certificates, keys, lists of revocations and OCSP answers need it: a reader, and a few writers.
//!
//! Not here: what the values mean. Invariant: every value lies within the bytes that were given; lengths are definite
//! and as short as can be (ITU-T X.690, 10.1); nothing recurses.

pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const NULL: u8 = 0x05;
pub(crate) const OID: u8 = 0x06;
pub(crate) const ENUMERATED: u8 = 0x0a;
pub(crate) const UTC_TIME: u8 = 0x17;
pub(crate) const GENERALIZED_TIME: u8 = 0x18;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

/// The tag `[number]` of an implicit primitive value.
pub(crate) const fn context(number: u8) -> u8 {
    0x80 | number
}

/// The tag `[number]` of a constructed value.
pub(crate) const fn constructed(number: u8) -> u8 {
    0xa0 | number
}

/// One value: its tag, its contents, and all of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Value<'a> {
    pub(crate) tag: u8,
    pub(crate) contents: &'a [u8],
    pub(crate) whole: &'a [u8],
}

/// Reads values one behind the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The tag of the next value.
    pub(crate) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// The next value, whatever it is.
    pub(crate) fn next(&mut self) -> Option<Value<'a>> {
        let (&tag, rest) = self.rest.split_first()?;
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (length, header) = length(rest)?;
        let end = header.checked_add(length)?.checked_add(1)?;
        let whole = self.rest.get(..end)?;
        self.rest = &self.rest[end..];
        Some(Value {
            tag,
            contents: &whole[header + 1..],
            whole,
        })
    }

    /// The contents of the next value, which has this tag.
    pub(crate) fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.expect_value(tag).map(|value| value.contents)
    }

    /// The next value, which has this tag.
    pub(crate) fn expect_value(&mut self, tag: u8) -> Option<Value<'a>> {
        (self.peek()? == tag).then(|| self.next()).flatten()
    }

    /// The contents of the next value where it has this tag. The outer `None`: it is broken.
    #[expect(clippy::option_option, reason = "absent is not broken")]
    pub(crate) fn optional(&mut self, tag: u8) -> Option<Option<&'a [u8]>> {
        if self.peek() != Some(tag) {
            return Some(None);
        }
        self.expect(tag).map(Some)
    }

    /// What is inside of the next value, which has this tag.
    pub(crate) fn enter(&mut self, tag: u8) -> Option<Reader<'a>> {
        self.expect(tag).map(Reader::new)
    }

    /// Reads an extension: its name, whether it is critical, and its value (RFC 5280, 4.1).
    pub(crate) fn extension(&mut self) -> Option<(&'a [u8], bool, &'a [u8])> {
        let mut one = self.enter(SEQUENCE)?;
        let oid = one.expect(OID)?;
        let is_critical = one.optional(BOOLEAN)?.is_some_and(|value| value != [0]);
        Some((oid, is_critical, one.expect(OCTET_STRING)?))
    }

    /// The bytes of the next value, a BIT STRING of whole bytes.
    pub(crate) fn bit_string(&mut self) -> Option<&'a [u8]> {
        match self.expect(BIT_STRING)?.split_first()? {
            (0, bits) => Some(bits),
            _ => None,
        }
    }

    /// The next value, an INTEGER that fits.
    pub(crate) fn small_integer(&mut self) -> Option<u64> {
        unsigned(self.expect(INTEGER)?)
    }
}

/// The only value in `bytes`, which has this tag.
pub(crate) fn only(bytes: &[u8], tag: u8) -> Option<&[u8]> {
    let mut reader = Reader::new(bytes);
    let contents = reader.expect(tag)?;
    reader.is_empty().then_some(contents)
}

/// An INTEGER's contents as a number; `None` if it is negative or does not fit.
pub(crate) fn unsigned(contents: &[u8]) -> Option<u64> {
    let contents = match contents {
        [] => return None,
        [first, ..] if first & 0x80 != 0 => return None,
        [0, rest @ ..] => rest,
        other => other,
    };
    if contents.len() > 8 {
        return None;
    }
    Some(
        contents
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    )
}

/// The length behind a tag, and how many bytes say it.
fn length(bytes: &[u8]) -> Option<(usize, usize)> {
    let (&first, rest) = bytes.split_first()?;
    if first < 0x80 {
        return Some((usize::from(first), 1));
    }
    let count = usize::from(first & 0x7f);
    if count == 0 || count > 4 {
        return None;
    }
    let bytes = rest.get(..count)?;
    let length = bytes
        .iter()
        .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let is_shortest = bytes[0] != 0 && length >= 0x80;
    is_shortest.then_some((length, count + 1))
}

/// A value: tag, length, contents.
pub(crate) fn value(tag: u8, contents: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    let length = contents.len();
    if length < 0x80 {
        bytes.push(length as u8);
    } else {
        let digits = length.to_be_bytes();
        let zeros = digits.iter().take_while(|digit| **digit == 0).count();
        bytes.push(0x80 | (digits.len() - zeros) as u8);
        bytes.extend_from_slice(&digits[zeros..]);
    }
    bytes.extend_from_slice(contents);
    bytes
}

/// A value around others.
pub(crate) fn values(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    value(tag, &parts.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for length in [0, 1, 127, 128, 255, 256, 70_000] {
            let bytes = value(OCTET_STRING, &vec![7; length]);
            assert_eq!(only(&bytes, OCTET_STRING), Some(&vec![7; length][..]));
            assert_eq!(only(&bytes[..bytes.len() - 1], OCTET_STRING), None);
            assert_eq!(only(&bytes, SEQUENCE), None);
        }
    }

    #[test]
    fn other_lengths_are_refused() {
        for bytes in [
            &[OCTET_STRING, 0x80, 0, 0][..],
            &[OCTET_STRING, 0x81, 1, 0],
            &[OCTET_STRING, 0x82, 0, 0x80],
            &[OCTET_STRING, 0x85, 1, 0, 0, 0, 0],
            &[0x1f, 0x81, 1, 0],
            &[OCTET_STRING],
            &[],
        ] {
            assert_eq!(Reader::new(bytes).next(), None, "{bytes:?}");
        }
    }

    #[test]
    fn integers_that_fit_are_numbers() {
        assert_eq!(unsigned(&[0]), Some(0));
        assert_eq!(unsigned(&[0, 0xff]), Some(255));
        assert_eq!(unsigned(&[0x80]), None);
        assert_eq!(unsigned(&[]), None);
        assert_eq!(unsigned(&[1; 9]), None);
    }
}
