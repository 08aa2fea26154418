//! Many keys at once, as a start puts them in.

use super::shard::{BATCH_MAX, Shard};
use super::slot::{EntryExtent, KnownKey, seconds};
use super::{Cursor, Displaced, Index, KeyState, LockedShard, OUT_OF_ORDER, SHARDS, shard_of};
use crate::key::Key;
use parking_lot::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;

impl Index {
    /// Takes memory for so many keys, at most [`Index::keys_max`], before they come: an index that grows with them looks
    /// at each once more. Most of them are to be entries with files of their own, or entries in segments.
    pub(crate) fn expect(&self, keys: usize, have_files: bool) {
        (0..SHARDS).for_each(|shard| self.expect_in(shard, keys, have_files));
    }

    /// As [`Index::expect`] for one shard's part of `keys`.
    pub(crate) fn expect_in(&self, shard: usize, keys: usize, have_files: bool) {
        let each = keys.min(self.keys_max()) / SHARDS;
        if let Some(part) = self.shards.get(shard) {
            part.shard.lock().expect(each, have_files);
        }
    }

    /// As [`Index::put`] for each of these keys, in their order; `displaced` is told of every key that displaced another.
    /// Keys of one shard that follow each other cost less: a lock for [`BATCH_MAX`] of them, and memory that is there when
    /// it is looked at.
    pub(crate) fn put_all(
        &self,
        all: &[KnownKey],
        mut displaced: impl FnMut(&KnownKey, Displaced),
    ) {
        let is_same = |a: &KnownKey, b: &KnownKey| shard_of(&a.key) == shard_of(&b.key);
        let batches = all
            .chunk_by(is_same)
            .flat_map(|same| same.chunks(BATCH_MAX));
        for batch in batches {
            let put = self.put_batch(batch, &mut displaced);
            for known in &batch[put..] {
                let found = self.put(known);
                if found != Displaced::default() {
                    displaced(known, found);
                }
            }
        }
    }

    /// Puts keys of one shard, as far as no other need give way for them. Returns how many.
    fn put_batch(
        &self,
        batch: &[KnownKey],
        displaced: &mut impl FnMut(&KnownKey, Displaced),
    ) -> usize {
        let Some(first) = batch.first() else {
            return 0;
        };
        // Counted before they are in, as elsewhere: so there are never more than the maximum.
        if !self.count_more(batch.len()) {
            return 0;
        }
        let part = self.part(&first.key);
        let mut replaces = 0;
        let mut shard = part.shard.lock();
        shard.prefetch(batch.iter().map(|known| &known.key));
        for known in batch {
            let replaced = shard.put(known, self.windows_of(&known.lifetime));
            if replaced.is_some() {
                replaces += 1;
                let evicted = None;
                displaced(known, Displaced { replaced, evicted });
            }
        }
        part.note_all_put(&shard, batch);
        drop(shard);
        if replaces > 0 {
            self.keys.fetch_sub(replaces, Relaxed);
        }
        batch.len()
    }
}

impl Index {
    /// As [`Index::scan`], of stored entries in segments only, whose keys and places are all that is read: a start looks
    /// at all of them.
    pub(crate) fn scan_places(&self, cursor: &mut Cursor, max: usize) -> Vec<(Key, EntryExtent)> {
        self.scan_slots(cursor, max, |shard, slot| shard.place_at(slot))
    }
}

impl LockedShard {
    /// Notes the oldest keys, after these were put in.
    fn note_all_put(&self, shard: &MutexGuard<'_, Shard>, all: &[KnownKey]) {
        self.note_oldest(shard);
        let out_of_order = all.iter().filter(|known| is_out_of_order(known));
        let used = out_of_order.map(|known| seconds(known.used)).min();
        if let Some(used) = used {
            self.oldest[OUT_OF_ORDER].fetch_min(used.min(u32::MAX - 1), Relaxed);
        }
    }
}

/// Is it in no order of use?
pub(super) fn is_out_of_order(known: &KnownKey) -> bool {
    known.state != KeyState::Stored || known.extent.is_in_segment()
}
