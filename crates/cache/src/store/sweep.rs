//! Keeping a directory within its limits, a little at a time.

use super::Store;
use crate::error::Error;
use crate::space::NoRoom;
use disk::Local;
use message::date::Seconds;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of an entry in a snapshot, Vary and frames included, more or less.
const SNAPSHOT_BYTES_OF_KEY: u64 = 128;

impl Store {
    /// One step of what is to be done now and then (`manager_files` bounds it): deletes what nobody asked for since `inactive`, and
    /// what is over `max_size` or under `min_free`; puts the journal together when it is long. True: there is more to do.
    ///
    /// # Errors
    /// [`Error::Disk`]; to be tried again later.
    pub async fn sweep(
        &self,
        local: &Local,
        now: Seconds,
        files_max: usize,
    ) -> Result<bool, Error> {
        let settings = &self.0.settings;
        if self.0.space.has_min_free() {
            let room = local.room(&settings.directory, &settings.pool).await?;
            self.0.space.set_free(room.free_blocks);
        }
        // One file that cannot be deleted does not keep the rest from being swept; only no purge is forgotten.
        let lost = self.delete_all_pending(local).await;
        self.0.journal.write_rest(local).await?;
        let compared = match &lost {
            Ok(()) => self.sweep_purged(local, files_max).await?,
            Err(_) => 0,
        };
        let before = now.saturating_sub(self.0.inactive.load(Relaxed));
        let inactive = self.take_out(|index| index.evict_inactive(before, files_max));
        let mut done = inactive.known.len() + compared;
        self.0
            .evicted
            .fetch_add(inactive.known.len() as u64, Relaxed);
        self.delete(local, inactive).await?;
        while done < files_max {
            let lacking = match self.count_journal() {
                Ok(()) => self.0.space.excess(),
                Err(NoRoom(lacking)) => lacking,
            };
            if lacking == 0 {
                break;
            }
            let victims = self.victims(lacking);
            if victims.known.is_empty() {
                break;
            }
            done += victims.known.len();
            self.delete(local, victims).await?;
        }
        if self.0.journal.is_long(self.0.index.len()) {
            self.compact(local).await?;
            // As a rule it is shorter now. Where it is not, and there is no room, the next step makes it.
            let _ = self.count_journal();
        }
        lost.map(|()| done >= files_max)
    }

    /// Puts the journal together. The new snapshot lies beside the old one for a moment, so it needs room.
    pub(super) async fn compact(&self, local: &Local) -> Result<(), Error> {
        let bytes = self.0.index.len() as u64 * SNAPSHOT_BYTES_OF_KEY;
        let mut room = self.0.space.reserve(0)?;
        self.grow(local, &mut room, bytes).await?;
        self.0.journal.compact(local, &self.0.index).await?;
        Ok(())
    }
}
