//! Where the slots of an index lie: in pieces, each with the buckets for its slots, so that growing copies nothing, leaves nothing unused,
//! and is never more than a piece's work.
//!
//! In memory of its own: between what an allocator hands out for moments, pieces would keep it from giving anything back. What an index
//! does not need any more goes to the next one.

use super::slot::{NONE, Slot};
use parking_lot::Mutex;
use std::mem::MaybeUninit;

/// Slots of a piece.
pub const SLOTS: usize = 32;
/// Buckets of a piece: one for two slots.
pub const BUCKETS: usize = SLOTS / 2;
/// Pieces that the kernel is asked for at once (about 1 MiB).
const SLABS_AT_ONCE: usize = 360;

#[derive(Debug)]
struct Slab {
    /// The first slot of each.
    buckets: [u32; BUCKETS],
    slots: [Slot; SLOTS],
}

impl Slab {
    const FREE: Self = Self {
        buckets: [NONE; BUCKETS],
        slots: [Slot::FREE; SLOTS],
    };
}

/// The pieces of one part of an index.
#[derive(Debug, Default)]
pub struct Slabs(Vec<&'static mut Slab>);

/// What nobody has, for all indexes of the process.
static SPARE: Mutex<Spare> = Mutex::new(Spare {
    untouched: &mut [],
    given_back: Vec::new(),
});

struct Spare {
    untouched: &'static mut [MaybeUninit<Slab>],
    given_back: Vec<&'static mut Slab>,
}

impl Slabs {
    /// Slots that there are.
    pub fn slots(&self) -> usize {
        self.0.len() * SLOTS
    }

    /// Buckets that there are.
    pub fn buckets(&self) -> usize {
        self.0.len() * BUCKETS
    }

    /// Bytes that they hold on to.
    pub fn memory(&self) -> usize {
        self.0.len() * size_of::<Slab>() + self.0.capacity() * size_of::<&Slab>()
    }

    /// One piece more: its slots are free, its buckets empty.
    pub fn grow(&mut self) {
        self.0.push(Spare::take());
    }

    pub fn slot(&self, number: u32) -> &Slot {
        let number = number as usize;
        &self.0[number / SLOTS].slots[number % SLOTS]
    }

    pub fn slot_mut(&mut self, number: u32) -> &mut Slot {
        let number = number as usize;
        &mut self.0[number / SLOTS].slots[number % SLOTS]
    }

    pub fn bucket(&self, number: usize) -> u32 {
        self.0[number / BUCKETS].buckets[number % BUCKETS]
    }

    pub fn bucket_mut(&mut self, number: usize) -> &mut u32 {
        &mut self.0[number / BUCKETS].buckets[number % BUCKETS]
    }
}

impl Drop for Slabs {
    fn drop(&mut self) {
        SPARE.lock().given_back.append(&mut self.0);
    }
}

impl Spare {
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
            // No mapping is to be had; the allocator may have something left.
            None => Box::leak(Box::new(Slab::FREE)),
        }
    }
}
