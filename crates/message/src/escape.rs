//! Percent-encoding, its reverse, and HTML escaping, with nginx's sets of characters.

/// The set of bytes to write as `%XX`. Every set holds control bytes and spaces, and all but `Memcached` the bytes from
/// 0x7f up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    /// A path: also `"#%<>?\^{|}` and the backtick.
    Uri,
    /// A value in the arguments: as `Uri`, and `&+;`.
    Args,
    /// One component: everything but letters, digits and `-._~`.
    Component,
    /// A link in a page: `"#%'<>\^{|}` and the backtick, but not `?`.
    Html,
    /// A URL that is already complete (Refresh): `"'<>\^{|~` and the backtick.
    Refresh,
    /// A memcached key: only `%`, spaces and control bytes; bytes from 0x7f up are not escaped.
    Memcached,
}

const fn set(punctuation: &[u8]) -> [bool; 256] {
    let mut escaped = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        escaped[byte] = byte <= 0x20 || byte >= 0x7f;
        byte += 1;
    }
    let mut index = 0;
    while index < punctuation.len() {
        escaped[punctuation[index] as usize] = true;
        index += 1;
    }
    escaped
}

static URI: [bool; 256] = set(b"\"#%<>?\\^`{|}");
static ARGS: [bool; 256] = set(b"\"#%&+;<>?\\^`{|}");
static HTML: [bool; 256] = set(b"\"#%'<>\\^`{|}");
static REFRESH: [bool; 256] = set(b"\"'<>\\^`{|~");
static COMPONENT: [bool; 256] = {
    let mut escaped = [true; 256];
    let mut byte = 0usize;
    while byte < 128 {
        let c = byte as u8;
        escaped[byte] = !(c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_' | b'~'));
        byte += 1;
    }
    escaped
};
static MEMCACHED: [bool; 256] = {
    let mut escaped = [false; 256];
    let mut byte = 0;
    while byte <= 0x20 {
        escaped[byte] = true;
        byte += 1;
    }
    escaped[b'%' as usize] = true;
    escaped
};

impl Escape {
    fn table(self) -> &'static [bool; 256] {
        match self {
            Escape::Uri => &URI,
            Escape::Args => &ARGS,
            Escape::Component => &COMPONENT,
            Escape::Html => &HTML,
            Escape::Refresh => &REFRESH,
            Escape::Memcached => &MEMCACHED,
        }
    }

    /// Whether `text` holds a byte that would be escaped.
    pub fn is_needed(self, text: &[u8]) -> bool {
        let table = self.table();
        text.iter().any(|byte| table[*byte as usize])
    }

    /// Appends `text`, escaped.
    pub fn write(self, text: &[u8], out: &mut Vec<u8>) {
        const HEX: &[u8; 16] = b"0123456789ABCDEF";
        let table = self.table();
        out.reserve(text.len());
        for byte in text {
            if table[*byte as usize] {
                out.extend_from_slice(&[
                    b'%',
                    HEX[(byte >> 4) as usize],
                    HEX[(byte & 15) as usize],
                ]);
            } else {
                out.push(*byte);
            }
        }
    }

    /// `text`, escaped.
    pub fn apply(self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len());
        self.write(text, &mut out);
        out
    }
}

/// The set of `%XX` to decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unescape {
    /// All.
    All,
    /// All up to the first `?`, bare or escaped; the text ends with it.
    Uri,
    /// Up to the first `?` as in `Uri`, but only printable characters above `%`: the target of a redirect.
    Redirect,
}

/// Decodes `%XX`; returns the text and the number of bytes of `text` that were read. As in nginx, a `%` without two hex
/// digits is dropped with its first digit: `%zz` becomes `zz`, and `%1z` nothing.
pub fn unescape(text: &[u8], kind: Unescape) -> (Vec<u8>, usize) {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        if byte != b'%' {
            out.push(byte);
            at += 1;
            if byte == b'?' && kind != Unescape::All {
                return (out, at);
            }
            continue;
        }
        let Some(high) = text.get(at + 1) else {
            return (out, text.len());
        };
        let Some(high_value) = hex(*high) else {
            out.push(*high);
            at += 2;
            continue;
        };
        let Some(low) = text.get(at + 2) else {
            return (out, text.len());
        };
        at += 3;
        let Some(low_value) = hex(*low) else { continue };
        let decoded = high_value << 4 | low_value;
        if decoded == b'?' && kind != Unescape::All {
            out.push(decoded);
            return (out, at);
        }
        if kind == Unescape::Redirect && !(decoded > b'%' && decoded < 0x7f) {
            out.extend_from_slice(&[b'%', *high, *low]);
        } else {
            out.push(decoded);
        }
    }
    (out, at)
}

/// The value of a hex digit.
pub(crate) fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

/// Appends `text` with `<`, `>`, `&` and `"` as entities.
pub fn html(text: &[u8], out: &mut Vec<u8>) {
    for byte in text {
        match byte {
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            b'&' => out.extend_from_slice(b"&amp;"),
            b'"' => out.extend_from_slice(b"&quot;"),
            other => out.push(*other),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn kinds() {
        let text = b" \"#%&'+;<>?\\^`{|}~/\xe9\n";
        for (kind, expected) in [
            (
                Escape::Uri,
                "%20%22%23%25&'+;%3C%3E%3F%5C%5E%60%7B%7C%7D~/%E9%0A",
            ),
            (
                Escape::Args,
                "%20%22%23%25%26'%2B%3B%3C%3E%3F%5C%5E%60%7B%7C%7D~/%E9%0A",
            ),
            (
                Escape::Component,
                "%20%22%23%25%26%27%2B%3B%3C%3E%3F%5C%5E%60%7B%7C%7D~%2F%E9%0A",
            ),
            (
                Escape::Html,
                "%20%22%23%25&%27+;%3C%3E?%5C%5E%60%7B%7C%7D~/%E9%0A",
            ),
        ] {
            assert_eq!(kind.apply(text), expected.as_bytes(), "{kind:?}");
        }
        assert_eq!(Escape::Memcached.apply(b"a b%\xe9"), b"a%20b%25\xe9");
        assert!(!Escape::Uri.is_needed(b"/plain+path&so"));
    }

    #[test]
    fn unescaped() {
        for (text, kind, out, used) in [
            (&b"a%20b"[..], Unescape::All, &b"a b"[..], 5),
            (b"a%3fb?c", Unescape::All, b"a?b?c", 7),
            (b"a%3fb?c", Unescape::Uri, b"a?", 4),
            (b"a?b", Unescape::Uri, b"a?", 2),
            (b"%0d%41%e9", Unescape::Redirect, b"%0dA%e9", 9),
            (b"%zz%1zx%", Unescape::All, b"zzx", 8),
        ] {
            assert_eq!(unescape(text, kind), (out.to_vec(), used));
        }
    }

    #[test]
    fn entities() {
        let mut out = Vec::new();
        html(b"<a href=\"&\">", &mut out);
        assert_eq!(out, b"&lt;a href=&quot;&amp;&quot;&gt;");
    }

    proptest! {
        #[test]
        fn escaped_text_is_restored_by_unescaping(text in proptest::collection::vec(any::<u8>(), 0..60)) {
            for kind in [Escape::Uri, Escape::Args, Escape::Component] {
                let escaped = kind.apply(&text);
                prop_assert_eq!(unescape(&escaped, Unescape::All).0, text.clone());
            }
        }
    }
}
