//! What a field's name and value are, found once: when a literal is decoded, or at compile time for the static table
//! (RFC 9113, 8.2.1). An indexed field is never looked at again.
//!
//! Not here: what a message may hold. The names are nginx's: other bytes than letters, digits and `-` are odd.

use message::HeaderId;

/// A pseudo-header (RFC 9113, 8.3; RFC 8441, 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pseudo {
    /// `:method`
    Method,
    /// `:scheme`
    Scheme,
    /// `:authority`
    Authority,
    /// `:path`
    Path,
    /// `:protocol`
    Protocol,
    /// `:status`
    Status,
}

/// What a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// A pseudo-header.
    Pseudo(Pseudo),
    /// A name that begins with a colon and is none of them.
    PseudoUnknown,
    /// A name of lower-case letters, digits and `-`.
    Plain(HeaderId),
    /// The same with underscores (`underscores_in_headers`).
    Underscored,
    /// A name with bytes that nginx takes for invalid (`ignore_invalid_headers`).
    Odd,
    /// An empty name, or one with upper-case letters, controls, spaces, colons or bytes above 0x7e.
    Invalid,
}

const PLAIN: u8 = 0;
const UNDERSCORE: u8 = 1;
const ODD: u8 = 2;
const INVALID: u8 = 4;

/// For each byte, what a name with it is.
static NAME: [u8; 256] = {
    let mut classes = [ODD; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'a'..=b'z' | b'0'..=b'9' | b'-' => PLAIN,
            b'_' => UNDERSCORE,
            0..=0x20 | 0x7f..=0xff | b':' | b'A'..=b'Z' => INVALID,
            _ => ODD,
        };
        byte += 1;
    }
    classes
};

impl NameKind {
    /// The kind of a name.
    #[inline]
    pub fn of(name: &[u8]) -> NameKind {
        if let [b':', rest @ ..] = name {
            return pseudo(rest);
        }
        let seen = name.iter().fold(0, |seen, c| seen | NAME[*c as usize]);
        match seen {
            _ if name.is_empty() => NameKind::Invalid,
            PLAIN => NameKind::Plain(HeaderId::find(name)),
            UNDERSCORE => NameKind::Underscored,
            seen if seen & INVALID != 0 => NameKind::Invalid,
            _ => NameKind::Odd,
        }
    }
}

fn pseudo(name: &[u8]) -> NameKind {
    NameKind::Pseudo(match name {
        b"method" => Pseudo::Method,
        b"scheme" => Pseudo::Scheme,
        b"authority" => Pseudo::Authority,
        b"path" => Pseudo::Path,
        b"protocol" => Pseudo::Protocol,
        b"status" => Pseudo::Status,
        _ => return NameKind::PseudoUnknown,
    })
}

/// Whether a value holds neither NUL, CR nor LF, and neither begins nor ends with a space or tab.
#[inline]
pub(super) fn is_value_valid(value: &[u8]) -> bool {
    let has_end = value
        .iter()
        .fold(false, |seen, c| seen | matches!(c, 0 | b'\r' | b'\n'));
    let is_blank = |c: Option<&u8>| matches!(c, Some(b' ' | b'\t'));
    !(has_end || is_blank(value.first()) || is_blank(value.last()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (name, kind) in [
            ("host", NameKind::Plain(HeaderId::Host)),
            ("x-a1", NameKind::Plain(HeaderId::Other)),
            (":path", NameKind::Pseudo(Pseudo::Path)),
            (":protocol", NameKind::Pseudo(Pseudo::Protocol)),
            (":Path", NameKind::PseudoUnknown),
            (":", NameKind::PseudoUnknown),
            ("", NameKind::Invalid),
            ("Host", NameKind::Invalid),
            ("ho:st", NameKind::Invalid),
            ("ho st", NameKind::Invalid),
            ("h\r\nx", NameKind::Invalid),
            ("h\u{e9}", NameKind::Invalid),
            ("a\x7f", NameKind::Invalid),
            ("a_b", NameKind::Underscored),
            ("a.b", NameKind::Odd),
            ("a_b(", NameKind::Odd),
        ] {
            assert_eq!(NameKind::of(name.as_bytes()), kind, "{name:?}");
        }
    }

    #[test]
    fn values() {
        for value in ["", "a", "a b\tc", "\u{e9}\x01\x7f"] {
            assert!(is_value_valid(value.as_bytes()), "{value:?}");
        }
        for value in [" ", " a", "a ", "\ta", "a\t", "a\0b", "a\rb", "a\nb", "\n"] {
            assert!(!is_value_valid(value.as_bytes()), "{value:?}");
        }
    }
}
