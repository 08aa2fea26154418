//! A shard of the index behind one lock: the slots, the hash buckets, and the order of last use.
//!
//! The number of buckets grows with that of the slots: each slab adds some (linear hashing), and each new bucket takes
//! its share from one other. So no operation ever touches all keys at once, however many there are.

use super::slabs::{BUCKETS, SLOTS, Slabs};
use super::slot::{KeySlot, KnownKey, NONE};
use crate::key::Key;
use hashbrown::DefaultHashBuilder;
use std::hash::BuildHasher;

#[derive(Debug)]
pub(super) struct Shard {
    slabs: Slabs,
    /// Randomly seeded, so that which keys share a bucket cannot be foreseen from outside.
    hasher: DefaultHashBuilder,
    free: u32,
    /// The ends of the lists in order of use ([`KeySlot::list`]).
    newest: [u32; LISTS],
    oldest: [u32; LISTS],
}

/// Number of lists.
pub(super) const LISTS: usize = 2;

impl Default for Shard {
    fn default() -> Self {
        Self {
            slabs: Slabs::default(),
            hasher: DefaultHashBuilder::default(),
            free: NONE,
            newest: [NONE; LISTS],
            oldest: [NONE; LISTS],
        }
    }
}

/// The bucket of a hash among `buckets`: by as many bits as name them all, by one bit less if that bucket does not
/// exist yet.
fn bucket_of(hash: u64, buckets: usize) -> usize {
    let mask = buckets.next_power_of_two() - 1;
    let bucket = hash as usize & mask;
    if bucket < buckets {
        bucket
    } else {
        bucket & (mask >> 1)
    }
}

impl Shard {
    /// Number of slots, free ones included.
    pub(super) fn slots(&self) -> usize {
        self.slabs.slots()
    }

    /// Bytes of memory that it holds.
    pub(super) fn memory(&self) -> usize {
        self.slabs.memory()
    }

    fn slot(&self, number: u32) -> &KeySlot {
        self.slabs.slot(number)
    }

    fn slot_mut(&mut self, number: u32) -> &mut KeySlot {
        self.slabs.slot_mut(number)
    }

    /// The bucket of a key among `buckets`.
    fn bucket(&self, key: &Key, buckets: usize) -> usize {
        bucket_of(self.hasher.hash_one(u128::from_le_bytes(key.0)), buckets)
    }

    fn find(&self, key: &Key) -> Option<u32> {
        let buckets = self.slabs.buckets();
        if buckets == 0 {
            return None;
        }
        let mut number = self.slabs.bucket(self.bucket(key, buckets));
        while number != NONE {
            let slot = self.slot(number);
            if slot.key() == *key {
                return Some(number);
            }
            number = slot.next;
        }
        None
    }

    /// Puts a slot into the bucket of its key, among `buckets`.
    fn enter(&mut self, number: u32, buckets: usize) {
        let bucket = self.bucket(&self.slot(number).key(), buckets);
        let next = std::mem::replace(self.slabs.bucket_mut(bucket), number);
        self.slot_mut(number).next = next;
    }

    /// Takes a slot out of the bucket of its key.
    fn leave(&mut self, number: u32) {
        let bucket = self.bucket(&self.slot(number).key(), self.slabs.buckets());
        let next = self.slot(number).next;
        let mut before = self.slabs.bucket(bucket);
        if before == number {
            *self.slabs.bucket_mut(bucket) = next;
            return;
        }
        while before != NONE {
            let slot = self.slot_mut(before);
            if slot.next == number {
                slot.next = next;
                return;
            }
            before = slot.next;
        }
    }

    /// Adds a bucket to the `buckets` there are: its slots move from the one that had them.
    fn split(&mut self, buckets: usize) {
        let from = bucket_of(buckets as u64, buckets);
        let mut number = std::mem::replace(self.slabs.bucket_mut(from), NONE);
        while number != NONE {
            let next = self.slot(number).next;
            self.enter(number, buckets + 1);
            number = next;
        }
    }

    pub(super) fn get(&self, key: &Key) -> Option<&KeySlot> {
        Some(self.slot(self.find(key)?))
    }

    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut KeySlot> {
        let number = self.find(key)?;
        Some(self.slot_mut(number))
    }

    /// The slot of a key, counted as used at `now`.
    pub(super) fn touch(&mut self, key: &Key, now: u32) -> Option<&KeySlot> {
        let number = self.find(key)?;
        // Within a second the order does not matter, and most uses of a hot key fall into the same one.
        if self.slot(number).used < now {
            self.unlink(number);
            self.link_newest(number);
        }
        self.slot_mut(number).count(now);
        Some(self.slot(number))
    }

    /// Overwrites the record of a key, or takes a new slot for it. Returns the former record.
    pub(super) fn put(&mut self, known: &KnownKey) -> Option<KnownKey> {
        if let Some(number) = self.find(&known.key) {
            let was = self.slot(number).unpack();
            // From the list that it was in.
            self.unlink(number);
            self.slot_mut(number).pack(known);
            self.link_in_order(number);
            return Some(was);
        }
        let number = self.take_free();
        self.slot_mut(number).pack(known);
        self.enter(number, self.slabs.buckets());
        self.link_in_order(number);
        None
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<KnownKey> {
        let number = self.find(key)?;
        self.leave(number);
        self.unlink(number);
        let known = self.slot(number).unpack();
        let free = self.free;
        *self.slot_mut(number) = KeySlot::FREE;
        self.slot_mut(number).newer = free;
        self.free = number;
        Some(known)
    }

    /// The least recently used slot of a list.
    pub(super) fn oldest(&self, list: usize) -> Option<&KeySlot> {
        let oldest = self.oldest[list];
        (oldest != NONE).then(|| self.slot(oldest))
    }

    /// The record in a slot; None if it is free.
    pub(super) fn at(&self, number: usize) -> Option<KnownKey> {
        let slot = self.slot(number as u32);
        (!slot.is_free()).then(|| slot.unpack())
    }

    /// Sorts all slots by their last use.
    pub(super) fn sort(&mut self) {
        let slots = 0..self.slots() as u32;
        let mut numbers: Vec<u32> = slots.filter(|slot| !self.slot(*slot).is_free()).collect();
        numbers.sort_unstable_by_key(|number| self.slot(*number).used);
        (self.newest, self.oldest) = ([NONE; LISTS], [NONE; LISTS]);
        numbers
            .into_iter()
            .for_each(|number| self.link_newest(number));
    }

    fn take_free(&mut self) -> u32 {
        if self.free == NONE {
            self.grow();
        }
        let number = self.free;
        self.free = self.slot(number).newer;
        number
    }

    fn grow(&mut self) {
        let (slots, buckets) = (self.slots() as u32, self.slabs.buckets());
        self.slabs.grow();
        for number in (slots..slots + SLOTS as u32).rev() {
            self.slot_mut(number).newer = self.free;
            self.free = number;
        }
        // The first bucket has none to take from.
        (buckets.max(1)..buckets + BUCKETS).for_each(|number| self.split(number));
    }

    fn link_newest(&mut self, number: u32) {
        let newest = self.newest[self.slot(number).list()];
        self.link_behind(number, newest);
    }

    /// Links a slot where its last use puts it: at the newest end, except for keys that a journal brings back.
    fn link_in_order(&mut self, number: u32) {
        let used = self.slot(number).used;
        let mut older = self.newest[self.slot(number).list()];
        for _ in 0..ORDER_STEPS_MAX {
            if older == NONE || self.slot(older).used <= used {
                break;
            }
            older = self.slot(older).older;
        }
        self.link_behind(number, older);
    }

    fn link_behind(&mut self, number: u32, older: u32) {
        let list = self.slot(number).list();
        let newer = if older == NONE {
            std::mem::replace(&mut self.oldest[list], number)
        } else {
            std::mem::replace(&mut self.slot_mut(older).newer, number)
        };
        if newer == NONE {
            self.newest[list] = number;
        } else {
            self.slot_mut(newer).older = number;
        }
        let slot = self.slot_mut(number);
        (slot.older, slot.newer) = (older, newer);
    }

    fn unlink(&mut self, number: u32) {
        let KeySlot { older, newer, .. } = *self.slot(number);
        let list = self.slot(number).list();
        if older == NONE {
            self.oldest[list] = newer;
        } else {
            self.slot_mut(older).newer = newer;
        }
        if newer == NONE {
            self.newest[list] = older;
        } else {
            self.slot_mut(newer).older = older;
        }
    }
}

/// Maximum of steps that a slot is moved back in the order of use: beyond that, nearly right is good enough.
const ORDER_STEPS_MAX: usize = 32;
