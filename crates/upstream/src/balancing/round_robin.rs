//! nginx's smooth weighted round robin: heavy peers come often, but not in a row (5, 1, 1 gives a a b a c a a).
//!
//! Each turn every peer that may be chosen gains its weight; the one that has gained most is chosen, and pays for all.
//! A sticky session's peer is chosen and pays whatever it has gained, until it has paid for a whole round.

use super::Standing;
use super::candidates::Candidates;
use super::group::States;

/// The peer whose turn it is, if any may be chosen.
pub(super) fn pick(candidates: &Candidates<'_>, states: &mut States) -> Option<usize> {
    if candidates.peers.is_single {
        return pick_single(candidates, states);
    }
    if let Some(bound) = candidates.bound {
        let weight = u64::from(candidates.peers.list[bound].weight);
        let others = i64::try_from(candidates.peers.total_weight - weight).unwrap_or(i64::MAX);
        if states.list[bound].current_weight <= -others {
            return candidates.bound;
        }
    }
    share(states, candidates.bound, |index, states| {
        candidates.is_open(states, index)
    })
}

/// A single peer is asked whatever its failures.
pub(super) fn pick_single(candidates: &Candidates<'_>, states: &States) -> Option<usize> {
    let state = states.list.first()?;
    let is_open = state.standing == Standing::Up && state.has_room();
    candidates.bound.or(is_open.then_some(0))
}

/// One turn among the peers that `take_part`; `bound`, if there is one, is chosen instead of the best.
pub(super) fn share(
    states: &mut States,
    bound: Option<usize>,
    mut takes_part: impl FnMut(usize, &States) -> bool,
) -> Option<usize> {
    let mut best: Option<usize> = None;
    let mut total = 0;
    for index in 0..states.list.len() {
        if !takes_part(index, states) {
            continue;
        }
        total += states.list[index].take_part();
        let weight = states.list[index].current_weight;
        if best.is_none_or(|best| weight > states.list[best].current_weight) {
            best = Some(index);
        }
    }
    let chosen = bound.or(best)?;
    states.list[chosen].current_weight -= total;
    Some(chosen)
}
