//! Counters of the peers of upstreams.
//!
//! They are kept by the names of upstream and peer, so that neither a reload nor a changed DNS answer resets them.
//! Invariant: an upstream that is named by a request's own values has no entry of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use disk::metrics::{Histogram, Number};
use parking_lot::Mutex;

use super::outcome::{PeerOutcome, PeerTimes};

/// Maximum number of peers that are told apart. When a further one comes, peers that no upstream has any more are
/// forgotten; any beyond that are counted together.
pub(crate) const PEERS_MAX: usize = 4096;

/// The outcomes of the requests to a peer. Several loops write.
#[derive(Debug, Default)]
pub(crate) struct PeerCounters {
    /// Requests that were answered.
    pub answered: Number,
    /// Requests that were answered, but went on to the next peer all the same.
    pub unwanted: Number,
    /// Requests that failed.
    pub failed: Number,
    /// Requests that were abandoned before their end.
    pub abandoned: Number,
    /// Connections that were opened for them.
    pub opened: Number,
    /// PeerTimes to the response's header.
    pub header: Histogram,
    /// PeerTimes to the response's end.
    pub response: Histogram,
}

impl PeerCounters {
    fn was_asked(&self) -> bool {
        let all = [
            &self.answered,
            &self.unwanted,
            &self.failed,
            &self.abandoned,
        ];
        all.iter().any(|count| count.get() > 0)
    }

    /// A request has ended.
    pub(crate) fn count(&self, outcome: PeerOutcome, times: PeerTimes) {
        match outcome {
            PeerOutcome::Answered => &self.answered,
            PeerOutcome::Unwanted => &self.unwanted,
            PeerOutcome::Failed | PeerOutcome::BrokenOff => &self.failed,
        }
        .add_shared(1);
        if let (PeerOutcome::Answered, Some(header_ms)) = (outcome, times.header_ms) {
            self.header.record_shared(header_ms * 1_000_000);
            self.response.record_shared(times.response_ms * 1_000_000);
        }
    }
}

/// By upstream and peer.
type Names = (String, String);

static PEERS: Mutex<BTreeMap<Names, Arc<PeerCounters>>> = Mutex::new(BTreeMap::new());
static OTHERS: LazyLock<Arc<PeerCounters>> = LazyLock::new(Arc::default);

/// The counters of a peer of a declared upstream.
#[must_use]
pub(crate) fn of(upstream: &str, peer: &str) -> Arc<PeerCounters> {
    let names = (upstream.to_owned(), peer.to_owned());
    let mut peers = PEERS.lock();
    if peers.len() >= PEERS_MAX && !peers.contains_key(&names) {
        peers.retain(|_, counters| Arc::strong_count(counters) > 1);
        if peers.len() >= PEERS_MAX {
            return others();
        }
    }
    Arc::clone(peers.entry(names).or_default())
}

/// The shared counters of all peers without counters of their own.
#[must_use]
pub(crate) fn others() -> Arc<PeerCounters> {
    Arc::clone(&OTHERS)
}

/// All counters; last, without a name, the shared ones, once such a peer was asked.
#[must_use]
pub(crate) fn all() -> Vec<(Names, Arc<PeerCounters>)> {
    let peers = PEERS.lock();
    let named = peers.iter();
    let named = named.map(|(names, counters)| (names.clone(), Arc::clone(counters)));
    let others = OTHERS.was_asked().then(|| (Names::default(), others()));
    named.chain(others).collect()
}
