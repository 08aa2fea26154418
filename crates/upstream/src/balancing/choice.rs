//! One request's way through the peers of a group: the first choice, and the next one after each failure.
//!
//! Invariant: at most one peer is taken at a time. It is given back at the latest when the choice is dropped (the
//! client left).

use std::sync::Arc;

use bytes::Bytes;

use super::candidates::{Candidates, Picked, Tried};
use super::group::{Asker, BalancingMethod, LeastTime, PeerGroup, Peers, States};
use super::hash::{Consistent, IpHash, KeyHash};
use super::outcome::{PeerOutcome, PeerTimes};
use super::peer::{Now, Peer};
use super::{least, random, round_robin};

/// The choice of a peer for one request, one peer after another.
#[derive(Debug)]
pub struct Choice {
    group: Arc<PeerGroup>,
    search: MethodState,
    sid: Bytes,
    is_on_backup: bool,
    tried: Tried,
    tries_left: usize,
    taken: Option<TakenPeer>,
}

#[derive(Clone, Copy, Debug)]
struct TakenPeer {
    index: usize,
    /// Since when `least_time` counts it as in flight, in milliseconds.
    inflight_since: Option<u64>,
}

/// PeerState of a method between one peer and the next.
#[derive(Debug)]
enum MethodState {
    RoundRobin,
    LeastConn,
    LeastTime(LeastTime),
    IpHash(IpHash),
    KeyHash(KeyHash),
    Consistent(Consistent),
    Random { tries: u32 },
    RandomTwo { tries: u32 },
}

impl Choice {
    /// Begins a choice for one request.
    #[must_use]
    pub fn new(group: &Arc<PeerGroup>, asker: &Asker) -> Choice {
        let search = match &group.method {
            BalancingMethod::RoundRobin => MethodState::RoundRobin,
            BalancingMethod::LeastConn => MethodState::LeastConn,
            BalancingMethod::LeastTime(mode) => MethodState::LeastTime(*mode),
            BalancingMethod::IpHash => MethodState::IpHash(IpHash::new(asker.address)),
            BalancingMethod::Hash => MethodState::KeyHash(KeyHash::new(asker.key.clone())),
            BalancingMethod::Consistent => {
                MethodState::Consistent(Consistent::new(&asker.key, &group.primary.ring))
            }
            BalancingMethod::Random => MethodState::Random { tries: 0 },
            BalancingMethod::RandomTwo => MethodState::RandomTwo { tries: 0 },
        };
        Choice {
            tries_left: group.tries(),
            group: Arc::clone(group),
            search,
            sid: asker.sid.clone(),
            is_on_backup: false,
            tried: Tried::default(),
            taken: None,
        }
    }

    /// Takes the next peer; `None`: "no live upstreams", and `$upstream_addr` shows the group's name. The peer taken
    /// before must have been given back.
    pub fn next(&mut self, now: Now) -> Option<&Peer> {
        debug_assert!(
            self.taken.is_none(),
            "a peer is given back before the next one"
        );
        let index = loop {
            match self.pick(now) {
                Ok(found) => break found?,
                Err(Replaced) => self.follow(),
            }
        };
        self.tried.add(index);
        let peers = self.group.set(self.is_on_backup);
        let is_inflight = match &self.search {
            MethodState::LeastTime(mode) => mode.counts_inflight && !peers.is_single,
            _ => false,
        };
        self.taken = Some(TakenPeer {
            index,
            inflight_since: is_inflight.then_some(now.ms),
        });
        peers.list.get(index)
    }

    /// One round: the primary peers, and the backup ones when no primary may be asked.
    fn pick(&mut self, now: Now) -> Result<Option<usize>, Replaced> {
        let (search, sid) = (&mut self.search, &self.sid[..]);
        let found = pick(
            search,
            &self.group,
            self.is_on_backup,
            &self.tried,
            sid,
            now,
        )?;
        if found.is_some() || self.is_on_backup || self.group.backup.is_none() {
            return Ok(found);
        }
        self.is_on_backup = true;
        self.tried = Tried::default();
        let mut round_robin = MethodState::RoundRobin;
        let search = match search {
            MethodState::LeastConn | MethodState::LeastTime(_) => search,
            _ => &mut round_robin,
        };
        pick(search, &self.group, true, &self.tried, sid, now)
    }

    /// A resolver's answer has replaced this group: continues in the new one, with the peers tried and taken.
    fn follow(&mut self) {
        while let Some(next) = self.group.successor() {
            let is_backup = self.is_on_backup;
            let place = |index| next.place(is_backup, index);
            self.tried = self.tried.iter().filter_map(place).collect();
            self.taken = self.taken.and_then(|taken| {
                Some(TakenPeer {
                    index: place(taken.index)?,
                    ..taken
                })
            });
            if let MethodState::Consistent(place) = &mut self.search {
                place.turn_to(&next.group.primary.ring);
            }
            self.group = next.group;
        }
    }

    /// The peer that is taken now.
    #[must_use]
    pub fn taken(&self) -> Option<&Peer> {
        let taken = self.taken?;
        self.group.set(self.is_on_backup).list.get(taken.index)
    }

    /// Number of peers that may still be tried, including the one that is taken. With 1, its response is passed on.
    #[must_use]
    pub fn tries_left(&self) -> usize {
        self.tries_left
    }

    /// Limits the tries (`proxy_next_upstream_tries`), including the first one.
    pub fn limit_tries(&mut self, most: usize) {
        self.tries_left = self.tries_left.min(most);
    }

    /// Records that the peer's idle connection was dead: the try does not count. (As in nginx, the failure does.)
    pub fn forgive_try(&mut self) {
        self.tries_left += 1;
    }

    /// Records that the peer's response head has arrived.
    pub fn note_header(&mut self, took_ms: u64, now: Now) {
        let MethodState::LeastTime(mode) = &self.search else {
            return;
        };
        if mode.to_last_byte || !mode.counts_inflight {
            return; // counted when the answer is complete
        }
        let mut states = loop {
            self.follow();
            let states = self.group.set(self.is_on_backup).lock();
            if !self.group.is_replaced() {
                break states;
            }
        };
        let Some(taken) = &mut self.taken else {
            return;
        };
        let speed = &mut states.speeds[taken.index];
        speed.add_header(took_ms);
        if let Some(since_ms) = taken.inflight_since.take() {
            speed.end(now, since_ms);
        }
    }

    /// Counts a connection that was opened to the taken peer.
    pub fn count_opened(&self) {
        if let Some(taken) = self.taken {
            let counters = &self.group.set(self.is_on_backup).counters;
            counters[taken.index].opened.add_shared(1);
        }
    }

    /// Gives the peer back. Returns whether it is disabled now ("upstream server temporarily disabled").
    pub fn give_back(&mut self, outcome: PeerOutcome, times: PeerTimes, now: Now) -> bool {
        if self.taken.is_none() {
            return false;
        }
        let mut states = loop {
            self.follow();
            let states = self.group.set(self.is_on_backup).lock();
            if !self.group.is_replaced() {
                break states;
            }
        };
        let Some(taken) = self.taken.take() else {
            drop(states); // the peer is gone
            self.tries_left = self.tries_left.saturating_sub(1);
            return false;
        };
        let peers = self.group.set(self.is_on_backup);
        let states = &mut *states;
        let (state, speed) = (
            &mut states.list[taken.index],
            &mut states.speeds[taken.index],
        );
        if let Some(since_ms) = taken.inflight_since {
            speed.end(now, since_ms);
        }
        if let (MethodState::LeastTime(mode), PeerOutcome::Answered, Some(header_ms)) =
            (&self.search, outcome, times.header_ms)
        {
            speed.add_response(times.response_ms);
            if mode.to_last_byte || !mode.counts_inflight {
                speed.add_header(header_ms);
            }
        }
        state.conns = state.conns.saturating_sub(1);
        let mut is_disabled = false;
        if peers.is_single {
            state.forget_failures();
        } else {
            match outcome {
                PeerOutcome::Failed => is_disabled = state.fail(now),
                PeerOutcome::BrokenOff => {}
                PeerOutcome::Answered | PeerOutcome::Unwanted => state.succeed(),
            }
        }
        peers.counters[taken.index].count(outcome, times);
        let is_single = peers.is_single;
        self.tries_left = if is_single {
            0
        } else {
            self.tries_left.saturating_sub(1)
        };
        is_disabled
    }
}

/// The group was replaced in the meantime.
struct Replaced;

/// Takes a peer of a set.
fn pick(
    search: &mut MethodState,
    group: &PeerGroup,
    is_backup: bool,
    tried: &Tried,
    sid: &[u8],
    now: Now,
) -> Result<Option<usize>, Replaced> {
    let peers = group.set(is_backup);
    let mut guard = peers.lock();
    if group.is_replaced() {
        return Err(Replaced);
    }
    if is_backup && group.backup.is_none() {
        return Ok(None); // a resolver's answer took the backup peers away, and the primary ones were passed over
    }
    let states = &mut *guard;
    let index = pick_of(search, peers, states, tried, sid, now);
    if let Some(index) = index {
        states.list[index].conns += 1;
        states.list[index].begin_check(now);
    }
    Ok(index)
}

fn pick_of(
    search: &mut MethodState,
    peers: &Peers,
    states: &mut States,
    tried: &Tried,
    sid: &[u8],
    now: Now,
) -> Option<usize> {
    let candidates = Candidates::new(peers, states, tried, now, sid);
    let picked = match search {
        MethodState::RoundRobin => Picked::ByRoundRobin,
        MethodState::LeastConn => Picked::Peer(least::pick_by_connections(&candidates, states)?),
        MethodState::LeastTime(mode) => {
            Picked::Peer(least::pick_by_time(&candidates, states, *mode)?)
        }
        MethodState::IpHash(hash) => hash.pick(&candidates, states),
        MethodState::KeyHash(hash) => hash.pick(&candidates, states),
        MethodState::Consistent(place) => place.pick(&candidates, states),
        MethodState::Random { tries } => random::pick(&candidates, states, tries),
        MethodState::RandomTwo { tries } => random::pick_of_two(&candidates, states, tries),
    };
    match picked {
        Picked::Peer(index) => Some(index),
        Picked::ByRoundRobin => round_robin::pick(&candidates, states),
    }
}

impl Drop for Choice {
    fn drop(&mut self) {
        if self.taken.is_none() {
            return;
        }
        let mut states = loop {
            self.follow();
            let states = self.group.set(self.is_on_backup).lock();
            if !self.group.is_replaced() {
                break states;
            }
        };
        let Some(taken) = self.taken.take() else {
            return;
        };
        let counters = &self.group.set(self.is_on_backup).counters;
        counters[taken.index].abandoned.add_shared(1);
        let state = &mut states.list[taken.index];
        state.conns = state.conns.saturating_sub(1);
        if let Some(since_ms) = taken.inflight_since {
            states.speeds[taken.index].end(Now::read(), since_ms);
        }
    }
}
