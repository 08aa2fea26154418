//! Where `proxy_pass` leads: its URL, taken apart as nginx takes it apart.
//!
//! Not here: which servers stand behind the host. Invariant: nothing is resolved here, so that a URL made from
//! variables can be read on a loop.

use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use bytes::Bytes;
use config::{Problem, Scope, Template, Value, Word, parse_ipv4};
use sys::UNIX_PATH_MAX;

/// The port of `http`.
const HTTP_PORT: u16 = 80;
/// The port of `https`.
const HTTPS_PORT: u16 = 443;
/// nginx's sentence for a URL of another scheme than these two.
const PREFIX: &str = "invalid URL prefix";
const HTTP: &[u8] = b"http://";
const HTTPS: &[u8] = b"https://";
const UNIX: &[u8] = b"unix:";

/// The argument of `proxy_pass`.
#[derive(Debug, Clone)]
pub enum ProxyPassUrl {
    /// The same for every request.
    Fixed(Url),
    /// Evaluated for each request.
    Made(Template),
}

/// A URL to pass requests on to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// As configured.
    pub whole: Bytes,
    /// Without its scheme, for messages.
    pub text: Bytes,
    /// Whether TLS is spoken there: `https://`, `suwsgi://`.
    pub has_tls: bool,
    /// The host and port, or the socket.
    pub host: Host,
    /// The URI after the host; empty: none. Begins with `/` or `?`.
    pub uri: Bytes,
    /// `$proxy_host`: the host, and the port unless it is the usual one.
    pub host_header: Bytes,
    /// `$proxy_port`; empty for a unix socket.
    pub port_text: Bytes,
}

/// The destination of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// An upstream by its name, or a server by name or address (an IPv6 one in brackets).
    Inet {
        /// The name.
        name: Bytes,
        /// The port, where the URL has one.
        port: Option<u16>,
    },
    /// A unix socket.
    Unix(PathBuf),
}

impl Host {
    /// The address, where it needs no look-up.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        let Self::Inet { name, .. } = self else {
            return None;
        };
        let inner = name
            .strip_prefix(b"[")
            .and_then(|text| text.strip_suffix(b"]"));
        match inner {
            Some(inner) => parse_ipv6(inner).map(IpAddr::V6),
            None => parse_ipv4(name).map(IpAddr::V4),
        }
    }
}

impl Url {
    /// The port where the URL has none.
    #[must_use]
    pub const fn usual_port(&self) -> u16 {
        usual_port(self.has_tls)
    }

    /// The destination port; 0 for a unix socket.
    #[must_use]
    pub fn port(&self) -> u16 {
        match &self.host {
            Host::Inet { port, .. } => port.unwrap_or(self.usual_port()),
            Host::Unix(_) => 0,
        }
    }

    /// The host's name, for TLS.
    #[must_use]
    pub fn host_name(&self) -> &Bytes {
        match &self.host {
            Host::Inet { name, .. } => name,
            Host::Unix(_) => &self.host_header,
        }
    }

    /// Appends the beginning of nginx's default key of a cache: the scheme with the host, and the port unless it is the
    /// usual one; or with the socket, and the byte behind its path: the colon, or the zero that ends nginx's text.
    pub fn append_key_start(&self, out: &mut Vec<u8>) {
        let scheme_len = self.whole.len() - self.text.len();
        match &self.host {
            Host::Inet { .. } => {
                let end = scheme_len + self.host_header.len();
                out.extend_from_slice(&self.whole[..end]);
            }
            Host::Unix(path) => {
                let end = scheme_len + UNIX.len() + path.as_os_str().len();
                out.extend_from_slice(&self.whole[..end]);
                out.push(self.whole.get(end).copied().unwrap_or(0));
            }
        }
    }

    /// The host and port, or the socket: `HOST[:PORT]` or `unix:PATH`.
    #[must_use]
    pub fn place(&self) -> Vec<u8> {
        match &self.host {
            Host::Unix(path) => [b"unix:", path.as_os_str().as_bytes()].concat(),
            Host::Inet { name, port: None } => name.to_vec(),
            Host::Inet {
                name,
                port: Some(port),
            } => [name, format!(":{port}").as_bytes()].concat(),
        }
    }

    /// The same, as text.
    #[must_use]
    pub fn shown_place(&self) -> String {
        String::from_utf8_lossy(&self.place()).into_owned()
    }

    /// Parses `HOST[:PORT]` or `unix:PATH`, without a scheme and a URI.
    ///
    /// # Errors
    /// nginx's sentence.
    pub fn of_place(place: &[u8]) -> Result<Url, String> {
        let whole = Bytes::from([HTTP, place].concat());
        if is_unix(place) {
            // All of it is the path, colons too.
            return unix(&whole, &whole.slice(HTTP.len()..), None).map_err(|reason| {
                format!(
                    "{reason} in upstream \"{}\"",
                    String::from_utf8_lossy(place)
                )
            });
        }
        let url = Url::parse(&whole)?;
        match url.uri.is_empty() {
            true => Ok(url),
            false => Err(format!(
                "invalid host in upstream \"{}\"",
                place.escape_ascii()
            )),
        }
    }

    /// Parses a whole URL that was made from variables. One of a scheme alone is told as one without, as in nginx.
    ///
    /// # Errors
    /// nginx's sentence.
    pub fn of_made(whole: &Bytes) -> Result<Url, String> {
        let is_bare = [HTTP, HTTPS]
            .iter()
            .any(|scheme| whole.eq_ignore_ascii_case(scheme));
        let parsed = match is_bare {
            true => Err(PREFIX.to_owned()),
            false => Url::parse(whole),
        };
        parsed.map_err(|why| match why == PREFIX {
            true => format!("{why} in \"{}\"", String::from_utf8_lossy(whole)),
            false => why,
        })
    }

    /// Parses a whole URL.
    ///
    /// # Errors
    /// nginx's sentence.
    pub fn parse(whole: &Bytes) -> Result<Url, String> {
        let is = |scheme: &[u8]| {
            whole
                .get(..scheme.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        };
        let has_tls = is(HTTPS);
        let scheme = match has_tls {
            true => HTTPS,
            false if is(HTTP) => HTTP,
            false => return Err(PREFIX.to_owned()),
        };
        let text = whole.slice(scheme.len()..);
        let outcome = if is_unix(&text) {
            unix(whole, &text, memchr::memchr(b':', &text[UNIX.len()..]))
        } else {
            inet(whole, &text, usual_port(has_tls))
        };
        let outcome = outcome.map(|url| Url { has_tls, ..url });
        outcome.map_err(|reason| {
            let text = String::from_utf8_lossy(&text);
            format!("{reason} in upstream \"{text}\"")
        })
    }
}

const fn usual_port(has_tls: bool) -> u16 {
    match has_tls {
        true => HTTPS_PORT,
        false => HTTP_PORT,
    }
}

impl Value for ProxyPassUrl {
    const SYNTAX: &'static str = "URL";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let template = Template::of_word(&args[0], scope).map_err(|problem| problem.at(0))?;
        let Some(whole) = template.literal() else {
            return Ok(Self::Made(template));
        };
        let problem = |sentence: String| {
            let hint = hint(&sentence, whole);
            let problem = Problem::new(sentence).at(0);
            match hint {
                Some(hint) => problem.hint_that(hint),
                None => problem,
            }
        };
        Url::parse(whole).map(Self::Fixed).map_err(problem)
    }
}

/// A hint for an address that was not understood.
fn hint(sentence: &str, whole: &Bytes) -> Option<String> {
    if sentence != PREFIX {
        return None;
    }
    let text = String::from_utf8_lossy(whole);
    Some(match text.split_once("://") {
        None => format!("did you mean \"http://{text}\"?"),
        Some((scheme, rest)) => {
            format!("it speaks no \"{scheme}\" to servers: did you mean \"http://{rest}\"?")
        }
    })
}

fn is_unix(text: &[u8]) -> bool {
    let start = text.get(..UNIX.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(UNIX))
}

/// `unix:PATH[:URI]`; the path ends `at` the colon.
fn unix(whole: &Bytes, text: &Bytes, at: Option<usize>) -> Result<Url, &'static str> {
    use std::os::unix::ffi::OsStrExt as _;
    let rest = text.slice(UNIX.len()..);
    let (path, uri) = match at {
        Some(at) => (rest.slice(..at), rest.slice(at + 1..)),
        None => (rest, Bytes::new()),
    };
    if path.is_empty() {
        return Err("no path in the unix domain socket");
    }
    if path.len() + 1 > UNIX_PATH_MAX {
        return Err("too long path in the unix domain socket");
    }
    Ok(Url {
        whole: whole.clone(),
        text: text.clone(),
        has_tls: false,
        host: Host::Unix(PathBuf::from(std::ffi::OsStr::from_bytes(&path))),
        uri,
        host_header: Bytes::from_static(b"localhost"),
        port_text: Bytes::new(),
    })
}

/// `HOST[:PORT][URI]`. The URI behind an address in brackets begins with a slash.
fn inet(whole: &Bytes, text: &Bytes, usual_port: u16) -> Result<Url, &'static str> {
    let skipped = match text.first() {
        Some(b'[') => memchr::memchr(b']', text).ok_or("invalid host")?,
        _ => 0,
    };
    let is_inet6 = skipped > 0;
    let end = match is_inet6 {
        true => memchr::memchr(b'/', &text[skipped..]),
        false => memchr::memchr2(b'/', b'?', text),
    };
    let end = end.map_or(text.len(), |at| skipped + at);
    let (place, uri) = (text.slice(..end), text.slice(end..));
    let colon = memchr::memchr(b':', &place[skipped..]).map(|at| skipped + at);
    let (name, digits) = match colon {
        Some(at) => (place.slice(..at), Some(place.slice(at + 1..))),
        None => (place.clone(), None),
    };
    if is_inet6 && name.len() != skipped + 1 {
        return Err("invalid host");
    }
    let port = digits.as_deref().map(port).transpose()?;
    if name.is_empty() || name == "[]" {
        return Err("no host");
    }
    if is_inet6 && parse_ipv6(&name[1..skipped]).is_none() {
        return Err("invalid IPv6 address");
    }
    let is_usual = port.is_none_or(|port| port == usual_port);
    Ok(Url {
        whole: whole.clone(),
        text: text.clone(),
        host_header: if is_usual { name.clone() } else { place },
        port_text: match digits {
            Some(digits) if !is_usual => digits,
            _ => Bytes::from(usual_port.to_string()),
        },
        has_tls: false,
        host: Host::Inet { name, port },
        uri,
    })
}

fn parse_ipv6(text: &[u8]) -> Option<Ipv6Addr> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn port(digits: &[u8]) -> Result<u16, &'static str> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).unwrap_or_default();
    match text.parse::<u16>() {
        Ok(port) if is_number && port > 0 => Ok(port),
        _ => Err("invalid port"),
    }
}

/// A URI that has only arguments gets a path.
#[must_use]
pub(crate) fn with_slash(uri: Bytes) -> Bytes {
    match uri.first() {
        Some(b'?') => [b"/", &uri[..]].concat().into(),
        _ => uri,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &'static str) -> String {
        match Url::parse(&Bytes::from_static(text.as_bytes())) {
            Ok(url) => {
                let part = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
                let host = match &url.host {
                    Host::Inet { name, port } => format!("{} {port:?}", part(name)),
                    Host::Unix(path) => path.display().to_string(),
                };
                format!(
                    "{host} | {} | {} | {}",
                    part(&url.host_header),
                    part(&url.port_text),
                    part(&url.uri)
                )
            }
            Err(why) => why,
        }
    }

    #[test]
    fn a_made_url_without_a_scheme_or_a_host_is_told() {
        for text in ["ftp://a.t:22020", "http://", "HTTPS://", ""] {
            let told = Url::of_made(&Bytes::from_static(text.as_bytes()));
            let expected = format!("invalid URL prefix in \"{text}\"");
            assert_eq!(told.unwrap_err(), expected);
        }
        assert!(
            Url::of_made(&Bytes::from_static(b"https://a"))
                .unwrap()
                .has_tls
        );
    }

    #[test]
    fn places_are_taken_apart() {
        let host = |place: &str| Url::of_place(place.as_bytes()).map(|url| url.place());
        for (place, expected) in [
            ("a:8", Ok("a:8")),
            ("unix:/a:b:c", Ok("unix:/a:b:c")),
            ("UNIX:/a", Ok("unix:/a")),
            (
                "unix:",
                Err("no path in the unix domain socket in upstream \"unix:\""),
            ),
            ("a/b", Err("invalid host in upstream \"a/b\"")),
        ] {
            let expected = expected.map(|text: &str| text.as_bytes().to_vec());
            let expected = expected.map_err(str::to_owned);
            assert_eq!(host(place), expected, "{place}");
        }
    }

    #[test]
    fn addresses_need_no_look_up() {
        let ip = |text: &'static str| {
            let url = Url::parse(&Bytes::from_static(text.as_bytes())).unwrap();
            url.host.ip().map(|ip| ip.to_string())
        };
        assert_eq!(ip("http://010.0.0.09:81/").as_deref(), Some("10.0.0.9"));
        assert_eq!(ip("http://[::1]").as_deref(), Some("::1"));
        assert_eq!(ip("http://a").as_deref(), None);
    }

    #[test]
    fn keys_begin_as_in_nginx() {
        for (url, expected) in [
            ("http://a", "http://a"),
            ("HTTP://a:80/b", "HTTP://a"),
            ("https://a:80?b", "https://a:80"),
            ("http://[::1]:8/b", "http://[::1]:8"),
            ("http://unix:/tmp/s:/u", "http://unix:/tmp/s:"),
            ("https://unix:/tmp/s", "https://unix:/tmp/s\0"),
        ] {
            let mut out = Vec::new();
            let parsed = Url::parse(&Bytes::from_static(url.as_bytes())).unwrap();
            parsed.append_key_start(&mut out);
            assert_eq!(out, expected.as_bytes(), "{url}");
        }
    }

    #[test]
    fn urls_are_taken_apart() {
        for (text, expected) in [
            ("http://a", "a None | a | 80 | "),
            ("HTTP://a:80/b", "a Some(80) | a | 80 | /b"),
            ("http://a:8080?b", "a Some(8080) | a:8080 | 8080 | ?b"),
            ("http://[::1]:8/x:y", "[::1] Some(8) | [::1]:8 | 8 | /x:y"),
            ("http://[::1]", "[::1] None | [::1] | 80 | "),
            ("http://unix:/tmp/s:/u", "/tmp/s | localhost |  | /u"),
            ("http://unix:/tmp/s", "/tmp/s | localhost |  | "),
            ("http://", "no host in upstream \"\""),
            ("http://a:0/", "invalid port in upstream \"a:0/\""),
            ("http://:x", "invalid port in upstream \":x\""),
            ("http://[::1", "invalid host in upstream \"[::1\""),
            (
                "http://[::zz]:80",
                "invalid IPv6 address in upstream \"[::zz]:80\"",
            ),
            ("http://[::zz]:x", "invalid port in upstream \"[::zz]:x\""),
            ("http://[]/", "no host in upstream \"[]/\""),
            ("http://[::1]?a=b", "invalid host in upstream \"[::1]?a=b\""),
            (
                "http://[::1]:8?a=b",
                "invalid port in upstream \"[::1]:8?a=b\"",
            ),
            ("http://[::1]]:8", "invalid host in upstream \"[::1]]:8\""),
            ("http://[::1]/?a=b", "[::1] None | [::1] | 80 | /?a=b"),
            (
                "http://unix:",
                "no path in the unix domain socket in upstream \"unix:\"",
            ),
            ("ftp://a", "invalid URL prefix"),
            ("https://a", "a None | a | 443 | "),
            ("HTTPS://a:443/b", "a Some(443) | a | 443 | /b"),
            ("https://a:80", "a Some(80) | a:80 | 80 | "),
            ("https://[::1]", "[::1] None | [::1] | 443 | "),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }
}
