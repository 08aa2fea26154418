//! `resolver` and `resolver_timeout`: the name servers to ask, and the time to wait for them.
//!
//! Not here: asking them. Invariant: parsing resolves nothing; the names of name servers themselves are looked up by
//! [`ResolverLine::settle`] while the configuration is built.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use config::{Msec, Placed, Problem, Scope, Value, Word, directives, parse_sec};
use runtime::listen::Address;

use super::address::ServerAddress;
use super::cache::{Resolver, ResolverRules};

/// The port of a name server that names none.
const DEFAULT_PORT: u16 = 53;
/// Name servers of one line.
const SERVERS_MAX: usize = 64;

directives! {
    /// Name resolution.
    pub struct Resolving in Location {
        /// Sets the name servers that resolve names of upstream servers. They are queried in turn; an answer is cached
        /// for its TTL, or for `valid`.
        resolver: Option<Placed<ResolverLine>> = none, [HTTP | SERVER | LOCATION] 1..;
        /// Limits the time to resolve a name.
        resolver_timeout: Msec = "30s", [HTTP | SERVER | LOCATION] 1;
    }
}

impl Resolving {
    /// The resolver, if there is one.
    #[must_use]
    pub fn get(&self) -> Option<&Arc<Resolver>> {
        self.resolver.as_ref()?.value.get()
    }
}

/// A `resolver` line. Levels that inherit it share the resolver and what it knows.
#[derive(Clone, Debug)]
pub struct ResolverLine(Arc<ResolverArguments>);

#[derive(Debug)]
struct ResolverArguments {
    servers: Vec<(String, ServerAddress)>,
    valid_s: Option<i64>,
    ipv4: bool,
    ipv6: bool,
    made: OnceLock<Arc<Resolver>>,
}

impl ResolverLine {
    /// Looks up the name servers' own names, and makes the resolver. Not on a loop.
    ///
    /// # Errors
    /// nginx's sentence: a name server that is not found.
    pub fn settle(&self, resolve: &mut dyn FnMut(&str) -> Vec<IpAddr>) -> Result<(), String> {
        if self.0.made.get().is_some() {
            return Ok(());
        }
        let mut servers: Vec<SocketAddr> = Vec::new();
        for (text, address) in &self.0.servers {
            let found = address
                .addresses(resolve)
                .map_err(|reason| format!("{reason} in resolver \"{text}\""))?;
            servers.extend(found.iter().filter_map(Address::inet));
        }
        servers.truncate(SERVERS_MAX);
        let resolver = Resolver::new(ResolverRules {
            servers,
            valid_s: self.0.valid_s,
            ipv4: self.0.ipv4,
            ipv6: self.0.ipv6,
        });
        let _ = self.0.made.set(resolver); // made before
        Ok(())
    }

    /// The resolver, once [`ResolverLine::settle`] has been called.
    #[must_use]
    pub fn get(&self) -> Option<&Arc<Resolver>> {
        self.0.made.get()
    }
}

impl Value for ResolverLine {
    const SYNTAX: &'static str = "address ... [valid=time] [ipv4=on|off] [ipv6=on|off]";

    fn parse(args: &[Word], _: &mut Scope) -> Result<Self, Problem> {
        let mut line = ResolverArguments {
            servers: Vec::new(),
            valid_s: None,
            ipv4: true,
            ipv6: true,
            made: OnceLock::new(),
        };
        for (number, word) in args.iter().enumerate() {
            line.word(word).map_err(|problem| problem.at(number))?;
        }
        if !line.ipv4 && !line.ipv6 {
            return Err(Problem::new("\"ipv4\" and \"ipv6\" cannot both be \"off\""));
        }
        if line.servers.is_empty() {
            return Err(Problem::new("no name servers defined"));
        }
        Ok(ResolverLine(Arc::new(line)))
    }
}

impl ResolverArguments {
    fn word(&mut self, word: &Word) -> Result<(), Problem> {
        let text = word.display();
        let invalid = || Problem::new(format!("invalid parameter: {text}"));
        if let Some(time) = text.strip_prefix("valid=") {
            let seconds = parse_sec(time.as_bytes()).ok_or_else(invalid)?;
            // nginx takes 0 as if it were not written.
            self.valid_s = i64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
        } else if let Some(flag) = text.strip_prefix("ipv4=") {
            self.ipv4 = on_or_off(flag).ok_or_else(invalid)?;
        } else if let Some(flag) = text.strip_prefix("ipv6=") {
            self.ipv6 = on_or_off(flag).ok_or_else(invalid)?;
        } else if text.starts_with("status_zone=") {
            return Err(Problem::new(format!("parameter \"{text}\" is not built")));
        } else {
            let refuse = |reason| Problem::new(format!("{reason} in resolver \"{text}\""));
            let address = ServerAddress::parse(&text, DEFAULT_PORT).map_err(refuse)?;
            if let ServerAddress::Known(Address::Unix(_)) = address {
                return Err(refuse("unix sockets cannot be name servers"));
            }
            if self.servers.len() == SERVERS_MAX {
                return Err(refuse("too many name servers"));
            }
            self.servers.push((text.into_owned(), address));
        }
        Ok(())
    }
}

fn on_or_off(flag: &str) -> Option<bool> {
    match flag {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}
