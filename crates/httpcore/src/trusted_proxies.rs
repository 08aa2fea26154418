//! Finds the address of the client behind trusted proxies, from a header: for `real_ip_header` and `geo`'s `proxy`.
//!
//! Pure. Not here: which header is read, and what the address is used for. Invariant: an address is accepted only
//! from a trusted sender; the result is nginx's, step by step.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use config::{Placed, Problem, Scope, Value, Word, parse_ip_and_port, parse_network};
use ipnet::IpNet;

/// A client that is trusted to name an address.
#[derive(Debug, Clone)]
pub enum Trusted {
    /// Every client of a unix socket.
    Unix,
    /// An address or a network.
    Net(IpNet),
    /// A host, with its addresses once they have been looked up.
    Host(Arc<Host>),
}

/// A host by its name.
#[derive(Debug)]
pub struct Host {
    name: String,
    addresses: OnceLock<Vec<IpAddr>>,
}

impl Value for Trusted {
    const SYNTAX: &'static str = "address | CIDR | hostname | unix:";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let word = &args[0];
        if *word == "unix:" {
            return Ok(Self::Unix);
        }
        Ok(match network(word, scope) {
            Some(net) => Self::Net(net),
            None => Self::Host(Arc::new(Host {
                name: word.display().to_string(),
                addresses: OnceLock::new(),
            })),
        })
    }
}

/// Reads an address or a network; warns if bits after the prefix are set.
pub fn network(word: &Word, scope: &mut Scope) -> Option<IpNet> {
    let (address, length) = parse_network(word.bytes())?;
    let net = IpNet::new(address, length).ok()?;
    if net.addr() != net.network() {
        scope.warn(word.error(&Problem::new(format!(
            "low address bits of {} are meaningless",
            word.display()
        ))));
    }
    Some(net.trunc())
}

impl Trusted {
    /// Looks up a host by `resolve`.
    ///
    /// # Errors
    /// nginx's sentence: there is no such host.
    pub fn settle(&self, resolve: &mut dyn FnMut(&str) -> Vec<IpAddr>) -> Result<(), String> {
        let Self::Host(host) = self else {
            return Ok(());
        };
        let found = host.addresses.get_or_init(|| resolve(&host.name));
        if found.is_empty() {
            return Err(format!(
                "host not found in set_real_ip_from \"{}\"",
                host.name
            ));
        }
        Ok(())
    }

    fn is(&self, who: Option<IpAddr>) -> bool {
        match (self, who) {
            (Self::Unix, None) => true,
            (Self::Net(net), Some(ip)) => net.contains(&ip),
            (Self::Host(host), Some(ip)) => host
                .addresses
                .get()
                .is_some_and(|found| found.contains(&ip)),
            _ => false,
        }
    }
}

/// Whether a client (none: a unix socket's) is trusted to name an address.
#[must_use]
pub fn is_trusted(client: Option<SocketAddr>, trusted: &[Placed<Trusted>]) -> bool {
    let who = client.map(|address| address.ip().to_canonical());
    trusted.iter().any(|one| one.value.is(who))
}

/// Finds the address in `lines` (of `X-Forwarded-For`, or one line of another header), if `client` (none: a unix
/// socket's) is trusted: the last one; with `is_recursive` the last one that is not trusted itself. Its port is 0 if
/// the header gives none.
pub fn find(
    client: Option<SocketAddr>,
    lines: &[&[u8]],
    trusted: &[Placed<Trusted>],
    is_recursive: bool,
) -> Option<SocketAddr> {
    let mut found = None;
    for line in lines.iter().rev() {
        let goes_on = walk(client, &mut found, line, trusted, is_recursive);
        if !is_recursive || !goes_on {
            break;
        }
    }
    found
}

/// Walks back through one line; `false`: an address is not trusted, or is not an address.
fn walk(
    client: Option<SocketAddr>,
    found: &mut Option<SocketAddr>,
    line: &[u8],
    trusted: &[Placed<Trusted>],
    is_recursive: bool,
) -> bool {
    let is_between = |byte: &u8| matches!(byte, b' ' | b',');
    let mut left = line;
    loop {
        if !is_trusted(found.or(client), trusted) {
            return false;
        }
        while let [rest @ .., last] = left
            && is_between(last)
        {
            left = rest;
        }
        // As in nginx, the first byte of a line separates nothing: what follows it is no address.
        let between = left.iter().skip(1).rposition(is_between);
        let start = between.map_or(0, |at| at + 2);
        let Some(address) = parse_ip_and_port(&left[start..]) else {
            return false;
        };
        *found = Some(address);
        if !is_recursive || start == 0 {
            return true;
        }
        left = &left[..start - 1];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lines: &[&str], trusted: &[&str], is_recursive: bool) -> Option<String> {
        let trusted: Vec<Placed<Trusted>> = trusted
            .iter()
            .map(|text| Placed {
                value: Trusted::Net(text.parse().expect("a network")),
                place: None,
            })
            .collect();
        let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
        let client = "127.0.0.1:9".parse().ok();
        let found = find(client, &lines, &trusted, is_recursive)?;
        Some(match found.port() {
            0 => found.ip().to_string(),
            _ => found.to_string(),
        })
    }

    #[test]
    fn the_last_address_is_taken_from_who_is_trusted() {
        let local = ["127.0.0.0/8"];
        let one = |line: &str| found(&[line], &local, false);
        assert_eq!(one("192.0.2.1").as_deref(), Some("192.0.2.1"));
        assert_eq!(one("10.0.0.1, 192.0.2.1").as_deref(), Some("192.0.2.1"));
        assert_eq!(one("10.0.0.1,192.0.2.1 , ").as_deref(), Some("192.0.2.1"));
        assert_eq!(one("192.0.2.1:80").as_deref(), Some("192.0.2.1:80"));
        assert_eq!(one("010.000.002.01").as_deref(), Some("10.0.2.1"));
        assert_eq!(one("2001:db8::1").as_deref(), Some("2001:db8::1"));
        assert_eq!(one("[2001:db8::1]").as_deref(), Some("2001:db8::1"));
        assert_eq!(one("[2001:db8::1]:80").as_deref(), Some("[2001:db8::1]:80"));
        for wrong in [
            "",
            " ",
            "192.0.2.1:0",
            "a",
            "192.0.2.1, a",
            ",192.0.2.1",
            "255.255.255.255",
        ] {
            assert_eq!(one(wrong), None, "{wrong}");
        }
        assert_eq!(found(&["192.0.2.1"], &["10.0.0.0/8"], false), None);
        let lines = ["192.0.2.1", "192.0.2.2"];
        assert_eq!(found(&lines, &local, false).as_deref(), Some("192.0.2.2"));
    }

    #[test]
    fn recursively_the_last_one_that_is_not_trusted_counts() {
        let trusted = ["127.0.0.0/8", "10.0.0.0/8"];
        let all = |lines: &[&str]| found(lines, &trusted, true);
        assert_eq!(all(&["192.0.2.1, 10.0.0.1"]).as_deref(), Some("192.0.2.1"));
        assert_eq!(
            all(&["192.0.2.1", "10.0.0.1"]).as_deref(),
            Some("192.0.2.1")
        );
        assert_eq!(all(&["10.0.0.2, 10.0.0.1"]).as_deref(), Some("10.0.0.2"));
        assert_eq!(
            all(&["192.0.2.9, 192.0.2.1", "10.0.0.1"]).as_deref(),
            Some("192.0.2.1")
        );
        // A word that is not an address ends the walk; the address found so far stands.
        assert_eq!(
            all(&["192.0.2.1", "x, 10.0.0.1"]).as_deref(),
            Some("10.0.0.1")
        );
        assert_eq!(all(&["192.0.2.1, 10.0.0.1", ""]), None);
        assert_eq!(all(&[",10.0.0.2, 10.0.0.1"]).as_deref(), Some("10.0.0.1"));
    }
}
