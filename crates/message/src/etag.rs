//! Entity tags (RFC 9110, 8.8.3). A file's tag is stored as the two numbers it consists of: no allocation per response.

use bytes::Bytes;

use crate::date::Seconds;

/// An entity tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ETag {
    /// nginx's tag of a file: `"hex(mtime)-hex(size)"`.
    File {
        /// Modification time.
        mtime: Seconds,
        /// Size in bytes.
        size: u64,
        /// Whether `W/` precedes it.
        weak: bool,
    },
    /// A tag made elsewhere, with its quotes.
    Text(Bytes),
}

/// Longest file tag in bytes: `W/"`, two numbers of 16 digits, a sign, `-`, `"`.
const FILE_TAG_MAX: usize = 38;

/// The text of a file tag, on the stack.
pub struct TagText {
    bytes: [u8; FILE_TAG_MAX],
    len: usize,
}

impl ETag {
    /// The tag of a file.
    pub fn of_file(mtime: Seconds, size: u64) -> ETag {
        ETag::File {
            mtime,
            size,
            weak: false,
        }
    }

    /// The weak form of the tag, for a filter that rewrites the body; `None` for a text that is not a quoted tag.
    pub(crate) fn weakened(&self) -> Option<ETag> {
        match self {
            ETag::File { mtime, size, .. } => Some(ETag::File {
                mtime: *mtime,
                size: *size,
                weak: true,
            }),
            ETag::Text(text) if text.starts_with(b"W/") => Some(self.clone()),
            ETag::Text(text) if text.starts_with(b"\"") => {
                Some(ETag::Text([b"W/", &text[..]].concat().into()))
            }
            ETag::Text(_) => None,
        }
    }

    /// Passes the tag's text to `look`, without an allocation.
    pub(crate) fn with_text<T>(&self, look: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            ETag::File { mtime, size, weak } => {
                let text = TagText::of_file(*mtime, *size, *weak);
                look(&text.bytes[..text.len])
            }
            ETag::Text(text) => look(text),
        }
    }

    /// Appends the tag's text.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.with_text(|text| out.extend_from_slice(text));
    }

    /// The tag's text.
    pub fn to_bytes(&self) -> Bytes {
        match self {
            ETag::Text(text) => text.clone(),
            file => file.with_text(Bytes::copy_from_slice),
        }
    }
}

impl TagText {
    fn of_file(mtime: Seconds, size: u64, weak: bool) -> TagText {
        let mut text = TagText {
            bytes: [0; FILE_TAG_MAX],
            len: 0,
        };
        if weak {
            text.push(b"W/");
        }
        text.push(b"\"");
        if mtime < 0 {
            text.push(b"-");
        }
        text.push_hex(mtime.unsigned_abs());
        text.push(b"-");
        text.push_hex(size);
        text.push(b"\"");
        text
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn push_hex(&mut self, number: u64) {
        let digits = (64 - number.leading_zeros()).div_ceil(4).max(1) as usize;
        let text = hex(number << (64 - 4 * digits));
        // All 16, a length that the compiler knows; what follows writes over those that are too many.
        self.bytes[self.len..self.len + 16].copy_from_slice(&text);
        self.len += digits;
    }
}

/// The 16 hex digits of a number, eight at a time: each byte of a word becomes a digit.
fn hex(number: u64) -> [u8; 16] {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let spread = |half: u64| {
        let mut word = half;
        word = (word | word << 16) & 0x0000_ffff_0000_ffff;
        word = (word | word << 8) & 0x00ff_00ff_00ff_00ff;
        word = (word | word << 4) & 0x0f0f_0f0f_0f0f_0f0f;
        let letters = ((word + 6 * ONES) >> 4) & ONES;
        word + u64::from(b'0') * ONES + letters * u64::from(b'a' - b'0' - 10)
    };
    let halves = [number >> 32, number & 0xffff_ffff];
    let [high, low] = halves.map(|half| u128::from(spread(half)));
    (high << 64 | low).to_be_bytes()
}

/// Whether `tag` is in the list of an `If-Match` (strong) or `If-None-Match` (`weakly`). `*` matches anything, even no
/// tag.
pub(crate) fn list_matches(list: &[u8], tag: Option<&ETag>, weakly: bool) -> bool {
    if list == b"*" {
        return true;
    }
    let Some(tag) = tag else { return false };
    tag.with_text(|tag| {
        let tag = if weakly {
            tag.strip_prefix(b"W/").unwrap_or(tag)
        } else {
            tag
        };
        let mut rest = list;
        while !rest.is_empty() {
            let item = if weakly {
                rest.strip_prefix(b"W/").unwrap_or(rest)
            } else {
                rest
            };
            if let Some(behind) = item.strip_prefix(tag) {
                let behind = behind.trim_ascii_start();
                if behind.is_empty() || behind[0] == b',' {
                    return true;
                }
            }
            // As in nginx, a comma inside a tag counts as a separator; the text after it is compared too, and matches
            // no tag.
            let comma = memchr::memchr(b',', rest).unwrap_or(rest.len());
            rest = &rest[comma..];
            while let [b',' | b' ' | b'\t', more @ ..] = rest {
                rest = more;
            }
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(tag: &str) -> ETag {
        ETag::Text(Bytes::copy_from_slice(tag.as_bytes()))
    }

    #[test]
    fn a_file_has_nginx_tag() {
        assert_eq!(
            &ETag::of_file(0x5a2b_3c4d, 612).to_bytes()[..],
            b"\"5a2b3c4d-264\""
        );
        assert_eq!(&ETag::of_file(0, 0).to_bytes()[..], b"\"0-0\"");
        assert_eq!(
            &ETag::of_file(i64::MIN, u64::MAX)
                .weakened()
                .unwrap()
                .to_bytes()[..],
            b"W/\"-8000000000000000-ffffffffffffffff\""
        );
    }

    #[test]
    fn numbers_of_every_length_are_in_hex() {
        for bits in 0..64 {
            for number in [
                1 << bits,
                0x1234_5678_9abc_def0_u64 >> bits,
                u64::MAX >> bits,
            ] {
                let tag = ETag::of_file(7, number).to_bytes();
                assert_eq!(tag, format!("\"7-{number:x}\"").into_bytes());
            }
        }
    }

    #[test]
    fn only_quoted_texts_are_weakened() {
        assert_eq!(text("\"a\"").weakened(), Some(text("W/\"a\"")));
        assert_eq!(text("W/\"a\"").weakened(), Some(text("W/\"a\"")));
        assert_eq!(text("a").weakened(), None);
    }

    #[test]
    fn lists() {
        for (list, tag, weakly, matches) in [
            ("*", None, false, true),
            ("\"a\"", None, false, false),
            ("\"a\"", Some("\"a\""), false, true),
            ("W/\"a\"", Some("\"a\""), false, false),
            ("W/\"a\"", Some("\"a\""), true, true),
            ("\"a\"", Some("W/\"a\""), false, false),
            ("\"a\"", Some("W/\"a\""), true, true),
            ("W/\"a\"", Some("W/\"a\""), false, true),
            ("\"x\" , \t\"a\"  ", Some("\"a\""), false, true),
            ("\"a\" \"b\"", Some("\"a\""), false, false),
            ("\"x\", W/\"a\", \"y\"", Some("\"a\""), true, true),
            ("", Some("\"a\""), true, false),
            (",,,", Some("\"a\""), true, false),
        ] {
            let tag = tag.map(text);
            assert_eq!(
                list_matches(list.as_bytes(), tag.as_ref(), weakly),
                matches,
                "{list} {tag:?}"
            );
        }
    }
}
