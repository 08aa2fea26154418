//! Upstreams: groups of servers that requests are passed on to, and the choice of the server for the next request.
//!
//! Not here: what is sent to them. Pure logic (but for the idle connections in `keepalive`, which belong to their loop)
//! behind one short lock for each group: all loops share the states of the peers (weights, failures, connections), as
//! nginx's workers do with `zone`. Invariant: a peer that was taken is given back, so that `max_conns` and `least_conn`
//! count no request that ended.
//!
//! How to use it: [`Upstreams::link`] while the configuration is built, or [`Upstreams::find`] for a name made of
//! variables; then [`Upstream::choose`], and for each attempt [`Choice::next`], [`KeepalivePool::take`] or
//! [`connect::connect`], [`Choice::give_back`], and [`KeepalivePool::put`] when the connection is good for another request.

pub mod attempts;
pub mod block;
#[cfg(test)]
mod block_tests;
pub mod choice;
pub mod connect;
mod eligible;
pub mod group;
mod hash;
pub mod keepalive;
pub mod keepalive_pool;
mod least;
pub mod next_upstream;
mod outcome;
pub mod peer;
pub mod peer_counters;
mod random;
pub mod re_resolve;
pub mod resolved_peers;
#[cfg(test)]
mod resolved_peers_tests;
mod round_robin;
pub mod server;
mod sessions;
pub mod sticky;
#[cfg(test)]
mod tests;
pub mod upstreams;
#[cfg(test)]
mod upstreams_tests;

pub use choice::Choice;
pub use group::{Asker, Group, LeastTime, Method};
pub use keepalive::Wanted;
pub use keepalive_pool::KeepalivePool;
pub use outcome::{Outcome, Times};
pub use peer::{Now, Peer, Standing};
pub use upstreams::{Declared, Upstream, Upstreams};
