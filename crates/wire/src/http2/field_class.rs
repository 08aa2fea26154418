//! What a field's name and value are, found once: when a literal is decoded, or at compile time for the static table
//! (RFC 9113, 8.2.1). An indexed field is not looked at again, unless its value is not valid.
//!
//! Not here: what a message may hold. The names are nginx's: other bytes than letters, digits and `-` are odd.

use message::{HeaderId, Span};

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
    /// An empty name, or one with upper-case letters, controls (DEL too), spaces or colons.
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
            0..=0x20 | 0x7f | b':' | b'A'..=b'Z' => INVALID,
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
    !(has_end || value.first().is_some_and(is_blank) || value.last().is_some_and(is_blank))
}

/// The place of a request's value in `lines`, without the blanks around it that make it invalid. nginx serves such
/// requests, unless the field is Host or Content-Length. `None`: the request is malformed.
#[cold]
pub(super) fn without_blanks(kind: NameKind, value: Span, lines: &[u8]) -> Option<Span> {
    if let NameKind::Plain(HeaderId::Host | HeaderId::ContentLength) = kind {
        return None;
    }
    let text = value.of(lines);
    let start = text.iter().position(|c| !is_blank(c));
    let end = text.iter().rposition(|c| !is_blank(c));
    let found = match start.zip(end) {
        Some((start, end)) => start..end + 1,
        None => 0..0,
    };
    let first = value.start as usize;
    let is_valid = is_value_valid(&text[found.clone()]);
    is_valid.then(|| Span::new(first + found.start, first + found.end))
}

fn is_blank(c: &u8) -> bool {
    matches!(c, b' ' | b'\t')
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
            ("h\u{e9}", NameKind::Odd),
            ("h\u{e9} ", NameKind::Invalid),
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

    #[test]
    fn blanks_around_values() {
        for (value, found) in [
            (" ", Some("")),
            (" a", Some("a")),
            ("\t a b \t", Some("a b")),
            (" \n ", None),
            (" a\0", None),
        ] {
            let lines = format!("x: {value}\r\n");
            let span = Span::new(3, 3 + value.len());
            let place = |kind| without_blanks(kind, span, lines.as_bytes());
            let text = place(NameKind::Plain(HeaderId::Other)).map(|it| it.of(lines.as_bytes()));
            assert_eq!(text, found.map(str::as_bytes), "{value:?}");
            assert_eq!(place(NameKind::Plain(HeaderId::ContentLength)), None);
        }
    }
}
