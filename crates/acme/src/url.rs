//! URLs of `http` and `https`, as far as an authority's are: scheme, host, port, path with query.

use std::hash::{Hash as _, Hasher as _};

/// Maximum length of a URL in bytes.
pub(crate) const URL_BYTES_MAX: usize = 4096;

/// A URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Url {
    /// Whether its scheme is `https`.
    pub is_https: bool,
    /// The host, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The path with its query, beginning with a slash.
    pub path: String,
}

impl Url {
    /// Reads a URL; `None`: it is none of these schemes, or not well-formed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let is_https = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let is_fit = |byte: u8| (0x21..0x7f).contains(&byte) && byte != b'\\';
        if text.len() > URL_BYTES_MAX || !text.bytes().all(is_fit) {
            return None;
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let path = path.split('#').next().unwrap_or_default();
        let path = match path.starts_with('/') {
            true => path.to_owned(),
            false => format!("/{path}"),
        };
        let (host, port) = host_and_port(authority)?;
        let port = port.unwrap_or(if is_https { 443 } else { 80 });
        Some(Self {
            is_https,
            host,
            port,
            path,
        })
    }

    /// The URL that a reference in an answer from here means.
    #[must_use]
    pub fn join(&self, reference: &str) -> Option<Self> {
        if reference.contains("://") {
            return Self::parse(reference);
        }
        let scheme = if self.is_https { "https" } else { "http" };
        if reference.starts_with("//") {
            return Self::parse(&format!("{scheme}:{reference}"));
        }
        let path = match reference.starts_with('/') {
            true => reference.to_owned(),
            false => {
                let path = self.path.split('?').next().unwrap_or_default();
                let directory = path.rfind('/').map_or("/", |at| &path[..=at]);
                format!("{directory}{reference}")
            }
        };
        Self::parse(&format!("{scheme}://{}{path}", self.authority()))
    }

    /// A number that stands for the URL in files; never 0.
    pub(crate) fn digest(&self) -> u64 {
        #[expect(
            deprecated,
            reason = "it has to stay the same: SipHash 2-4, without a key"
        )]
        let mut hasher = std::hash::SipHasher::new();
        self.hash(&mut hasher);
        hasher.finish().max(1)
    }

    /// The value of `Host`.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match (self.is_https, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

fn host_and_port(authority: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (
                host,
                port.strip_prefix(':').or(port.is_empty().then_some(""))?,
            )
        }
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
    if host.is_empty() || !host.bytes().all(is_name) {
        return None;
    }
    let port = match port {
        "" => None,
        port => Some(port.parse().ok().filter(|port| *port > 0)?),
    };
    Some((host.to_ascii_lowercase(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_what_is_none() {
        let url = Url::parse("https://ACME.example:8443/dir?x#y").unwrap();
        assert_eq!(
            (url.host.as_str(), url.port, url.path.as_str()),
            ("acme.example", 8443, "/dir?x")
        );
        let bare = Url::parse("https://acme.example").unwrap();
        assert_eq!(
            (bare.port, bare.path.as_str(), bare.authority().as_str()),
            (443, "/", "acme.example")
        );
        let six = Url::parse("http://[::1]:81/a").unwrap();
        assert_eq!(
            (six.host.as_str(), six.authority().as_str()),
            ("::1", "[::1]:81")
        );
        for text in [
            "ftp://a/",
            "https://",
            "https://a:0/",
            "https://a:x/",
            "https://u@a/",
            "https://a b/",
            "https://[::1/",
            "/dir",
        ] {
            assert_eq!(Url::parse(text), None, "{text}");
        }
    }

    #[test]
    fn references_are_resolved() {
        let base = Url::parse("https://a.example:14000/x/y?z").unwrap();
        let joined = |reference| {
            base.join(reference)
                .map(|url| format!("{}{}", url.authority(), url.path))
        };
        assert_eq!(joined("/dir").as_deref(), Some("a.example:14000/dir"));
        assert_eq!(joined("dir").as_deref(), Some("a.example:14000/x/dir"));
        assert_eq!(joined("//b/c").as_deref(), Some("b/c"));
        assert_eq!(joined("http://b/c").as_deref(), Some("b/c"));
        assert_eq!(joined("ftp://b/c"), None);
    }
}
