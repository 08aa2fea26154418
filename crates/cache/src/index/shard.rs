//! A part of the index behind one lock: a hash table of numbers, the slots that they name, and the order of their last use.

use super::slot::{Known, NONE, Slot};
use crate::key::Key;
use hashbrown::HashTable;

/// Slots are allocated in pieces, so that growing copies nothing and leaves nothing unused.
const PIECE: usize = 32;

#[derive(Debug)]
pub struct Shard {
    table: HashTable<u32>,
    #[expect(clippy::vec_box, reason = "growing is not to copy the slots")]
    pieces: Vec<Box<[Slot; PIECE]>>,
    free: u32,
    /// The ends of the list in the order of use.
    newest: u32,
    oldest: u32,
}

impl Default for Shard {
    fn default() -> Self {
        Self {
            table: HashTable::new(),
            pieces: Vec::new(),
            free: NONE,
            newest: NONE,
            oldest: NONE,
        }
    }
}

fn slot_of(pieces: &[Box<[Slot; PIECE]>], number: u32) -> &Slot {
    &pieces[number as usize / PIECE][number as usize % PIECE]
}

/// MD5 is as good as any hash of it.
fn hash(key: &Key) -> u64 {
    let [_, _, _, _, _, _, _, _, rest @ ..] = key.0;
    u64::from_le_bytes(rest)
}

impl Shard {
    /// Slots that there are, free ones included.
    pub fn slots(&self) -> usize {
        self.pieces.len() * PIECE
    }

    /// Bytes that it holds on to.
    pub fn memory(&self) -> usize {
        let pieces = self.pieces.capacity() * size_of::<Box<[Slot; PIECE]>>();
        self.table.allocation_size() + pieces + self.slots() * size_of::<Slot>()
    }

    fn slot(&self, number: u32) -> &Slot {
        slot_of(&self.pieces, number)
    }

    fn slot_mut(&mut self, number: u32) -> &mut Slot {
        &mut self.pieces[number as usize / PIECE][number as usize % PIECE]
    }

    fn find(&self, key: &Key) -> Option<u32> {
        let is_it = |number: &u32| self.slot(*number).key() == *key;
        self.table.find(hash(key), is_it).copied()
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
    pub fn put(&mut self, known: &Known) -> Option<Known> {
        if let Some(number) = self.find(&known.key) {
            let was = self.slot(number).unpack();
            self.slot_mut(number).pack(known);
            self.unlink(number);
            self.link_in_order(number);
            return Some(was);
        }
        let number = self.take_free();
        self.slot_mut(number).pack(known);
        let pieces = &self.pieces;
        let hasher = |number: &u32| hash(&slot_of(pieces, *number).key());
        self.table.insert_unique(hash(&known.key), number, hasher);
        self.link_in_order(number);
        None
    }

    pub fn remove(&mut self, key: &Key) -> Option<Known> {
        let is_it = |number: &u32| slot_of(&self.pieces, *number).key() == *key;
        let found = self.table.find_entry(hash(key), is_it).ok()?;
        let (number, _) = found.remove();
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

    /// What lies in a slot; None if it is free or there is none.
    pub fn at(&self, number: usize) -> Option<Known> {
        let slot = self.pieces.get(number / PIECE)?.get(number % PIECE)?;
        // A free slot's key (zeros) is in no table, unless somebody really has it.
        let is_used = self.find(&slot.key()) == Some(number as u32);
        is_used.then(|| slot.unpack())
    }

    /// Puts all slots in the order of their last use.
    pub fn sort(&mut self) {
        let mut numbers: Vec<u32> = self.table.iter().copied().collect();
        numbers.sort_unstable_by_key(|number| self.slot(*number).used);
        (self.newest, self.oldest) = (NONE, NONE);
        numbers
            .into_iter()
            .for_each(|number| self.link_newest(number));
    }

    fn take_free(&mut self) -> u32 {
        if self.free == NONE {
            let first = self.slots() as u32;
            self.pieces.push(Box::new([Slot::FREE; PIECE]));
            for number in (first..first + PIECE as u32).rev() {
                self.slot_mut(number).newer = self.free;
                self.free = number;
            }
        }
        let number = self.free;
        self.free = self.slot(number).newer;
        number
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
