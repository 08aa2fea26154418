//! Upstreams: groups of servers that requests are passed on to, and the connections to them.
//!
//! * [`Upstreams`]: all upstreams of a configuration, made of `upstream` blocks ([`block`]) and of the hosts of
//!   `proxy_pass`. `resolved_peers`, `re_resolve`: servers whose names are resolved periodically, by the [`resolver`].
//! * [`Choice`]: the choice of the peer for a request (`balancing`); [`sticky`]: the sessions that are bound to one.
//! * [`ocsp`]: responders that tell the status of certificates; nothing is passed on to them.
//! * [`connect`], [`peer_tls`], [`KeepalivePool`]: connections. [`next_upstream`], [`attempts`]: one peer after another.
//!
//! Not here: requests, and what is sent of them. How to use it: [`Upstreams::link`] while the configuration is built, or
//! [`Upstreams::find`] for a name made of variables; then [`Upstream::choose`], and for each attempt [`Choice::next`],
//! [`KeepalivePool::take`] or [`connect::connect`], [`Choice::give_back`], and [`KeepalivePool::put`] when the connection
//! is good for another request. Invariant: idle connections belong to their loop; the states of peers are shared by all
//! loops.

#![warn(unreachable_pub)]

pub mod attempts;
mod balancing;
pub mod block;
#[cfg(test)]
mod block_tests;
pub mod connect;
mod keepalive;
mod keepalive_pool;
pub mod metrics;
pub mod next_upstream;
pub mod ocsp;
pub mod peer_tls;
mod re_resolve;
mod resolved_peers;
#[cfg(test)]
mod resolved_peers_tests;
pub mod resolver;
mod server;
mod shared_pool;
pub mod sticky;
mod upstreams;
#[cfg(test)]
mod upstreams_tests;

pub use balancing::{Asker, Choice, Now, Peer, PeerGroup, PeerOutcome, PeerTimes};
pub use keepalive::{ConnectionKey, Protocol};
pub use keepalive_pool::KeepalivePool;
pub use shared_pool::{Opening, Turn};
pub use upstreams::{Upstream, Upstreams};
