//! The table of all `listen` lines of a configuration: one entry per address, the servers behind it, and which
//! addresses get a socket of their own.
//!
//! Not here: names of servers, sockets. Invariant: an address has one entry; a server is listed once at an address.

use std::net::IpAddr;

use hashbrown::HashMap;

use super::{Address, Listen, Protocols, SocketOptions};

/// Maximum number of addresses that one configuration may listen on.
pub const ADDRESSES_MAX: usize = 65_536;

/// One address, its options and the servers that share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The address.
    pub address: Address,
    /// The options of its socket.
    pub options: SocketOptions,
    /// Whether a line asked for a socket of its own (`bind` or an option).
    pub is_set: bool,
    /// The servers, by the caller's numbers, in order of the file.
    pub servers: Vec<u32>,
    /// The default server: the one marked so, else the first.
    pub default: u32,
    /// What some line says of the protocols of its connections.
    pub protocols: Protocols,
    has_default: bool,
    /// What the lines so far have in common, and whether they differed.
    agreed: Option<Protocols>,
    has_changed: bool,
}

/// All addresses of a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    entries: Vec<Entry>,
    /// Their places in `entries`: there may be a range of ports, and each connection looks its address up.
    places: HashMap<Address, usize>,
}

impl Table {
    /// Adds one line of server `server`; names are resolved with `resolve`. Gives warnings.
    ///
    /// # Errors
    /// nginx's sentence: the host is not found, an option, a default or the line itself stands twice.
    pub fn add(
        &mut self,
        listen: &Listen,
        server: u32,
        resolve: &mut dyn FnMut(&str) -> Vec<IpAddr>,
    ) -> Result<Vec<String>, String> {
        let mut warnings = Vec::new();
        let addresses = listen.target.addresses(resolve).map_err(|reason| {
            format!(
                "{reason} in \"{}\" of the \"listen\" directive",
                listen.text
            )
        })?;
        for address in addresses {
            match self.places.get(&address) {
                Some(place) => warnings.extend(self.entries[*place].join(listen, server)?),
                None => self.open(address, listen, server)?,
            }
        }
        Ok(warnings)
    }

    fn open(&mut self, address: Address, listen: &Listen, server: u32) -> Result<(), String> {
        if self.entries.len() == ADDRESSES_MAX {
            return Err(format!("more than {ADDRESSES_MAX} addresses to listen on"));
        }
        self.places.insert(address.clone(), self.entries.len());
        self.entries.push(Entry {
            address,
            options: listen.options.clone(),
            is_set: listen.is_set,
            servers: vec![server],
            default: server,
            has_default: listen.is_default,
            protocols: listen.protocols,
            agreed: None,
            has_changed: false,
        });
        Ok(())
    }

    /// All addresses, in order of the file.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The addresses that get a socket: all, but those that a wildcard on the same port covers and
    /// that ask for nothing of their own (nginx binds only the wildcard then).
    pub fn sockets(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| {
            entry.is_set
                || entry.address.is_wildcard()
                || self.wildcard_of(&entry.address).is_none()
        })
    }

    /// The entry for a connection that came in at `local`: the address itself, else the wildcard.
    #[must_use]
    pub fn find(&self, local: &Address) -> Option<usize> {
        let exact = self.places.get(local).copied();
        exact.or_else(|| self.wildcard_of(local))
    }

    /// The entry of the wildcard on the same port of the same family.
    fn wildcard_of(&self, address: &Address) -> Option<usize> {
        self.places.get(&address.wildcard()?).copied()
    }
}

impl Entry {
    fn join(&mut self, listen: &Listen, server: u32) -> Result<Option<String>, String> {
        if self.servers.contains(&server) {
            return Err(format!("a duplicate listen {}", self.address));
        }
        if listen.is_set {
            if self.is_set {
                return Err(format!("duplicate listen options for {}", self.address));
            }
            self.options = listen.options.clone();
            self.is_set = true;
        }
        if listen.is_default {
            if self.has_default {
                return Err(format!("a duplicate default server for {}", self.address));
            }
            self.has_default = true;
            self.default = server;
        }
        self.servers.push(server);
        let is_redefined = self.agree(listen);
        let warning = || format!("protocol options redefined for {}", self.address);
        Ok(is_redefined.then(warning))
    }

    /// Takes in what a line says of protocols; gives whether nginx warns of it: lines of one address should say the same, or only one
    /// of them something.
    fn agree(&mut self, listen: &Listen) -> bool {
        let (before, now) = (self.protocols, listen.protocols);
        let differs = self.agreed.is_some_and(|agreed| agreed != now);
        let (adds, lacks) = (!before.has_all(now), !now.has_all(before));
        let warns = if adds {
            (self.is_set && !listen.is_set) || self.has_changed || lacks
        } else if lacks {
            listen.is_set || differs
        } else {
            (listen.is_set && self.has_changed) || differs
        };
        self.agreed = Some(if adds { before } else { now });
        self.has_changed |= before != now;
        self.protocols = before.and(now);
        warns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(lines: &[(&str, u32)]) -> Result<Table, String> {
        table_and_warnings(lines).map(|(table, _)| table)
    }

    fn table_and_warnings(lines: &[(&str, u32)]) -> Result<(Table, Vec<String>), String> {
        let mut table = Table::default();
        let mut warnings = Vec::new();
        for (line, server) in lines {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let listen = Listen::parse(&words).unwrap();
            warnings.extend(table.add(&listen, *server, &mut |_| Vec::new())?);
        }
        Ok((table, warnings))
    }

    #[test]
    fn one_line_with_proxy_protocol_is_enough_and_two_that_differ_are_told() {
        let told = |lines: &[&str]| {
            let lines: Vec<(&str, u32)> = lines.iter().copied().zip(0..).collect();
            let (table, warnings) = table_and_warnings(&lines).unwrap();
            assert!(table.entries()[0].protocols.has_proxy_protocol, "{lines:?}");
            warnings.len()
        };
        assert_eq!(told(&["80 proxy_protocol"]), 0);
        assert_eq!(told(&["80 proxy_protocol", "80"]), 0);
        assert_eq!(told(&["80", "80 proxy_protocol"]), 0);
        assert_eq!(told(&["80 proxy_protocol", "80 proxy_protocol"]), 0);
        assert_eq!(told(&["80 proxy_protocol", "80", "80"]), 0);
        assert_eq!(told(&["80 proxy_protocol", "80", "80 proxy_protocol"]), 1);
        assert_eq!(told(&["80 bind", "80 proxy_protocol"]), 1);
        assert_eq!(told(&["80 proxy_protocol", "80 bind"]), 1);
    }

    fn sockets(lines: &[(&str, u32)]) -> Vec<String> {
        table(lines)
            .unwrap()
            .sockets()
            .map(|entry| entry.address.to_string())
            .collect()
    }

    #[test]
    fn servers_share_an_address_and_one_is_default() {
        let table = table(&[("80", 0), ("80 default_server", 1), ("*:80", 2)]).unwrap();
        assert_eq!(table.entries().len(), 1);
        assert_eq!(table.entries()[0].servers, [0, 1, 2]);
        assert_eq!(table.entries()[0].default, 1);
    }

    #[test]
    fn a_wildcard_covers_addresses_that_ask_for_nothing() {
        assert_eq!(sockets(&[("127.0.0.1:80", 0), ("80", 1)]), ["0.0.0.0:80"]);
        assert_eq!(
            sockets(&[("127.0.0.1:80 bind", 0), ("80", 1)]),
            ["127.0.0.1:80", "0.0.0.0:80"]
        );
        assert_eq!(
            sockets(&[("[::]:80", 0), ("80", 0)]),
            ["[::]:80", "0.0.0.0:80"]
        );
        assert_eq!(
            sockets(&[("127.0.0.1:80", 0), ("127.0.0.1:81", 0)]),
            ["127.0.0.1:80", "127.0.0.1:81"]
        );
    }

    #[test]
    fn what_stands_twice_is_refused() {
        assert_eq!(
            table(&[("80", 0), ("80", 0)]),
            Err("a duplicate listen 0.0.0.0:80".to_owned())
        );
        assert_eq!(
            table(&[("80 backlog=1", 0), ("80 backlog=2", 1)]),
            Err("duplicate listen options for 0.0.0.0:80".to_owned())
        );
        assert_eq!(
            table(&[("80 default_server", 0), ("80 default_server", 1)]),
            Err("a duplicate default server for 0.0.0.0:80".to_owned())
        );
    }

    #[test]
    fn as_many_addresses_as_there_may_be_are_listed_and_found_without_comparing_all_with_all() {
        let table = table(&[("127.0.0.1:1-65535", 0)]).unwrap();
        assert_eq!(table.sockets().count(), 65_535);
        let is_found = |(place, entry): (usize, &Entry)| table.find(&entry.address) == Some(place);
        assert!(table.entries().iter().enumerate().all(is_found));
    }

    #[test]
    fn a_connection_finds_its_address_or_the_wildcard() {
        let table = table(&[("127.0.0.1:80", 0), ("80", 1)]).unwrap();
        let at = |text: &str| Address::Inet(text.parse().unwrap());
        assert_eq!(table.find(&at("127.0.0.1:80")), Some(0));
        assert_eq!(table.find(&at("127.0.0.2:80")), Some(1));
        assert_eq!(table.find(&at("127.0.0.1:81")), None);
    }
}
