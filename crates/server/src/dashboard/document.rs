//! The page: one file made of its sources, with the policy that lets it run its own script and ask its own server only.
//!
//! Invariant: nothing of a request or of the configuration stands in it.

use std::io::Write;
use std::sync::LazyLock;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use sha2::{Digest, Sha256};

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
/// One after the other they are one script.
const SCRIPT: &[&str] = &[
    include_str!("page/store.js"),
    include_str!("page/charts.js"),
    include_str!("page/panels.js"),
    include_str!("page/page.js"),
];
/// Where in the page the style stands, and where the script.
const STYLE_HERE: &str = "/* style.css */";
const SCRIPT_HERE: &str = "/* script */";

/// The page, ready to be sent.
#[derive(Debug)]
pub struct Document {
    /// As it is.
    pub plain: Bytes,
    /// Compressed.
    pub gzip: Bytes,
    /// What it may do: `Content-Security-Policy`.
    pub policy: Bytes,
}

static DOCUMENT: LazyLock<Document> = LazyLock::new(make);

/// The page; made when it is first asked for, which takes a millisecond: ask where no loop waits.
#[must_use]
pub fn document() -> &'static Document {
    &DOCUMENT
}

fn make() -> Document {
    let script = SCRIPT.concat();
    let plain = PAGE
        .replace(STYLE_HERE, STYLE)
        .replace(SCRIPT_HERE, &script);
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'",
        hash(&script),
        hash(STYLE)
    );
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    let gzip = gzip
        .write_all(plain.as_bytes())
        .and_then(|()| gzip.finish());
    Document {
        plain: plain.into(),
        gzip: gzip.expect("a Vec takes all that is written").into(),
        policy: policy.into(),
    }
}

/// A source as the policy names it.
fn hash(source: &str) -> String {
    format!("'sha256-{}'", base64(&Sha256::digest(source.as_bytes())))
}

/// RFC 4648, 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |index: usize| u32::from(three.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let index = bits >> (18 - 6 * digit) & 63;
            let is_padding = digit > three.len();
            text.push(if is_padding {
                '='
            } else {
                char::from(DIGITS[index as usize])
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        let pairs = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, encoded) in pairs {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[test]
    fn the_page_is_whole_and_names_no_other_place() {
        let page = std::str::from_utf8(&document().plain).unwrap();
        assert!(page.contains(STYLE) && !page.contains(STYLE_HERE) && !page.contains(SCRIPT_HERE));
        assert_eq!(page.matches("</script").count(), 1);
        assert_eq!(page.matches("</style").count(), 1);
        // A name, not a place.
        let page = page.replace("http://www.w3.org/2000/svg", "");
        for foreign in [
            "http://",
            "https://",
            " src=",
            "@import",
            "url(",
            "innerHTML",
            "eval(",
        ] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert!(document().gzip.len() < document().plain.len() / 2);
    }
}
