//! A shard of the index behind one lock: the slots, the hash buckets, and the order of last use of entries with files of
//! their own.
//!
//! The number of buckets grows with that of the slots: each slab adds some (linear hashing), and each new bucket takes
//! its share from one other. So no operation ever touches all keys at once, however many there are.

use super::slabs::{BUCKETS, Links, SLOTS, Slabs};
use super::slot::{EntryExtent, KeySlot, KnownKey, NONE};
use super::windows::StaleWindows;
use crate::key::Key;
use hashbrown::DefaultHashBuilder;
use std::hash::BuildHasher;
use std::sync::Arc;

/// The order of use is kept within a second, too, while one in so many of the entries came within that second.
const TURNOVER_SHARE: usize = 16;
/// A key is put into a free slot of a slab of the other kind if these are one in so many of all slots: otherwise the
/// shard grows.
const FREE_SHARE: usize = 16;

/// Maximum of keys that are put under one lock (some microseconds).
pub(super) const BATCH_MAX: usize = 32;
/// Slots of each bucket that are fetched ahead for a batch: a bucket has two as a rule.
const CHAIN_AHEAD: usize = 3;

#[derive(Debug)]
pub(super) struct Shard {
    slabs: Slabs,
    /// Randomly seeded, so that which keys share a bucket cannot be foreseen from outside.
    hasher: DefaultHashBuilder,
    /// The free slots of slabs without links, and of those with links.
    free: [FreeSlots; 2],
    /// The ends of the order of use.
    newest: u32,
    oldest: u32,
    /// Number of slots in it.
    linked: usize,
    /// The last second in which one was put into it, and how many were in that second.
    second: u32,
    put_in_second: usize,
    windows: Arc<StaleWindows>,
}

/// A chain of free slots.
#[derive(Clone, Copy, Debug)]
struct FreeSlots {
    first: u32,
    len: usize,
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
    /// An empty one, of an index with these windows.
    pub(super) fn new(windows: Arc<StaleWindows>) -> Self {
        let none = FreeSlots {
            first: NONE,
            len: 0,
        };
        Self {
            slabs: Slabs::default(),
            hasher: DefaultHashBuilder::default(),
            free: [none; 2],
            newest: NONE,
            oldest: NONE,
            linked: 0,
            second: 0,
            put_in_second: 0,
            windows,
        }
    }

    /// Number of slots, free ones included.
    pub(super) fn slots(&self) -> usize {
        self.slabs.slots()
    }

    pub(super) fn has_files(&self) -> bool {
        self.linked > 0
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
        let wanted = u128::from_le_bytes(key.0);
        let mut number = self.slabs.bucket(self.bucket(key, buckets));
        while number != NONE {
            let slot = self.slot(number);
            if u128::from_le_bytes(slot.key().0) == wanted {
                return Some(number);
            }
            number = slot.next;
        }
        None
    }

    /// Has the processor fetch what [`Shard::find`] will look at for these keys (at most [`BATCH_MAX`]): all at once, where
    /// each alone would wait for its bucket, then for its slots one by one.
    pub(super) fn prefetch<'a>(&self, keys: impl Iterator<Item = &'a Key>) {
        let buckets = self.slabs.buckets();
        if buckets == 0 {
            return;
        }
        let (mut numbers, mut len) = ([NONE; BATCH_MAX], 0);
        for (number, key) in numbers.iter_mut().zip(keys) {
            let bucket = self.bucket(key, buckets);
            self.slabs.prefetch_bucket(bucket);
            // A shard has less than 2^32 slots, so fewer buckets.
            *number = bucket as u32;
            len += 1;
        }
        let numbers = &mut numbers[..len];
        for number in &mut *numbers {
            *number = self.slabs.bucket(*number as usize);
        }
        for _ in 0..CHAIN_AHEAD {
            let some = |number: &u32| *number != NONE;
            let slots = numbers.iter().copied().filter(some);
            slots.for_each(|number| self.slabs.prefetch_slot(number));
            for number in numbers.iter_mut().filter(|number| some(number)) {
                *number = self.slot(*number).next;
            }
        }
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

    /// The record of a key.
    pub(super) fn peek(&self, key: &Key) -> Option<KnownKey> {
        Some(self.get(key)?.unpack(&self.windows))
    }

    /// The record of a key, counted as used at `now`.
    pub(super) fn touch(&mut self, key: &Key, now: u32) -> Option<KnownKey> {
        let number = self.find(key)?;
        let slot = self.slot(number);
        if slot.has_file() && (slot.used < now || self.is_order_fine(now)) {
            self.unlink(number);
            self.link_behind(number, self.newest);
        }
        let slot = self.slabs.slot_mut(number);
        slot.count(now);
        Some(slot.unpack(&self.windows))
    }

    /// Does the order within the second matter, too? Seldom, and most uses of a hot key fall into the same one. It does
    /// where much of the shard is put in within a second: what is used again would leave as early as what is not.
    fn is_order_fine(&self, now: u32) -> bool {
        self.second == now && self.put_in_second * TURNOVER_SHARE > self.linked
    }

    /// Overwrites the record of a key, or takes a new slot for it. `windows` is the number of its lifetime's windows.
    /// Returns the former record.
    pub(super) fn put(&mut self, known: &KnownKey, windows: u16) -> Option<KnownKey> {
        if let Some(number) = self.find(&known.key) {
            let was = self.slot(number).unpack(&self.windows);
            if self.slot(number).has_file() {
                self.unlink(number);
            }
            self.slot_mut(number).pack(known, windows);
            self.link_in_order(number);
            return Some(was);
        }
        self.put_new(known, windows);
        None
    }

    /// Takes a slot for the record of a key that has none.
    pub(super) fn put_new(&mut self, known: &KnownKey, windows: u16) {
        let mut slot = KeySlot::FREE;
        slot.pack(known, windows);
        let number = self.take_free(slot.has_file());
        *self.slot_mut(number) = slot;
        self.enter(number, self.slabs.buckets());
        self.link_in_order(number);
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<KnownKey> {
        let number = self.find(key)?;
        self.leave(number);
        if self.slot(number).has_file() {
            self.unlink(number);
        }
        let known = self.slot(number).unpack(&self.windows);
        self.set_free(number);
        Some(known)
    }

    /// The least recently used slot of those in the order of use.
    pub(super) fn oldest(&self) -> Option<&KeySlot> {
        (self.oldest != NONE).then(|| self.slot(self.oldest))
    }

    /// The second before which no slot was used that is not in the order of use; `u32::MAX` if there is none.
    pub(super) fn oldest_out_of_order(&self) -> u32 {
        self.slabs.oldest_used()
    }

    /// The key that was used first, of those that are not in the order of use, as far as a look at one slab can tell,
    /// and when. `is_right`: only if no other of this shard can be older.
    pub(super) fn find_oldest_out_of_order(&mut self, is_right: bool) -> Option<(Key, u32)> {
        let (number, used, before) = self.slabs.oldest_of_slab()?;
        (!is_right || used == before).then(|| (self.slot(number).key(), used))
    }

    /// The record in a slot; None if it is free.
    pub(super) fn at(&self, number: usize) -> Option<KnownKey> {
        let slot = self.slot(number as u32);
        (!slot.is_free()).then(|| slot.unpack(&self.windows))
    }

    /// Key and place of the entry in a slot, if it is stored in a segment.
    pub(super) fn place_at(&self, number: usize) -> Option<(Key, EntryExtent)> {
        let slot = self.slot(number as u32);
        let is_it = !slot.is_free() && slot.is_stored() && slot.extent().is_in_segment();
        is_it.then(|| (slot.key(), slot.extent()))
    }

    /// Sorts the slots in the order of use by their last use.
    pub(super) fn sort(&mut self) {
        if self.linked == 0 {
            return;
        }
        let slots = 0..self.slots() as u32;
        let mut numbers: Vec<u32> = slots.filter(|slot| self.slot(*slot).has_file()).collect();
        numbers.sort_unstable_by_key(|number| self.slot(*number).used);
        (self.newest, self.oldest, self.linked) = (NONE, NONE, 0);
        for number in numbers {
            self.link_behind(number, self.newest);
        }
    }

    fn set_free(&mut self, number: u32) {
        let free = &mut self.free[usize::from(self.slabs.has_links(number))];
        free.len += 1;
        let next = std::mem::replace(&mut free.first, number);
        let slot = self.slabs.slot_mut(number);
        *slot = KeySlot::FREE;
        slot.next = next;
    }

    /// A free slot for an entry, which is to have links or not: of a slab that has them or not, so that few slabs need
    /// them.
    fn take_free(&mut self, is_linked: bool) -> u32 {
        let (mut kind, other) = (usize::from(is_linked), usize::from(!is_linked));
        if self.free[kind].len == 0 {
            match self.free[other].len * FREE_SHARE > self.slots() {
                true => kind = other,
                false => self.grow(is_linked),
            }
        }
        let free = &mut self.free[kind];
        let number = free.first;
        (free.first, free.len) = (self.slabs.slot(number).next, free.len - 1);
        number
    }

    /// Has slots for so many keys from now on.
    pub(super) fn expect(&mut self, keys: usize, are_linked: bool) {
        while self.slots() < keys {
            self.grow(are_linked);
        }
    }

    fn grow(&mut self, is_linked: bool) {
        let (slots, buckets) = (self.slots() as u32, self.slabs.buckets());
        let is_empty = self.free[0].len + self.free[1].len == self.slots();
        self.slabs.grow();
        if is_linked {
            self.slabs.links_mut(slots);
        }
        (slots..slots + SLOTS as u32)
            .rev()
            .for_each(|number| self.set_free(number));
        if is_empty {
            return;
        }
        // The first bucket has none to take from.
        (buckets.max(1)..buckets + BUCKETS).for_each(|number| self.split(number));
    }

    /// Links a slot where its last use puts it: at the newest end, except for keys that a journal brings back. A slot
    /// without a file has no place in the order.
    fn link_in_order(&mut self, number: u32) {
        let KeySlot { used, .. } = *self.slot(number);
        if !self.slot(number).has_file() {
            return self.slabs.note_used(number, used.min(u32::MAX - 1));
        }
        if self.second != used {
            (self.second, self.put_in_second) = (used, 0);
        }
        self.put_in_second += 1;
        let mut older = self.newest;
        for _ in 0..ORDER_STEPS_MAX {
            if older == NONE || self.slot(older).used <= used {
                break;
            }
            older = self.slabs.links(older).older;
        }
        self.link_behind(number, older);
    }

    fn link_behind(&mut self, number: u32, older: u32) {
        let newer = if older == NONE {
            std::mem::replace(&mut self.oldest, number)
        } else {
            std::mem::replace(&mut self.slabs.links_mut(older).newer, number)
        };
        if newer == NONE {
            self.newest = number;
        } else {
            self.slabs.links_mut(newer).older = number;
        }
        *self.slabs.links_mut(number) = Links { newer, older };
        self.linked += 1;
    }

    fn unlink(&mut self, number: u32) {
        self.linked -= 1;
        let Links { newer, older } = self.slabs.links(number);
        if older == NONE {
            self.oldest = newer;
        } else {
            self.slabs.links_mut(older).newer = newer;
        }
        if newer == NONE {
            self.newest = older;
        } else {
            self.slabs.links_mut(newer).older = older;
        }
    }
}

/// Maximum of steps that a slot is moved back in the order of use: beyond that, nearly right is good enough.
const ORDER_STEPS_MAX: usize = 32;
