//! The page: one file made of its sources, with a Content-Security-Policy that lets it run only its own script and
//! connect only to its own server.
//!
//! Invariant: it contains nothing of a request or of the configuration.

use std::io::Write;
use std::sync::LazyLock;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use message::base64;
use sha2::{Digest, Sha256};

use super::alerts;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
/// One after the other they are one script.
const SCRIPT: &[&str] = &[
    include_str!("page/store.js"),
    include_str!("page/charts.js"),
    "const ALERTS = ",
    alerts::SOURCE,
    ";\n",
    include_str!("page/alerts.js"),
    include_str!("page/panels.js"),
    include_str!("page/figures.js"),
    include_str!("page/page.js"),
];
/// Where in the page the style stands, and where the script.
const STYLE_HERE: &str = "/* style.css */";
const SCRIPT_HERE: &str = "/* script */";

/// The page, ready to be sent.
#[derive(Debug)]
pub(crate) struct Document {
    /// As it is.
    pub plain: Bytes,
    /// Compressed.
    pub gzip: Bytes,
    /// Its permissions: `Content-Security-Policy`.
    pub policy: Bytes,
}

static DOCUMENT: LazyLock<Document> = LazyLock::new(make);

/// The page; made when it is first asked for, which takes a millisecond: ask where no loop waits.
#[must_use]
pub(crate) fn document() -> &'static Document {
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
    format!(
        "'sha256-{}'",
        base64::encode(&Sha256::digest(source.as_bytes()))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a phone has to load.
    const GZIP_BYTES_MAX: usize = 20_000;

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
        assert!(document().gzip.len() < GZIP_BYTES_MAX);
    }
}
