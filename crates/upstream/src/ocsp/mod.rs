//! The status of certificates, asked of OCSP responders: of clients' certificates ([`ClientStatuses`]), and of our own
//! ([`Staples`]).
//!
//! All of it runs on the resolver's thread: an event loop asks, and waits for the answer as for any other event. Not
//! here: what an answer is worth ([`tls::ocsp`]), the handshakes. Invariants: at most [`FETCHES_MAX`] questions are
//! asked at a time for clients and [`STAPLE_FETCHES_MAX`] for staples, a quarter of them of one responder; at most
//! [`FETCHES_WAITING_MAX`] questions of clients wait for their turn, half of them for one responder; each has
//! [`FETCH_TIME_MAX`]; no handshake waits for a staple.

mod client_statuses;
mod fetch;
pub mod metrics;
mod responder;
mod staples;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

pub use client_statuses::ClientStatuses;
pub use fetch::{
    FETCH_TIME_MAX, FETCHES_MAX, FETCHES_WAITING_MAX, RESPONDER_WAITING_MAX, STAPLE_FETCHES_MAX,
};
pub use responder::Responder;
pub use staples::{Staple, StapleOrder, Staples};

use crate::resolver::{Resolver, Resolving};

/// The name servers that responders' names are looked up by, and `resolver_timeout`.
#[derive(Clone, Debug, Default)]
pub struct NameServers(Option<(Arc<Resolver>, Duration)>);

impl NameServers {
    /// Those of a level of the configuration, once its line is settled.
    #[must_use]
    pub fn of(resolving: &Resolving) -> Self {
        let timeout = resolving.resolver_timeout.duration();
        Self(resolving.get().map(|found| (Arc::clone(found), timeout)))
    }
}
