//! Entries in segments that a loop has found lately: their decoded heads, and the bytes of small ones. What a place in
//! the index says is enough to know that such an entry is still the same, so a hit asks the kernel for nothing.
//!
//! Invariants: at most [`PLACES`] entries of at most [`BYTES_MAX`] bytes a loop, within their share of the memory budget,
//! and none while memory is scarce.

use super::reading::OpenedInSegment;
use crate::entry::Entry;
use crate::index::{EntryExtent, KnownKey};
use crate::key::Key;
use disk::OpenFile;
use disk::memory::level::level;
use disk::memory::{Charge, Holder, MemoryLevel, charge, entries_of_a_loop};
use std::cell::RefCell;
use std::rc::Rc;

/// Maximum of entries that one loop keeps; a power of two.
const PLACES: usize = 1024;
/// Maximum of bytes that one loop keeps.
const BYTES_MAX: u64 = 8 << 20;
/// Approximate bytes of a decoded head.
const HEAD_BYTES: usize = 1024;

struct KeptEntry {
    /// The number of the store that it is in.
    store: u64,
    key: Key,
    extent: EntryExtent,
    entry: Rc<Entry>,
    /// All its bytes, if it is small.
    piece: Option<Rc<OpenFile>>,
    charge: Charge,
}

#[derive(Default)]
struct KeptEntries {
    places: Vec<Option<KeptEntry>>,
    bytes: usize,
}

thread_local! {
    static KEPT: RefCell<KeptEntries> = RefCell::default();
}

/// What is kept of an entry: its decoded head, and the file of its bytes if it is small.
pub(super) type Kept = (Rc<Entry>, Option<Rc<OpenFile>>);

fn place_of(key: &Key) -> usize {
    // Other bytes than those that choose the index's shard.
    usize::from(u16::from_le_bytes([key.0[8], key.0[9]])) % PLACES
}

/// The entry that lies at this place.
pub(super) fn get(store: u64, known: &KnownKey) -> Option<Kept> {
    KEPT.with_borrow_mut(|kept| {
        if level() >= MemoryLevel::Buffers {
            *kept = KeptEntries::default();
        }
        let one = kept.places.get(place_of(&known.key))?.as_ref()?;
        let is_it = one.store == store && one.key == known.key && one.extent == known.extent;
        is_it.then(|| (Rc::clone(&one.entry), one.piece.clone()))
    })
}

/// Keeps an entry that was opened.
pub(super) fn put(store: u64, known: &KnownKey, opened: &OpenedInSegment, is_piece: bool) {
    if level() >= MemoryLevel::Buffers {
        return;
    }
    let piece = is_piece.then(|| Rc::clone(&opened.file));
    let len = piece.as_ref().map_or(0, |piece| piece.meta().len);
    let bytes = HEAD_BYTES + usize::try_from(len).unwrap_or(usize::MAX);
    KEPT.with_borrow_mut(|kept| {
        if kept.places.is_empty() {
            kept.places.resize_with(PLACES, || None);
        }
        let place = place_of(&known.key);
        if let Some(old) = kept.places[place].take() {
            kept.bytes -= old.charge.bytes();
        }
        if (kept.bytes + bytes) as u64 > entries_of_a_loop().min(BYTES_MAX) {
            return;
        }
        kept.bytes += bytes;
        kept.places[place] = Some(KeptEntry {
            store,
            key: known.key,
            extent: known.extent,
            entry: Rc::clone(&opened.entry),
            piece,
            charge: charge(Holder::Bodies, bytes),
        });
    });
}
