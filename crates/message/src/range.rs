//! `Range: bytes=…` by nginx's rules: a syntax error is answered with 416, ranges are neither sorted nor merged, and
//! the whole body is sent where the parts would be longer.

use std::ops::Range;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use crate::body::{Body, BodyError, Chunk, Source};

/// The part of a body that is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeOutcome {
    /// The whole body, with status 200.
    Full,
    /// One part, with status 206.
    Single(Range<u64>),
    /// Several parts in the order asked for, as `multipart/byteranges`.
    Multi(Vec<Range<u64>>),
    /// No part: status 416.
    Unsatisfiable,
}

/// `max_ranges` where it is not configured: any number, but (nearly) no more bytes in all parts than in the whole.
pub const RANGES_UNLIMITED: u32 = i32::MAX as u32;
/// Bytes that each range counts for beside its own, where ranges are unlimited (nginx 1.31).
const PART_OVERHEAD: u64 = 256;
/// Bytes by which the parts may exceed the whole, where ranges are unlimited.
const PARTS_SLACK: u64 = 4096;
/// nginx uses signed 64-bit offsets.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// Parses a `Range` header for a body of `length` bytes; at most `max_ranges` ranges are served.
pub fn parse(value: &[u8], length: u64, max_ranges: u32) -> RangeOutcome {
    const UNIT: &[u8] = b"bytes=";
    if max_ranges == 0
        || value.len() <= UNIT.len()
        || !value[..UNIT.len()].eq_ignore_ascii_case(UNIT)
    {
        return RangeOutcome::Full;
    }
    let mut rest = &value[UNIT.len()..];
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut size: u64 = 0;
    loop {
        let Some(range) = one(&mut rest, length) else {
            return RangeOutcome::Unsatisfiable;
        };
        if range.start < range.end {
            if ranges.len() as u64 == u64::from(max_ranges) {
                return RangeOutcome::Full;
            }
            size += range.end - range.start;
            if size > OFFSET_MAX {
                return RangeOutcome::Unsatisfiable;
            }
            ranges.push(range);
        } else if range.start == 0 {
            return RangeOutcome::Full; // an empty body, or "-0" of one
        }
        match rest {
            [b',', more @ ..] => rest = more,
            _ => break,
        }
    }
    match ranges.len() as u64 {
        0 => RangeOutcome::Unsatisfiable,
        1 => RangeOutcome::Single(ranges.swap_remove(0)),
        _ if size > length => RangeOutcome::Full,
        n if max_ranges == RANGES_UNLIMITED && size + n * PART_OVERHEAD > length + PARTS_SLACK => {
            RangeOutcome::Full
        }
        _ => RangeOutcome::Multi(ranges),
    }
}

/// Parses one range of the list, cut to the body; empty (`start >= end`) if it lies past the end. `None`: syntax error.
fn one(rest: &mut &[u8], length: u64) -> Option<Range<u64>> {
    blanks(rest);
    if let [b'-', more @ ..] = *rest {
        *rest = more;
        let suffix = number(rest)?;
        end_of_one(rest)?;
        return Some(length.saturating_sub(suffix)..length);
    }
    let start = number(rest)?;
    blanks(rest);
    let [b'-', more @ ..] = *rest else {
        return None;
    };
    *rest = more;
    blanks(rest);
    if matches!(rest, [] | [b',', ..]) {
        return Some(start..length);
    }
    let last = number(rest)?;
    end_of_one(rest)?;
    Some(start..length.min(last.saturating_add(1)))
}

fn end_of_one(rest: &mut &[u8]) -> Option<()> {
    blanks(rest);
    matches!(rest, [] | [b',', ..]).then_some(())
}

fn blanks(rest: &mut &[u8]) {
    while let [b' ', more @ ..] = *rest {
        *rest = more;
    }
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let digits = rest.iter().take_while(|c| c.is_ascii_digit()).count();
    let (text, more) = rest.split_at(digits);
    *rest = more;
    if digits == 0 {
        return None;
    }
    text.iter().try_fold(0u64, |sum, c| {
        sum.checked_mul(10)?
            .checked_add(u64::from(c - b'0'))
            .filter(|sum| *sum <= OFFSET_MAX)
    })
}

/// `bytes 0-99/1000`, for a 206 with one part.
pub fn content_range(range: &Range<u64>, length: u64) -> Bytes {
    let mut out = Vec::with_capacity(48);
    out.extend_from_slice(b"bytes ");
    push_range(&mut out, range, length);
    out.into()
}

/// `bytes */1000`, for a 416.
pub fn content_range_unsatisfied(length: u64) -> Bytes {
    let mut out = b"bytes */".to_vec();
    push_number(&mut out, length);
    out.into()
}

/// `multipart/byteranges; boundary=…`. The number must not repeat soon; a counter is enough.
pub fn multipart_type(boundary: u64) -> Bytes {
    let mut out = b"multipart/byteranges; boundary=".to_vec();
    push_boundary(&mut out, boundary);
    out.into()
}

/// The parts of a `multipart/byteranges`: their heads, and what is behind the last one.
pub struct Multipart {
    parts: Vec<(Bytes, Range<u64>)>,
    end: Bytes,
}

impl Multipart {
    /// Parts of a body of `length` bytes; `content_type` is their type, with its charset (if empty, the line is
    /// omitted).
    #[must_use]
    pub fn new(ranges: &[Range<u64>], length: u64, content_type: &[u8], boundary: u64) -> Self {
        let head = |range: &Range<u64>| {
            let mut head = Vec::with_capacity(128 + content_type.len());
            head.extend_from_slice(b"\r\n--");
            push_boundary(&mut head, boundary);
            if !content_type.is_empty() {
                head.extend_from_slice(b"\r\nContent-Type: ");
                head.extend_from_slice(content_type);
            }
            head.extend_from_slice(b"\r\nContent-Range: bytes ");
            push_range(&mut head, range, length);
            head.extend_from_slice(b"\r\n\r\n");
            (head.into(), range.clone())
        };
        let mut end = b"\r\n--".to_vec();
        push_boundary(&mut end, boundary);
        end.extend_from_slice(b"--\r\n");
        Self {
            parts: ranges.iter().map(head).collect(),
            end: end.into(),
        }
    }

    /// Length of the multipart body in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        let parts = self.parts.iter();
        let parts = parts.map(|(head, range)| head.len() as u64 + (range.end - range.start));
        parts.sum::<u64>() + self.end.len() as u64
    }

    /// The multipart body, from a body that is one chunk.
    #[must_use]
    pub fn of_chunk<F: Clone>(self, whole: &Chunk<F>) -> Vec<Chunk<F>> {
        let mut chunks = Vec::with_capacity(2 * self.parts.len() + 1);
        for (head, range) in self.parts {
            chunks.push(Chunk::Bytes(head));
            chunks.push(whole.slice(range.start, range.end));
        }
        chunks.push(Chunk::Bytes(self.end));
        chunks
    }

    /// The multipart body, from one that can be cut again and again.
    #[must_use]
    pub fn of_source<F: 'static>(self, source: Box<dyn Source<F>>) -> Body<F> {
        Body::Stream(Box::new(PartsOfSource {
            source,
            is_within: false,
            parts: self.parts.into_iter(),
            end: Some(self.end),
        }))
    }
}

/// A multipart body whose parts are cut from a source one after the other.
struct PartsOfSource<F> {
    source: Box<dyn Source<F>>,
    /// Whether the source gives a part.
    is_within: bool,
    parts: std::vec::IntoIter<(Bytes, Range<u64>)>,
    end: Option<Bytes>,
}

impl<F> Source<F> for PartsOfSource<F> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk<F>, BodyError>>> {
        if self.is_within {
            let next = ready!(self.source.poll_next(cx));
            if next.is_some() {
                return Poll::Ready(next);
            }
            self.is_within = false;
        }
        let Some((head, range)) = self.parts.next() else {
            return Poll::Ready(self.end.take().map(|end| Ok(Chunk::Bytes(end))));
        };
        self.is_within = self.source.cut(range.start, range.end);
        Poll::Ready(Some(match self.is_within {
            true => Ok(Chunk::Bytes(head)),
            false => Err(BodyError::Truncated),
        }))
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) {
        if self.is_within {
            self.source.poll_ahead(cx);
        }
    }

    fn takes_request(&self) -> bool {
        self.source.takes_request()
    }
}

fn push_boundary(out: &mut Vec<u8>, boundary: u64) {
    const DIGITS: usize = 20; // of u64::MAX
    let mut buffer = itoa::Buffer::new();
    let number = buffer.format(boundary);
    out.resize(out.len() + DIGITS - number.len(), b'0');
    out.extend_from_slice(number.as_bytes());
}

fn push_range(out: &mut Vec<u8>, range: &Range<u64>, length: u64) {
    push_number(out, range.start);
    out.push(b'-');
    push_number(out, range.end - 1);
    out.push(b'/');
    push_number(out, length);
}

fn push_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::RangeOutcome::*;
    use super::*;

    #[test]
    fn outcomes() {
        #[rustfmt::skip]
        let cases: &[(&str, RangeOutcome)] = &[
            ("bytes=0-8", Single(0..9)),
            ("BYTES=0-8", Single(0..9)),
            ("bytes=9-", Single(9..1000)),
            ("bytes=-10", Single(990..1000)),
            ("bytes=-2000", Single(0..1000)),
            ("bytes=990-2000", Single(990..1000)),
            ("bytes= 1 - 2 ", Single(1..3)),
            ("bytes=0-0,-1", Multi(vec![0..1, 999..1000])),
            ("bytes=500-599,0-9", Multi(vec![500..600, 0..10])),
            ("bytes=0-9, 5000-", Single(0..10)),
            ("bytes=5000-", Unsatisfiable),
            ("bytes=-0", Unsatisfiable),
            ("bytes=", Full),
            ("bytes=a", Unsatisfiable),
            ("bytes=1", Unsatisfiable),
            ("bytes=1-a", Unsatisfiable),
            ("bytes=0-9,", Unsatisfiable),
            ("bytes=--1", Unsatisfiable),
            ("bytes=9223372036854775808-", Unsatisfiable),
            ("bytes=0-9223372036854775807", Single(0..1000)),
            ("bytes=0-,0-", Full),
            ("bytes=0-599,300-999", Full),
            ("bytes=5-4", Unsatisfiable),
            ("lines=0-1", Full),
        ];
        for (value, outcome) in cases {
            assert_eq!(parse(value.as_bytes(), 1000, 100), *outcome, "{value}");
        }
    }

    #[test]
    fn bounds() {
        assert_eq!(parse(b"bytes=0-9", 1000, 0), Full);
        assert_eq!(parse(b"bytes=0-9,20-29", 1000, 1), Full);
        assert_eq!(parse(b"bytes=0-9,2000-", 1000, 1), Single(0..10));
        let many: String = (0..17).map(|n| format!("{}-{},", n * 2, n * 2)).collect();
        let many = format!("bytes={}", many.trim_end_matches(','));
        assert_eq!(
            parse(many.as_bytes(), 100, RANGES_UNLIMITED),
            Full,
            "17 * 257 is more than 100 + 4096"
        );
        assert!(matches!(parse(many.as_bytes(), 100, 17), Multi(_)));
        assert_eq!(parse(b"bytes=0-", 0, 1), Full);
        assert_eq!(parse(b"bytes=-5", 0, 1), Full);
    }

    #[test]
    fn a_multipart_body() {
        let whole: Chunk<()> = Chunk::Bytes("0123456789".into());
        let parts = Multipart::new(&[0..1, 8..10], whole.len(), b"text/plain", 7);
        let length = parts.length();
        let chunks = parts.of_chunk(&whole);
        assert_eq!(chunks.iter().map(Chunk::len).sum::<u64>(), length);
        let text: Vec<u8> = chunks
            .iter()
            .flat_map(|chunk| match chunk {
                Chunk::Bytes(bytes) => bytes.to_vec(),
                Chunk::File(_) => unreachable!(),
            })
            .collect();
        let expected = "\r\n--00000000000000000007\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-0/10\r\n\r\n0\
            \r\n--00000000000000000007\r\nContent-Type: text/plain\r\nContent-Range: bytes 8-9/10\r\n\r\n89\
            \r\n--00000000000000000007--\r\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        assert_eq!(
            &multipart_type(7)[..],
            b"multipart/byteranges; boundary=00000000000000000007"
        );
        assert_eq!(&content_range(&(1..3), 10)[..], b"bytes 1-2/10");
        assert_eq!(&content_range_unsatisfied(10)[..], b"bytes */10");
    }

    proptest! {
        #[test]
        fn ranges_lie_inside(list in "[0-9, -]{0,40}", length in 0u64..10_000, max in 0u32..20) {
            let inside = |range: &Range<u64>| range.start < range.end && range.end <= length;
            match parse(format!("bytes={list}").as_bytes(), length, max) {
                Single(range) => prop_assert!(inside(&range)),
                Multi(ranges) => {
                    prop_assert!(ranges.len() > 1 && ranges.len() <= max as usize && ranges.iter().all(inside));
                    prop_assert!(ranges.iter().map(|range| range.end - range.start).sum::<u64>() <= length);
                }
                Full | Unsatisfiable => {}
            }
        }
    }
}
