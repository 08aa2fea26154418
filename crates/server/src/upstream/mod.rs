//! Upstreams: groups of servers that requests are passed on to, and which of them gets the next one.
//!
//! Not here: what is sent to them. Pure logic (but for the idle connections in `kept`, which belong to their loop) behind one
//! short lock for each group: all loops share the states of the peers (weights, failures, connections), as nginx's workers do
//! with `zone`. Invariant: whoever takes a peer gives it back, so that `max_conns` and `least_conn` never count what is gone.
//!
//! Not reachable from a configuration yet: `proxy_pass` is to be its user.

pub mod address;
pub mod block;
#[cfg(test)]
mod block_tests;
pub mod choice;
pub mod group;
mod hash;
pub mod kept;
mod least;
pub mod next;
pub mod peer;
mod random;
mod round_robin;
pub mod server;
#[cfg(test)]
mod tests;
pub mod tries;
mod turn;

pub use choice::{Choice, Outcome, Times};
pub use group::{Asker, Group, LeastTime, Method};
pub use peer::{Now, Peer, Standing};
