//! Recognises the browsers that nginx's directives treat specially, by `User-Agent`: MSIE, Chrome, Safari.
//!
//! Not here: `modern_browser` and `ancient_browser` (`modules::browser`), which compare versions.

/// A browser that is treated specially.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Browser {
    /// MSIE up to 6.0, but for 6.0 of Windows XP's second service pack.
    Msie6,
    /// Any other MSIE.
    Msie,
    /// Chrome.
    Chrome,
    /// Safari on macOS.
    Safari,
    /// All others.
    Other,
}

impl Browser {
    /// The browser of a `User-Agent`. Opera claims to be MSIE and is not taken for it.
    #[must_use]
    pub fn of(agent: &[u8]) -> Self {
        let has = |text: &[u8]| memchr::memmem::find(agent, text).is_some();
        if has(b"Opera") {
            return Self::Other;
        }
        if let Some(version) = msie_version(agent) {
            return version;
        }
        if has(b"Gecko/") {
            Self::Other
        } else if has(b"Chrome/") {
            Self::Chrome
        } else if has(b"Safari/") && has(b"Mac OS X") {
            Self::Safari
        } else {
            Self::Other
        }
    }

    /// Whether it is MSIE of any version.
    #[must_use]
    pub fn is_msie(self) -> bool {
        matches!(self, Self::Msie | Self::Msie6)
    }
}

fn msie_version(agent: &[u8]) -> Option<Browser> {
    const NAME: &[u8] = b"MSIE ";
    let version = &agent[memchr::memmem::find(agent, NAME)? + NAME.len()..];
    Some(match version {
        [] | [_] | [_, _] => return None,
        [b'4' | b'5', b'.', ..] => Browser::Msie6,
        [b'6', b'.', _, rest @ ..] if memchr::memmem::find(rest, b"SV1").is_none() => {
            Browser::Msie6
        }
        _ => Browser::Msie,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_are_told_apart() {
        for (agent, browser) in [
            (
                "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)",
                Browser::Msie6,
            ),
            (
                "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1; SV1)",
                Browser::Msie,
            ),
            ("Mozilla/4.0 (compatible; MSIE 5.5)", Browser::Msie6),
            ("Mozilla/5.0 (compatible; MSIE 10.0)", Browser::Msie),
            ("Mozilla/4.0 (compatible; MSIE 6.0) Opera 9", Browser::Other),
            ("MSIE 6", Browser::Other),
            (
                "Mozilla/5.0 (X11) Gecko/20100101 Firefox/120.0",
                Browser::Other,
            ),
            (
                "Mozilla/5.0 (Macintosh; Intel Mac OS X) AppleWebKit (KHTML, like Gecko) Chrome/120.0 Safari/537",
                Browser::Chrome,
            ),
            (
                "Mozilla/5.0 (Macintosh; Intel Mac OS X) AppleWebKit (KHTML, like Gecko) Version/17 Safari/605",
                Browser::Safari,
            ),
            ("", Browser::Other),
        ] {
            assert_eq!(Browser::of(agent.as_bytes()), browser, "{agent}");
        }
    }
}
