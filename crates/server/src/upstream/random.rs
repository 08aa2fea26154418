//! `random` and `random two`: by weight; of two, the one with less connections for its weight.

use super::choice::{Picked, Tried};
use super::group::{Peers, States};
use super::hash::TRIES_MAX;
use super::peer::Now;

/// One that may be chosen.
pub(super) fn pick(
    peers: &Peers,
    states: &mut States,
    tried: &Tried,
    now: Now,
    tries: &mut u32,
) -> Picked {
    if peers.list.len() < 2 {
        return Picked::ByRoundRobin;
    }
    draw(peers, states, tried, now, tries, None)
}

/// The less busy of two that may be chosen.
pub(super) fn pick_of_two(
    peers: &Peers,
    states: &mut States,
    tried: &Tried,
    now: Now,
    tries: &mut u32,
) -> Picked {
    if peers.list.len() < 2 {
        return Picked::ByRoundRobin;
    }
    let Picked::Peer(first) = draw(peers, states, tried, now, tries, None) else {
        return Picked::ByRoundRobin;
    };
    let Picked::Peer(second) = draw(peers, states, tried, now, tries, Some(first)) else {
        return Picked::ByRoundRobin;
    };
    let load = |index: usize, other: usize| {
        u64::from(states.list[index].conns) * u64::from(peers.list[other].weight)
    };
    Picked::Peer(if load(second, first) > load(first, second) {
        first
    } else {
        second
    })
}

fn draw(
    peers: &Peers,
    states: &mut States,
    tried: &Tried,
    now: Now,
    tries: &mut u32,
    except: Option<usize>,
) -> Picked {
    while *tries <= TRIES_MAX {
        let index = peers.at_weight(states.random.below(peers.total_weight));
        if except != Some(index)
            && !tried.has(index)
            && states.list[index].is_available(&peers.list[index], now)
        {
            return Picked::Peer(index);
        }
        *tries += 1;
    }
    Picked::ByRoundRobin
}
