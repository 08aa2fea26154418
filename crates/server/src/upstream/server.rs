//! A `server` line of an upstream: its address and its parameters.
//!
//! Not here: looking up its name. Invariant: every parameter that is accepted has its effect; those that are nginx's and not
//! built are refused as such.

use std::net::IpAddr;

use config::{Directive, Error, Problem, Word, parse_sec};

use super::address::ServerAddress;
use super::{Peer, Standing};

/// The largest `weight`.
pub const WEIGHT_MAX: u32 = 1_000_000;
/// Bytes of a `route`.
const ROUTE_MAX: usize = 32;
/// The port of a server that names none.
const DEFAULT_PORT: u16 = 80;

/// A `server` line.
#[derive(Clone, Debug)]
pub struct ServerLine {
    /// The address as it is written.
    pub name: Box<[u8]>,
    address: ServerAddress,
    weight: u32,
    max_conns: u32,
    max_fails: u32,
    fail_timeout: i64,
    standing: Standing,
    /// `backup`.
    pub is_backup: bool,
    /// `route`: what sticky sessions call it.
    route: Option<Box<[u8]>>,
}

impl ServerLine {
    /// Reads a line; `allows_backup`: the method that stands before it does.
    ///
    /// # Errors
    /// The first thing that is wrong, in nginx's words.
    pub fn read(line: &Directive, allows_backup: bool) -> Result<ServerLine, Error> {
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
        };
        for (number, word) in parameters.iter().enumerate() {
            server
                .parameter(word, allows_backup)
                .map_err(|problem| line.error(&problem.at(number + 1)))?;
        }
        let reason = match std::str::from_utf8(name.bytes()) {
            Ok(text) => match ServerAddress::parse(text, DEFAULT_PORT) {
                Ok(address) => {
                    server.address = address;
                    return Ok(server);
                }
                Err(reason) => reason,
            },
            Err(_) => "invalid host",
        };
        Err(line.error(&not_reached(reason, &name.display())))
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
        } else if text == b"resolve" || value(b"service=").is_some() {
            let sentence = format!("parameter \"{}\" is not built yet", word.display());
            return Err(Problem::new(sentence));
        } else {
            return Err(invalid());
        }
        Ok(())
    }

    /// The peers that it makes: one for each address, a name looked up by `resolve`.
    ///
    /// # Errors
    /// nginx's sentence: the name is not found.
    pub fn peers(
        &self,
        resolve: &mut dyn FnMut(&str) -> Vec<IpAddr>,
    ) -> Result<Vec<Peer>, Problem> {
        let found = self
            .address
            .addresses(resolve)
            .map_err(|reason| not_reached(reason, &String::from_utf8_lossy(&self.name)))?;
        let peer = |address| {
            let plain = Peer::new(address, &self.name);
            Peer {
                sid: self.route.clone().unwrap_or_else(|| plain.sid.clone()),
                weight: self.weight,
                max_conns: self.max_conns,
                max_fails: self.max_fails,
                fail_timeout: self.fail_timeout,
                standing: self.standing,
                ..plain
            }
        };
        Ok(found.into_iter().map(peer).collect())
    }
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

/// A number as nginx reads it; larger ones than a count of ours can hold are as good as the largest.
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
