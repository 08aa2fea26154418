//! A group of servers, as `upstream` declares it: its peers, the `backup` ones, and its balancing method.
//!
//! Invariant: a group's peers never change; another configuration, or another answer of a resolver, makes another
//! group. Only their states change, behind one lock for each of the two sets. A group that a resolver's answer replaced
//! points to its successor, which has the states now: a request that finds the pointer, under the lock, goes there. The
//! pointer always leads to the latest group, so a request that lasts for days keeps none of those in between alive.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use super::hash::HashRing;
use super::peer::{Now, Peer, PeerState, Speed, Standing};
use super::peer_counters::{self, PeerCounters};

/// The load-balancing method of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BalancingMethod {
    /// Weighted round robin.
    #[default]
    RoundRobin,
    /// `least_conn`.
    LeastConn,
    /// `least_time`.
    LeastTime(LeastTime),
    /// `ip_hash`.
    IpHash,
    /// `hash KEY`.
    Hash,
    /// `hash KEY consistent`.
    Consistent,
    /// `random`.
    Random,
    /// `random two [least_conn]`.
    RandomTwo,
}

/// The time that `least_time` measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeastTime {
    /// Whether it is the time to the end of the response (`last_byte`), not only to its head (`header`).
    pub to_last_byte: bool,
    /// Whether requests in flight count (`inflight`).
    pub counts_inflight: bool,
}

/// The request, as far as the choice depends on it.
#[derive(Clone, Debug, Default)]
pub struct Asker {
    /// The client's address; none at unix sockets. For `ip_hash`.
    pub address: Option<IpAddr>,
    /// The value of the key of `hash`.
    pub key: Bytes,
    /// The [`Peer::sid`] that a sticky session is bound to; empty: none.
    pub sid: Bytes,
}

/// A group of servers.
#[derive(Debug)]
pub struct PeerGroup {
    name: String,
    pub(crate) method: BalancingMethod,
    pub(super) primary: Peers,
    pub(super) backup: Option<Peers>,
    tries: usize,
    is_replaced: AtomicBool,
    /// Present from its replacement on.
    successor: Mutex<Option<Successor>>,
}

/// The group that replaced another.
#[derive(Clone, Debug)]
pub(super) struct Successor {
    pub group: Arc<PeerGroup>,
    moved: Moved,
}

/// The index of each peer of a set in the next group; `None`: it is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// The primary peers.
    pub primary: Vec<Option<usize>>,
    /// The backup peers.
    pub backup: Vec<Option<usize>>,
}

impl Successor {
    /// Follows a replacement of this successor itself.
    fn skip_to(&mut self, next: &Successor) {
        for (is_backup, places) in [
            (false, &mut self.moved.primary),
            (true, &mut self.moved.backup),
        ] {
            for place in places {
                *place = place.and_then(|index| next.place(is_backup, index));
            }
        }
        self.group = Arc::clone(&next.group);
    }

    /// The new index of a peer of a set.
    pub(crate) fn place(&self, is_backup: bool, index: usize) -> Option<usize> {
        let places = match is_backup {
            true => &self.moved.backup,
            false => &self.moved.primary,
        };
        places.get(index).copied().flatten()
    }
}

/// A set of peers, the primary or the backup ones.
#[derive(Debug)]
pub(super) struct Peers {
    pub list: Vec<Peer>,
    pub total_weight: u64,
    /// Cumulative weights: the end of each peer's part of a line.
    ends: Vec<u64>,
    /// Whether it is the only peer of the group, which is always asked.
    pub is_single: bool,
    /// For `BalancingMethod::Consistent`.
    pub ring: HashRing,
    states: Mutex<States>,
    /// The metrics of each peer.
    pub counters: Vec<Arc<PeerCounters>>,
}

/// The current state of the peers of a set.
#[derive(Debug)]
pub(super) struct States {
    pub list: Vec<PeerState>,
    /// For `least_time`.
    pub speeds: Vec<Speed>,
    pub random: Random,
}

impl PeerGroup {
    /// A group of these peers. Without a primary peer nothing is ever chosen.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        method: BalancingMethod,
        primary: Vec<Peer>,
        backup: Vec<Peer>,
    ) -> PeerGroup {
        let name: String = name.into();
        let named = name.clone();
        PeerGroup::counted(name, method, primary, backup, &|peer| {
            peer_counters::of(&named, &peer.name)
        })
    }

    /// A group made from a request's own values: its peers are counted together with those of all such groups.
    #[must_use]
    pub fn of_request(name: String, primary: Vec<Peer>) -> PeerGroup {
        let counters = |_: &Peer| peer_counters::others();
        PeerGroup::counted(
            name,
            BalancingMethod::RoundRobin,
            primary,
            Vec::new(),
            &counters,
        )
    }

    fn counted(
        name: String,
        method: BalancingMethod,
        primary: Vec<Peer>,
        backup: Vec<Peer>,
        counters: &dyn Fn(&Peer) -> Arc<PeerCounters>,
    ) -> PeerGroup {
        let is_single = primary.len() == 1 && backup.is_empty();
        let all = primary.iter().chain(&backup);
        let tries = all.filter(|peer| peer.standing == Standing::Up).count();
        // Methods that need points or lots choose among the primary peers only.
        let plain = &BalancingMethod::RoundRobin;
        let backup = (!backup.is_empty()).then(|| Peers::new(backup, plain, false, counters));
        PeerGroup {
            name,
            primary: Peers::new(primary, &method, is_single, counters),
            backup,
            method,
            tries,
            is_replaced: AtomicBool::new(false),
            successor: Mutex::new(None),
        }
    }

    /// Replaces this group by another; the states of the peers that remain go with it. `elders` are the groups that
    /// this one succeeded, as far as requests still hold them.
    pub(crate) fn replace(
        self: &Arc<Self>,
        next: PeerGroup,
        moved: Moved,
        elders: &mut Vec<Weak<PeerGroup>>,
    ) -> Arc<PeerGroup> {
        let primary = self.primary.lock();
        let backup = self.backup.as_ref().map(Peers::lock);
        next.primary.take_over(&primary, &moved.primary);
        if let (Some(peers), Some(states)) = (&next.backup, &backup) {
            peers.take_over(states, &moved.backup);
        }
        let group = Arc::new(next);
        let successor = Successor {
            group: Arc::clone(&group),
            moved,
        };
        elders.retain(|elder| {
            let Some(elder) = elder.upgrade() else {
                return false;
            };
            if let Some(known) = &mut *elder.successor.lock() {
                known.skip_to(&successor);
            }
            true
        });
        elders.push(Arc::downgrade(self));
        *self.successor.lock() = Some(successor);
        self.is_replaced.store(true, Ordering::Release);
        group
    }

    /// Whether it was replaced. Exact only while the lock of one of its sets is held.
    pub(super) fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::Acquire)
    }

    /// The group that replaced it.
    pub(super) fn successor(&self) -> Option<Successor> {
        if !self.is_replaced() {
            return None;
        }
        self.successor.lock().clone()
    }

    /// Its name: what `$upstream_addr` shows when no peer could be had.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All peers, the backup ones last.
    pub fn peers(&self) -> impl Iterator<Item = &Peer> {
        let backup = self.backup.iter().flat_map(|peers| &peers.list);
        self.primary.list.iter().chain(backup)
    }

    /// Maximum of peers that one request may try: those that are not down.
    #[must_use]
    pub fn tries(&self) -> usize {
        self.tries
    }

    /// The backup peers, or the primary ones.
    pub(super) fn set(&self, is_backup: bool) -> &Peers {
        match &self.backup {
            Some(backup) if is_backup => backup,
            _ => &self.primary,
        }
    }

    /// Current requests of each peer, in the order of [`PeerGroup::peers`], for the status pages.
    #[must_use]
    pub fn connections(&self) -> Vec<u32> {
        self.of_each(|state| state.conns)
    }

    /// Whether each peer has failed too often to be asked now, in the same order.
    #[must_use]
    pub fn failing(&self, now: Now) -> Vec<bool> {
        self.of_each(|state| state.is_failing(now))
    }

    fn of_each<T>(&self, look: impl Fn(&PeerState) -> T) -> Vec<T> {
        let sets = std::iter::once(&self.primary).chain(&self.backup);
        let mut all = Vec::new();
        for peers in sets {
            all.extend(peers.lock().list.iter().map(&look));
        }
        all
    }
}

impl Peers {
    fn new(
        list: Vec<Peer>,
        method: &BalancingMethod,
        is_single: bool,
        counters: &dyn Fn(&Peer) -> Arc<PeerCounters>,
    ) -> Peers {
        debug_assert!(list.iter().all(|peer| peer.weight > 0));
        let ends = list.iter().scan(0, |end, peer| {
            *end += u64::from(peer.weight);
            Some(*end)
        });
        let ends: Vec<u64> = ends.collect();
        Peers {
            total_weight: ends.last().copied().unwrap_or(0),
            ends,
            is_single,
            ring: match method {
                BalancingMethod::Consistent => HashRing::new(&list),
                _ => HashRing::default(),
            },
            states: Mutex::new(States {
                list: list.iter().map(PeerState::new).collect(),
                speeds: vec![Speed::default(); list.len()],
                random: Random::new(method),
            }),
            counters: list.iter().map(counters).collect(),
            list,
        }
    }

    /// The states, locked for no longer than a choice takes.
    pub(crate) fn lock(&self) -> MutexGuard<'_, States> {
        self.states.lock()
    }

    /// Takes over the states of the peers that remain.
    fn take_over(&self, before: &States, places: &[Option<usize>]) {
        let mut states = self.lock();
        for (from, to) in places.iter().enumerate() {
            if let Some(to) = to.filter(|to| *to < self.list.len()) {
                states.list[to] = before.list[from].clone();
                states.speeds[to] = before.speeds[from].clone();
            }
        }
    }

    /// The peer at this position of the line of cumulative weights.
    pub(crate) fn at_weight(&self, place: u64) -> usize {
        let index = self.ends.partition_point(|end| *end <= place);
        index.min(self.list.len().saturating_sub(1))
    }
}

/// Random numbers that need not be secret (splitmix64).
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    /// Seeded at random, where the method chooses at random.
    fn new(method: &BalancingMethod) -> Random {
        match method {
            BalancingMethod::Random | BalancingMethod::RandomTwo => Random(seed()),
            _ => Random(0),
        }
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }
}

/// Random choices need not be secret, only different.
fn seed() -> u64 {
    if cfg!(test) {
        return 1; // tests count what comes of the lots
    }
    let mut bytes = [0; 8];
    // Up to 256 bytes come at once, or none before the kernel has its first entropy: then the clock has to do.
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::NONBLOCK) {
        Ok(8) => u64::from_ne_bytes(bytes),
        _ => wire::loop_clock::monotonic_ms(),
    }
}
