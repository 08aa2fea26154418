//! Balancing by hash: `ip_hash`, `hash KEY` and `hash KEY consistent`, bit by bit as nginx, so that both send a key to
//! the same server.
//!
//! A hash that meets a peer which may not be chosen is continued, [`TRIES_MAX`] times; then round robin chooses.

use std::net::IpAddr;

use hashbrown::HashMap;

use super::candidates::{Candidates, Picked};
use super::group::States;
use super::peer::Peer;
use super::round_robin;

/// Maximum of times that a hash is continued for one request.
pub(super) const TRIES_MAX: u32 = 20;
/// Points on the ring for each unit of weight.
const POINTS_PER_WEIGHT: u64 = 160;
/// Maximum sum of the weights on the ring of `hash … consistent`: each unit takes 160 points of 8 bytes.
pub(crate) const RING_WEIGHT_MAX: u64 = 100_000;

/// PeerState of `ip_hash` for one request.
#[derive(Clone, Debug)]
pub(super) struct IpHash {
    octets: [u8; 16],
    len: usize,
    hash: u64,
    tries: u32,
}

impl IpHash {
    /// Three octets of an IPv4 address, all of an IPv6 one; unix sockets are all the same client.
    pub(crate) fn new(address: Option<IpAddr>) -> IpHash {
        let mut octets = [0; 16];
        let len = match address {
            Some(IpAddr::V4(address)) => {
                octets[..3].copy_from_slice(&address.octets()[..3]);
                3
            }
            Some(IpAddr::V6(address)) => {
                octets = address.octets();
                16
            }
            None => 3,
        };
        IpHash {
            octets,
            len,
            hash: 89,
            tries: 0,
        }
    }

    pub(crate) fn pick(&mut self, candidates: &Candidates<'_>, states: &States) -> Picked {
        let peers = candidates.peers;
        if peers.list.len() < 2 || self.tries > TRIES_MAX {
            return Picked::ByRoundRobin;
        }
        if let Some(bound) = candidates.bound {
            return Picked::Peer(bound);
        }
        let mut hash = self.hash;
        while self.tries <= TRIES_MAX {
            for octet in &self.octets[..self.len] {
                hash = (hash * 113 + u64::from(*octet)) % 6271;
            }
            let index = peers.at_weight(hash % peers.total_weight);
            if candidates.is_open(states, index) {
                self.hash = hash;
                return Picked::Peer(index);
            }
            self.tries += 1;
        }
        Picked::ByRoundRobin
    }
}

/// PeerState of `hash KEY` for one request: Cache::Memcached's algorithm.
#[derive(Clone, Debug)]
pub(super) struct KeyHash {
    key: bytes::Bytes,
    sum: u32,
    round: u32,
    tries: u32,
}

impl KeyHash {
    pub(crate) fn new(key: bytes::Bytes) -> KeyHash {
        KeyHash {
            key,
            sum: 0,
            round: 0,
            tries: 0,
        }
    }

    pub(crate) fn pick(&mut self, candidates: &Candidates<'_>, states: &States) -> Picked {
        let peers = candidates.peers;
        if peers.list.len() < 2 || self.key.is_empty() || self.tries > TRIES_MAX {
            return Picked::ByRoundRobin;
        }
        if let Some(bound) = candidates.bound {
            return Picked::Peer(bound);
        }
        while self.tries <= TRIES_MAX {
            let hash = match self.round {
                0 => crc32(&self.key),
                round => crc32_of(&[itoa::Buffer::new().format(round).as_bytes(), &self.key]),
            };
            self.round += 1;
            self.sum = self.sum.wrapping_add((hash >> 16) & 0x7fff);
            let index = peers.at_weight(u64::from(self.sum) % peers.total_weight);
            if candidates.is_open(states, index) {
                return Picked::Peer(index);
            }
            self.tries += 1;
        }
        Picked::ByRoundRobin
    }
}

/// The points of `hash … consistent`: Cache::Memcached::Fast's (ketama), a server's by its name as written. Weights that
/// an answer of a name server brings may be more than [`RING_WEIGHT_MAX`] together: then all are made smaller, to 1 at
/// least.
#[derive(Debug, Default)]
pub(super) struct HashRing {
    points: Vec<Point>,
    /// Of each peer, the first one with its server's name.
    first: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    hash: u32,
    /// The first peer with this server's name.
    server: u32,
}

/// A server while the points are made.
struct RingServer<'a> {
    peer: &'a Peer,
    /// The number of its first peer.
    first: u32,
    /// The greatest one of its peers.
    weight: u64,
}

impl HashRing {
    pub(crate) fn new(peers: &[Peer]) -> HashRing {
        HashRing::within(RING_WEIGHT_MAX, peers)
    }

    fn within(weight_max: u64, peers: &[Peer]) -> HashRing {
        // The points of a server with several addresses are those of the greatest weight: fewer begin in the same way.
        let mut servers: Vec<RingServer<'_>> = Vec::new();
        let mut by_name: HashMap<&[u8], usize> = HashMap::new();
        let mut first = Vec::with_capacity(peers.len());
        for (index, peer) in peers.iter().enumerate() {
            let place = *by_name.entry(&peer.server).or_insert(servers.len());
            if place == servers.len() {
                let first = u32::try_from(index).expect("PEERS_MAX is far lower");
                servers.push(RingServer {
                    peer,
                    first,
                    weight: 0,
                });
            }
            let server = &mut servers[place];
            server.weight = server.weight.max(u64::from(peer.weight));
            first.push(server.first);
        }
        let total: u64 = servers.iter().map(|server| server.weight).sum();
        let mut points = Vec::new();
        for server in &servers {
            let weight = match total > weight_max {
                true => (server.weight * weight_max / total).max(1),
                false => server.weight,
            };
            let (host, port) = host_and_port(&server.peer.server);
            let mut before = 0u32;
            for _ in 0..weight * POINTS_PER_WEIGHT {
                before = crc32_of(&[host, b"\0", port, &before.to_le_bytes()]);
                points.push(Point {
                    hash: before,
                    server: server.first,
                });
            }
        }
        points.sort_by_key(|point| point.hash);
        points.dedup_by_key(|point| point.hash);
        HashRing { points, first }
    }

    /// The number of the first point at or behind a key's hash.
    fn find(&self, hash: u32) -> usize {
        self.points.partition_point(|point| point.hash < hash)
    }
}

/// The name without its `unix:`, or split at the port.
fn host_and_port(server: &[u8]) -> (&[u8], &[u8]) {
    if server.len() >= 5 && server[..5].eq_ignore_ascii_case(b"unix:") {
        return (&server[5..], b"");
    }
    let digits = server.iter().rev().take_while(|byte| byte.is_ascii_digit());
    let port = server.len() - digits.count();
    match server[..port].split_last() {
        Some((b':', host)) => (host, &server[port..]),
        _ => (server, b""),
    }
}

/// PeerState of `hash KEY consistent` for one request.
#[derive(Clone, Debug)]
pub(super) struct Consistent {
    hash: u32,
    at: usize,
    has_key: bool,
    tries: u32,
}

impl Consistent {
    pub(crate) fn new(key: &[u8], ring: &HashRing) -> Consistent {
        let hash = crc32(key);
        Consistent {
            hash,
            at: ring.find(hash),
            has_key: !key.is_empty(),
            tries: 0,
        }
    }

    /// The servers have changed: the key has another position.
    pub(crate) fn turn_to(&mut self, ring: &HashRing) {
        self.at = ring.find(self.hash);
    }

    pub(crate) fn pick(&mut self, candidates: &Candidates<'_>, states: &mut States) -> Picked {
        let peers = candidates.peers;
        let points = &peers.ring.points;
        if peers.is_single || !self.has_key || points.is_empty() || self.tries > TRIES_MAX {
            return Picked::ByRoundRobin;
        }
        if let Some(bound) = candidates.bound {
            return Picked::Peer(bound);
        }
        while self.tries <= TRIES_MAX {
            let server = points[self.at % points.len()].server;
            // The addresses of one server take turns.
            let found = round_robin::share(states, None, |index, states| {
                peers.ring.first[index] == server && candidates.is_open(states, index)
            });
            if let Some(index) = found {
                return Picked::Peer(index);
            }
            self.at += 1;
            self.tries += 1;
        }
        Picked::ByRoundRobin
    }
}

/// CRC32 (IEEE 802.3, reflected).
fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// CRC32 over several pieces, as if they stood in one.
fn crc32_of(pieces: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for piece in pieces {
        hasher.update(piece);
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use runtime::listen::Address;

    use super::*;

    #[test]
    fn a_ring_is_bounded_whatever_the_weights_are() {
        let peer = |port: u16, name: &[u8], weight: u32| Peer {
            weight,
            ..Peer::new(Address::Inet(([127, 0, 0, 1], port).into()), name)
        };
        let share = |ring: &HashRing, server| {
            let of_server = ring.points.iter().filter(|point| point.server == server);
            of_server.count() * 100 / ring.points.len()
        };
        let peers = [
            peer(1, b"a.test", 3000),
            peer(2, b"b.test", 1000),
            peer(3, b"a.test", 3000),
            peer(4, b"c.test", 1),
        ];
        let ring = HashRing::within(100, &peers);
        // One more for the least.
        assert!(
            ring.points.len() <= 101 * 160,
            "{} points",
            ring.points.len()
        );
        assert_eq!(ring.first, [0, 1, 0, 3]);
        assert_eq!((share(&ring, 0), share(&ring, 1)), (74, 24));
        assert!(ring.points.iter().any(|point| point.server == 3));
        // The addresses of a name have the points of the greatest weight.
        let several = HashRing::new(&[peer(1, b"a.test", 1), peer(2, b"a.test", 3)]);
        let one = HashRing::new(&[peer(1, b"a.test", 3)]);
        let hashes = |ring: &HashRing| ring.points.iter().map(|p| p.hash).collect::<Vec<_>>();
        assert_eq!(hashes(&several), hashes(&one));
    }

    #[test]
    fn crc32_has_the_check_value_of_the_standard() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32_of(&[b"1234", b"", b"56789"]), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }
}
