//! A `server` line of an upstream: its address and its parameters.
//!
//! Not here: looking up its name. Invariant: every parameter that is accepted has its effect.

use std::net::IpAddr;

use config::{Directive, Error, Problem, Word, parse_sec};
use runtime::listen::Address;

use super::balancing::{Peer, Standing};
use crate::resolver::address::{ServerAddress, split_port};

/// Maximum `weight`.
pub(crate) const WEIGHT_MAX: u32 = 1_000_000;
/// Maximum size of a `route` in bytes.
const ROUTE_MAX: usize = 32;
/// The port of a server without one.
const DEFAULT_PORT: u16 = 80;

/// A `server` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerLine {
    /// The address as configured.
    pub name: Box<[u8]>,
    address: ServerAddress,
    weight: u32,
    max_conns: u32,
    max_fails: u32,
    fail_timeout: i64,
    standing: Standing,
    /// `backup`.
    pub is_backup: bool,
    /// `route`: its identifier for sticky sessions.
    route: Option<Box<[u8]>>,
    /// `resolve`: its name is resolved again and again.
    is_resolved: bool,
    /// `service`: the name is one of a service, not of a host.
    service: Option<Box<str>>,
}

/// The name that a [`ServerLine`] with `resolve` looks up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lookup {
    /// The host, or the domain of the service.
    pub host: String,
    /// The service.
    pub service: Option<Box<str>>,
    /// The port of a host.
    pub port: u16,
}

impl ServerLine {
    /// Reads a line; `allows_backup`: the method that stands before it does.
    ///
    /// # Errors
    /// The first error, in nginx's words.
    pub(crate) fn read(line: &Directive, allows_backup: bool) -> Result<ServerLine, Error> {
        let (name, parameters) = line
            .args
            .split_first()
            .expect("the table asks for one or more");
        let mut server = ServerLine {
            name: name.bytes()[..].into(),
            address: ServerAddress::Name(String::new(), 0),
            weight: 1,
            max_conns: 0,
            max_fails: 1,
            fail_timeout: 10,
            standing: Standing::Up,
            is_backup: false,
            route: None,
            is_resolved: false,
            service: None,
        };
        for (number, word) in parameters.iter().enumerate() {
            server
                .parameter(word, allows_backup)
                .map_err(|problem| line.error(&problem.at(number + 1)))?;
        }
        if server.service.is_some() && !server.is_resolved {
            return Err(line.error(&of_service(name, "requires \"resolve\" parameter")));
        }
        let text = std::str::from_utf8(name.bytes()).map_err(|_| "invalid host");
        let parsed = text.and_then(|text| {
            let address = ServerAddress::parse(text, DEFAULT_PORT)?;
            Ok((split_port(text).1, address))
        });
        let refuse = |reason| line.error(&not_reached(reason, &name.display()));
        let (has_port, address) = parsed.map_err(refuse)?;
        if server.service.is_some() && has_port {
            return Err(line.error(&of_service(name, "may not have port")));
        }
        if server.service.is_some() && matches!(address, ServerAddress::Known(_)) {
            return Err(line.error(&of_service(name, "requires domain name")));
        }
        server.address = address;
        Ok(server)
    }

    /// The name to be resolved again and again; none with a fixed address, or a name that is resolved once.
    #[must_use]
    pub(crate) fn lookup(&self) -> Option<Lookup> {
        match &self.address {
            ServerAddress::Name(host, port) if self.is_resolved => Some(Lookup {
                host: host.clone(),
                service: self.service.clone(),
                port: *port,
            }),
            ServerAddress::Name(..) | ServerAddress::Known(_) => None,
        }
    }

    fn parameter(&mut self, word: &Word, allows_backup: bool) -> Result<(), Problem> {
        let text = &word.bytes()[..];
        let invalid = || Problem::new(format!("invalid parameter \"{}\"", word.display()));
        let value = |name: &[u8]| text.strip_prefix(name);
        if let Some(digits) = value(b"weight=") {
            self.weight = match number(digits).ok_or_else(invalid)? {
                0 => return Err(invalid()),
                weight if weight > WEIGHT_MAX => {
                    let hint = format!("a weight is at most {WEIGHT_MAX}");
                    return Err(invalid().hint_that(hint));
                }
                weight => weight,
            };
        } else if let Some(digits) = value(b"max_conns=") {
            self.max_conns = number(digits).ok_or_else(invalid)?;
        } else if let Some(digits) = value(b"max_fails=") {
            self.max_fails = number(digits).ok_or_else(invalid)?;
        } else if let Some(time) = value(b"fail_timeout=") {
            let seconds = parse_sec(time).ok_or_else(invalid)?;
            self.fail_timeout = i64::try_from(seconds).unwrap_or(i64::MAX / 2);
        } else if let Some(route) = value(b"route=") {
            self.route = Some(check_route(route)?);
        } else if text == b"backup" {
            if !allows_backup {
                let sentence = "balancing method does not support parameter \"backup\"";
                return Err(Problem::new(sentence));
            }
            self.is_backup = true;
        } else if text == b"down" {
            self.standing = Standing::Down;
        } else if text == b"drain" {
            self.standing = Standing::Draining;
        } else if text == b"resolve" {
            self.is_resolved = true;
        } else if let Some(service) = value(b"service=") {
            let service = std::str::from_utf8(service).map_err(|_| invalid())?;
            if service.is_empty() {
                return Err(Problem::new("service is empty"));
            }
            self.service = Some(service.into());
        } else {
            return Err(invalid());
        }
        Ok(())
    }

    /// The peers that it makes: one for each address, a name looked up by `resolve`.
    ///
    /// # Errors
    /// nginx's sentence: the name is not found.
    pub(crate) fn peers(
        &self,
        resolve: &mut dyn FnMut(&str) -> Vec<IpAddr>,
    ) -> Result<Vec<Peer>, Problem> {
        let found = self
            .address
            .addresses(resolve)
            .map_err(|reason| not_reached(reason, &String::from_utf8_lossy(&self.name)))?;
        let peer = |address| self.peer(address, &self.name, self.weight);
        Ok(found.into_iter().map(peer).collect())
    }

    /// A peer of this line: `name` is its name for `hash … consistent`.
    #[must_use]
    pub(crate) fn peer(&self, address: Address, name: &[u8], weight: u32) -> Peer {
        let plain = Peer::new(address, name);
        let plain = match &self.route {
            Some(route) => Peer {
                sid: route.clone(),
                ..plain
            },
            None => plain.with_sid(),
        };
        Peer {
            weight,
            max_conns: self.max_conns,
            max_fails: self.max_fails,
            fail_timeout: self.fail_timeout,
            standing: self.standing,
            ..plain
        }
    }

    /// The weight of a peer for which the service gives another one: the line's counts, unless it is 1.
    #[must_use]
    pub(crate) fn weight_of(&self, service_weight: u16) -> u32 {
        match self.weight {
            1 => u32::from(service_weight),
            written => written,
        }
    }
}

fn of_service(name: &Word, what: &str) -> Problem {
    Problem::new(format!("service upstream \"{}\" {what}", name.display())).at(0)
}

fn not_reached(reason: &str, name: &str) -> Problem {
    Problem::new(format!("{reason} in upstream \"{name}\"")).at(0)
}

fn check_route(route: &[u8]) -> Result<Box<[u8]>, Problem> {
    match route.len() {
        0 => Err(Problem::new("route is empty")),
        len if len > ROUTE_MAX => Err(Problem::new(format!("route is longer than {ROUTE_MAX}"))),
        _ => Ok(route.into()),
    }
}

/// A number as nginx reads it; one beyond the range of our counter counts as its maximum.
fn number(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() {
        return None;
    }
    let number = digits.iter().try_fold(0i64, |sum, digit| {
        let digit = digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })?;
    Some(u32::try_from(number).unwrap_or(u32::MAX))
}
