//! Circles of a graph, and an order of its rooms with few arrows that run back.

use std::collections::{BTreeMap, BTreeSet};

/// Arrows between nodes, by their numbers.
pub type Arrows = BTreeSet<(usize, usize)>;

/// Groups of two nodes and more that all reach each other, the largest first.
pub fn circles(nodes: usize, arrows: &Arrows) -> Vec<Vec<usize>> {
    let reached: Vec<BTreeSet<usize>> = (0..nodes).map(|from| reach(from, arrows)).collect();
    let mut seen = BTreeSet::new();
    let mut circles = Vec::new();
    for node in 0..nodes {
        if seen.contains(&node) {
            continue;
        }
        let together =
            |other: &usize| reached[node].contains(other) && reached[*other].contains(&node);
        let circle: Vec<usize> = (0..nodes).filter(together).collect();
        seen.extend(circle.iter().copied());
        if circle.len() > 1 {
            circles.push(circle);
        }
    }
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

fn reach(from: usize, arrows: &Arrows) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        for &(_, to) in arrows.range((node, 0)..=(node, usize::MAX)) {
            if reached.insert(to) {
                open.push(to);
            }
        }
    }
    reached
}

/// An order of the rooms, importers first: sinks are taken away as long as there are any, else the room with the largest
/// surplus of arrows out over arrows in (Eades, Lin, Smyth 1993). Then single rooms are moved as long as that helps.
/// `weights`: the number of imports from one room to another.
pub fn order(rooms: usize, weights: &BTreeMap<(usize, usize), usize>) -> Vec<usize> {
    let mut left: BTreeSet<usize> = (0..rooms).collect();
    let (mut first, mut last) = (Vec::new(), Vec::new());
    let sum = |left: &BTreeSet<usize>, room: usize, out: bool| -> usize {
        let of_room = |pair: &(usize, usize)| match out {
            true => pair.0 == room && left.contains(&pair.1),
            false => pair.1 == room && left.contains(&pair.0),
        };
        weights
            .iter()
            .filter(|(pair, _)| of_room(pair))
            .map(|(_, count)| count)
            .sum()
    };
    while !left.is_empty() {
        let sink = left
            .iter()
            .copied()
            .find(|room| sum(&left, *room, true) == 0);
        let chosen = sink.or_else(|| {
            let surplus =
                |room: &usize| sum(&left, *room, true) as isize - sum(&left, *room, false) as isize;
            left.iter().copied().max_by_key(surplus)
        });
        let Some(room) = chosen else { break };
        left.remove(&room);
        match sink {
            Some(_) => last.push(room),
            None => first.push(room),
        }
    }
    last.reverse();
    first.extend(last);
    improved(first, weights)
}

fn improved(mut order: Vec<usize>, weights: &BTreeMap<(usize, usize), usize>) -> Vec<usize> {
    let mut best = back(&order, weights);
    let mut has_changed = true;
    while has_changed {
        has_changed = false;
        for from in 0..order.len() {
            for to in 0..order.len() {
                let mut other = order.clone();
                let room = other.remove(from);
                other.insert(to, room);
                let count = back(&other, weights);
                if count < best {
                    (order, best, has_changed) = (other, count, true);
                }
            }
        }
    }
    order
}

/// Imports that run against an order.
fn back(order: &[usize], weights: &BTreeMap<(usize, usize), usize>) -> usize {
    let place: BTreeMap<usize, usize> = order.iter().copied().zip(0..).collect();
    let is_back = |pair: &(usize, usize)| place[&pair.0] > place[&pair.1];
    weights
        .iter()
        .filter(|(pair, _)| is_back(pair))
        .map(|(_, count)| count)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_what_reaches_itself() {
        let arrows = Arrows::from([(0, 1), (1, 2), (2, 1), (2, 3), (4, 4)]);
        assert_eq!(circles(5, &arrows), [[1, 2]]);
    }

    #[test]
    fn the_fewest_imports_run_back() {
        let weights = BTreeMap::from([((2, 1), 5), ((1, 0), 3), ((0, 2), 1)]);
        let order = order(3, &weights);
        assert_eq!(
            (order.as_slice(), back(&order, &weights)),
            (&[2, 1, 0][..], 1)
        );
    }
}
