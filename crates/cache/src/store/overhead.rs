//! The space of a cache directory beside its entries: directories, the journal, foreign files.
//!
//! Not here: entries, which reserve their own ([`super::entry_writer`]). Invariant: space for our own files is reserved
//! before they are made; only what is found on the disk is counted whether it fits or not.

use super::{DIRECTORIES_MAX, Store};
use crate::error::Error;
use crate::key::Key;
use crate::space::{NoRoom, Reservation};
use disk::Local;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes that the journal may grow by between two sweeps, or this share of `max_size` if that is less.
const JOURNAL_AHEAD: u64 = 1 << 20;
const JOURNAL_SHARE: u64 = 32;
/// Steps in which that space is taken, so that concurrent fills cannot keep all of it from being free at one moment.
const JOURNAL_PIECES: u64 = 16;

impl Store {
    /// Reserves a block for each directory of a key that is not counted yet. Entries may be evicted for it.
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

    /// Counts the directories of a key, each once: in the space reserved for them, or in addition to it if they were
    /// found on the disk. Space for directories that another task has counted meanwhile is given back.
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

    /// Bytes that the journal may grow by until it is counted again; 0 without `max_size`.
    fn journal_ahead(&self) -> u64 {
        let settings = &self.0.settings;
        let beside = settings.device.as_ref().map(|device| device.files_bytes);
        let max = beside.or(settings.max_bytes);
        max.map_or(0, |max| (max / JOURNAL_SHARE).min(JOURNAL_AHEAD))
    }

    /// Counts the journal that a start found, and its growth until it is counted again.
    pub(super) fn count_journal_found(&self) {
        let bytes = self.0.journal.bytes() + self.journal_ahead();
        let blocks = self.0.space.blocks(bytes);
        self.0.journal_room.lock().recount(blocks);
        self.0.journal_counted.store(bytes, Relaxed);
    }

    /// Counts the journal's present size, and its growth until it is counted again.
    ///
    /// # Errors
    /// [`NoRoom`] for all of that; it keeps its space, and takes what is free.
    pub(super) fn count_journal(&self) -> Result<(), NoRoom> {
        let space = &self.0.space;
        let bytes = self.0.journal.bytes() + self.journal_ahead();
        let mut room = self.0.journal_room.lock();
        if let Err(NoRoom(lacking)) = room.grow_to(bytes) {
            let fits = space.blocks(bytes).saturating_sub(lacking);
            // Another task may have taken that meanwhile.
            let _ = room.grow_to(fits * space.block_bytes());
            return Err(NoRoom(lacking));
        }
        room.shrink_to(bytes);
        self.0.journal_counted.store(bytes, Relaxed);
        Ok(())
    }

    /// Takes more space for the journal if half of its counted growth is used up and no sweep has come (because its
    /// disk is busy, say). Entries may be evicted for it.
    pub(super) async fn count_journal_ahead(&self, local: &Local) -> Result<(), Error> {
        let (ahead, is_counted) = (self.journal_ahead(), &self.0.journal_counted);
        let counted = is_counted.load(Relaxed);
        let is_due = ahead > 0 && self.0.journal.bytes() + ahead / 2 > counted;
        let taken = || is_counted.compare_exchange(counted, counted + ahead, Relaxed, Relaxed);
        if !is_due || taken().is_err() {
            return Ok(());
        }
        // Boxed: most fills need no room for it.
        Box::pin(self.reserve_journal(local, (counted, ahead))).await
    }

    /// Takes the space that the journal may grow by, which is counted already.
    async fn reserve_journal(
        &self,
        local: &Local,
        (counted, ahead): (u64, u64),
    ) -> Result<(), Error> {
        let is_counted = &self.0.journal_counted;
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

    /// Counts the blocks of foreign files in the directory, in place of the former count.
    pub(super) fn count_foreign(&self, blocks: u64) {
        self.0.foreign_room.lock().recount(blocks);
    }
}
