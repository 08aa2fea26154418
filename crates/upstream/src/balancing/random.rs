//! `random` and `random two`: by weight; of two, the one with less connections for its weight.

use super::candidates::{Candidates, Picked};
use super::group::States;
use super::hash::TRIES_MAX;

/// One that may be chosen.
pub(super) fn pick(candidates: &Candidates<'_>, states: &mut States, tries: &mut u32) -> Picked {
    if candidates.peers.list.len() < 2 || *tries > TRIES_MAX {
        return Picked::ByRoundRobin;
    }
    match candidates.bound {
        Some(bound) => Picked::Peer(bound),
        None => draw(candidates, states, tries, None),
    }
}

/// The less busy of two that may be chosen.
pub(super) fn pick_of_two(
    candidates: &Candidates<'_>,
    states: &mut States,
    tries: &mut u32,
) -> Picked {
    let Picked::Peer(first) = pick(candidates, states, tries) else {
        return Picked::ByRoundRobin;
    };
    if candidates.bound.is_some() {
        return Picked::Peer(first);
    }
    let Picked::Peer(second) = draw(candidates, states, tries, Some(first)) else {
        return Picked::ByRoundRobin;
    };
    let load = |index: usize, other: usize| {
        u64::from(states.list[index].conns) * u64::from(candidates.peers.list[other].weight)
    };
    Picked::Peer(if load(second, first) > load(first, second) {
        first
    } else {
        second
    })
}

fn draw(
    candidates: &Candidates<'_>,
    states: &mut States,
    tries: &mut u32,
    except: Option<usize>,
) -> Picked {
    while *tries <= TRIES_MAX {
        let place = states.random.below(candidates.peers.total_weight);
        let index = candidates.peers.at_weight(place);
        if except != Some(index) && candidates.is_open(states, index) {
            return Picked::Peer(index);
        }
        *tries += 1;
    }
    Picked::ByRoundRobin
}
