//! Keeping a directory within its limits, a little at a time.

use super::{DELETE_MAX, Lost, Store};
use crate::error::Error;
use crate::index::{Known, State};
use crate::journal::Record;
use disk::{Local, Step};
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
        let lost = self.delete_lost(local).await;
        self.0.journal.write_rest(local).await?;
        let compared = match &lost {
            Ok(()) => self.sweep_purged(local, files_max).await?,
            Err(_) => 0,
        };
        let before = now.saturating_sub(self.0.inactive.load(Relaxed));
        let inactive = self.0.index.evict_inactive(before, files_max);
        let mut done = inactive.len() + compared;
        self.0.evicted.fetch_add(inactive.len() as u64, Relaxed);
        self.delete(local, inactive).await?;
        while done < files_max {
            let excess = self.0.space.excess();
            let victims = if excess > 0 {
                self.victims(excess)
            } else {
                Vec::new()
            };
            if victims.is_empty() {
                break;
            }
            done += victims.len();
            self.delete(local, victims).await?;
        }
        if self.0.journal.is_long(self.0.index.len()) {
            self.compact(local).await?;
        }
        self.count_journal();
        lost.map(|()| done >= files_max)
    }

    /// Deletes the temp files whose writers have gone, and what could not be deleted before.
    async fn delete_lost(&self, local: &Local) -> Result<(), Error> {
        let mut lost = std::mem::take(&mut *self.0.lost.lock());
        while let Some(one) = lost.pop() {
            let gone = match self.delete_temps(local, one.temp.as_slice()).await {
                Ok(()) => self.delete_files(local, &one.victims).await,
                Err(error) => Err(error),
            };
            if let Err(error) = gone {
                lost.push(one);
                self.0.lost.lock().append(&mut lost);
                return Err(error);
            }
            drop(one.room);
        }
        Ok(())
    }

    /// Puts the journal together. The new snapshot lies beside the old one for a moment, so it needs room.
    pub(super) async fn compact(&self, local: &Local) -> Result<(), Error> {
        let bytes = self.0.index.len() as u64 * SNAPSHOT_BYTES_OF_KEY;
        let mut room = self.0.space.reserve(0)?;
        self.grow(local, &mut room, bytes).await?;
        self.0.journal.compact(local, &self.0.index).await?;
        Ok(())
    }

    /// Takes entries out of the index for so many blocks, at most [`DELETE_MAX`].
    pub(super) fn victims(&self, blocks: u64) -> Vec<Known> {
        let mut victims = Vec::new();
        let mut sum = 0;
        while sum < blocks && victims.len() < DELETE_MAX {
            let Some(known) = self.0.index.evict() else {
                break;
            };
            sum += u64::from(known.place.blocks);
            victims.push(known);
        }
        self.0.evicted.fetch_add(victims.len() as u64, Relaxed);
        victims
    }

    /// Deletes the files of entries that are out of the index. Their blocks count until the files are gone; where that fails, a
    /// sweep tries again. (No purge is forgotten before that.)
    pub(super) async fn delete(&self, local: &Local, known: Vec<Known>) -> Result<(), Error> {
        for part in known.chunks(DELETE_MAX) {
            let stored = part.iter().filter(|known| known.state == State::Stored);
            let blocks = stored.map(|known| u64::from(known.place.blocks)).sum();
            let blocks = self.0.space.adopt(blocks);
            let done = self.delete_files(local, part).await;
            if done.is_err() {
                self.0.undeleted.fetch_add(part.len() as u64, Relaxed);
                self.0.lost.lock().push(Lost {
                    temp: None,
                    victims: part.to_vec(),
                    room: blocks,
                });
            }
            done?;
        }
        Ok(())
    }

    /// Deletes the files of at most [`DELETE_MAX`] entries that are out of the index, and writes that down.
    pub(super) async fn delete_files(&self, local: &Local, part: &[Known]) -> Result<(), Error> {
        if part.is_empty() {
            return Ok(());
        }
        let places = part.iter().filter(|known| self.is_its_own(known));
        let mut steps: Vec<_> = places
            .map(|known| Step::Unlink(self.path(&known.key).into()))
            .collect();
        let tickets: Vec<_> = part
            .chunks(crate::journal::TICKET_RECORDS_MAX)
            .map(|part| {
                let gone = part.iter().map(|known| Record::Remove {
                    key: known.key,
                    tag: known.place.file,
                });
                self.0.journal.ticket(&gone.collect::<Vec<_>>())
            })
            .collect();
        steps.extend(tickets.iter().map(crate::journal::Ticket::step));
        Ok(local.change(steps, &self.0.settings.pool).await?)
    }

    /// Is the file in its place still that of an entry that is out of the index? (Else a newer one has overwritten it.)
    pub(super) fn is_its_own(&self, known: &Known) -> bool {
        !self.has(&known.key)
    }
}
