//! A pattern of a configuration in any encoding, as the text that is compiled.
//!
//! Not here: compiling it. Invariant: the text matches the bytes that the pattern would match as it was written.

use std::borrow::Cow;

/// What stands before a byte of a pattern.
#[derive(Clone, Copy)]
enum Before {
    /// Nothing that changes its meaning.
    Nothing,
    /// A backslash.
    Backslash,
    /// `\Q`, without an `\E` since.
    Quote,
    /// The same, and a backslash.
    QuoteAndBackslash,
}

/// The pattern itself if it is UTF-8, else the same with `\xHH` for each byte outside of ASCII. Syntax: pcre2pattern(3).
pub(super) fn text(pattern: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(pattern) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(2 * pattern.len());
    let mut before = Before::Nothing;
    for &byte in pattern {
        match (byte, before) {
            (..0x80, _) => text.push(char::from(byte)),
            (_, Before::Nothing) => text.push_str(&format!("\\x{byte:02x}")),
            // The backslash is there already.
            (_, Before::Backslash) => text.push_str(&format!("x{byte:02x}")),
            (_, Before::Quote | Before::QuoteAndBackslash) => {
                text.push_str(&format!("\\E\\x{byte:02x}\\Q"));
            }
        }
        before = match (before, byte) {
            (Before::Nothing, b'\\') => Before::Backslash,
            (Before::Backslash, b'Q') => Before::Quote,
            (Before::Nothing | Before::Backslash, _) => Before::Nothing,
            (Before::Quote | Before::QuoteAndBackslash, b'\\') => Before::QuoteAndBackslash,
            (Before::QuoteAndBackslash, b'E') => Before::Nothing,
            (Before::Quote | Before::QuoteAndBackslash, _) => Before::Quote,
        };
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_utf_8_are_escaped() {
        for (pattern, expected) in [
            (&b"^/a\\.b$"[..], "^/a\\.b$"),
            ("\u{442}+".as_bytes(), "\u{442}+"),
            (b"\xf2+", "\\xf2+"),
            (b"[\xe0-\xff]", "[\\xe0-\\xff]"),
            (b"\\\xf2", "\\xf2"),
            (b"\\\\\xf2", "\\\\\\xf2"),
            (b"\\Q.\xf2.\\E\xf2", "\\Q.\\E\\xf2\\Q.\\E\\xf2"),
            (b"\\Q\\\xf2\\\\E\xf2", "\\Q\\\\E\\xf2\\Q\\\\E\\xf2"),
            (b"\\\\Q\xf2", "\\\\Q\\xf2"),
        ] {
            assert_eq!(text(pattern), expected);
        }
    }
}
