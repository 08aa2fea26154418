//! A part of the index behind one lock: the slots, the buckets by which a key is found, and the order of their last use.
//!
//! The buckets are as many as the slots ask for: with each piece some more (linear hashing), each of which takes its share from one
//! other. So nothing is ever done for all keys at once, however many there are.

use super::slabs::{BUCKETS, SLOTS, Slabs};
use super::slot::{KnownKey, NONE, Slot};
use crate::key::Key;
use hashbrown::DefaultHashBuilder;
use std::hash::BuildHasher;

#[derive(Debug)]
pub struct Shard {
    slabs: Slabs,
    /// Nobody outside knows which keys meet in a bucket.
    hasher: DefaultHashBuilder,
    free: u32,
    /// The ends of the list in the order of use.
    newest: u32,
    oldest: u32,
}

impl Default for Shard {
    fn default() -> Self {
        Self {
            slabs: Slabs::default(),
            hasher: DefaultHashBuilder::default(),
            free: NONE,
            newest: NONE,
            oldest: NONE,
        }
    }
}

/// The bucket of a hash, of so many: by as many bits as name them all, by one less where that one is not there yet.
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
    /// Slots that there are, free ones included.
    pub fn slots(&self) -> usize {
        self.slabs.slots()
    }

    /// Bytes that it holds on to.
    pub fn memory(&self) -> usize {
        self.slabs.memory()
    }

    fn slot(&self, number: u32) -> &Slot {
        self.slabs.slot(number)
    }

    fn slot_mut(&mut self, number: u32) -> &mut Slot {
        self.slabs.slot_mut(number)
    }

    /// The bucket of a key, of so many.
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

    /// Puts a slot into the bucket of its key, of so many.
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

    /// One bucket more than so many: it takes what is its own from the one that had it.
    fn split(&mut self, buckets: usize) {
        let from = bucket_of(buckets as u64, buckets);
        let mut number = std::mem::replace(self.slabs.bucket_mut(from), NONE);
        while number != NONE {
            let next = self.slot(number).next;
            self.enter(number, buckets + 1);
            number = next;
        }
    }

    pub fn get(&self, key: &Key) -> Option<&Slot> {
        Some(self.slot(self.find(key)?))
    }

    pub fn get_mut(&mut self, key: &Key) -> Option<&mut Slot> {
        let number = self.find(key)?;
        Some(self.slot_mut(number))
    }

    /// The slot, counted as used at `now`.
    pub fn touch(&mut self, key: &Key, now: u32) -> Option<&Slot> {
        let number = self.find(key)?;
        // Within a second the order does not matter, and most uses of what is hot fall into one.
        if self.slot(number).used < now {
            self.unlink(number);
            self.link_newest(number);
        }
        self.slot_mut(number).count(now);
        Some(self.slot(number))
    }

    /// Overwrites what is known of its key, or takes a new slot for it. What was known before is given back.
    pub fn put(&mut self, known: &KnownKey) -> Option<KnownKey> {
        if let Some(number) = self.find(&known.key) {
            let was = self.slot(number).unpack();
            self.slot_mut(number).pack(known);
            self.unlink(number);
            self.link_in_order(number);
            return Some(was);
        }
        let number = self.take_free();
        self.slot_mut(number).pack(known);
        self.enter(number, self.slabs.buckets());
        self.link_in_order(number);
        None
    }

    pub fn remove(&mut self, key: &Key) -> Option<KnownKey> {
        let number = self.find(key)?;
        self.leave(number);
        self.unlink(number);
        let known = self.slot(number).unpack();
        let free = self.free;
        *self.slot_mut(number) = Slot::FREE;
        self.slot_mut(number).newer = free;
        self.free = number;
        Some(known)
    }

    /// The slot that was not used for the longest time.
    pub fn oldest(&self) -> Option<&Slot> {
        (self.oldest != NONE).then(|| self.slot(self.oldest))
    }

    /// What lies in a slot; None if it is free.
    pub fn at(&self, number: usize) -> Option<KnownKey> {
        let slot = self.slot(number as u32);
        (!slot.is_free()).then(|| slot.unpack())
    }

    /// Puts all slots in the order of their last use.
    pub fn sort(&mut self) {
        let slots = 0..self.slots() as u32;
        let mut numbers: Vec<u32> = slots.filter(|slot| !self.slot(*slot).is_free()).collect();
        numbers.sort_unstable_by_key(|number| self.slot(*number).used);
        (self.newest, self.oldest) = (NONE, NONE);
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
        // The first bucket has nobody to take from.
        (buckets.max(1)..buckets + BUCKETS).for_each(|number| self.split(number));
    }

    fn link_newest(&mut self, number: u32) {
        self.link_behind(number, self.newest);
    }

    /// Where its last use puts it: at the newest end, but for what a journal brings back.
    fn link_in_order(&mut self, number: u32) {
        let used = self.slot(number).used;
        let mut older = self.newest;
        for _ in 0..ORDER_STEPS_MAX {
            if older == NONE || self.slot(older).used <= used {
                break;
            }
            older = self.slot(older).older;
        }
        self.link_behind(number, older);
    }

    fn link_behind(&mut self, number: u32, older: u32) {
        let newer = if older == NONE {
            std::mem::replace(&mut self.oldest, number)
        } else {
            std::mem::replace(&mut self.slot_mut(older).newer, number)
        };
        if newer == NONE {
            self.newest = number;
        } else {
            self.slot_mut(newer).older = number;
        }
        let slot = self.slot_mut(number);
        (slot.older, slot.newer) = (older, newer);
    }

    fn unlink(&mut self, number: u32) {
        let Slot { older, newer, .. } = *self.slot(number);
        if older == NONE {
            self.oldest = newer;
        } else {
            self.slot_mut(older).newer = newer;
        }
        if newer == NONE {
            self.newest = older;
        } else {
            self.slot_mut(newer).older = older;
        }
    }
}

/// Places that a slot is moved back at most, for the order of use: beyond that, nearly right is right enough.
const ORDER_STEPS_MAX: usize = 32;
