//! The `upstream` block: its table of directives, and how it is read.
//!
//! Not here: the group that is made of it ([`super::Upstreams`]). Invariant: lines are read in their order, since a
//! balancing method applies to the `server` lines behind it, as in nginx.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::OnceLock;

use config::{
    Directive, DirectiveTable, Error, Msec, Number, Placed, Problem, Scope, Section, Template,
    Value, Word, blocks, directives, parse_size,
};

use super::balancing::{BalancingMethod, LeastTime, Peer, RING_WEIGHT_MAX};
use super::keepalive::KeepaliveLimits;
use super::resolved_peers::LookedUp;
use super::server::ServerLine;
use super::sticky::Sticky;
use super::upstreams::{Declaration, Lookups, UPSTREAMS_MAX, Upstream};
use crate::resolver::directives::ResolverLine;

/// Maximum of peers of an upstream.
pub(crate) const PEERS_MAX: usize = 65_536;
/// Minimum size of a `zone`: 8 pages.
const ZONE_BYTES_MIN: u64 = 8 * 4096;

blocks! {
    /// Upstream groups.
    pub fn upstream in Upstream {
        /// Defines a group of servers under a name, which `proxy_pass` and similar directives use as a host.
        "upstream": [HTTP] 1 => UPSTREAM, syntax "name";
        /// Defines a server of the group. A name that has several addresses defines several servers.
        "server": [UPSTREAM] 1.., syntax "address [weight=number] [max_conns=number] [max_fails=number] [fail_timeout=time] [backup] [down] [drain] [route=string] [resolve] [service=name]";
        /// Keeps the state of the group's servers in shared memory. It always is shared here, since loops are threads;
        /// no memory is set aside, and the size only has to be one that nginx accepts.
        "zone": [UPSTREAM] 1..=2, syntax "name [size]";
        /// Chooses the server with the fewest connections relative to its weight.
        "least_conn": [UPSTREAM] 0;
        /// Chooses the server with the lowest response time and the fewest connections relative to its weight.
        "least_time": [UPSTREAM] 1..=2, syntax "header | last_byte [inflight]";
        /// Chooses by the client's address: the first three octets of an IPv4 address, the whole of an IPv6 address.
        "ip_hash": [UPSTREAM] 0;
        /// Chooses by a hash of a value; with `consistent`, few values move to another server when a server is added or
        /// removed.
        "hash": [UPSTREAM] 1..=2, syntax "key [consistent]";
        /// Chooses at random, by weight; with `two`, the one of two random servers with fewer connections.
        "random": [UPSTREAM] 0..=2, syntax "[two [least_conn]]";
        /// Sends the requests of one session to the same server: by a cookie that is set, by a variable that contains
        /// the server's `route`, or by a value learned from responses. Comes after the balancing method.
        "sticky": [UPSTREAM] 2.., syntax "cookie name [domain=string] [path=string] [expires=time] [httponly] [secure] [samesite=strict|lax|none] | route $variable ... | learn create=$variable ... lookup=$variable ... zone=name:size [timeout=time] [header]";
    }
}

directives! {
    /// Keep-alive connections to upstream servers.
    pub(crate) struct KeptConnections in Upstream {
        /// Sets how many idle connections to the group's servers each loop keeps; 0 keeps none. Without the directive,
        /// and with `local`, a connection is reused only by the location that opened it.
        keepalive: KeptCount = "32 local", [UPSTREAM] 1..=2;
        /// Limits the number of requests on one connection.
        keepalive_requests: Number = "1000", [UPSTREAM] 1;
        /// Limits the age of a connection.
        keepalive_time: Msec = "1h", [UPSTREAM] 1;
        /// Limits how long a connection may be idle.
        keepalive_timeout: Msec = "60s", [UPSTREAM] 1;
        /// Limits the number of requests at a time on a connection of HTTP/2; 1: as in nginx, a connection for each
        /// request in progress. A server's own limit (SETTINGS_MAX_CONCURRENT_STREAMS) holds, too. A directive of
        /// Freewheel.
        keepalive_streams: Number = "128", [UPSTREAM] 1;
    }
}

directives! {
    /// Re-resolution of server names.
    pub(crate) struct ServerResolving in Upstream {
        /// Sets the name servers that resolve the group's servers with `resolve`, in place of those of `http`.
        resolver: Option<Placed<ResolverLine>> = none, [UPSTREAM] 1..;
        /// Limits the time to resolve a name; after that the query is repeated.
        resolver_timeout: Option<Msec> = none, [UPSTREAM] 1;
    }
}

/// The arguments of `keepalive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptCount {
    /// Maximum of idle connections.
    pub count: u64,
    /// Whether they are only for the location that opened them.
    pub is_local: bool,
}

impl Value for KeptCount {
    const SYNTAX: &'static str = "connections [local]";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let (first, rest) = args.split_first().expect("the table asks for one or two");
        let Number(count) = Number::parse(std::slice::from_ref(first), scope)
            .map_err(|_| Problem::invalid_value(first.bytes(), "").at(0))?;
        match rest {
            [word] if *word != "local" => Err(invalid_parameter(word, 1)),
            rest => Ok(KeptCount {
                count,
                is_local: !rest.is_empty(),
            }),
        }
    }
}

impl From<&KeptConnections> for KeepaliveLimits {
    fn from(written: &KeptConnections) -> KeepaliveLimits {
        KeepaliveLimits {
            count: usize::try_from(written.keepalive.count).unwrap_or(usize::MAX),
            is_local: written.keepalive.is_local,
            requests: written.keepalive_requests.0,
            time_ms: written.keepalive_time.0,
            timeout_ms: written.keepalive_timeout.0,
            streams: usize::try_from(written.keepalive_streams.0).unwrap_or(usize::MAX),
        }
    }
}

/// All `upstream` blocks of a configuration, while they are read.
#[derive(Debug, Default)]
pub struct UpstreamBlocks {
    list: Vec<Upstream>,
    /// Name and size of each `zone`; 0 where no line gives a size.
    zones: HashMap<Vec<u8>, u64>,
    /// The upstream of each zone of sessions.
    sticky_zones: HashMap<Vec<u8>, String>,
}

/// The tables of an `upstream` block and of what stands in it.
#[must_use]
pub fn tables() -> Vec<&'static DirectiveTable> {
    let mut tables = vec![upstream()];
    tables.extend(KeptConnections::tables());
    tables.extend(ServerResolving::tables());
    tables
}

impl UpstreamBlocks {
    /// Reads a block. Names of servers are looked up by `resolve`, so not on a loop.
    ///
    /// # Errors
    /// The first error, in nginx's words, at its place.
    pub fn read(
        &mut self,
        block: &Directive,
        scope: &mut Scope,
        resolve: &mut dyn FnMut(&str) -> Vec<IpAddr>,
    ) -> Result<(), Error> {
        let name = block.args[0].display().into_owned();
        if self.get(block.args[0].bytes()).is_some() {
            let sentence = format!("duplicate upstream \"{name}\"");
            return Err(block.error(&Problem::new(sentence).at(0)));
        }
        if self.list.len() == UPSTREAMS_MAX {
            let sentence = format!("more than {UPSTREAMS_MAX} upstreams");
            return Err(block.error(&Problem::new(sentence)));
        }
        let mut reader = BlockReader::default();
        for line in block.children() {
            match &line.name.bytes()[..] {
                b"server" => reader.server(line, resolve)?,
                b"zone" => {
                    self.zone(line, scope)?;
                    reader.has_zone = true;
                }
                b"sticky" => {
                    let sticky = reader.sticky(line, scope)?;
                    self.sticky_zone(sticky, &name, line, scope)?;
                }
                _ if KeptConnections::set(&mut reader.kept, line, scope)? => {}
                _ if ServerResolving::set(&mut reader.names, line, scope)? => {}
                _ => reader.method(line, scope)?,
            }
        }
        self.list.push(reader.finish(block, scope)?);
        Ok(())
    }

    /// The block of this name, case-insensitive.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&Upstream> {
        let mut all = self.list.iter();
        all.find(|upstream| upstream.declared().name.eq_ignore_ascii_case(name))
    }

    /// Checks that are due after all blocks were read.
    ///
    /// # Errors
    /// A zone for which no line gives the size.
    pub fn finish(self) -> Result<Vec<Upstream>, Error> {
        let mut unsized_zones = self.zones.iter().filter(|(_, size)| **size == 0);
        if let Some((name, _)) = unsized_zones.next() {
            let name = String::from_utf8_lossy(name);
            let sentence = format!("zero size shared memory zone \"{name}\"");
            return Err(Error::without_place(sentence));
        }
        Ok(self.list)
    }

    /// A zone of sessions belongs to one upstream.
    fn sticky_zone(
        &mut self,
        sticky: &Sticky,
        upstream: &str,
        line: &Directive,
        scope: &mut Scope,
    ) -> Result<(), Error> {
        let Some((zone, bytes)) = sticky.zone() else {
            return Ok(());
        };
        let named = scope.name_zone(zone, bytes, "sticky");
        named.map_err(|problem| line.error(&problem))?;
        if let Some(other) = self.sticky_zones.get(zone) {
            let name = String::from_utf8_lossy(zone);
            let sentence =
                format!("sticky zone \"{name}\" is already used in upstream \"{other}\"");
            return Err(line.error(&Problem::new(sentence)));
        }
        self.sticky_zones.insert(zone.to_vec(), upstream.to_owned());
        Ok(())
    }

    fn zone(&mut self, line: &Directive, scope: &mut Scope) -> Result<(), Error> {
        let name = &line.args[0];
        let refuse = |sentence: String, word| Err(line.error(&Problem::new(sentence).at(word)));
        if name.bytes().is_empty() {
            return refuse("invalid zone name \"\"".to_owned(), 0);
        }
        let size = match line.args.get(1) {
            None => 0,
            Some(word) => match parse_size(word.bytes()) {
                None => return refuse(format!("invalid zone size \"{}\"", word.display()), 1),
                Some(size) if size < ZONE_BYTES_MIN => {
                    return refuse(format!("zone \"{}\" is too small", name.display()), 1);
                }
                Some(size) => size,
            },
        };
        let named = scope.name_zone(name.bytes(), size, "zone");
        named.map_err(|problem| line.error(&problem.at(0)))?;
        let known = self.zones.entry(name.bytes().to_vec()).or_insert(size);
        *known = size.max(*known);
        Ok(())
    }
}

/// A block that is being read.
#[derive(Default)]
struct BlockReader {
    method: Option<BalancingMethod>,
    has_least_time: bool,
    key: Option<Template>,
    sticky: Option<Sticky>,
    /// A method that follows `sticky` replaces it.
    is_sticky_lost: bool,
    kept: <KeptConnections as Section>::Raw,
    names: <ServerResolving as Section>::Raw,
    has_server: bool,
    has_zone: bool,
    primary: Vec<Peer>,
    backup: Vec<Peer>,
    /// Servers with `resolve`.
    looked_up: Vec<LookedUp>,
}

impl BlockReader {
    fn server(
        &mut self,
        line: &Directive,
        resolve: &mut dyn FnMut(&str) -> Vec<IpAddr>,
    ) -> Result<(), Error> {
        let method = self.method.as_ref().unwrap_or(&BalancingMethod::RoundRobin);
        let allows_backup = matches!(
            method,
            BalancingMethod::RoundRobin
                | BalancingMethod::LeastConn
                | BalancingMethod::LeastTime(_)
        );
        let server = ServerLine::read(line, allows_backup)?;
        if let Some(lookup) = server.lookup() {
            self.has_server = true;
            self.looked_up.push(LookedUp {
                line: server,
                lookup,
                allows_backup,
            });
            return self.check_count(line);
        }
        let peers = server
            .peers(resolve)
            .map_err(|problem| line.error(&problem))?;
        self.has_server = true;
        if server.is_backup {
            self.backup.extend(peers);
        } else {
            self.primary.extend(peers);
        }
        self.check_count(line)
    }

    fn check_count(&self, line: &Directive) -> Result<(), Error> {
        if self.primary.len() + self.backup.len() + self.looked_up.len() > PEERS_MAX {
            let sentence = format!("more than {PEERS_MAX} servers in an upstream");
            return Err(line.error(&Problem::new(sentence)));
        }
        Ok(())
    }

    fn sticky(&mut self, line: &Directive, scope: &mut Scope) -> Result<&Sticky, Error> {
        if self.sticky.is_some() {
            return Err(line.error(&Problem::duplicate()));
        }
        Ok(self.sticky.insert(Sticky::read(line, scope)?))
    }

    fn method(&mut self, line: &Directive, scope: &mut Scope) -> Result<(), Error> {
        if self.method.is_some() || self.sticky.is_some() {
            scope.warn(line.error(&Problem::new("load balancing method redefined")));
        }
        self.is_sticky_lost |= self.sticky.is_some();
        let method = match &line.name.bytes()[..] {
            b"least_conn" => Ok(BalancingMethod::LeastConn),
            b"ip_hash" => Ok(BalancingMethod::IpHash),
            b"least_time" => least_time(
                &line.args,
                std::mem::replace(&mut self.has_least_time, true),
            ),
            b"random" => random(&line.args),
            _ => Template::of_word(&line.args[0], scope).and_then(|key| {
                self.key = Some(key);
                hash(&line.args)
            }),
        };
        self.method = Some(method.map_err(|problem| line.error(&problem))?);
        Ok(())
    }

    fn finish(self, block: &Directive, scope: &mut Scope) -> Result<Upstream, Error> {
        let name = block.args[0].display();
        if !self.has_server {
            return Err(block.error(&Problem::new("no servers are inside upstream")));
        }
        let mut looked_up = self.looked_up.iter();
        if !self.looked_up.is_empty() && !self.has_zone {
            let sentence = format!(
                "resolving names at run time requires upstream \"{name}\" to be in shared memory"
            );
            let problem = Problem::new(sentence).hint_that("a \"zone\" line is missing");
            return Err(block.error(&problem));
        }
        if self.primary.is_empty() && looked_up.all(|server| server.line.is_backup) {
            let problem = Problem::new(format!("no servers in upstream \"{name}\""));
            return Err(block.error(&problem.hint_that("all of them are backup servers")));
        }
        let method = self.method.unwrap_or_default();
        let fixed = self.primary.iter().map(|peer| peer.weight);
        let of_names = self.looked_up.iter().map(|server| server.line.weight_of(1));
        let total: u64 = fixed.chain(of_names).map(u64::from).sum();
        if method == BalancingMethod::Consistent && total > RING_WEIGHT_MAX {
            let sentence = format!(
                "weights of upstream \"{name}\" add up to more than {RING_WEIGHT_MAX}, with \"hash ... consistent\""
            );
            return Err(block.error(&Problem::new(sentence)));
        }
        let names = ServerResolving::finish(self.names, scope)?;
        let uses_key = matches!(method, BalancingMethod::Hash | BalancingMethod::Consistent);
        Ok(Upstream::new(Declaration {
            name: block.args[0].bytes().clone(),
            port: None,
            key: self.key.filter(|_| uses_key),
            method,
            kept: KeepaliveLimits::from(&KeptConnections::finish(self.kept, scope)?),
            primary: self.primary,
            backup: self.backup,
        })
        .with_lookups(Lookups {
            servers: self.looked_up,
            resolver: names.resolver,
            timeout: names.resolver_timeout,
            place: block.place(),
            watching: OnceLock::new(),
        })
        .with_sticky(self.sticky.filter(|_| !self.is_sticky_lost)))
    }
}

fn invalid_parameter(word: &Word, number: usize) -> Problem {
    Problem::new(format!("invalid parameter \"{}\"", word.display())).at(number)
}

fn least_time(args: &[Word], is_repeated: bool) -> Result<BalancingMethod, Problem> {
    let counts_inflight = match args.get(1) {
        None => false,
        Some(word) if *word == "inflight" => true,
        Some(word) => return Err(invalid_parameter(word, 1)),
    };
    if is_repeated {
        return Err(Problem::duplicate());
    }
    let to_last_byte = match &args[0].bytes()[..] {
        b"header" => false,
        b"last_byte" => true,
        _ => {
            let sentence = format!("invalid value \"{}\"", args[0].display());
            return Err(Problem::new(sentence).at(0));
        }
    };
    Ok(BalancingMethod::LeastTime(LeastTime {
        to_last_byte,
        counts_inflight,
    }))
}

fn random(args: &[Word]) -> Result<BalancingMethod, Problem> {
    match args {
        [] => Ok(BalancingMethod::Random),
        [two, ..] if *two != "two" => Err(invalid_parameter(two, 0)),
        [_, by, ..] if *by != "least_conn" => Err(invalid_parameter(by, 1)),
        _ => Ok(BalancingMethod::RandomTwo),
    }
}

fn hash(args: &[Word]) -> Result<BalancingMethod, Problem> {
    match args {
        [_, word] if *word != "consistent" => Err(invalid_parameter(word, 1)),
        [_, _] => Ok(BalancingMethod::Consistent),
        _ => Ok(BalancingMethod::Hash),
    }
}
