//! nginx's smooth weighted round robin: heavy peers come often, but not in a row (5, 1, 1 gives a a b a c a a).
//!
//! Each turn every peer that may be chosen gains its weight; the one that has gained most is chosen, and pays for all.

use super::choice::Tried;
use super::group::{Peers, States};
use super::peer::Now;

/// The peer whose turn it is, if any may be chosen.
pub(super) fn pick(peers: &Peers, states: &mut States, tried: &Tried, now: Now) -> Option<usize> {
    if peers.is_single {
        return pick_single(peers, states);
    }
    turn(peers, states, |index, states| {
        !tried.has(index) && states.list[index].is_available(&peers.list[index], now)
    })
}

/// A peer that is alone is asked whatever it did before.
pub(super) fn pick_single(peers: &Peers, states: &States) -> Option<usize> {
    let (peer, state) = (peers.list.first()?, states.list.first()?);
    (peer.standing == super::Standing::Up && state.has_room(peer)).then_some(0)
}

/// One turn among the peers that `may_take_part`.
pub(super) fn turn(
    peers: &Peers,
    states: &mut States,
    may_take_part: impl Fn(usize, &States) -> bool,
) -> Option<usize> {
    let mut best: Option<usize> = None;
    let mut total = 0;
    for (index, peer) in peers.list.iter().enumerate() {
        if !may_take_part(index, states) {
            continue;
        }
        total += states.list[index].take_part(peer);
        let weight = states.list[index].current_weight;
        if best.is_none_or(|best| weight > states.list[best].current_weight) {
            best = Some(index);
        }
    }
    let best = best?;
    states.list[best].current_weight -= total;
    Some(best)
}
