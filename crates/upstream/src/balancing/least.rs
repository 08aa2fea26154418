//! `least_conn` and `least_time`: the peer with the least cost for its weight; among equals, round robin.

use smallvec::SmallVec;

use super::candidates::Candidates;
use super::group::{LeastTime, States};
use super::peer::{Now, PeerState, Speed};
use super::round_robin;

/// Response times from here on are equally bad, so that the number of connections decides.
const TIME_MAX_MS: u64 = 5000;
/// Response times within one such step are equal, so that peers of about the same speed take turns.
const TIME_STEP_MS: u64 = 20;

/// `least_conn`.
pub(super) fn pick_by_connections(
    candidates: &Candidates<'_>,
    states: &mut States,
) -> Option<usize> {
    pick(candidates, states, |states, index| {
        u64::from(states.list[index].conns)
    })
}

/// `least_time`.
pub(super) fn pick_by_time(
    candidates: &Candidates<'_>,
    states: &mut States,
    mode: LeastTime,
) -> Option<usize> {
    let index = pick(candidates, states, |states, index| {
        states.speeds[index].look(candidates.now);
        expected_ms(
            &states.list[index],
            &states.speeds[index],
            candidates.now,
            mode,
        )
    })?;
    if mode.counts_inflight && !candidates.peers.is_single {
        states.speeds[index].begin(candidates.now);
    }
    Some(index)
}

/// Cost and weight of a peer.
#[derive(Clone, Copy)]
struct Offer {
    index: usize,
    cost: u64,
    weight: u64,
}

impl Offer {
    fn against(self, other: Offer) -> std::cmp::Ordering {
        (self.cost * other.weight).cmp(&(other.cost * self.weight))
    }
}

fn pick(
    candidates: &Candidates<'_>,
    states: &mut States,
    mut cost: impl FnMut(&mut States, usize) -> u64,
) -> Option<usize> {
    if candidates.peers.is_single {
        return round_robin::pick_single(candidates, states);
    }
    if candidates.bound.is_some() {
        return candidates.bound;
    }
    let mut best: Option<Offer> = None;
    let mut equals: SmallVec<[usize; 16]> = SmallVec::new();
    for index in 0..states.list.len() {
        if !candidates.is_open(states, index) {
            continue;
        }
        let offer = Offer {
            index,
            cost: cost(states, index),
            weight: u64::from(states.list[index].weight),
        };
        match best.map(|best| offer.against(best)) {
            Some(std::cmp::Ordering::Greater) => continue,
            Some(std::cmp::Ordering::Equal) => {}
            Some(std::cmp::Ordering::Less) | None => {
                best = Some(offer);
                equals.clear();
            }
        }
        equals.push(index);
    }
    match equals.len() {
        0 | 1 => best.map(|best| best.index), // nobody's turn is counted
        _ => {
            let mut left = equals.into_iter().peekable();
            round_robin::share(states, None, |index, _| left.next_if_eq(&index).is_some())
        }
    }
}

/// Estimated time until a peer is done with its current requests and one more.
fn expected_ms(state: &PeerState, speed: &Speed, now: Now, mode: LeastTime) -> u64 {
    let mut time = if mode.to_last_byte {
        speed.response_ms
    } else {
        speed.header_ms
    };
    let unchecked = now.seconds - state.checked;
    if unchecked > state.fail_timeout {
        // A slow peer that was not asked for some time is given another chance.
        let halvings = unchecked / (state.fail_timeout + 1);
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
    /// Brings the time of the requests in flight up to date.
    fn look(&mut self, now: Now) {
        if let Some(each) = self.inflight_sum_ms.checked_div(self.inflight) {
            self.inflight_ms = mean(self.inflight_ms, each + self.since_change(now));
        }
    }

    /// Counts one more request in flight.
    fn begin(&mut self, now: Now) {
        if self.inflight > 0 {
            self.inflight_sum_ms += self.since_change(now) * self.inflight;
        }
        self.inflight_changed_ms = now.ms;
        self.inflight += 1;
    }

    /// Counts one less request in flight, however it ended; it was in flight since `since_ms`, whose time goes with it.
    pub(crate) fn end(&mut self, now: Now, since_ms: u64) {
        let took_ms = now.ms.saturating_sub(since_ms);
        if self.inflight <= 1 {
            self.inflight_sum_ms = 0;
        } else {
            let sum = self.inflight_sum_ms + self.since_change(now) * self.inflight;
            self.inflight_sum_ms = sum.saturating_sub(took_ms);
            self.inflight_changed_ms = now.ms;
        }
        self.inflight = self.inflight.saturating_sub(1);
    }

    /// Adds the time of a response's head.
    pub(crate) fn add_header(&mut self, took_ms: u64) {
        self.header_ms = mean(self.header_ms, took_ms);
    }

    /// Adds the time of a response.
    pub(crate) fn add_response(&mut self, took_ms: u64) {
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
