//! `random` and `random two`: by weight; of two, the one with less connections for its weight.

use super::eligible::{Picked, Turn};
use super::group::States;
use super::hash::TRIES_MAX;

/// One that may be chosen.
pub(super) fn pick(turn: &Turn<'_>, states: &mut States, tries: &mut u32) -> Picked {
    if turn.peers.list.len() < 2 || *tries > TRIES_MAX {
        return Picked::ByRoundRobin;
    }
    match turn.bound {
        Some(bound) => Picked::Peer(bound),
        None => draw(turn, states, tries, None),
    }
}

/// The less busy of two that may be chosen.
pub(super) fn pick_of_two(turn: &Turn<'_>, states: &mut States, tries: &mut u32) -> Picked {
    let Picked::Peer(first) = pick(turn, states, tries) else {
        return Picked::ByRoundRobin;
    };
    if turn.bound.is_some() {
        return Picked::Peer(first);
    }
    let Picked::Peer(second) = draw(turn, states, tries, Some(first)) else {
        return Picked::ByRoundRobin;
    };
    let load = |index: usize, other: usize| {
        u64::from(states.list[index].conns) * u64::from(turn.peers.list[other].weight)
    };
    Picked::Peer(if load(second, first) > load(first, second) {
        first
    } else {
        second
    })
}

fn draw(turn: &Turn<'_>, states: &mut States, tries: &mut u32, except: Option<usize>) -> Picked {
    while *tries <= TRIES_MAX {
        let place = states.random.below(turn.peers.total_weight);
        let index = turn.peers.at_weight(place);
        if except != Some(index) && turn.is_open(states, index) {
            return Picked::Peer(index);
        }
        *tries += 1;
    }
    Picked::ByRoundRobin
}
