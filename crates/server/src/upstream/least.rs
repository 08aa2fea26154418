//! `least_conn` and `least_time`: the peer that costs least for its weight; among equals, round robin.

use smallvec::SmallVec;

use super::group::{LeastTime, States};
use super::peer::{Now, Peer, Speed, State};
use super::round_robin;
use super::turn::Turn;

/// Response times from here on are equally bad, so that the number of connections decides.
const TIME_MAX_MS: u64 = 5000;
/// Response times within one such step are equal, so that peers of about the same speed take turns.
const TIME_STEP_MS: u64 = 20;

/// `least_conn`.
pub(super) fn pick_by_connections(turn: &Turn<'_>, states: &mut States) -> Option<usize> {
    pick(turn, states, |_, state| u64::from(state.conns))
}

/// `least_time`.
pub(super) fn pick_by_time(turn: &Turn<'_>, states: &mut States, mode: LeastTime) -> Option<usize> {
    let index = pick(turn, states, |peer, state| {
        state.speed.look(turn.now);
        expected_ms(peer, state, turn.now, mode)
    })?;
    if mode.counts_inflight && !turn.peers.is_single {
        states.list[index].speed.begin(turn.now);
    }
    Some(index)
}

fn pick(
    turn: &Turn<'_>,
    states: &mut States,
    mut cost: impl FnMut(&Peer, &mut State) -> u64,
) -> Option<usize> {
    let peers = turn.peers;
    if peers.is_single {
        return round_robin::pick_single(turn, states);
    }
    if turn.bound.is_some() {
        return turn.bound;
    }
    let mut costs: SmallVec<[Option<u64>; 16]> = SmallVec::new();
    for (index, peer) in peers.list.iter().enumerate() {
        let is_open = turn.is_open(states, index);
        costs.push(is_open.then(|| cost(peer, &mut states.list[index])));
    }
    let is_less = |a: usize, b: usize| match (costs[a], costs[b]) {
        (Some(one), Some(other)) => {
            one * u64::from(peers.list[b].weight) < other * u64::from(peers.list[a].weight)
        }
        (one, _) => one.is_some(),
    };
    let best =
        (0..costs.len()).reduce(|best, next| if is_less(next, best) { next } else { best })?;
    costs[best]?;
    let is_equal =
        |index: usize| costs[index].is_some() && !is_less(best, index) && !is_less(index, best);
    match (0..costs.len()).filter(|index| is_equal(*index)).count() {
        1 => Some(best), // nobody's turn is counted
        _ => round_robin::share(peers, states, None, |index, _| is_equal(index)),
    }
}

/// How long a peer needs until it is done with what it has and one request more.
fn expected_ms(peer: &Peer, state: &State, now: Now, mode: LeastTime) -> u64 {
    let speed = &state.speed;
    let mut time = if mode.to_last_byte {
        speed.response_ms
    } else {
        speed.header_ms
    };
    let unchecked = now.seconds - state.checked;
    if unchecked > peer.fail_timeout {
        // A slow peer that nobody asked for some time is given a chance again.
        let halvings = unchecked / (peer.fail_timeout + 1);
        time = time
            .checked_shr(u32::try_from(halvings).unwrap_or(u32::MAX))
            .unwrap_or(0);
    }
    if speed.inflight > 0 {
        time = time.max(speed.inflight_ms);
    }
    if time > TIME_MAX_MS {
        time = TIME_MAX_MS;
    } else {
        time += TIME_STEP_MS - time % TIME_STEP_MS;
    }
    time * (1 + u64::from(state.conns))
}

impl Speed {
    /// Brings the time of the requests on their way up to date.
    fn look(&mut self, now: Now) {
        if let Some(each) = self.inflight_sum_ms.checked_div(self.inflight) {
            self.inflight_ms = mean(self.inflight_ms, each + self.since_change(now));
        }
    }

    /// One more is on its way.
    fn begin(&mut self, now: Now) {
        if self.inflight > 0 {
            self.inflight_sum_ms += self.since_change(now) * self.inflight;
        }
        self.inflight_changed_ms = now.ms;
        self.inflight += 1;
    }

    /// One is not on its way any more, which was it for `took_ms`.
    pub fn end(&mut self, now: Now, took_ms: u64) {
        if self.inflight <= 1 {
            self.inflight_sum_ms = 0;
        } else {
            let sum = self.inflight_sum_ms + self.since_change(now) * self.inflight;
            self.inflight_sum_ms = sum.saturating_sub(took_ms);
            self.inflight_changed_ms = now.ms;
        }
        self.inflight = self.inflight.saturating_sub(1);
    }

    /// One is not on its way any more, since its client left: nothing is known of it.
    pub fn forget(&mut self) {
        self.inflight = self.inflight.saturating_sub(1);
        if self.inflight == 0 {
            self.inflight_sum_ms = 0;
        }
    }

    /// An answer's head took so long.
    pub fn add_header(&mut self, took_ms: u64) {
        self.header_ms = mean(self.header_ms, took_ms);
    }

    /// An answer took so long.
    pub fn add_response(&mut self, took_ms: u64) {
        self.response_ms = mean(self.response_ms, took_ms);
    }

    fn since_change(&self, now: Now) -> u64 {
        now.ms.saturating_sub(self.inflight_changed_ms)
    }
}

/// Exponential moving average, a twentieth of the new value, rounded.
fn mean(before: u64, new: u64) -> u64 {
    if before == 0 {
        return new;
    }
    (before * 19 + new + 10) / 20
}
