//! The address forms of `listen`: `PORT`, `ADDRESS`, `ADDRESS:PORT`, `*:PORT`, `[IPV6]:PORT`, names,
//! port ranges and `unix:PATH`.
//!
//! Not here: the parameters behind the address, and sockets. Invariant: parsing resolves no name.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use config::parse_ipv4;
use sys::UNIX_PATH_MAX;

/// The port of an address that names none.
pub const DEFAULT_PORT: u16 = 80;

/// One address to listen on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP over IPv4 or IPv6.
    Inet(SocketAddr),
    /// A unix socket in the file system.
    Unix(PathBuf),
}

impl Address {
    /// Whether it stands for all addresses of the host.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        matches!(self, Self::Inet(address) if address.ip().is_unspecified())
    }

    /// The wildcard on the same port of the same family, which covers the address.
    #[must_use]
    pub fn wildcard(&self) -> Option<Self> {
        let address = self.inet()?;
        let any = match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        Some(Self::Inet(SocketAddr::new(any, address.port())))
    }

    /// Address and port, unless it is a unix socket.
    #[must_use]
    pub fn inet(&self) -> Option<SocketAddr> {
        match self {
            Self::Inet(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// The path of a unix socket.
    #[must_use]
    pub fn unix_path(&self) -> Option<&Path> {
        match self {
            Self::Inet(_) => None,
            Self::Unix(path) => Some(path),
        }
    }
}

impl fmt::Display for Address {
    /// As nginx's log lines name it: `0.0.0.0:80`, `[::]:80`, `unix:/path`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The host part of a `listen`, before names are resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// A literal address; `*` and a bare port are 0.0.0.0.
    Ip(IpAddr),
    /// A name that the master resolves before it binds.
    Name(String),
}

/// What the first argument of `listen` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// TCP, on one port or a range of ports.
    Inet {
        /// The address or name.
        host: Host,
        /// The first port.
        first: u16,
        /// The last port; equal to `first` without a range.
        last: u16,
    },
    /// A unix socket.
    Unix(PathBuf),
}

impl Target {
    /// Reads the first argument; the error is nginx's reason (`invalid port`, `no host`, …).
    ///
    /// # Errors
    /// The reason, to be put before ` in "ARGUMENT" of the "listen" directive`.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.len() >= 5 && text.as_bytes()[..5].eq_ignore_ascii_case(b"unix:") {
            return unix(&text[5..]);
        }
        match text.strip_prefix('[') {
            Some(rest) => inet6(rest),
            None => inet(text),
        }
    }

    /// The addresses, a name resolved by `resolve`.
    ///
    /// # Errors
    /// `host not found` when `resolve` gives nothing.
    pub fn addresses(
        &self,
        resolve: &mut dyn FnMut(&str) -> Vec<IpAddr>,
    ) -> Result<Vec<Address>, &'static str> {
        let (host, first, last) = match self {
            Self::Unix(path) => return Ok(vec![Address::Unix(path.clone())]),
            Self::Inet { host, first, last } => (host, *first, *last),
        };
        let found = match host {
            Host::Ip(ip) => vec![*ip],
            Host::Name(name) => resolve(name),
        };
        if found.is_empty() {
            return Err("host not found");
        }
        let mut ips = Vec::with_capacity(found.len());
        for ip in found {
            if !ips.contains(&ip) {
                ips.push(ip);
            }
        }
        let ports = |ip| (first..=last).map(move |port| Address::Inet(SocketAddr::new(ip, port)));
        Ok(ips.into_iter().flat_map(ports).collect())
    }
}

fn unix(path: &str) -> Result<Target, &'static str> {
    if path.is_empty() {
        return Err("no path in the unix domain socket");
    }
    if path.len() + 1 > UNIX_PATH_MAX {
        return Err("too long path in the unix domain socket");
    }
    Ok(Target::Unix(PathBuf::from(path)))
}

fn inet6(rest: &str) -> Result<Target, &'static str> {
    let (host, tail) = rest.split_once(']').ok_or("invalid host")?;
    if tail.contains('/') {
        return Err("invalid host");
    }
    let (first, last) = match tail {
        "" => (DEFAULT_PORT, DEFAULT_PORT),
        _ => ports(tail.strip_prefix(':').ok_or("invalid host")?)?,
    };
    if host.is_empty() {
        return Err("no host");
    }
    let ip: Ipv6Addr = host.parse().map_err(|_| "invalid IPv6 address")?;
    Ok(Target::Inet {
        host: Host::Ip(IpAddr::V6(ip)),
        first,
        last,
    })
}

fn inet(text: &str) -> Result<Target, &'static str> {
    if text.contains(['/', '?']) {
        return Err("invalid host");
    }
    if let Some((host, tail)) = text.split_once(':') {
        let (first, last) = ports(tail)?;
        return Ok(Target::Inet {
            host: host_of(host)?,
            first,
            last,
        });
    }
    let looks_like_ports = match text.split_once('-') {
        Some((first, last)) => is_number(first) && is_number(last),
        None => is_number(text),
    };
    if looks_like_ports {
        let (first, last) = ports(text)?;
        return Ok(Target::Inet {
            host: Host::Ip(Ipv4Addr::UNSPECIFIED.into()),
            first,
            last,
        });
    }
    Ok(Target::Inet {
        host: host_of(text)?,
        first: DEFAULT_PORT,
        last: DEFAULT_PORT,
    })
}

fn host_of(text: &str) -> Result<Host, &'static str> {
    match text {
        "" => Err("no host"),
        "*" => Ok(Host::Ip(Ipv4Addr::UNSPECIFIED.into())),
        _ => Ok(match parse_ipv4(text.as_bytes()) {
            Some(ip) => Host::Ip(ip.into()),
            None => Host::Name(text.to_owned()),
        }),
    }
}

fn ports(text: &str) -> Result<(u16, u16), &'static str> {
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (port(first)?, port(last)?),
        None => (port(text)?, port(text)?),
    };
    if first > last {
        return Err("invalid port range");
    }
    Ok((first, last))
}

fn port(text: &str) -> Result<u16, &'static str> {
    if !is_number(text) {
        return Err("invalid port");
    }
    match text.parse::<u16>() {
        Ok(port) if port > 0 => Ok(port),
        Ok(_) | Err(_) => Err("invalid port"),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Vec<String> {
        let mut resolve = |name: &str| match name {
            "localhost" => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            _ => Vec::new(),
        };
        match Target::parse(text).and_then(|target| target.addresses(&mut resolve)) {
            Ok(all) => all.iter().map(ToString::to_string).collect(),
            Err(reason) => vec![reason.to_owned()],
        }
    }

    #[test]
    fn every_form_is_read() {
        assert_eq!(named("8080"), ["0.0.0.0:8080"]);
        assert_eq!(named("*:81"), ["0.0.0.0:81"]);
        assert_eq!(named("*"), ["0.0.0.0:80"]);
        assert_eq!(named("127.0.0.1"), ["127.0.0.1:80"]);
        assert_eq!(named("127.0.0.1:8080"), ["127.0.0.1:8080"]);
        assert_eq!(named("127.000.000.010:81"), ["127.0.0.10:81"]);
        assert_eq!(named("[::]"), ["[::]:80"]);
        assert_eq!(named("[::1]:8080"), ["[::1]:8080"]);
        assert_eq!(named("8182-8183"), ["0.0.0.0:8182", "0.0.0.0:8183"]);
        assert_eq!(
            named("127.0.0.1:8182-8183"),
            ["127.0.0.1:8182", "127.0.0.1:8183"]
        );
        assert_eq!(named("[::1]:8182-8183"), ["[::1]:8182", "[::1]:8183"]);
        assert_eq!(named("localhost:8000"), ["127.0.0.1:8000", "[::1]:8000"]);
        assert_eq!(named("unix:/tmp/a.sock"), ["unix:/tmp/a.sock"]);
    }

    #[test]
    fn wrong_forms_have_nginx_s_reason() {
        assert_eq!(named("127.0.0.1:"), ["invalid port"]);
        assert_eq!(named("127.0.0.1:0"), ["invalid port"]);
        assert_eq!(named("70000"), ["invalid port"]);
        assert_eq!(named("127.0.0.1:1x"), ["invalid port"]);
        assert_eq!(named(":80"), ["no host"]);
        assert_eq!(named("90-80"), ["invalid port range"]);
        assert_eq!(named("[::1"), ["invalid host"]);
        assert_eq!(named("[::1]80"), ["invalid host"]);
        assert_eq!(named("[]:80"), ["no host"]);
        assert_eq!(named("[::g]:80"), ["invalid IPv6 address"]);
        assert_eq!(named("a/b"), ["invalid host"]);
        assert_eq!(named("nosuchname"), ["host not found"]);
        assert_eq!(named("unix:"), ["no path in the unix domain socket"]);
        assert_eq!(
            named(&format!("unix:/{}", "a".repeat(200))),
            ["too long path in the unix domain socket"]
        );
    }

    #[test]
    fn a_wildcard_covers_its_port_and_family() {
        let at = |text: &str| Address::Inet(text.parse().unwrap());
        assert!(at("0.0.0.0:80").is_wildcard());
        assert_eq!(at("127.0.0.1:80").wildcard(), Some(at("0.0.0.0:80")));
        assert_eq!(at("[::1]:81").wildcard(), Some(at("[::]:81")));
    }
}
