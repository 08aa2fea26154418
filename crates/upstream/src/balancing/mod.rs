//! The choice of the peer that a request goes to: the methods, and the states of the peers that they look at.
//!
//! Not here: where the peers come from, and connections to them. Pure logic behind one short lock for each group: all
//! loops share the states of the peers (weights, failures, connections), as nginx's workers do with `zone`. Invariant: a
//! peer that was taken is given back, so that `max_conns` and `least_conn` count no request that ended.

mod candidates;
mod choice;
mod group;
mod hash;
mod least;
mod outcome;
mod peer;
pub(crate) mod peer_counters;
mod random;
mod round_robin;
#[cfg(test)]
mod tests;

pub use choice::Choice;
pub use group::{Asker, PeerGroup};
pub(crate) use group::{BalancingMethod, LeastTime, Moved};
pub(crate) use hash::RING_WEIGHT_MAX;
pub use outcome::{PeerOutcome, PeerTimes};
pub(crate) use peer::Standing;
pub use peer::{Now, Peer};
