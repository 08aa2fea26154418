//! The idle connections to one upstream that a loop keeps for later requests (`keepalive` and its kin).
//!
//! Not here: which peer is asked. Invariant: a connection that is given out was open a moment ago, has no unexpected
//! bytes, and is within every limit. It may die all the same, which its user must expect.

use std::collections::VecDeque;
use std::rc::Rc;

use runtime::listen::address::Address;
use wire::UpstreamConnection;
use wire::connect::ConnectOptions;

use crate::peer_tls::TlsOrder;

/// The limits of kept connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepaliveLimits {
    /// `keepalive`: connections.
    pub count: usize,
    /// Whether they are only for the location that opened them.
    pub is_local: bool,
    /// `keepalive_requests`: requests through one connection.
    pub requests: u64,
    /// `keepalive_time`: since it was opened.
    pub time_ms: u64,
    /// `keepalive_timeout`: since its last request.
    pub timeout_ms: u64,
    /// `keepalive_streams`: requests at a time on a connection of HTTP/2.
    pub streams: usize,
}

/// A connection that can be kept.
pub(crate) trait Reusable {
    /// Whether it is open and silent.
    fn is_intact(&self) -> bool;
    /// Number of requests that went through it.
    fn requests(&self) -> u64;
    /// When it was opened.
    fn opened_ms(&self) -> u64;
}

impl Reusable for UpstreamConnection {
    fn is_intact(&self) -> bool {
        UpstreamConnection::is_intact(self)
    }

    fn requests(&self) -> u64 {
        UpstreamConnection::requests(self)
    }

    fn opened_ms(&self) -> u64 {
        UpstreamConnection::opened_ms(self)
    }
}

/// Reusable connections, the most recently used one in front.
#[derive(Debug)]
pub(crate) struct IdleConnections<C> {
    limits: KeepaliveLimits,
    list: VecDeque<IdleConnection<C>>,
}

/// What is spoken with servers. A connection stays with its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the protocol of its name")]
pub enum Protocol {
    Http,
    Fastcgi,
    Uwsgi,
    Scgi,
    Http2,
}

/// The properties that a kept connection must have to be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionKey {
    /// The peer's address.
    pub address: Address,
    /// The way it was opened: one from another address (`proxy_bind`) is another connection.
    pub options: ConnectOptions,
    /// What is spoken on it.
    pub protocol: Protocol,
    /// TLS on it, and with which name, certificate and trust; `None`: it is in clear.
    pub tls: Option<Rc<TlsOrder>>,
    /// Number of the place in the configuration that asks, or that opened it. Matters only with `local`.
    pub owner: u32,
}

#[derive(Debug)]
struct IdleConnection<C> {
    connection: C,
    like: ConnectionKey,
    since_ms: u64,
}

impl<C: Reusable> IdleConnections<C> {
    /// No connections yet.
    #[must_use]
    pub(crate) fn new(limits: KeepaliveLimits) -> IdleConnections<C> {
        IdleConnections {
            limits,
            list: VecDeque::new(),
        }
    }

    /// Number of connections.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Sets other limits.
    pub(crate) fn limit(&mut self, limits: KeepaliveLimits) {
        self.limits = limits;
        self.list.truncate(limits.count);
    }

    /// A matching connection. Those that turn out to be dead are closed.
    pub(crate) fn take(&mut self, wanted: &ConnectionKey, now_ms: u64) -> Option<C> {
        let mut at = 0;
        while let Some(entry) = self.list.get(at) {
            if !self.limits.allow(&entry.like, wanted) {
                at += 1;
                continue;
            }
            let entry = self.list.remove(at)?;
            if self.is_sound(&entry, now_ms) {
                return Some(entry.connection);
            }
        }
        None
    }

    /// Keeps a connection, or closes it where a limit requires that; the oldest one gives way to it.
    pub(crate) fn put(&mut self, connection: C, like: ConnectionKey, now_ms: u64) {
        let age_ms = now_ms.saturating_sub(connection.opened_ms());
        let limits = &self.limits;
        if limits.count == 0
            || connection.requests() >= limits.requests
            || age_ms > limits.time_ms
            || !connection.is_intact()
        {
            return;
        }
        self.list.truncate(limits.count - 1);
        self.list.push_front(IdleConnection {
            connection,
            like,
            since_ms: now_ms,
        });
    }

    /// Closes those that were idle for too long, or that the server closed.
    pub(crate) fn sweep(&mut self, now_ms: u64) {
        let mut list = std::mem::take(&mut self.list);
        list.retain(|entry| self.is_sound(entry, now_ms));
        self.list = list;
    }

    fn is_sound(&self, entry: &IdleConnection<C>, now_ms: u64) -> bool {
        let idle_ms = now_ms.saturating_sub(entry.since_ms);
        idle_ms < self.limits.timeout_ms && entry.connection.is_intact()
    }
}

impl KeepaliveLimits {
    /// Nothing is kept: as with hosts that no block declares, in nginx too.
    pub const NONE: KeepaliveLimits = KeepaliveLimits {
        count: 0,
        is_local: true,
        requests: 0,
        time_ms: 0,
        timeout_ms: 0,
        streams: 1,
    };

    pub(crate) fn allow(&self, like: &ConnectionKey, wanted: &ConnectionKey) -> bool {
        like.address == wanted.address
            && like.options == wanted.options
            && like.protocol == wanted.protocol
            && like.tls == wanted.tls
            && (!self.is_local || like.owner == wanted.owner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const LIMITS: KeepaliveLimits = KeepaliveLimits {
        count: 2,
        is_local: false,
        requests: 3,
        time_ms: 1000,
        timeout_ms: 100,
        streams: 1,
    };

    /// A connection with a number, which tells when it is closed.
    #[derive(Debug)]
    struct Sham {
        number: u32,
        requests: u64,
        is_intact: Rc<Cell<bool>>,
    }

    impl Reusable for Sham {
        fn is_intact(&self) -> bool {
            self.is_intact.get()
        }

        fn requests(&self) -> u64 {
            self.requests
        }

        fn opened_ms(&self) -> u64 {
            5000
        }
    }

    fn sham(number: u32) -> Sham {
        Sham {
            number,
            requests: 1,
            is_intact: Rc::new(Cell::new(true)),
        }
    }

    fn at(port: u16) -> ConnectionKey {
        ConnectionKey {
            address: Address::Inet(([127, 0, 0, 1], port).into()),
            options: ConnectOptions::default(),
            protocol: Protocol::Http,
            tls: None,
            owner: 0,
        }
    }

    fn by(owner: u32) -> ConnectionKey {
        ConnectionKey { owner, ..at(80) }
    }

    fn number(taken: Option<Sham>) -> Option<u32> {
        taken.map(|connection| connection.number)
    }

    #[test]
    fn the_one_used_last_is_used_next_and_the_oldest_gives_way() {
        let mut kept = IdleConnections::new(LIMITS);
        for connection in 1..=3 {
            kept.put(sham(connection), at(80), 5000);
        }
        assert_eq!(kept.len(), 2);
        assert_eq!(number(kept.take(&at(81), 5000)), None);
        assert_eq!(number(kept.take(&by(7), 5000)), Some(3));
        assert_eq!(number(kept.take(&at(80), 5000)), Some(2));
        assert_eq!(number(kept.take(&at(80), 5000)), None);
    }

    #[test]
    fn a_connection_stays_with_its_protocol() {
        let fastcgi = ConnectionKey {
            protocol: Protocol::Fastcgi,
            ..at(80)
        };
        let mut kept = IdleConnections::new(LIMITS);
        kept.put(sham(1), fastcgi.clone(), 5000);
        assert_eq!(number(kept.take(&at(80), 5000)), None);
        assert_eq!(number(kept.take(&fastcgi, 5000)), Some(1));
    }

    #[test]
    fn local_ones_are_for_their_location() {
        let mut kept = IdleConnections::new(KeepaliveLimits {
            is_local: true,
            ..LIMITS
        });
        kept.put(sham(1), by(1), 5000);
        kept.put(sham(2), by(2), 5000);
        assert_eq!(number(kept.take(&by(1), 5000)), Some(1));
        assert_eq!(number(kept.take(&by(1), 5000)), None);
    }

    #[test]
    fn limits_hold() {
        let mut kept = IdleConnections::new(LIMITS);
        kept.put(
            Sham {
                requests: 3,
                ..sham(1)
            },
            at(80),
            5000,
        );
        kept.put(sham(2), at(80), 6001);
        assert!(kept.is_empty());
        kept.put(sham(3), at(80), 6000);
        assert_eq!(number(kept.take(&at(80), 6100)), None, "idle for too long");
        kept.put(sham(4), at(80), 6000);
        assert_eq!(number(kept.take(&at(80), 6099)), Some(4));
        let mut none = IdleConnections::new(KeepaliveLimits { count: 0, ..LIMITS });
        none.put(sham(5), at(80), 5000);
        assert!(none.is_empty());
    }

    #[test]
    fn dead_ones_are_closed() {
        let mut kept = IdleConnections::new(LIMITS);
        let dead = Rc::new(Cell::new(true));
        kept.put(sham(1), at(80), 5000);
        kept.put(
            Sham {
                is_intact: dead.clone(),
                ..sham(2)
            },
            at(80),
            5000,
        );
        dead.set(false);
        assert_eq!(number(kept.take(&at(80), 5000)), Some(1));
        assert!(kept.is_empty() && Rc::strong_count(&dead) == 1);
        kept.put(sham(3), at(80), 5000);
        kept.sweep(5099);
        assert_eq!(kept.len(), 1);
        kept.sweep(5100);
        assert!(kept.is_empty());
    }
}
