//! The memory of an index: slabs of slots, each with the buckets for them, so that growing copies nothing, leaves
//! nothing unused, and never takes more than one slab's work.
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
const SLABS_AT_ONCE: usize = 360;

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
pub(super) struct Slabs(Vec<&'static mut Slab>);

/// Unused slabs, for all indexes of the process.
static SPARE: Mutex<SpareSlabs> = Mutex::new(SpareSlabs {
    untouched: &mut [],
    given_back: Vec::new(),
});

struct SpareSlabs {
    untouched: &'static mut [MaybeUninit<Slab>],
    given_back: Vec<&'static mut Slab>,
}

impl Slabs {
    /// Number of slots.
    pub(super) fn slots(&self) -> usize {
        self.0.len() * SLOTS
    }

    /// Number of buckets.
    pub(super) fn buckets(&self) -> usize {
        self.0.len() * BUCKETS
    }

    /// Bytes of memory that they hold.
    pub(super) fn memory(&self) -> usize {
        self.0.len() * size_of::<Slab>() + self.0.capacity() * size_of::<&Slab>()
    }

    /// Adds a slab: its slots are free, its buckets empty.
    pub(crate) fn grow(&mut self) {
        self.0.push(SpareSlabs::take());
    }

    pub(super) fn slot(&self, number: u32) -> &KeySlot {
        let number = number as usize;
        &self.0[number / SLOTS].slots[number % SLOTS]
    }

    pub(crate) fn slot_mut(&mut self, number: u32) -> &mut KeySlot {
        let number = number as usize;
        &mut self.0[number / SLOTS].slots[number % SLOTS]
    }

    pub(super) fn bucket(&self, number: usize) -> u32 {
        self.0[number / BUCKETS].buckets[number % BUCKETS]
    }

    pub(crate) fn bucket_mut(&mut self, number: usize) -> &mut u32 {
        &mut self.0[number / BUCKETS].buckets[number % BUCKETS]
    }
}

impl Drop for Slabs {
    fn drop(&mut self) {
        SPARE.lock().given_back.append(&mut self.0);
    }
}

impl SpareSlabs {
    fn take() -> &'static mut Slab {
        let mut spare = SPARE.lock();
        if let Some(slab) = spare.given_back.pop() {
            *slab = Slab::FREE;
            return slab;
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
            Some(first) => first.write(Slab::FREE),
            // The kernel gives no mapping; the allocator may have some memory left.
            None => Box::leak(Box::new(Slab::FREE)),
        }
    }
}
