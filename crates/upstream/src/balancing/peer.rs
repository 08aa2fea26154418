//! One address of an upstream: its configuration, and its state.
//!
//! Not here: which peer is chosen. Invariant: a state is read and changed under its group's lock only.

use std::sync::Arc;

use md5::{Digest, Md5};
use runtime::listen::address::Address;

/// Earlier than any time that a clock shows.
const NEVER: i64 = i64::MIN / 4;

/// A time, from clocks that the loop has read anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Seconds of any clock that does not jump; nginx takes whole ones for `fail_timeout`.
    pub seconds: i64,
    /// Milliseconds of any clock that does not jump, for `least_time`.
    pub ms: u64,
}

impl Now {
    /// The current time, by the loop's clock.
    #[must_use]
    pub fn read() -> Now {
        let ms = wire::loop_clock::monotonic_ms();
        Now {
            seconds: i64::try_from(ms / 1000).unwrap_or(i64::MAX),
            ms,
        }
    }
}

/// Whether a peer can be chosen at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// Yes.
    #[default]
    Up,
    /// `down`: never.
    Down,
    /// `drain`: only by sticky sessions that are bound to it.
    Draining,
}

/// One address of an upstream. A server whose name has several addresses makes several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The address to connect to.
    pub address: Address,
    /// The address as `$upstream_addr` shows it.
    pub name: Arc<str>,
    /// The server as configured: `hash … consistent` computes its points from this.
    pub server: Box<[u8]>,
    /// Its identifier for sticky sessions: `route`, else the MD5 of `name` in hexadecimal digits; empty: it was never
    /// needed.
    pub sid: Box<[u8]>,
    /// `weight`, at least 1.
    pub weight: u32,
    /// `max_conns`; 0: no limit.
    pub max_conns: u32,
    /// `max_fails`; 0: failures are not counted.
    pub max_fails: u32,
    /// `fail_timeout`, in seconds.
    pub fail_timeout: i64,
    /// `down` and `drain`.
    pub standing: Standing,
}

impl Peer {
    /// A peer with nginx's defaults for all parameters, without sessions.
    #[must_use]
    pub fn new(address: Address, server: &[u8]) -> Peer {
        let name = address.to_string();
        Peer {
            sid: Box::default(),
            name: name.into(),
            address,
            server: server.into(),
            weight: 1,
            max_conns: 0,
            max_fails: 1,
            fail_timeout: 10,
            standing: Standing::Up,
        }
    }

    /// The same with the identifier that sticky sessions use without a `route`.
    #[must_use]
    pub fn with_sid(self) -> Peer {
        Peer {
            sid: hexadecimal(&Md5::digest(&*self.name)),
            ..self
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> Box<[u8]> {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .map(|digit| b"0123456789abcdef"[usize::from(digit)])
        .collect()
}

/// A peer's current state, with the configured values that a choice needs: one cache line for each peer, since a choice
/// reads all of them.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct PeerState {
    /// Current weight of round robin; the sum over a group's peers is always 0.
    pub current_weight: i64,
    /// Effective weight, reduced after failures; grows back by 1 each time that the peer is considered.
    pub effective_weight: i64,
    /// Time of the last failure.
    accessed: i64,
    /// Time of the last failure, or of the first choice after `fail_timeout` had passed.
    pub checked: i64,
    /// `fail_timeout`, in seconds.
    pub fail_timeout: i64,
    /// Current number of requests.
    pub conns: u32,
    fails: u32,
    /// `weight`.
    pub weight: u32,
    max_conns: u32,
    max_fails: u32,
    /// `down` and `drain`.
    pub standing: Standing,
}

const _: () = assert!(size_of::<PeerState>() == 64);

/// The measurements of `least_time`, in milliseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Speed {
    /// Mean time to the head.
    pub header_ms: u64,
    /// Mean time to the end.
    pub response_ms: u64,
    /// Mean time that requests have been in flight.
    pub inflight_ms: u64,
    /// Sum of the times of the requests in flight, up to `inflight_changed_ms`.
    pub inflight_sum_ms: u64,
    /// When the number of requests in flight last changed.
    pub inflight_changed_ms: u64,
    /// Number of requests in flight.
    pub inflight: u64,
}

impl PeerState {
    pub(crate) fn new(peer: &Peer) -> PeerState {
        PeerState {
            current_weight: 0,
            effective_weight: i64::from(peer.weight),
            accessed: NEVER,
            checked: NEVER,
            fail_timeout: peer.fail_timeout,
            conns: 0,
            fails: 0,
            weight: peer.weight,
            max_conns: peer.max_conns,
            max_fails: peer.max_fails,
            standing: peer.standing,
        }
    }

    /// Whether it is below `max_conns`.
    pub(crate) fn has_room(&self) -> bool {
        self.max_conns == 0 || self.conns < self.max_conns
    }

    /// Whether it has failed too often to be chosen now.
    pub(crate) fn is_failing(&self, now: Now) -> bool {
        self.max_fails != 0
            && self.fails >= self.max_fails
            && now.seconds - self.checked <= self.fail_timeout
    }

    /// Returns its weight for this turn; after failures, the weight for the next turns grows a little.
    pub(crate) fn take_part(&mut self) -> i64 {
        let weight = self.effective_weight;
        self.current_weight += weight;
        if self.effective_weight < i64::from(self.weight) {
            self.effective_weight += 1;
        }
        weight
    }

    /// Records that it was chosen: the result of this request decides whether it has recovered.
    pub(crate) fn begin_check(&mut self, now: Now) {
        if now.seconds - self.checked > self.fail_timeout {
            self.checked = now.seconds;
        }
    }

    /// Records a failed request. Returns whether the peer is disabled now.
    pub(crate) fn fail(&mut self, now: Now) -> bool {
        self.fails = self.fails.saturating_add(1);
        self.accessed = now.seconds;
        self.checked = now.seconds;
        let Some(loss) = self.weight.checked_div(self.max_fails) else {
            return false;
        };
        self.effective_weight = (self.effective_weight - i64::from(loss)).max(0);
        self.fails >= self.max_fails
    }

    /// Records a successful request. Failures are forgotten only once `fail_timeout` has passed since the last one.
    pub(crate) fn succeed(&mut self) {
        if self.accessed < self.checked {
            self.fails = 0;
        }
    }

    /// The only peer of its group is never disabled.
    pub(crate) fn forget_failures(&mut self) {
        self.fails = 0;
    }
}
