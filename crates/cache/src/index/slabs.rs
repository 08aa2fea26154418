//! The memory of an index: slabs of slots, each with the buckets for them, so that growing copies nothing, leaves
//! nothing unused, and never takes more than one slab's work. A slot never moves: a scan sees each key that stays.
//!
//! Only slots of entries with files of their own are in an order of use; a slab has links once one of them is in it. Of
//! the others a slab knows since when none was used, so that old ones are found without a look at all.
//!
//! Slabs lie in mappings of their own: among the short-lived blocks of an allocator they would keep it from giving
//! memory back. Slabs that an index no longer needs go to the next one.

use super::slot::{KeySlot, NONE};
use parking_lot::Mutex;
use std::mem::MaybeUninit;

/// Slots of a slab.
pub(super) const SLOTS: usize = 32;
/// Buckets of a slab: one for two slots.
pub(super) const BUCKETS: usize = SLOTS / 2;
/// Slabs that are requested from the kernel at once (about 1 MiB).
const SLABS_AT_ONCE: usize = 512;

/// Where a slot is in the order of use, by the numbers of its neighbours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    /// The slot used next after it.
    pub newer: u32,
    /// The slot used last before it.
    pub older: u32,
}

impl Links {
    const NONE: Self = Self {
        newer: NONE,
        older: NONE,
    };
}

type LinksOfSlab = [Links; SLOTS];

#[derive(Debug)]
struct Slab {
    /// The first slot of each bucket.
    buckets: [u32; BUCKETS],
    slots: [KeySlot; SLOTS],
}

impl Slab {
    const FREE: Self = Self {
        buckets: [NONE; BUCKETS],
        slots: [KeySlot::FREE; SLOTS],
    };
}

/// The slabs of one shard.
#[derive(Debug, Default)]
pub(super) struct Slabs {
    slabs: Vec<&'static mut Slab>,
    /// Those of a slab's slots, if one of them has been in the order of use.
    links: Vec<Option<&'static mut LinksOfSlab>>,
    /// Of each slab's slots that are not in the order of use, none was used before this second.
    oldest: Vec<u32>,
}

/// Unused memory, for all indexes of the process.
static SPARE_SLABS: Mutex<Spare<Slab>> = Mutex::new(Spare::new());
static SPARE_LINKS: Mutex<Spare<LinksOfSlab>> = Mutex::new(Spare::new());

struct Spare<T: 'static> {
    untouched: &'static mut [MaybeUninit<T>],
    given_back: Vec<&'static mut T>,
}

impl Slabs {
    /// Number of slots.
    pub(super) fn slots(&self) -> usize {
        self.slabs.len() * SLOTS
    }

    /// Number of buckets.
    pub(super) fn buckets(&self) -> usize {
        self.slabs.len() * BUCKETS
    }

    /// Bytes of memory that they hold.
    pub(super) fn memory(&self) -> usize {
        let linked = self.links.iter().flatten().count();
        self.slabs.len() * size_of::<Slab>()
            + linked * size_of::<LinksOfSlab>()
            + self.slabs.capacity() * size_of::<&Slab>()
            + self.links.capacity() * size_of::<&LinksOfSlab>()
            + self.oldest.capacity() * size_of::<u32>()
    }

    /// Adds a slab: its slots are free, its buckets empty.
    pub(super) fn grow(&mut self) {
        // A fourth more each time: what is unused counts for each slot.
        if self.slabs.len() == self.slabs.capacity() {
            let more = self.slabs.len() / 4 + 1;
            self.slabs.reserve_exact(more);
            self.links.reserve_exact(more);
            self.oldest.reserve_exact(more);
        }
        self.slabs.push(Spare::take(&SPARE_SLABS, Slab::FREE));
        self.links.push(None);
        self.oldest.push(u32::MAX);
    }

    pub(super) fn slot(&self, number: u32) -> &KeySlot {
        let number = number as usize;
        &self.slabs[number / SLOTS].slots[number % SLOTS]
    }

    pub(super) fn slot_mut(&mut self, number: u32) -> &mut KeySlot {
        let number = number as usize;
        &mut self.slabs[number / SLOTS].slots[number % SLOTS]
    }

    /// Has the processor fetch a slot that is looked at soon.
    pub(super) fn prefetch_slot(&self, number: u32) {
        sys::prefetch(self.slot(number));
    }

    /// The same of a bucket.
    pub(super) fn prefetch_bucket(&self, number: usize) {
        sys::prefetch(&self.slabs[number / BUCKETS].buckets[number % BUCKETS]);
    }

    pub(super) fn bucket(&self, number: usize) -> u32 {
        self.slabs[number / BUCKETS].buckets[number % BUCKETS]
    }

    pub(super) fn bucket_mut(&mut self, number: usize) -> &mut u32 {
        &mut self.slabs[number / BUCKETS].buckets[number % BUCKETS]
    }

    /// Has the slab of a slot links?
    pub(super) fn has_links(&self, number: u32) -> bool {
        self.links[number as usize / SLOTS].is_some()
    }

    /// The links of a slot; it has none if it was never put into the order of use.
    pub(super) fn links(&self, number: u32) -> Links {
        let number = number as usize;
        let links = self.links[number / SLOTS].as_ref();
        links.map_or(Links::NONE, |links| links[number % SLOTS])
    }

    /// The same, to be changed. Its slab gets links if it has none.
    pub(super) fn links_mut(&mut self, number: u32) -> &mut Links {
        let number = number as usize;
        let links = self.links[number / SLOTS]
            .get_or_insert_with(|| Spare::take(&SPARE_LINKS, [Links::NONE; SLOTS]));
        &mut links[number % SLOTS]
    }

    /// Notes that a slot that is not in the order of use was used in this second.
    pub(super) fn note_used(&mut self, number: u32, used: u32) {
        let oldest = &mut self.oldest[number as usize / SLOTS];
        *oldest = (*oldest).min(used);
    }

    /// The second before which no slot was used that is not in the order of use; `u32::MAX` if there is none.
    pub(super) fn oldest_used(&self) -> u32 {
        self.oldest.iter().copied().min().unwrap_or(u32::MAX)
    }

    /// The slot that was used first, of those in the slab for which that may be the longest time ago that are not in the
    /// order of use, and when that was; and what was known of that slab before.
    pub(super) fn oldest_of_slab(&mut self) -> Option<(u32, u32, u32)> {
        // In two steps, of which the processor takes many slabs at once.
        let oldest = self.oldest_used();
        let slab = self.oldest.iter().position(|used| *used == oldest)?;
        let first = (slab * SLOTS) as u32;
        let slots = self.slabs[slab].slots.iter().zip(first..);
        let out_of_order = slots.filter(|(slot, _)| !slot.is_free() && !slot.has_file());
        let oldest = out_of_order.min_by_key(|(slot, _)| slot.used);
        let oldest = oldest.map(|(slot, number)| (number, slot.used.min(u32::MAX - 1)));
        let now = oldest.map_or(u32::MAX, |(_, used)| used);
        let before = std::mem::replace(&mut self.oldest[slab], now);
        oldest.map(|(number, used)| (number, used, before))
    }
}

impl Drop for Slabs {
    fn drop(&mut self) {
        SPARE_SLABS.lock().given_back.append(&mut self.slabs);
        let links = self.links.drain(..).flatten();
        SPARE_LINKS.lock().given_back.extend(links);
    }
}

impl<T> Spare<T> {
    const fn new() -> Self {
        Self {
            untouched: &mut [],
            given_back: Vec::new(),
        }
    }

    fn take(from: &Mutex<Self>, free: T) -> &'static mut T {
        let mut spare = from.lock();
        if let Some(given_back) = spare.given_back.pop() {
            *given_back = free;
            return given_back;
        }
        if spare.untouched.is_empty() {
            spare.untouched = sys::lasting(SLABS_AT_ONCE).unwrap_or_default();
        }
        let (first, rest) = match std::mem::take(&mut spare.untouched).split_first_mut() {
            Some((first, rest)) => (Some(first), rest),
            None => (None, Default::default()),
        };
        spare.untouched = rest;
        match first {
            Some(first) => first.write(free),
            // The kernel gives no mapping; the allocator may have some memory left.
            None => Box::leak(Box::new(free)),
        }
    }
}
