//! Room that a cache directory takes beside its entries: the directories that they lie in, the journal, files of others.
//!
//! Not here: entries, which reserve their own ([`super::writing`]). Invariant: what we make ourselves has its room before it is made;
//! only what is found on the disk is counted whether it fits or not.

use super::{DIRECTORIES_MAX, Store};
use crate::error::Error;
use crate::key::Key;
use crate::space::{NoRoom, Reservation};
use disk::Local;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes that the journal may grow by between two sweeps, or this share of `max_size` if that is less.
const JOURNAL_AHEAD: u64 = 1 << 20;
const JOURNAL_SHARE: u64 = 32;
/// That much is taken in so many pieces, so that fills which come meanwhile cannot keep all of it from being free at one moment.
const JOURNAL_PIECES: u64 = 16;

impl Store {
    /// Room for those directories of a key that are not counted, a block each. Others may have to go.
    pub(super) async fn room_for_directories(
        &self,
        local: &Local,
        key: &Key,
    ) -> Result<Reservation, Error> {
        let more = self.uncounted_directories(key);
        let mut room = self.0.space.reserve(0)?;
        let bytes = more * self.0.space.block_bytes();
        self.grow(local, &mut room, bytes).await?;
        Ok(room)
    }

    fn uncounted_directories(&self, key: &Key) -> u64 {
        let counted = self.0.directories.lock();
        if counted.len() >= DIRECTORIES_MAX {
            return 0;
        }
        let all = key.directories(self.0.settings.levels);
        all.filter(|(directory, _)| !counted.contains(directory))
            .count() as u64
    }

    /// Counts the directories of a key, each once: in the room that was reserved for them, or, where they were found, beyond it.
    /// What somebody else counted meanwhile is given back.
    pub(super) fn count_directories(&self, key: &Key, mut room: Reservation) {
        let mut directories = self.0.directories.lock();
        let mut new = 0u64;
        for (directory, _) in key.directories(self.0.settings.levels) {
            if directories.len() < DIRECTORIES_MAX && directories.insert(directory) {
                new += 1;
            }
        }
        let space = &self.0.space;
        space.charge(new.saturating_sub(room.blocks()));
        room.shrink_to(new * space.block_bytes());
        room.keep();
    }

    /// Bytes that the journal may grow by until it is counted again; 0 where nothing depends on it.
    fn journal_ahead(&self) -> u64 {
        let max = self.0.settings.max_bytes;
        max.map_or(0, |max| (max / JOURNAL_SHARE).min(JOURNAL_AHEAD))
    }

    /// Counts the journal that a start found, and what it may grow to until it is counted again.
    pub(super) fn count_journal_found(&self) {
        let bytes = self.0.journal.bytes() + self.journal_ahead();
        let blocks = self.0.space.blocks(bytes);
        self.0.journal_room.lock().recount(blocks);
        self.0.journal_counted.store(bytes, Relaxed);
    }

    /// Counts what the journal has grown to, and what it may grow to until it is counted again.
    ///
    /// # Errors
    /// [`NoRoom`] for all of that; it keeps what it had, and what there is.
    pub(super) fn count_journal(&self) -> Result<(), NoRoom> {
        let space = &self.0.space;
        let bytes = self.0.journal.bytes() + self.journal_ahead();
        let mut room = self.0.journal_room.lock();
        if let Err(NoRoom(lacking)) = room.grow_to(bytes) {
            let fits = space.blocks(bytes).saturating_sub(lacking);
            // Somebody else may have taken that.
            let _ = room.grow_to(fits * space.block_bytes());
            return Err(NoRoom(lacking));
        }
        room.shrink_to(bytes);
        self.0.journal_counted.store(bytes, Relaxed);
        Ok(())
    }

    /// Takes more room for the journal, where it has grown into half of what was counted ahead and no sweep has come (its disk has much
    /// to do, say). Others may have to go.
    pub(super) async fn count_journal_ahead(&self, local: &Local) -> Result<(), Error> {
        let (ahead, is_counted) = (self.journal_ahead(), &self.0.journal_counted);
        let counted = is_counted.load(Relaxed);
        let is_due = ahead > 0 && self.0.journal.bytes() + ahead / 2 > counted;
        let taken = || is_counted.compare_exchange(counted, counted + ahead, Relaxed, Relaxed);
        if !is_due || taken().is_err() {
            return Ok(());
        }
        let mut more = self.0.space.reserve(0)?;
        for piece in 1..=JOURNAL_PIECES {
            let bytes = ahead * piece / JOURNAL_PIECES;
            if let Err(error) = self.grow(local, &mut more, bytes).await {
                // To be tried again, unless a sweep has counted meanwhile.
                let _ = is_counted.compare_exchange(counted + ahead, counted, Relaxed, Relaxed);
                return Err(error);
            }
        }
        self.0.journal_room.lock().absorb(more.keep());
        Ok(())
    }

    /// Counts what others have in the directory, instead of what was counted before.
    pub(super) fn count_foreign(&self, blocks: u64) {
        self.0.foreign_room.lock().recount(blocks);
    }
}
