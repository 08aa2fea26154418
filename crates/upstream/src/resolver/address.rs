//! The address forms of an upstream's server: `HOST[:PORT]`, `[IPV6][:PORT]` and `unix:PATH`.
//!
//! Not those of `listen`, which knows ranges, bare ports and `*`. Invariant: parsing resolves no name.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use config::parse_ipv4;
use runtime::listen::address::Address;
use sys::UNIX_PATH_MAX;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerAddress {
    /// A known address.
    Known(Address),
    /// A name that is to be resolved, and the port.
    Name(String, u16),
}

impl ServerAddress {
    /// Parses an address; one without a port gets `default_port`.
    ///
    /// # Errors
    /// nginx's reason, to be put before ` in upstream "ADDRESS"`.
    pub(crate) fn parse(text: &str, default_port: u16) -> Result<ServerAddress, &'static str> {
        if let Some(path) = unix_path(text) {
            return unix(path);
        }
        match text.strip_prefix('[') {
            Some(rest) => inet6(rest, default_port),
            None => inet(text, default_port),
        }
    }

    /// The port; none with a unix socket.
    #[must_use]
    pub(crate) fn port(&self) -> Option<u16> {
        match self {
            ServerAddress::Known(address) => address.inet().map(|inet| inet.port()),
            ServerAddress::Name(_, port) => Some(*port),
        }
    }

    /// The addresses, IPv4 first; a name is resolved by `resolve`.
    ///
    /// # Errors
    /// `host not found`.
    pub(crate) fn addresses(
        &self,
        resolve: &mut dyn FnMut(&str) -> Vec<IpAddr>,
    ) -> Result<Vec<Address>, &'static str> {
        let (name, port) = match self {
            ServerAddress::Known(address) => return Ok(vec![address.clone()]),
            ServerAddress::Name(name, port) => (name, *port),
        };
        let mut found = resolve(name);
        if found.is_empty() {
            return Err("host not found");
        }
        found.sort_by_key(IpAddr::is_ipv6); // stable: the resolver's order stays within a family
        let address = |ip| Address::Inet(SocketAddr::new(ip, port));
        Ok(found.into_iter().map(address).collect())
    }
}

/// The host of an address that [`ServerAddress::parse`] accepted, with the brackets of IPv6, and whether a port follows
/// it.
#[must_use]
pub(crate) fn split_port(text: &str) -> (&str, bool) {
    if unix_path(text).is_some() {
        return (text, false);
    }
    let start = text.rfind(']').unwrap_or(0);
    match text[start..].find(':') {
        Some(colon) => (&text[..start + colon], true),
        None => (text, false),
    }
}

fn unix_path(text: &str) -> Option<&str> {
    let (scheme, path) = text.split_at_checked(5)?;
    scheme.eq_ignore_ascii_case("unix:").then_some(path)
}

fn unix(path: &str) -> Result<ServerAddress, &'static str> {
    match path.len() {
        0 => Err("no path in the unix domain socket"),
        len if len + 1 > UNIX_PATH_MAX => Err("too long path in the unix domain socket"),
        _ => Ok(ServerAddress::Known(Address::Unix(PathBuf::from(path)))),
    }
}

fn inet6(rest: &str, default_port: u16) -> Result<ServerAddress, &'static str> {
    let (host, tail) = rest.split_once(']').ok_or("invalid host")?;
    if tail.contains('/') {
        return Err("invalid host");
    }
    let port = match tail {
        "" => default_port,
        _ => port(tail.strip_prefix(':').ok_or("invalid host")?)?,
    };
    if host.is_empty() {
        return Err("no host");
    }
    let ip: Ipv6Addr = host.parse().map_err(|_| "invalid IPv6 address")?;
    Ok(ServerAddress::Known(Address::Inet(SocketAddr::new(
        ip.into(),
        port,
    ))))
}

fn inet(text: &str, default_port: u16) -> Result<ServerAddress, &'static str> {
    if text.contains(['/', '?']) {
        return Err("invalid host");
    }
    let (host, port) = match text.split_once(':') {
        Some((host, digits)) => (host, port(digits)?),
        None => (text, default_port),
    };
    if host.is_empty() {
        return Err("no host");
    }
    Ok(match parse_ipv4(host.as_bytes()) {
        Some(ip) => ServerAddress::Known(Address::Inet(SocketAddr::new(ip.into(), port))),
        None => ServerAddress::Name(host.to_owned(), port),
    })
}

fn port(digits: &str) -> Result<u16, &'static str> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match digits.parse::<u16>() {
        Ok(port) if is_number && port > 0 => Ok(port),
        Ok(_) | Err(_) => Err("invalid port"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn servers_are_found_at_every_address_of_their_name() {
        let mut resolve = |name: &str| match name {
            "two" => vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()],
            _ => Vec::new(),
        };
        let mut found = |text: &str| {
            let parsed = ServerAddress::parse(text, 80);
            match parsed.and_then(|address| address.addresses(&mut resolve)) {
                Ok(all) => all
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(" "),
                Err(reason) => reason.to_owned(),
            }
        };
        assert_eq!(found("127.0.0.1"), "127.0.0.1:80");
        assert_eq!(found("127.0.0.1:8080"), "127.0.0.1:8080");
        assert_eq!(found("010.000.000.09:81"), "10.0.0.9:81");
        assert_eq!(found("[::1]:8080"), "[::1]:8080");
        assert_eq!(found("[::1]"), "[::1]:80");
        assert_eq!(found("UNIX:/a:b"), "unix:/a:b");
        assert_eq!(found("two:81"), "127.0.0.1:81 [::1]:81");
        assert_eq!(found("none"), "host not found");
        assert_eq!(found("a:b:80"), "invalid port");
    }
}
