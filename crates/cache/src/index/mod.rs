//! The index: what is known of every key without asking the disk. One for each `keys_zone`, shared by all loops.
//!
//! It lies in memory, in shards with a lock each that is held for well under a microsecond (a few, where an entry in a
//! segment is evicted from an index of millions), and takes at most 64 bytes for an entry in a segment and 72 for one
//! with a file of its own: a slot of 60 ([`slot`]), two of buckets, less than one of tables of slabs, and 8 of links in
//! the order of use, which is kept for the entries that are evicted by it. It is bounded: when it is full, the least
//! recently used key is evicted, and no operation fails.
//!
//! Not here: files, and the space on the disk (`space`). A caller that gets an evicted key deletes its file. Invariant:
//! a key is in the index once; the number of keys is at most [`Index::keys_max`].

mod bulk;
mod shard;
mod slabs;
mod slot;
#[cfg(test)]
mod tests;
mod windows;

pub(crate) use slot::{ENTRY_PAGES_MAX, EntryExtent, Varies};
pub use slot::{KeyState, KnownKey, USES_MAX};

use crate::entry::VARY_BYTES_MAX;
use crate::key::Key;
use crate::lifetime::Lifetime;
use bulk::is_out_of_order;
use message::date::Seconds;
use parking_lot::{Mutex, MutexGuard, RwLock};
use shard::Shard;
use slot::{KeySlot, seconds};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use windows::StaleWindows;

/// Maximum memory in bytes, everything counted, of an entry in a segment and of one with a file of its own (in an index
/// of more than fifty thousand keys).
#[cfg(test)]
pub(crate) const ENTRY_BYTES_MAX: [usize; 2] = [64, 72];
/// Bytes of a `keys_zone` that nginx needs for a key: its node has 120, its allocator hands out 128. A zone of 1 MiB
/// holds 8192 keys, as its manual says ("about 8 thousand").
pub(crate) const ZONE_BYTES_OF_KEY: u64 = 128;
/// Number of shards.
pub(crate) const SHARDS: usize = 32;
/// Keys of the smallest index.
pub(crate) const KEYS_MIN: usize = SHARDS;
/// Maximum of different Vary values that are kept; for others, the names are in the entry only.
pub(crate) const VARY_MAX: usize = 4094;
/// The number of a Vary value that is not kept: the names are in the entry.
pub(crate) const VARY_UNKNOWN: u16 = u16::MAX;
/// Maximum of keys that one call of [`Index::scan`] or [`Index::evict_inactive`] returns.
pub(crate) const STEP_MAX: usize = 1024;
/// Slots that a scan looks at under one lock (some microseconds): a thread that loses its core meanwhile holds back each loop
/// that needs the shard.
const SLOTS_AT_ONCE: usize = 64;

/// The index of one cache; see the module.
#[derive(Debug)]
pub struct Index {
    shards: Box<[LockedShard]>,
    keys_max: AtomicUsize,
    keys: AtomicUsize,
    /// The shard in which the next search for the oldest key begins, so that ties hit all shards.
    search_start: AtomicUsize,
    vary: RwLock<Vec<Arc<[u8]>>>,
    windows: Arc<StaleWindows>,
    /// Whether what was verified or written may be used as it is; see [`Index::trust`].
    is_trusted: AtomicBool,
}

/// Looks at one slab each for a key that is not in an order of use, before one is evicted that may not be the oldest.
const RIGHT_TRIES: usize = 8;
/// Maximum of such looks in one call: each takes 1.5 us in an index of a million keys, and more in a larger one.
const LOOKS_MAX: usize = 1000;

#[derive(Debug)]
struct LockedShard {
    shard: Mutex<Shard>,
    /// When the oldest key was last used: of those in the order of use, and, at the earliest, of all others. An eviction
    /// reads this before it takes a lock. u32::MAX: there is none.
    oldest: [AtomicU32; 2],
}

/// The number of these others.
const OUT_OF_ORDER: usize = 1;

/// The keys that an eviction looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Among {
    /// All of them.
    All,
    /// Entries with files of their own.
    Files,
}

/// The position of a scan of the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    shard: usize,
    slot: usize,
}

/// What [`Index::put`] displaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Displaced {
    /// The former record of the same key; its file has been (or will be) overwritten, its blocks are no longer held.
    pub replaced: Option<KnownKey>,
    /// Another key that was evicted; if it was stored, its file is to be deleted.
    pub evicted: Option<KnownKey>,
}

/// Maximum number of keys in a `keys_zone` of so many bytes.
#[must_use]
pub fn keys_of_zone(bytes: u64) -> usize {
    usize::try_from(bytes / ZONE_BYTES_OF_KEY).unwrap_or(usize::MAX)
}

/// A slot's number has 32 bits in each shard.
fn clamped(keys_max: usize) -> usize {
    keys_max.clamp(KEYS_MIN, u32::MAX as usize / 2)
}

impl Index {
    /// An index for `keys_max` keys, at least `KEYS_MIN`.
    #[must_use]
    pub fn new(keys_max: usize) -> Self {
        let windows = Arc::<StaleWindows>::default();
        let part = || LockedShard {
            shard: Mutex::new(Shard::new(Arc::clone(&windows))),
            oldest: [const { AtomicU32::new(u32::MAX) }; 2],
        };
        Self {
            shards: std::iter::repeat_with(part).take(SHARDS).collect(),
            keys_max: AtomicUsize::new(clamped(keys_max)),
            keys: AtomicUsize::new(0),
            search_start: AtomicUsize::new(0),
            vary: RwLock::default(),
            windows,
            is_trusted: AtomicBool::new(true),
        }
    }

    /// The index for `keys_zone=NAME:SIZE`: as many keys as nginx has room for in `bytes`.
    #[must_use]
    pub(crate) fn of_zone(bytes: u64) -> Self {
        Self::new(keys_of_zone(bytes))
    }

    /// Maximum of keys.
    #[must_use]
    pub fn keys_max(&self) -> usize {
        self.keys_max.load(Relaxed)
    }

    /// Sets the maximum of keys by the size of `keys_zone`. Where there are more, the sweep evicts the oldest.
    pub(crate) fn set_zone(&self, bytes: u64) {
        self.keys_max.store(clamped(keys_of_zone(bytes)), Relaxed);
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.load(Relaxed)
    }

    /// Is no key known?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Are there entries with files of their own?
    pub(crate) fn has_files(&self) -> bool {
        self.shards.iter().any(|part| part.shard.lock().has_files())
    }

    /// Bytes of memory that it holds.
    #[must_use]
    pub fn memory(&self) -> usize {
        let parts = self.shards.iter().map(|part| part.shard.lock().memory());
        let vary: usize = self.vary.read().iter().map(|names| names.len() + 16).sum();
        size_of::<Self>()
            + size_of::<LockedShard>() * SHARDS
            + parts.sum::<usize>()
            + vary
            + self.windows.memory()
    }

    /// Looks a key up, and counts a use at `now`.
    #[must_use]
    pub fn look_up(&self, key: &Key, now: Seconds) -> Option<KnownKey> {
        let part = self.part(key);
        let mut shard = part.shard.lock();
        let known = shard.touch(key, seconds(now))?;
        part.note_oldest(&shard);
        drop(shard);
        Some(self.as_trusted(known))
    }

    /// Whether entries that are looked up count as verified, where they were. Until then each use verifies.
    pub(crate) fn trust(&self, is_trusted: bool) {
        self.is_trusted.store(is_trusted, Relaxed);
    }

    /// Looks a key up without counting a use.
    #[must_use]
    pub fn peek(&self, key: &Key) -> Option<KnownKey> {
        let known = self.part(key).shard.lock().peek(key)?;
        Some(self.as_trusted(known))
    }

    fn as_trusted(&self, known: KnownKey) -> KnownKey {
        KnownKey {
            is_verified: known.is_verified && self.is_trusted.load(Relaxed),
            ..known
        }
    }

    /// Counts a use of a key, known or not (`proxy_cache_min_uses`). Returns its record, and the key that was evicted
    /// for it.
    pub fn count(&self, key: Key, now: Seconds) -> (KnownKey, Option<KnownKey>) {
        match self.look_up(&key, now) {
            Some(known) => (known, None),
            None => {
                let seen = KnownKey::seen(key, now);
                (seen, self.put(&seen).evicted)
            }
        }
    }

    /// Inserts a key, or replaces its record, whose uses become those of `known`.
    pub fn put(&self, known: &KnownKey) -> Displaced {
        let part = self.part(&known.key);
        let windows = self.windows_of(&known.lifetime);
        let mut shard = part.shard.lock();
        let is_known = shard.get(&known.key).is_some();
        if is_known || self.count_one_more() {
            let replaced = match is_known {
                true => shard.put(known, windows),
                false => {
                    shard.put_new(known, windows);
                    None
                }
            };
            part.note_put(&shard, known);
            let evicted = None;
            return Displaced { replaced, evicted };
        }
        drop(shard);
        // No two locks at once: room is made first.
        let evicted = self.make_room();
        let mut shard = part.shard.lock();
        let replaced = shard.put(known, windows);
        part.note_put(&shard, known);
        drop(shard);
        if replaced.is_some() {
            // Another task has inserted the same key meanwhile.
            self.keys.fetch_sub(1, Relaxed);
        }
        Displaced { replaced, evicted }
    }

    /// Inserts an entry, unless one is known under its key by then, or `enters` says no, which is asked under the lock of
    /// the key's shard: whoever looks for the key later finds what was inserted. Returns the key that was evicted for it.
    pub(crate) fn put_absent(
        &self,
        known: &KnownKey,
        enters: impl FnOnce() -> bool,
    ) -> Option<KnownKey> {
        let part = self.part(&known.key);
        let windows = self.windows_of(&known.lifetime);
        let is_stored = |shard: &Shard| shard.get(&known.key).is_some_and(KeySlot::is_stored);
        if is_stored(&part.shard.lock()) {
            return None;
        }
        // No two locks of shards at once: room is made first.
        let evicted = self.make_room();
        let mut shard = part.shard.lock();
        let is_put = !is_stored(&shard) && enters();
        let is_new = is_put && shard.put(known, windows).is_none();
        if is_put {
            part.note_put(&shard, known);
        }
        drop(shard);
        if !is_new {
            self.keys.fetch_sub(1, Relaxed);
        }
        evicted
    }

    /// Replaces the record of the entry that lies at this place. None: it is there no more, and nothing was changed.
    pub(crate) fn put_at(&self, from: &EntryExtent, known: &KnownKey) -> Option<KnownKey> {
        let part = self.part(&known.key);
        let windows = self.windows_of(&known.lifetime);
        let mut shard = part.shard.lock();
        let slot = shard.get(&known.key)?;
        if !slot.is_stored() || slot.extent() != *from {
            return None;
        }
        let replaced = shard.put(known, windows);
        part.note_put(&shard, known);
        replaced
    }

    /// Counts one more key, unless the index is full.
    fn count_one_more(&self) -> bool {
        self.count_more(1)
    }

    /// Counts so many more keys, unless there is no room for all of them.
    fn count_more(&self, more: usize) -> bool {
        let more = |keys: usize| (keys + more <= self.keys_max()).then_some(keys + more);
        self.keys.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Counts one more key, after evicting one if the index is full.
    fn make_room(&self) -> Option<KnownKey> {
        loop {
            if self.count_one_more() {
                return None;
            }
            // The new key takes its place in the count.
            let mut looks = LOOKS_MAX;
            if let Some(evicted) = self.take_oldest_before(u32::MAX, Among::All, &mut looks) {
                return Some(evicted);
            }
        }
    }

    /// Changes the lifetime of an entry, if it still has this tag (`extent.file`).
    pub fn renew(&self, key: &Key, tag: u32, lifetime: Lifetime) -> bool {
        let windows = self.windows_of(&lifetime);
        self.change(key, tag, |slot| slot.set_lifetime(&lifetime, windows))
    }

    /// Notes that all bytes of the entry with this tag have been verified.
    pub(crate) fn set_verified(&self, key: &Key, tag: u32) -> bool {
        self.change(key, tag, |slot| slot.set_verified(true))
    }

    /// Notes that the entry with this tag is to be verified again.
    pub(crate) fn set_unverified(&self, key: &Key, tag: u32) -> bool {
        self.change(key, tag, |slot| slot.set_verified(false))
    }

    /// Notes that the entry with this tag is not covered by any purge up to this one.
    pub(crate) fn set_clean(&self, key: &Key, tag: u32, number: u32) -> bool {
        self.change(key, tag, |slot| slot.set_clean_of(number))
    }

    /// Notes that an entry's file has another head now: lifetime, purge filter and tag (`extent.file`) of `known`. False:
    /// the entry did not have this tag, or was moved to a segment, with its former head.
    pub fn set_head(&self, tag: u32, known: &KnownKey) -> bool {
        let windows = self.windows_of(&known.lifetime);
        let mut is_set = false;
        self.change(&known.key, tag, |slot| {
            is_set = !slot.extent().is_in_segment();
            if is_set {
                slot.set_lifetime(&known.lifetime, windows);
                slot.set_head(known.extent.file, known.purge_filter);
            }
        });
        is_set
    }

    fn change(&self, key: &Key, tag: u32, change: impl FnOnce(&mut KeySlot)) -> bool {
        let mut shard = self.part(key).shard.lock();
        let slot = shard.get_mut(key);
        let slot = slot.filter(|slot| slot.is_stored() && slot.tag() == tag);
        slot.map(change).is_some()
    }

    fn windows_of(&self, lifetime: &Lifetime) -> u16 {
        self.windows.number(lifetime.updating, lifetime.error)
    }

    /// Removes a key, whatever its state.
    pub fn remove(&self, key: &Key) -> Option<KnownKey> {
        self.remove_if(key, |_| true)
    }

    /// Notes that the entry with this tag, which was at one place in the segments, is at another. False: it was not there.
    pub(crate) fn relocate(&self, key: &Key, from: &EntryExtent, to: EntryExtent) -> bool {
        let mut is_moved = false;
        self.change(key, from.file, |slot| {
            is_moved = slot.extent() == *from && from.is_in_segment() && to.is_in_segment();
            if is_moved {
                slot.set_extent(to);
            }
        });
        is_moved
    }

    /// Removes the entry that lies at this place.
    pub(crate) fn remove_at(&self, key: &Key, extent: &EntryExtent) -> Option<KnownKey> {
        self.remove_if(key, |slot| slot.is_stored() && slot.extent() == *extent)
    }

    /// Removes the entry with this tag; one that replaced it stays.
    pub(crate) fn remove_entry(&self, key: &Key, tag: u32) -> Option<KnownKey> {
        self.remove_if(key, |slot| slot.is_stored() && slot.tag() == tag)
    }

    fn remove_if(&self, key: &Key, is_it: impl FnOnce(&KeySlot) -> bool) -> Option<KnownKey> {
        let part = self.part(key);
        let mut shard = part.shard.lock();
        if !is_it(shard.get(key)?) {
            return None;
        }
        let known = shard.remove(key);
        part.note_oldest(&shard);
        self.keys.fetch_sub(1, Relaxed);
        known
    }

    /// Removes the least recently used entry with a file of its own (to the second) for its space on the disk.
    #[must_use = "its file is to be deleted"]
    pub fn evict(&self) -> Option<KnownKey> {
        let known = self.take_oldest_before(u32::MAX, Among::Files, &mut 0)?;
        self.keys.fetch_sub(1, Relaxed);
        Some(known)
    }

    /// Removes entries that were not used since `before` (`inactive`), and what is above the maximum of keys, the oldest
    /// first, at most `max` (`STEP_MAX`). Fewer, with [`Index::may_have_inactive`], where many of those in segments have
    /// been used again.
    #[must_use = "their files are to be deleted"]
    pub(crate) fn evict_inactive(&self, before: Seconds, max: usize) -> Vec<KnownKey> {
        let (mut evicted, mut looks) = (Vec::new(), LOOKS_MAX);
        while evicted.len() < max.min(STEP_MAX) {
            let before = match self.len() > self.keys_max() {
                true => u32::MAX,
                false => seconds(before),
            };
            let known = self.take_oldest_before(before, Among::All, &mut looks);
            let Some(known) = known else {
                break;
            };
            self.keys.fetch_sub(1, Relaxed);
            if known.state == KeyState::Stored {
                evicted.push(known);
            }
        }
        evicted
    }

    /// Whether another call of [`Index::evict_inactive`] may find something.
    pub(crate) fn may_have_inactive(&self, before: Seconds) -> bool {
        if self.len() > self.keys_max() {
            return true;
        }
        let mut oldest = self.shards.iter().flat_map(|part| &part.oldest);
        oldest.any(|oldest| oldest.load(Relaxed) < seconds(before))
    }

    /// Removes the oldest key that was last used before this second; the count still includes it. (Of keys that are in no
    /// order of use, where many have been used again since that was looked at last, one that is nearly the oldest; none
    /// after so many `looks` at these.)
    fn take_oldest_before(&self, before: u32, among: Among, looks: &mut usize) -> Option<KnownKey> {
        let kinds = match among {
            Among::All => 0..=OUT_OF_ORDER,
            Among::Files => 0..=0,
        };
        let start = self.search_start.fetch_add(1, Relaxed);
        let mut tries = 0;
        loop {
            let parts = (0..SHARDS).map(|index| &self.shards[(start + index) % SHARDS]);
            let all = parts.flat_map(|part| kinds.clone().map(move |kind| (part, kind)));
            let (part, kind) = all.min_by_key(|(part, kind)| part.oldest[*kind].load(Relaxed))?;
            let oldest = part.oldest[kind].load(Relaxed);
            if oldest >= before {
                return None;
            }
            if kind == OUT_OF_ORDER {
                *looks = looks.checked_sub(1)?;
            }
            let mut shard = part.shard.lock();
            let key = match kind {
                OUT_OF_ORDER => {
                    tries += 1;
                    let found = shard.find_oldest_out_of_order(tries < RIGHT_TRIES);
                    let found = found.filter(|(_, used)| *used < before);
                    found.map(|(key, _)| key)
                }
                _ => shard.oldest().map(KeySlot::key),
            };
            let known = key.and_then(|key| shard.remove(&key));
            part.note_oldest(&shard);
            if kind == OUT_OF_ORDER {
                let oldest = shard.oldest_out_of_order();
                part.oldest[OUT_OF_ORDER].store(oldest, Relaxed);
            }
            // Another task may have been faster, or it was used again: search on.
            if known.is_some() {
                return known;
            }
        }
    }

    /// The next keys of a scan, at most `max` (`STEP_MAX`); none at its end. A key that comes or goes meanwhile may
    /// be missed, a key that stays is returned once.
    pub fn scan(&self, cursor: &mut Cursor, max: usize) -> Vec<KnownKey> {
        self.scan_slots(cursor, max, Shard::at)
    }

    fn scan_slots<T>(
        &self,
        cursor: &mut Cursor,
        max: usize,
        at: impl Fn(&Shard, usize) -> Option<T>,
    ) -> Vec<T> {
        let mut found = Vec::with_capacity(max.min(STEP_MAX));
        while let Some(part) = self.shards.get(cursor.shard) {
            let shard = part.shard.lock();
            let end = shard.slots().min(cursor.slot + SLOTS_AT_ONCE);
            while cursor.slot < end && found.len() < max.min(STEP_MAX) {
                found.extend(at(&shard, cursor.slot));
                cursor.slot += 1;
            }
            if cursor.slot >= shard.slots() {
                *cursor = Cursor {
                    shard: cursor.shard + 1,
                    slot: 0,
                };
            }
            if found.len() >= max.min(STEP_MAX) {
                break;
            }
        }
        found
    }

    /// Sorts the keys by their last use, after they came in another order (from a journal). Holds each shard's lock for
    /// as long as sorting takes: for a start.
    pub fn sort(&self) {
        for part in &self.shards {
            let mut shard = part.shard.lock();
            shard.sort();
            part.note_oldest(&shard);
        }
    }

    /// The number for the names in `Vary` (as written by [`crate::vary_names`]): 0 for none, [`VARY_UNKNOWN`] if no
    /// more are kept.
    #[must_use]
    pub(crate) fn vary_number(&self, names: &[u8]) -> u16 {
        if names.is_empty() {
            return 0;
        }
        let find = |known: &[Arc<[u8]>]| known.iter().position(|known| **known == *names);
        if let Some(index) = find(&self.vary.read()) {
            return index as u16 + 1;
        }
        let mut known = self.vary.write();
        if let Some(index) = find(&known) {
            return index as u16 + 1;
        }
        if known.len() == VARY_MAX || names.len() > VARY_BYTES_MAX {
            return VARY_UNKNOWN;
        }
        known.push(names.into());
        known.len() as u16
    }

    /// The names for a number; None for 0 and [`VARY_UNKNOWN`].
    #[must_use]
    pub(crate) fn vary_names(&self, number: u16) -> Option<Arc<[u8]>> {
        let index = usize::from(number).checked_sub(1)?;
        self.vary.read().get(index).cloned()
    }

    fn part(&self, key: &Key) -> &LockedShard {
        &self.shards[shard_of(key)]
    }
}

/// The number of the shard that a key is in, below [`SHARDS`].
pub(crate) fn shard_of(key: &Key) -> usize {
    usize::from(key.0[0]) % SHARDS
}

impl LockedShard {
    /// Notes the oldest key of those in the order of use.
    fn note_oldest(&self, shard: &MutexGuard<'_, Shard>) {
        // A key used in the year 2106 is still older than none.
        let oldest = shard.oldest();
        let oldest = oldest.map_or(u32::MAX, |slot| slot.used.min(u32::MAX - 1));
        self.oldest[0].store(oldest, Relaxed);
    }

    /// The same, after a key was put in.
    fn note_put(&self, shard: &MutexGuard<'_, Shard>, known: &KnownKey) {
        self.note_oldest(shard);
        if is_out_of_order(known) {
            let used = seconds(known.used).min(u32::MAX - 1);
            self.oldest[OUT_OF_ORDER].fetch_min(used, Relaxed);
        }
    }
}
