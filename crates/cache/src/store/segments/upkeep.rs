//! What the segments need beside the writing of entries: clearing, the maps of dead entries, other limits, the end.

use super::{Appended, SegmentAppend, SegmentStore};
use crate::error::Error;
use crate::segments::SegmentState;
use crate::store::Store;
use disk::{Errno, Lane, SegmentFile};
use std::time::Duration;

/// Tries to have a job in a pool that is full, and the time between two.
const CLOSE_TRIES_MAX: usize = 1000;
const CLOSE_TICK: Duration = Duration::from_millis(5);

impl Store {
    /// The writer's job: appends entries, and empties a segment if that is due. **Waits.**
    pub(super) fn write_segments(&self, items: Vec<SegmentAppend>) -> (Vec<Appended>, bool) {
        let refused = |items: &[SegmentAppend]| items.iter().map(|_| Err(Error::InUse)).collect();
        // While it is held, the directory is not given up.
        let (Some(segments), Ok(hold)) = (&self.0.segments, self.0.journal.hold()) else {
            return (refused(&items), false);
        };
        let mut writer = segments.writer.lock();
        self.clear_drained();
        self.try_retired();
        let done = writer.append(self, items);
        let is_more = writer.advance(self);
        drop((writer, hold));
        (done, is_more)
    }

    /// Clears the segments that have no entries and no readers. **Waits.**
    pub(super) fn clear_drained(&self) {
        let Some(SegmentStore { set, .. }) = &self.0.segments else {
            return;
        };
        for drained in set.drained() {
            // A process that had the directory before may still be sending from it.
            let cleared = drained.file.alone(|| match drained.is_surplus {
                // Its room is the device's.
                true if set.device.is_some() => Ok(()),
                true => disk::remove_waiting(&set.path(drained.number)),
                false => drained.file.clear(0, set.bytes),
            });
            match cleared {
                None => {}
                Some(Ok(())) if !drained.is_surplus => {
                    set.set_state(drained.number, SegmentState::Free);
                }
                // One that cannot be cleared is not used again.
                Some(done) => {
                    set.remove(drained.number);
                    if done.is_ok() && (set.is_leftover || set.give_back()) {
                        self.0.space.raise_max(set.bytes);
                    }
                }
            }
        }
    }

    /// Has a retired segment tried, in a job of its own: a disk is slow where it is bad, and what is stored does not wait
    /// for that.
    fn try_retired(&self) {
        let Some(SegmentStore { set, .. }) = &self.0.segments else {
            return;
        };
        let Some((number, file, pause)) = set.next_proof() else {
            return;
        };
        let store = self.clone();
        let proof = move || store.prove(number, &file, pause);
        if self.0.settings.pool.spawn(Lane::Write, proof).is_err() {
            set.try_again(number, pause);
        }
    }

    /// Tries a retired segment: one that can be written and read is clear then. **Waits.**
    pub(in crate::store) fn prove(&self, number: u32, file: &SegmentFile, pause: Duration) {
        // While it is held, the directory is not given up.
        let (Some(segments), Ok(hold)) = (&self.0.segments, self.0.journal.hold()) else {
            return;
        };
        let set = &segments.set;
        let proven = file.alone(|| {
            // The next process does not wait for all of it.
            file.prove(|| !set.is_closed())?;
            file.clear(0, set.bytes)
        });
        match proven {
            Some(Ok(())) => set.set_state(number, SegmentState::Free),
            _ => set.try_again(number, pause),
        }
        drop(hold);
    }

    /// Has the writer look whether there is anything to do.
    pub(in crate::store) fn poke_segments(&self) {
        let Some(segments) = &self.0.segments else {
            return;
        };
        segments.set.set_full(false);
        if segments.set.is_upkeep_due() {
            // If the pool is full, the next entry does it.
            let _ = segments.queue.poke();
        }
    }

    /// Gives up a segment if so many blocks are lacking and no file is left to give way; or takes it back.
    pub(in crate::store) fn give_segments(&self, lacking: u64) {
        if let Some(segments) = &self.0.segments
            && segments.set.device.is_none()
            && self.0.space.has_min_free()
        {
            segments.set.set_short(lacking > 0);
        }
    }

    /// Writes the maps of dead entries, so that a start without the journal does not find them either; waits until they
    /// are on the disk, if that is asked for.
    ///
    /// # Errors
    /// [`Error::Disk`]; to be tried again.
    pub(in crate::store) async fn write_dead_maps(&self, is_to_sync: bool) -> Result<(), Error> {
        let segments = self.0.segments.as_ref();
        if !segments.is_some_and(|segments| segments.set.has_changed_maps(is_to_sync)) {
            return Ok(());
        }
        let (store, pool) = (self.clone(), &self.0.settings.pool);
        let job = pool.run(Lane::Write, move || store.write_maps_now(is_to_sync));
        job.await.map_err(disk::Error::from)?
    }

    /// **Waits.**
    fn write_maps_now(&self, is_to_sync: bool) -> Result<(), Error> {
        let (Some(segments), Ok(hold)) = (&self.0.segments, self.0.journal.hold()) else {
            return Ok(());
        };
        // The first pages are the writer's.
        let writer = segments.writer.lock();
        let (mut done, mut from) = (Ok(()), 0);
        while let Some((of, page)) = segments.set.next_changed_map(from) {
            from = of.number + 1;
            let written = of.file.write(0, &[page]);
            if let Err(error) = &written {
                segments.set.set_changed(of.number);
                if error.errno() == Some(Errno::IO) {
                    segments.set.note_error_in(of.number);
                }
            }
            done = done.and(written);
        }
        let unsynced = is_to_sync.then(|| segments.set.unsynced());
        for (number, file) in unsynced.into_iter().flatten() {
            let synced = file.sync();
            if synced.is_err() {
                segments.set.set_unsynced(number);
            }
            done = done.and(synced);
        }
        drop((writer, hold));
        Ok(done?)
    }

    /// Leaves the segments to another process, which clears none that a view of this one is read from.
    pub(in crate::store) async fn close_segments(&self) {
        for _ in 0..CLOSE_TRIES_MAX {
            let store = self.clone();
            let close = move || {
                let segments = store.0.segments.as_ref();
                let read = segments.map_or_else(Vec::new, |segments| segments.set.close());
                read.iter().for_each(|file| file.lock_for_reading());
            };
            let pool = &self.0.settings.pool;
            if self.0.segments.is_none() || pool.run(Lane::Write, close).await.is_ok() {
                return;
            }
            tokio::time::sleep(CLOSE_TICK).await;
        }
    }
}
