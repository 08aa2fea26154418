//! Entries in segments that a loop has found lately: their decoded heads, and the bytes of small ones, of some size in
//! copies that `sendfile` takes pages from. What a place in the index says is enough to know that such an entry is still
//! the same, so a hit asks the kernel for nothing.
//!
//! Invariants: at most [`PLACES`] entries of at most [`BYTES_MAX`] bytes a loop, within their share of the memory budget
//! (of devices [`PLACES_OF_DEVICES`], within that share), and none while memory is scarce.

use super::reading::OpenedInSegment;
use crate::entry::Entry;
use crate::index::{EntryExtent, KnownKey};
use crate::key::Key;
use disk::memory::level::level;
use disk::memory::{Charge, Holder, MemoryLevel, charge, entries_of_a_loop};
use disk::{OpenFile, SlowHand};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Maximum of entries that one loop keeps; a power of two.
const PLACES: usize = 4096;
/// The same of devices, behind whose entries there is no page cache; a power of two.
const PLACES_OF_DEVICES: usize = 16_384;
/// Maximum of bytes that one loop keeps; of devices, all of its share of the budget.
const BYTES_MAX: u64 = 8 << 20;
/// Approximate bytes of a decoded head.
const HEAD_BYTES: usize = 1024;
/// Maximum of places looked at to make room for one entry.
const LOOKS_MAX: usize = 32;

/// The store of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// Its number.
    pub store: u64,
    /// Do its segments lie on a device?
    pub is_on_device: bool,
}

impl Owner {
    fn places(self) -> usize {
        match self.is_on_device {
            true => PLACES_OF_DEVICES,
            false => PLACES,
        }
    }

    fn bytes_max(self) -> u64 {
        match self.is_on_device {
            true => entries_of_a_loop(),
            false => entries_of_a_loop().min(BYTES_MAX),
        }
    }

    fn place_of(self, key: &Key) -> usize {
        // Other bytes than those that choose the index's shard.
        usize::from(u16::from_le_bytes([key.0[8], key.0[9]])) % self.places()
    }

    /// Does work with what a loop keeps of such stores.
    fn with<R>(self, work: impl FnOnce(&mut KeptEntries) -> R) -> R {
        KEPT.with_borrow_mut(|[files, devices]| match self.is_on_device {
            true => work(devices),
            false => work(files),
        })
    }
}

struct KeptEntry {
    /// The number of the store that it is in.
    store: u64,
    key: Key,
    extent: EntryExtent,
    /// Its segment's number in the order of writing.
    sequence: u64,
    entry: Rc<Entry>,
    /// All its bytes, if it is small.
    piece: Option<Rc<OpenFile>>,
    bytes: usize,
    /// Was it used since room was last looked for here?
    is_used: Cell<bool>,
    /// Uses since it is here.
    uses: Cell<u8>,
    /// Without those of a copy, which has its own.
    _charge: Charge,
}

impl KeptEntry {
    fn is_copy(&self) -> bool {
        self.piece.as_ref().is_some_and(|piece| piece.gets_copy())
    }
}

#[derive(Default)]
struct KeptEntries {
    places: Vec<Option<KeptEntry>>,
    bytes: usize,
    /// Entries whose bytes are in a copy.
    copies: usize,
    /// The place where room is looked for next.
    hand: usize,
    slow_hand: SlowHand,
}

impl KeptEntries {
    /// Makes room for so many bytes by what was not used lately. False: there is none.
    fn make_room(&mut self, bytes: usize, bytes_max: u64) -> bool {
        self.look(bytes, bytes_max, LOOKS_MAX)
    }

    /// Is there room for a copy of so many bytes? If not, a little is done for those that ask.
    fn has_room(&mut self, bytes: usize, bytes_max: u64) -> bool {
        if (self.bytes + bytes) as u64 > bytes_max && !self.slow_hand.moves() {
            return false;
        }
        self.look(bytes, bytes_max, 1)
    }

    /// Moves the hand on until there is room for so many bytes, or it has passed so many entries in use, and drops what was
    /// not used since it last passed.
    fn look(&mut self, bytes: usize, bytes_max: u64, in_use_max: usize) -> bool {
        if bytes as u64 > bytes_max {
            return false;
        }
        let mut in_use = 0;
        for _ in 0..LOOKS_MAX.min(self.places.len()) {
            if (self.bytes + bytes) as u64 <= bytes_max || in_use == in_use_max {
                break;
            }
            let place = self.hand;
            self.hand = (place + 1) % self.places.len();
            let is_used = (self.places[place].as_ref()).is_some_and(|one| one.is_used.take());
            if is_used {
                in_use += 1;
            } else {
                self.take(place);
            }
        }
        (self.bytes + bytes) as u64 <= bytes_max
    }

    fn take(&mut self, place: usize) {
        if let Some(old) = self.places[place].take() {
            self.bytes -= old.bytes;
            self.copies -= usize::from(old.is_copy());
        }
    }

    /// Drops what is in the kernel's memory, too, while that is short.
    fn drop_copies(&mut self) {
        for place in 0..self.places.len() {
            if self.places[place].as_ref().is_some_and(KeptEntry::is_copy) {
                self.take(place);
            }
        }
    }
}

thread_local! {
    /// Of files, and of devices.
    static KEPT: RefCell<[KeptEntries; 2]> = RefCell::default();
}

/// What is kept of an entry.
pub(super) struct Kept {
    /// Its decoded head.
    pub entry: Rc<Entry>,
    /// The number in the order of writing of the segment that it was read in.
    pub sequence: u64,
    /// The file of its bytes, if it is small or has a copy.
    pub piece: Option<Rc<OpenFile>>,
    /// Its uses since it is kept, this one included.
    pub uses: u8,
}

/// The entry that lies at this place.
pub(super) fn get(owner: Owner, known: &KnownKey) -> Option<Kept> {
    owner.with(|kept| {
        if level() >= MemoryLevel::Buffers {
            *kept = KeptEntries::default();
        }
        if kept.copies > 0 && level() >= MemoryLevel::Copies {
            kept.drop_copies();
        }
        let one = kept.places.get(owner.place_of(&known.key))?.as_ref()?;
        let is_it = one.store == owner.store && one.key == known.key && one.extent == known.extent;
        is_it.then(|| {
            one.is_used.set(true);
            one.uses.set(one.uses.get().saturating_add(1));
            Kept {
                entry: Rc::clone(&one.entry),
                sequence: one.sequence,
                piece: one.piece.clone(),
                uses: one.uses.get(),
            }
        })
    })
}

/// Makes room for the copy of so many bytes. False: there is none.
pub(super) fn has_room(owner: Owner, len: u64) -> bool {
    let bytes = HEAD_BYTES + usize::try_from(len).unwrap_or(usize::MAX / 2);
    level() < MemoryLevel::Copies && owner.with(|kept| kept.has_room(bytes, owner.bytes_max()))
}

/// Keeps an entry that was opened in a segment with this number in the order of writing, in place of what was not used
/// lately. False: there is no room.
pub(super) fn put(
    owner: Owner,
    known: &KnownKey,
    sequence: u64,
    opened: &OpenedInSegment,
    is_piece: bool,
) -> bool {
    if level() >= MemoryLevel::Buffers {
        return false;
    }
    let piece = is_piece.then(|| Rc::clone(&opened.file));
    let len = piece.as_ref().map_or(0, |piece| piece.meta().len);
    let bytes = HEAD_BYTES + usize::try_from(len).unwrap_or(usize::MAX);
    owner.with(|kept| {
        if kept.places.is_empty() {
            kept.places.resize_with(owner.places(), || None);
        }
        let place = owner.place_of(&known.key);
        kept.take(place);
        if !kept.make_room(bytes, owner.bytes_max()) {
            return false;
        }
        let is_copy = piece.as_ref().is_some_and(|piece| piece.gets_copy());
        let charged = if is_copy { HEAD_BYTES } else { bytes };
        kept.bytes += bytes;
        kept.copies += usize::from(is_copy);
        kept.places[place] = Some(KeptEntry {
            store: owner.store,
            key: known.key,
            extent: known.extent,
            sequence,
            entry: Rc::clone(&opened.entry),
            piece,
            bytes,
            is_used: Cell::new(false),
            uses: Cell::new(0),
            _charge: charge(Holder::Bodies, charged),
        });
        true
    })
}
