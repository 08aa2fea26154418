//! Ranges of IPv4 addresses while a block is read. A later range must equal an earlier one, lie inside it, or not
//! overlap it.
//!
//! As in nginx each range is cut at the ends of the networks of 65 536 addresses, and the rule holds for each piece.
//! Invariant: the pieces of a network are in order and do not overlap.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::spans::{Span, Spans};

/// Bits of an address inside a network.
const LOW: u32 = 0xffff;

/// First and last address of what is in the way.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Overlap(pub u32, pub u32);

/// The ranges so far.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<u32, Vec<Span<u32>>>);

impl Ranges {
    /// Adds a range; gives the values that it replaces.
    ///
    /// # Errors
    /// It overlaps another one.
    pub(super) fn add(
        &mut self,
        first: u32,
        last: u32,
        value: u32,
    ) -> Result<SmallVec<[u32; 1]>, Overlap> {
        let mut replaced = SmallVec::new();
        for (first, last) in pieces(first, last) {
            let network = self.0.entry(first & !LOW).or_default();
            replaced.extend(put(network, Span { first, last, value })?);
        }
        Ok(replaced)
    }

    /// Deletes a range; `false`: not all of it was there with exactly these ends.
    pub(super) fn delete(&mut self, first: u32, last: u32) -> bool {
        let mut is_whole = true;
        for (first, last) in pieces(first, last) {
            let network = self.0.get_mut(&(first & !LOW));
            let found = network.and_then(|network| {
                let at = network
                    .iter()
                    .position(|span| span.first == first && span.last == last)?;
                Some(network.remove(at))
            });
            is_whole &= found.is_some();
        }
        is_whole
    }

    /// All of them.
    #[must_use]
    pub(super) fn finish(self) -> Spans<u32> {
        Spans::new(self.0.into_values().flatten().collect())
    }
}

/// A range, cut at the ends of the networks.
fn pieces(first: u32, last: u32) -> impl Iterator<Item = (u32, u32)> {
    let mut next = Some(first);
    std::iter::from_fn(move || {
        let start = next.filter(|start| *start <= last)?;
        let end = (start | LOW).min(last);
        next = end.checked_add(1);
        Some((start, end))
    })
}

/// Puts a piece among those of its network; gives the value that it replaces.
fn put(network: &mut Vec<Span<u32>>, new: Span<u32>) -> Result<Option<u32>, Overlap> {
    // The last one that does not lie behind the new one.
    let at = network.partition_point(|span| span.first <= new.last);
    let Some(old) = at.checked_sub(1).map(|at| network[at]) else {
        network.insert(0, new);
        return Ok(None);
    };
    if old.last < new.first {
        network.insert(at, new);
        return Ok(None);
    }
    if (old.first, old.last) == (new.first, new.last) {
        network[at - 1] = new;
        return Ok(Some(old.value));
    }
    if new.first < old.first || new.last > old.last {
        return Err(Overlap(old.first, old.last));
    }
    let before = (old.first < new.first).then(|| Span {
        last: new.first - 1,
        ..old
    });
    let behind = (new.last < old.last).then(|| Span {
        first: new.last + 1,
        ..old
    });
    let parts = before.into_iter().chain([new]).chain(behind);
    network.splice(at - 1..at, parts);
    Ok(None)
}
