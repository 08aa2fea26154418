//! IP addresses in nginx's notation: an octet is decimal, also with zeros before it, and 255.255.255.255 is not an address.
//!
//! Not here: host names. Invariant: what is an address here is never looked up as a name, since the system's library
//! reads octets that begin with 0 as octal.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::number::parse_number;

/// Parses an IPv4 address. `None` where nginx takes the text for something else.
#[must_use]
pub fn parse_ipv4(text: &[u8]) -> Option<Ipv4Addr> {
    let mut octets = [0_u8; 4];
    let mut dots = 0;
    for byte in text {
        match byte {
            b'.' => dots += 1,
            b'0'..=b'9' => {
                let octet = octets.get_mut(dots)?;
                *octet = octet.checked_mul(10)?.checked_add(byte - b'0')?;
            }
            _ => return None,
        }
    }
    let address = Ipv4Addr::from(octets);
    (dots == 3 && address != Ipv4Addr::BROADCAST).then_some(address)
}

/// Parses an address of either family, without brackets.
#[must_use]
pub fn parse_ip(text: &[u8]) -> Option<IpAddr> {
    match parse_ipv4(text) {
        Some(address) => Some(address.into()),
        None => {
            let address: Option<Ipv6Addr> = std::str::from_utf8(text).ok()?.parse().ok();
            address.map(IpAddr::from)
        }
    }
}

/// Parses a network, `ADDRESS` or `ADDRESS/LENGTH`: the address as written, and the number of its first bits that count,
/// which may be more than the family has.
#[must_use]
pub fn parse_network(text: &[u8]) -> Option<(IpAddr, u8)> {
    let Some(slash) = text.iter().position(|byte| *byte == b'/') else {
        let ip = parse_ip(text)?;
        return Some((ip, if ip.is_ipv4() { 32 } else { 128 }));
    };
    let length = parse_number(&text[slash + 1..])?;
    Some((parse_ip(&text[..slash])?, u8::try_from(length).ok()?))
}

/// Parses an address with a port or without, which is port 0. IPv6 may stand in brackets, and does before a port.
#[must_use]
pub fn parse_ip_and_port(text: &[u8]) -> Option<SocketAddr> {
    if let Some(ip) = parse_ip(text) {
        return Some(SocketAddr::new(ip, 0));
    }
    let (host, tail) = match text.strip_prefix(b"[") {
        Some(rest) => rest.split_at(rest.iter().position(|byte| *byte == b']')?),
        None => text.split_at(text.iter().position(|byte| *byte == b':')?),
    };
    let port = match tail.strip_prefix(b"]").unwrap_or(tail) {
        b"" => 0,
        [b':', digits @ ..] => port(digits)?,
        _ => return None,
    };
    Some(SocketAddr::new(parse_ip(host)?, port))
}

/// A port that is not 0.
fn port(digits: &[u8]) -> Option<u16> {
    let port = parse_number(digits)?;
    u16::try_from(port).ok().filter(|port| *port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_are_decimal_as_in_nginx() {
        let shown = |text: &str| parse_ip(text.as_bytes()).map(|ip| ip.to_string());
        for (text, expected) in [
            ("127.0.0.1", Some("127.0.0.1")),
            ("010.008.000.0001", Some("10.8.0.1")),
            ("1..2.", Some("1.0.2.0")),
            ("::1", Some("::1")),
            ("2001:db8::10.0.0.1", Some("2001:db8::a00:1")),
            ("256.0.0.1", None),
            ("1.2.3", None),
            ("1.2.3.4.5", None),
            ("1.2.3.4.", None),
            ("0x7f.0.0.1", None),
            ("255.255.255.255", None),
            ("[::1]", None),
            ("::g", None),
            ("", None),
        ] {
            assert_eq!(shown(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn networks_have_a_length() {
        let shown = |text: &str| {
            parse_network(text.as_bytes()).map(|(ip, length)| format!("{ip}/{length}"))
        };
        for (text, expected) in [
            ("010.0.0.0/08", Some("10.0.0.0/8")),
            ("10.0.0.1", Some("10.0.0.1/32")),
            ("2001:db8::/32", Some("2001:db8::/32")),
            ("::1", Some("::1/128")),
            ("10.0.0.0/", None),
            ("10.0.0.0/+8", None),
            ("10.0.0.0/256", None),
            ("255.255.255.255/32", None),
            ("a/8", None),
        ] {
            assert_eq!(shown(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_port_that_is_named_is_one() {
        let shown = |text: &str| parse_ip_and_port(text.as_bytes()).map(|at| at.to_string());
        for (text, expected) in [
            ("127.0.0.08", Some("127.0.0.8:0")),
            ("127.0.0.8:081", Some("127.0.0.8:81")),
            ("::1", Some("[::1]:0")),
            ("[::1]", Some("[::1]:0")),
            ("[::1]:81", Some("[::1]:81")),
            ("127.0.0.8:0", None),
            ("127.0.0.8:", None),
            ("127.0.0.8:+1", None),
            ("[::1]:0", None),
            ("[::1]81", None),
            ("[::1", None),
            ("127.0.0.8]:81", None),
            ("127.0.0.8:65536", None),
            ("a:81", None),
        ] {
            assert_eq!(shown(text).as_deref(), expected, "{text}");
        }
    }
}
