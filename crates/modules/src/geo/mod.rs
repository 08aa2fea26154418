//! `geo`: a variable whose value depends on an address. nginx-drop-in 46.
//!
//! * `spans`: looks up the value of an address; pure.
//! * `ranges`: adds, splits and deletes ranges of addresses as nginx does; pure.
//! * here: the lines of a block, and the address of a request.
//!
//! Invariant: the spans are sorted once, when the block is read.

mod ranges;
mod spans;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use config::{
    Directive, Error, Placed, Problem, Scope, VariableIndex, Word, blocks, parse_ip, parse_ipv4,
};
use hashbrown::HashMap;
use ipnet::IpNet;
use message::HeaderId;
use smallvec::SmallVec;

use httpcore::request::Request;
use httpcore::trusted_proxies::{self, Trusted};
use httpcore::variables::block::{Defined, Definition, VariableBlock, name_of, target_of};
use ranges::Ranges;
use spans::Spans;

/// Maximum number of proxies of one block.
pub const PROXIES_MAX: usize = 65_536;
/// The address that stands for a missing one: a client of a unix socket, a variable that holds no address.
const NOWHERE: u32 = u32::MAX;

blocks! {
    /// Variables by address (geo).
    pub fn lines in Http {
        /// Creates a variable whose value depends on an address: the client's, or the one in another variable. A line
        /// has a network and its value; the most specific network wins. With `ranges` first, lines have ranges of IPv4
        /// addresses instead. `default` is for all others; `delete` removes a network or range; `include` reads lines
        /// from a file. For clients that are a `proxy`, the last address in `X-Forwarded-For` is used, with
        /// `proxy_recursive` the last one that is not a proxy. `volatile` disables caching of the value. A client
        /// without an address (of a unix socket) counts as 255.255.255.255.
        "geo": [HTTP] 1..=2 => LINES, syntax "[$address] $variable";
    }
}

/// `geo`.
pub const BLOCK: VariableBlock = VariableBlock { name: "geo", read };

/// A `geo` block.
#[derive(Debug)]
struct Geo {
    /// The variable that holds the address; none: the client's own.
    address: Option<VariableIndex>,
    /// The proxies whose `X-Forwarded-For` is used.
    proxies: Vec<Placed<Trusted>>,
    /// Whether the last address of it that is not a proxy's is used.
    is_recursive: bool,
    /// Whether the value is looked up anew each time.
    is_volatile: bool,
    v4: Spans<u32>,
    v6: Spans<u128>,
    /// IPv6 has no values of its own (`ranges`).
    has_ranges: bool,
    values: Vec<Bytes>,
    default: Bytes,
}

fn read(block: &Directive, scope: &mut Scope) -> Result<Definition, Error> {
    let mut target = |at: usize| {
        let index = target_of(&block.args[at], scope);
        index.map_err(|problem| block.error(&problem.at(at)))
    };
    let (address, target) = match &block.args[..] {
        [address, _] => {
            let target = target(1)?;
            let name = name_of(address).map_err(|problem| block.error(&problem.at(0)))?;
            let index = scope.intern(name, Some(&address.place()));
            let index = index.map_err(|problem| block.error(&problem))?;
            (Some(index), target)
        }
        _ => (None, target(0)?),
    };
    Ok((target, Arc::new(Geo::read(block, address, scope)?)))
}

impl Geo {
    /// Reads the lines of a block; `address` is the variable that holds the address.
    fn read(
        block: &Directive,
        address: Option<VariableIndex>,
        scope: &mut Scope,
    ) -> Result<Self, Error> {
        let mut reading = GeoBuilder::default();
        for line in block.children() {
            reading
                .line(line, scope)
                .map_err(|problem| line.error(&problem))?;
        }
        Ok(reading.finish(address))
    }

    /// The value of an address; `None`: there is none.
    fn find(&self, address: Option<IpAddr>) -> Bytes {
        let place = match address.map(|address| address.to_canonical()) {
            Some(IpAddr::V4(address)) => self.v4.find(address.to_bits()),
            Some(IpAddr::V6(address)) if !self.has_ranges => self.v6.find(address.to_bits()),
            Some(IpAddr::V6(_)) | None => self.v4.find(NOWHERE),
        };
        let value = place.and_then(|place| self.values.get(place as usize));
        value.unwrap_or(&self.default).clone()
    }
}

impl Defined for Geo {
    fn value(&self, request: &Request) -> Option<Bytes> {
        let own = match self.address {
            None => request.client.peer,
            Some(variable) => {
                let mut text = Vec::new();
                request.append_variable(variable, &mut text);
                match parse_ip(&text) {
                    Some(address) => Some(SocketAddr::new(address, 0)),
                    None => return Some(self.find(None)),
                }
            }
        };
        let named = || {
            let head = &request.head;
            let lines: SmallVec<[&[u8]; 4]> = head.get_each(HeaderId::XForwardedFor).collect();
            trusted_proxies::find(own, &lines, &self.proxies, self.is_recursive)
        };
        Some(self.find(named().or(own).map(|address| address.ip())))
    }

    fn sources(&self) -> &[VariableIndex] {
        self.address.as_slice()
    }

    fn is_volatile(&self) -> bool {
        self.is_volatile
    }
}

/// Networks of one family, by address and length of the prefix: each network stands before those inside it.
type Networks<A> = BTreeMap<(A, u8), u32>;

/// A block while it is read.
#[derive(Default)]
struct GeoBuilder {
    has_ranges: bool,
    has_networks: bool,
    ranges: Ranges,
    v4: Networks<u32>,
    v6: Networks<u128>,
    values: Vec<Bytes>,
    places: HashMap<Bytes, u32>,
    default: Option<Bytes>,
    proxies: Vec<Placed<Trusted>>,
    is_recursive: bool,
    is_volatile: bool,
}

impl GeoBuilder {
    fn line(&mut self, line: &Directive, scope: &mut Scope) -> Result<(), Problem> {
        match (&line.name.bytes()[..], &line.args[..]) {
            (b"ranges", []) if self.has_networks => Err(Problem::new(
                "the \"ranges\" directive must be the first directive inside \"geo\" block",
            )),
            (b"ranges", []) => {
                self.has_ranges = true;
                Ok(())
            }
            (b"proxy_recursive", []) => {
                self.is_recursive = true;
                Ok(())
            }
            (b"volatile", []) => {
                self.is_volatile = true;
                Ok(())
            }
            (b"proxy", [word]) => self.proxy(word, scope),
            (_, [value]) if self.has_ranges => self.range(line, value, scope),
            (_, [value]) => self.network(line, value, scope),
            _ => Err(Problem::new("invalid number of the geo parameters")),
        }
    }

    fn proxy(&mut self, word: &Word, scope: &mut Scope) -> Result<(), Problem> {
        if self.proxies.len() == PROXIES_MAX {
            let sentence = format!("more than {PROXIES_MAX} lines \"proxy\" in \"geo\"");
            return Err(Problem::new(sentence));
        }
        let net = network(word, scope)?;
        self.proxies.push(Placed {
            value: Trusted::Net(net),
            place: Some(word.place()),
        });
        Ok(())
    }

    fn range(&mut self, line: &Directive, word: &Word, scope: &mut Scope) -> Result<(), Problem> {
        if line.name == "default" {
            let old = self.default.replace(word.bytes().clone());
            if let Some(old) = old {
                scope.warn(line.error(&Problem::new(format!(
                    "duplicate default geo range value: \"{}\", old value: \"{}\"",
                    word.display(),
                    String::from_utf8_lossy(&old)
                ))));
            }
            return Ok(());
        }
        let is_deleted = line.name == "delete";
        let net = if is_deleted { word } else { &line.name };
        let text = net.display();
        let invalid = || Problem::new(format!("invalid range \"{text}\""));
        let (first, last) = text.split_once('-').ok_or_else(invalid)?;
        let bits = |text: &str| {
            let address = parse_ipv4(text.as_bytes());
            address.map(Ipv4Addr::to_bits).ok_or_else(invalid)
        };
        let (first, last) = (bits(first)?, bits(last)?);
        if first > last {
            return Err(invalid());
        }
        if is_deleted {
            if !self.ranges.delete(first, last) {
                let sentence = format!("no address range \"{text}\" to delete");
                scope.warn(line.error(&Problem::new(sentence)));
            }
            return Ok(());
        }
        let value = self.place_of(word)?;
        let replaced = self.ranges.add(first, last, value).map_err(|other| {
            let [first, last] = [other.0, other.1].map(Ipv4Addr::from_bits);
            Problem::new(format!("range \"{text}\" overlaps \"{first}-{last}\""))
        })?;
        for old in replaced {
            scope.warn(line.error(&Problem::new(format!(
                "duplicate range \"{text}\", value: \"{}\", old value: \"{}\"",
                word.display(),
                String::from_utf8_lossy(&self.values[old as usize])
            ))));
        }
        Ok(())
    }

    fn network(&mut self, line: &Directive, word: &Word, scope: &mut Scope) -> Result<(), Problem> {
        self.has_networks = true;
        if line.name == "default" {
            let value = self.place_of(word)?;
            let old = [self.v4.insert((0, 0), value), self.v6.insert((0, 0), value)];
            for old in old.into_iter().flatten() {
                self.warn_of_duplicate(line, word, old, scope);
            }
            return Ok(());
        }
        let is_deleted = line.name == "delete";
        let net = network(if is_deleted { word } else { &line.name }, scope)?;
        if is_deleted {
            let known = match net {
                IpNet::V4(net) => self.v4.remove(&(net.addr().to_bits(), net.prefix_len())),
                IpNet::V6(net) => self.v6.remove(&(net.addr().to_bits(), net.prefix_len())),
            };
            if known.is_none() {
                let sentence = format!("no network \"{}\" to delete", word.display());
                scope.warn(line.error(&Problem::new(sentence)));
            }
            return Ok(());
        }
        let value = self.place_of(word)?;
        let old = match net {
            IpNet::V4(net) => self
                .v4
                .insert((net.addr().to_bits(), net.prefix_len()), value),
            IpNet::V6(net) => self
                .v6
                .insert((net.addr().to_bits(), net.prefix_len()), value),
        };
        if let Some(old) = old {
            self.warn_of_duplicate(line, word, old, scope);
        }
        Ok(())
    }

    fn warn_of_duplicate(&self, line: &Directive, value: &Word, old: u32, scope: &mut Scope) {
        scope.warn(line.error(&Problem::new(format!(
            "duplicate network \"{}\", value: \"{}\", old value: \"{}\"",
            line.name.display(),
            value.display(),
            String::from_utf8_lossy(&self.values[old as usize])
        ))));
    }

    /// The place of a value, which stands once.
    fn place_of(&mut self, word: &Word) -> Result<u32, Problem> {
        let value = word.bytes();
        if let Some(place) = self.places.get(value) {
            return Ok(*place);
        }
        let place = u32::try_from(self.values.len())
            .map_err(|_| Problem::new("too many values in \"geo\""))?;
        self.values.push(value.clone());
        self.places.insert(value.clone(), place);
        Ok(place)
    }

    fn finish(self, address: Option<VariableIndex>) -> Geo {
        let v4 = match self.has_ranges {
            true => self.ranges.finish(),
            false => Spans::of_networks(self.v4),
        };
        Geo {
            address,
            proxies: self.proxies,
            is_recursive: self.is_recursive,
            is_volatile: self.is_volatile,
            v4,
            v6: Spans::of_networks(self.v6),
            has_ranges: self.has_ranges,
            values: self.values,
            default: self.default.unwrap_or_default(),
        }
    }
}

fn network(word: &Word, scope: &mut Scope) -> Result<IpNet, Problem> {
    // An address here alone, as in nginx.
    if *word == "255.255.255.255" {
        return Ok(IpAddr::from(Ipv4Addr::BROADCAST).into());
    }
    let invalid = || Problem::new(format!("invalid network \"{}\"", word.display()));
    trusted_proxies::network(word, scope).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Result<Geo, String>, Vec<String>) {
        let tree = config::parse_bytes(format!("geo $a {{ {text} }}").as_bytes()).expect("parses");
        let mut scope = Scope::new();
        let geo = Geo::read(&tree.directives[0], None, &mut scope);
        let warnings = scope.take_warnings();
        let sentences = warnings.iter().map(|warning| warning.sentence().to_owned());
        (
            geo.map_err(|error| error.sentence().to_owned()),
            sentences.collect(),
        )
    }

    fn find(geo: &Geo, address: &str) -> String {
        let value = geo.find(parse_ip(address.as_bytes()));
        String::from_utf8_lossy(&value).into_owned()
    }

    fn check(text: &str, expected: &[(&str, &str)]) {
        let (geo, _) = read(text);
        let geo = geo.expect("it is right");
        for (address, value) in expected {
            assert_eq!(find(&geo, address), *value, "{address} in {text}");
        }
    }

    #[test]
    fn the_narrowest_network_counts() {
        check(
            "10.0.0.0/8 ten; 10.1.0.0/16 narrower; 10.1.2.3 one; 10.1.255.0/24 last; 2001:db8::/32 six;
             2001:db8:1::/48 narrower; 127.0.0.0/8 gone; delete 127.0.0.0/8; default other; 255.255.255.255 none;",
            &[
                ("10.0.0.0", "ten"),
                ("10.255.255.255", "ten"),
                ("10.1.0.0", "narrower"),
                ("10.1.2.2", "narrower"),
                ("10.1.2.3", "one"),
                ("10.1.2.4", "narrower"),
                ("10.1.255.255", "last"),
                ("10.2.0.0", "ten"),
                ("9.255.255.255", "other"),
                ("11.0.0.0", "other"),
                ("0.0.0.0", "other"),
                ("255.255.255.254", "other"),
                ("127.0.0.1", "other"),
                ("2001:db8::1", "six"),
                ("2001:db8:1::1", "narrower"),
                ("2001:db9::1", "other"),
                ("::", "other"),
                ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "other"),
                ("::ffff:10.1.2.3", "one"),
                ("nowhere", "none"),
                ("255.255.255.255", "none"),
            ],
        );
        check(
            "10.0.0.0/8 ten;",
            &[("10.0.0.1", "ten"), ("1.1.1.1", ""), ("::1", ""), ("", "")],
        );
        check(
            "0.0.0.0/0 world; ::/0 six;",
            &[("1.1.1.1", "world"), ("::1", "six"), ("", "world")],
        );
    }

    #[test]
    fn ranges_are_put_in_split_and_deleted() {
        check(
            "ranges; default other; 127.0.0.0-127.0.0.255 all; 127.0.0.1-127.0.0.2 two; 127.0.0.1-127.0.0.1 one;
             10.10.3.0-10.11.2.255 gone; 10.12.3.0-10.13.2.255 wide; delete 10.10.3.0-10.11.2.255;
             192.0.2.4-192.0.2.7 second; 192.0.2.0-192.0.2.3 first;",
            &[
                ("127.0.0.0", "all"),
                ("127.0.0.1", "one"),
                ("127.0.0.2", "two"),
                ("127.0.0.3", "all"),
                ("127.0.1.0", "other"),
                ("10.10.3.0", "other"),
                ("10.11.2.255", "other"),
                ("10.12.2.255", "other"),
                ("10.12.3.0", "wide"),
                ("10.13.2.255", "wide"),
                ("10.13.3.0", "other"),
                ("192.0.2.3", "first"),
                ("192.0.2.4", "second"),
                ("::1", "other"),
                ("", "other"),
            ],
        );
    }

    #[test]
    fn wrong_lines_are_refused_with_nginx_s_words() {
        for (text, sentence) in [
            ("a b c;", "invalid number of the geo parameters"),
            ("ranges;ranges 1;", "invalid range \"ranges\""),
            ("10.0.0.0/33 a;", "invalid network \"10.0.0.0/33\""),
            ("proxy unix:;", "invalid network \"unix:\""),
            ("ranges; 10.0.0.1 a;", "invalid range \"10.0.0.1\""),
            (
                "ranges; 10.0.0.2-10.0.0.1 a;",
                "invalid range \"10.0.0.2-10.0.0.1\"",
            ),
            (
                "ranges; 10.0.0.2-255.255.255.255 a;",
                "invalid range \"10.0.0.2-255.255.255.255\"",
            ),
            (
                "ranges; 10.0.0.0-10.0.0.9 a; 10.0.0.5-10.0.0.20 b;",
                "range \"10.0.0.5-10.0.0.20\" overlaps \"10.0.0.0-10.0.0.9\"",
            ),
            (
                "default a; ranges;",
                "the \"ranges\" directive must be the first directive inside \"geo\" block",
            ),
        ] {
            assert_eq!(read(text).0.map(drop).unwrap_err(), sentence, "{text}");
        }
        for (text, sentence) in [
            (
                "10.0.0.0/8 a; 10.0.0.0/8 b;",
                "duplicate network \"10.0.0.0/8\", value: \"b\", old value: \"a\"",
            ),
            (
                "10.0.0.1/8 a;",
                "low address bits of 10.0.0.1/8 are meaningless",
            ),
            ("delete 10.0.0.0/8;", "no network \"10.0.0.0/8\" to delete"),
            (
                "ranges; default a; default b;",
                "duplicate default geo range value: \"b\", old value: \"a\"",
            ),
            (
                "ranges; delete 1.0.0.0-1.0.0.1;",
                "no address range \"1.0.0.0-1.0.0.1\" to delete",
            ),
            (
                "ranges; 1.0.0.0-1.0.0.1 a; 1.0.0.0-1.0.0.1 b;",
                "duplicate range \"1.0.0.0-1.0.0.1\", value: \"b\", old value: \"a\"",
            ),
        ] {
            let (geo, warnings) = read(text);
            assert!(geo.is_ok(), "{text}");
            assert_eq!(warnings, [sentence], "{text}");
        }
    }
}
