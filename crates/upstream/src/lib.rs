//! Upstreams: groups of servers that requests are passed on to, and the connections to them.
//!
//! * [`upstreams`]: all upstreams of a configuration, made of [`block`]s and of the hosts of `proxy_pass`.
//! * [`balancing`]: the choice of the peer for a request; [`sticky`]: the sessions that are bound to one.
//! * [`resolved_peers`] and [`re_resolve`]: servers whose names are looked up again and again.
//! * [`connect`], [`keepalive_pool`]: connections. [`next_upstream`], [`attempts`]: one peer after another.
//!
//! Not here: requests, and what is sent of them. How to use it: [`Upstreams::link`] while the configuration is built, or
//! [`Upstreams::find`] for a name made of variables; then [`Upstream::choose`], and for each attempt [`Choice::next`],
//! [`KeepalivePool::take`] or [`connect::connect`], [`Choice::give_back`], and [`KeepalivePool::put`] when the connection
//! is good for another request. Invariant: idle connections belong to their loop, the states of peers to all of them.

#![warn(unreachable_pub)]

pub mod attempts;
mod balancing;
pub mod block;
#[cfg(test)]
mod block_tests;
pub mod keepalive;
pub mod next_upstream;
mod re_resolve;
mod resolved_peers;
#[cfg(test)]
mod resolved_peers_tests;
pub mod resolver;
mod server;
pub mod sticky;
mod upstreams;
#[cfg(test)]
mod upstreams_tests;

pub use balancing::{Asker, Choice, Now, Peer, PeerGroup, PeerOutcome, PeerTimes, peer_counters};
pub use keepalive::ConnectionKey;
pub use upstreams::{Declaration, Upstream, Upstreams};
