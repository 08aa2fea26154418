//! The host of a request: validated by RFC 3986 (nginx since 1.29.4), lower-cased, without port and trailing dot.

use std::borrow::Cow;

/// A validated host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host<'a> {
    /// In lower case, without the port and one trailing dot; never empty.
    pub name: Cow<'a, [u8]>,
    /// The port, if digits were given.
    pub port: Option<u16>,
}

/// The text is not a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidHost;

/// Parses the value of `Host`, or the authority of a request target.
///
/// # Errors
/// [`InvalidHost`]: not a host and port by RFC 3986, 3.2.2 and 3.2.3.
pub fn parse(text: &[u8]) -> Result<Host<'_>, InvalidHost> {
    let inner = match text {
        [b'[', inner @ ..] => Some(inner),
        _ => None,
    };
    let allowed = if inner.is_some() { IN_LITERAL } else { IN_NAME };
    let scanned = inner.unwrap_or(text);
    let (mut seen, mut before, mut len) = (0, 0, 0);
    for c in scanned {
        let kind = BYTES[*c as usize];
        if kind & allowed == 0 {
            break;
        }
        if kind & before & DOT != 0 {
            return Err(InvalidHost);
        }
        seen |= kind;
        before = kind;
        len += 1;
    }
    let (mut name, mut behind) = scanned.split_at(len);
    if inner.is_some() {
        behind = behind.strip_prefix(b"]").ok_or(InvalidHost)?;
        if !is_address(name) {
            return Err(InvalidHost);
        }
        name = &text[..text.len() - behind.len()];
    } else if before & DOT != 0 {
        name = &name[..len - 1];
    }
    let port = match behind {
        [] => None,
        [b':', digits @ ..] => parse_port(digits)?,
        _ => return Err(InvalidHost),
    };
    if name.is_empty() || (seen & ESCAPE != 0 && !escapes_are_whole(name)) {
        return Err(InvalidHost);
    }
    let name = if seen & UPPER == 0 {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(name.to_ascii_lowercase())
    };
    Ok(Host { name, port })
}

const IN_NAME: u8 = 1;
const IN_LITERAL: u8 = 2;
const UPPER: u8 = 4;
const ESCAPE: u8 = 8;
const DOT: u8 = 16;
/// For each byte, a set of flags: where it may stand, and what it means there.
const BYTES: [u8; 256] = {
    let mut bytes = [0; 256];
    let mut c = 0;
    while c < 256 {
        if is_host_byte(c as u8, false) {
            bytes[c] |= IN_NAME;
        }
        if is_host_byte(c as u8, true) {
            bytes[c] |= IN_LITERAL;
        }
        bytes[c] |= match c as u8 {
            b'A'..=b'Z' => UPPER,
            b'%' => ESCAPE,
            b'.' => DOT,
            _ => 0,
        };
        c += 1;
    }
    bytes
};

const fn is_host_byte(c: u8, is_literal: bool) -> bool {
    match c {
        b'-' | b'.' | b'_' | b'~' => true, // unreserved
        b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' => true, // sub-delims
        b'%' => !is_literal,
        b':' => is_literal,
        _ => c.is_ascii_alphanumeric(),
    }
}

/// Whether it is an IPv6 address or one of a future version (`v1.…`).
#[cold]
fn is_address(inner: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(inner) else {
        return false;
    };
    let version = text.strip_prefix(['v', 'V']);
    match version.and_then(|version| version.split_once('.')) {
        Some((version, address)) => {
            let is_hex = version.bytes().all(|digit| digit.is_ascii_hexdigit());
            is_hex && !version.is_empty() && !address.is_empty()
        }
        None => text.parse::<std::net::Ipv6Addr>().is_ok(),
    }
}

/// Whether each `%` is followed by two hex digits.
#[cold]
fn escapes_are_whole(name: &[u8]) -> bool {
    let mut behind = name.split(|c| *c == b'%').skip(1);
    behind.all(|text| text.len() >= 2 && text[..2].iter().all(u8::is_ascii_hexdigit))
}

fn parse_port(digits: &[u8]) -> Result<Option<u16>, InvalidHost> {
    if digits.is_empty() {
        return Ok(None);
    }
    let mut port: u16 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return Err(InvalidHost);
        }
        port = port
            .checked_mul(10)
            .and_then(|port| port.checked_add(u16::from(digit - b'0')))
            .ok_or(InvalidHost)?;
    }
    // nginx stores "no port" as 0 and therefore ignores an explicit port 0.
    Ok((port != 0).then_some(port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        for (text, name, port) in [
            ("localhost", "localhost", None),
            ("LocalHost.:8080", "localhost", Some(8080)),
            ("a.b.", "a.b", None),
            ("a:", "a", None),
            ("[::1]:80", "[::1]", Some(80)),
            ("[V1.Ab:c]", "[v1.ab:c]", None),
            ("a:65535", "a", Some(65535)),
            ("a_b%20c", "a_b%20c", None),
        ] {
            let host = parse(text.as_bytes()).unwrap();
            assert_eq!(
                (&host.name[..], host.port),
                (name.as_bytes(), port),
                "{text}"
            );
        }
    }

    #[test]
    fn invalid_hosts_are_refused() {
        for text in [
            "",
            ".",
            ":80",
            ".:80",
            "a..b",
            "..",
            "a/b",
            "a\\b",
            "a\tb",
            "a b",
            "a\x7f",
            "a:65536",
            "a:8.0",
            "a:1:2",
            "[a]",
            "[]",
            "[v.a]",
            "[v1.]",
            "[1.2.3.4]",
            "[::1::]",
            "a%zz",
            "a%",
            "a%4",
            "x[::1]",
            "[::1",
            "[::1]x",
            "a@b",
            "[a..b]",
            "a\0",
        ] {
            assert_eq!(parse(text.as_bytes()), Err(InvalidHost), "{text:?}");
        }
    }
}
