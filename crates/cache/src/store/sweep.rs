//! Keeping a directory within its limits, in small steps.

use super::Store;
use crate::error::Error;
use crate::space::NoRoom;
use disk::Local;
use message::date::Seconds;
use std::sync::atomic::Ordering::Relaxed;

/// Approximate bytes of an entry in a snapshot, Vary and frames included.
const SNAPSHOT_BYTES_OF_KEY: u64 = 128;

impl Store {
    /// One step of the regular maintenance (`manager_files` bounds it): deletes entries that were not used for
    /// `inactive`, the excess over `max_size` or under `min_free`, and what gives way to the next segment; compacts the
    /// journal when it is long. True: there is more to do.
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
        if let Some(segments) = &self.0.segments {
            segments.note_now(now);
        }
        self.balance_segments(now);
        self.poke_segments();
        // What cannot be written or deleted does not stop the rest of the sweep, which may be what makes room for it; but no
        // purge is forgotten for a while.
        let mut lost = self.write_dead_maps(false).await;
        if self.0.space.has_min_free() {
            let room = local.room(&settings.directory, &settings.pool).await?;
            self.0.space.set_free(room.free_blocks);
        }
        lost = lost.and(self.delete_all_pending(local).await);
        lost = lost.and(self.0.journal.write_rest(local).await);
        let compared = match self.sweep_purged(local, files_max).await {
            Ok(compared) => compared,
            Err(error) => {
                lost = lost.and(Err(error));
                0
            }
        };
        let before = now.saturating_sub(self.0.inactive.load(Relaxed));
        let inactive = self.take_out(|index| index.evict_inactive(before, files_max));
        let mut done = inactive.known.len();
        self.0
            .evicted
            .fetch_add(inactive.known.len() as u64, Relaxed);
        self.delete(local, inactive).await?;
        while done < files_max {
            let lacking = match self.count_journal() {
                Ok(()) => self.0.space.excess().max(self.lacking_for_segment()),
                Err(NoRoom(lacking)) => lacking,
            };
            if lacking == 0 {
                self.give_segments(0);
                break;
            }
            let victims = self.victims(lacking);
            if victims.known.is_empty() {
                if !self.forgo_segments() {
                    self.give_segments(lacking);
                }
                break;
            }
            done += victims.known.len();
            self.delete(local, victims).await?;
        }
        if self.0.journal.is_long(self.0.index.len()) {
            self.compact(local).await?;
            // Usually it is shorter now. If it is not, and there is no space, the next step makes some.
            let _ = self.count_journal();
        }
        let is_full = compared.max(done) >= files_max;
        lost.map(|()| is_full || self.0.index.may_have_inactive(before))
    }

    /// Compacts the journal. The new snapshot exists beside the old one for a moment, so it needs space.
    pub(super) async fn compact(&self, local: &Local) -> Result<(), Error> {
        let bytes = self.0.index.len() as u64 * SNAPSHOT_BYTES_OF_KEY;
        let mut room = self.0.space.reserve(0)?;
        self.grow(local, &mut room, bytes).await?;
        self.0.journal.compact(local, &self.0.index).await?;
        Ok(())
    }
}
