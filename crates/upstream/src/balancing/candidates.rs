//! One round of choosing among the peers of a set: the peers that may be chosen now, and the one that a sticky session
//! is bound to.

use smallvec::SmallVec;

use super::Standing;
use super::group::{Peers, States};
use super::peer::Now;

/// The peers of a set, as one choice sees them.
pub(super) struct Candidates<'a> {
    pub peers: &'a Peers,
    pub tried: &'a Tried,
    pub now: Now,
    /// The peer that the request's session is bound to, if it may be chosen.
    pub bound: Option<usize>,
}

/// A method's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Picked {
    Peer(usize),
    /// It found none, or does not apply: round robin decides.
    ByRoundRobin,
}

/// The peers that a request was sent to.
#[derive(Clone, Debug, Default)]
pub(super) struct Tried(SmallVec<[u64; 2]>);

impl<'a> Candidates<'a> {
    /// A choice for a request whose session wants the peer of this `sid`; empty: any.
    pub(crate) fn new(
        peers: &'a Peers,
        states: &States,
        tried: &'a Tried,
        now: Now,
        sid: &[u8],
    ) -> Candidates<'a> {
        let mut candidates = Candidates {
            peers,
            tried,
            now,
            bound: None,
        };
        if !sid.is_empty() {
            let found = peers.list.iter().position(|peer| *peer.sid == *sid);
            candidates.bound = found.filter(|index| candidates.may_be_bound(states, *index));
        }
        candidates
    }

    /// Whether this peer may be chosen.
    pub(crate) fn is_open(&self, states: &States, index: usize) -> bool {
        states.list[index].standing == Standing::Up && self.is_well(states, index)
    }

    /// As `is_open`, but a draining peer is open for its own sessions.
    fn may_be_bound(&self, states: &States, index: usize) -> bool {
        states.list[index].standing != Standing::Down && self.is_well(states, index)
    }

    fn is_well(&self, states: &States, index: usize) -> bool {
        let state = &states.list[index];
        !self.tried.has(index) && state.has_room() && !state.is_failing(self.now)
    }
}

impl Tried {
    pub(crate) fn has(&self, index: usize) -> bool {
        let word = self.0.get(index / 64).copied().unwrap_or(0);
        word & 1 << (index % 64) != 0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        (0..self.0.len() * 64).filter(|index| self.has(*index))
    }

    pub(crate) fn add(&mut self, index: usize) {
        let word = index / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (index % 64);
    }
}

impl FromIterator<usize> for Tried {
    fn from_iter<I: IntoIterator<Item = usize>>(indexes: I) -> Tried {
        let mut tried = Tried::default();
        for index in indexes {
            tried.add(index);
        }
        tried
    }
}
