//! Removing entries: from the index first, then from the disk; and which removals and insertions have not reached both
//! yet.
//!
//! A sweep that compares entries with a purge sees those in the index. An entry that is out of the index but still on
//! the disk, or on the disk but not yet in the index, is known to the journal alone, and the next start after a kill
//! finds it there. So a task that removes an entry, or gives one its name, holds an [`EpochGuard`] from before that
//! until index and disk agree. No purge is forgotten that may cover an entry under such a guard.
//!
//! Invariant: the file of an entry that was removed from the index is deleted, here or, if that fails, by a sweep; its
//! blocks count until then.

use super::publish_order::PublishTurn;
use super::{DELETE_MAX, Store, has_file};
use crate::error::Error;
use crate::index::{Index, KeyState, KnownKey};
use crate::journal::{JournalRecord, TICKET_RECORDS_MAX, Ticket};
use crate::key::Key;
use crate::space::Reservation;
use disk::{BatchStep, Local};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Maximum of attempts of one sweep to delete files that fail.
const FAILURES_MAX: usize = 8;
/// Attempts to delete a file after which purges do not wait for it any more.
const PATIENT_ATTEMPTS: u32 = 8;

/// The epochs in which guards were taken: a sweep's pass through the index ends one and begins the next.
#[derive(Debug)]
pub(super) struct Epochs(Mutex<EpochList>);

#[derive(Debug)]
struct EpochList {
    /// The number of the oldest epoch in the list.
    first: u64,
    /// The epochs, each shared by its guards; the last is the present one.
    epochs: VecDeque<Arc<()>>,
}

/// While it lives, no purge is forgotten.
#[derive(Clone, Debug)]
#[must_use = "it ends when this is dropped"]
pub(super) struct EpochGuard(#[expect(dead_code, reason = "it is counted")] Arc<()>);

/// Entries that are out of the index, and whose files are to be deleted.
#[derive(Debug, Default)]
#[must_use = "their files are to be deleted"]
pub(super) struct Removed {
    pub known: Vec<KnownKey>,
    pub epoch: Option<EpochGuard>,
}

/// Files that are still to be deleted.
#[derive(Debug)]
pub(super) struct PendingDelete {
    /// A temp file whose writer is gone.
    pub temp: Option<(Key, u32)>,
    /// Entries that are out of the index, at most [`DELETE_MAX`].
    pub victims: Vec<KnownKey>,
    /// Their space, which counts until the files are gone.
    pub room: Reservation,
    pub epoch: Option<EpochGuard>,
    /// Attempts that failed.
    pub failures: u32,
}

/// Entries that are out of the index, by what becomes of their files.
#[derive(Debug, Default)]
pub(super) struct ClaimedFiles {
    /// Keys whose files are still those of the entries.
    pub own: Vec<Key>,
    /// The turns of these keys, for as long as this lives.
    turns: Vec<PublishTurn>,
    /// Entries that are gone once those files are.
    pub gone: Vec<KnownKey>,
    /// Entries whose keys others are publishing: the new files take the places of theirs, if that succeeds.
    pub left: Vec<KnownKey>,
}

/// Files that a task is deleting; if the task does not finish, they are left to a sweep.
struct DeleteGuard<'a> {
    store: &'a Store,
    pending: Option<PendingDelete>,
}

impl Default for Epochs {
    fn default() -> Self {
        Self(Mutex::new(EpochList {
            first: 0,
            epochs: VecDeque::from([Arc::default()]),
        }))
    }
}

impl Epochs {
    /// A guard in the present epoch. To be taken before the index is changed.
    pub(super) fn begin(&self) -> EpochGuard {
        let list = self.0.lock();
        let now = list.epochs.back().expect("the last epoch is never taken");
        EpochGuard(now.clone())
    }

    /// Ends the present epoch. Returns its number, for [`Epochs::is_drained`].
    pub(crate) fn end_epoch(&self) -> u64 {
        let mut list = self.0.lock();
        list.epochs.push_back(Arc::default());
        list.first + list.epochs.len() as u64 - 2
    }

    /// Have all guards of this epoch and of older ones been dropped?
    pub(crate) fn is_drained(&self, epoch: u64) -> bool {
        let mut list = self.0.lock();
        while list.first <= epoch && Arc::get_mut(&mut list.epochs[0]).is_some() {
            list.epochs.pop_front();
            list.first += 1;
        }
        list.first > epoch
    }
}

impl PendingDelete {
    /// One for each file, as one that cannot be deleted ends the job that it is in.
    fn split(mut self) -> Vec<Self> {
        let (victims, temp) = (std::mem::take(&mut self.victims), self.temp.take());
        let one = |known: KnownKey| Self {
            temp: None,
            room: self.room.split_off(blocks_in_files(&[known])),
            victims: vec![known],
            epoch: self.epoch.clone(),
            failures: self.failures,
        };
        let mut each: Vec<_> = victims.into_iter().map(one).collect();
        if temp.is_some() {
            each.push(Self { temp, ..self });
        }
        each
    }
}

impl DeleteGuard<'_> {
    /// Deletes the files. Those whose places others are about to take are left to a sweep, and those of which one cannot
    /// be deleted. Returns the space of those that are gone.
    async fn run(
        mut self,
        local: &Local,
        turn: Option<&PublishTurn>,
    ) -> Result<Reservation, Error> {
        let deleted = self.delete(local, turn).await;
        if let Err(error) = &deleted {
            self.note_failure(error);
        }
        self.pending
            .take_if(|lost| lost.temp.is_none() && lost.victims.is_empty());
        deleted
    }

    async fn delete(
        &mut self,
        local: &Local,
        turn: Option<&PublishTurn>,
    ) -> Result<Reservation, Error> {
        let store = self.store;
        let Some(lost) = &mut self.pending else {
            return Ok(store.0.space.adopt(0));
        };
        store.delete_temps(local, lost.temp.as_slice()).await?;
        lost.temp = None;
        lost.victims = store.delete_files(local, &lost.victims, turn).await?;
        let left = lost.room.split_off(blocks_in_files(&lost.victims));
        Ok(std::mem::replace(&mut lost.room, left))
    }

    /// Leaves the files to a sweep, one by one. Where one cannot be deleted for long, the journal forgets its entry:
    /// purges would wait for it for ever.
    fn note_failure(&mut self, error: &Error) {
        // A disk that is out, or a full queue, says nothing of the files.
        if error.errno().is_none() {
            return;
        }
        let Some(mut lost) = self.pending.take() else {
            return;
        };
        lost.failures += 1;
        let is_awaited = lost.failures >= PATIENT_ATTEMPTS && self.store.purges_pending() > 0;
        if is_awaited && lost.epoch.take().is_some() {
            let victims = lost.victims.iter();
            for known in victims.filter(|known| !self.store.is_elsewhere(known)) {
                self.store.0.journal.gone(known.key, known.extent.file);
            }
        }
        let mut pending = self.store.0.pending_deletes.lock();
        pending.extend(lost.split());
    }
}

impl Drop for DeleteGuard<'_> {
    fn drop(&mut self) {
        if let Some(lost) = self.pending.take() {
            self.store.0.pending_deletes.lock().push_back(lost);
        }
    }
}

impl Store {
    /// Removes entries from the index, so that their files can be deleted.
    pub(super) fn take_out<I>(&self, which: impl FnOnce(&Index) -> I) -> Removed
    where
        I: IntoIterator<Item = KnownKey>,
    {
        let epoch = self.0.epochs.begin();
        let known: Vec<_> = which(&self.0.index).into_iter().collect();
        Removed {
            epoch: (!known.is_empty()).then_some(epoch),
            known,
        }
    }

    /// Evicts entries from the index until they have `blocks` blocks, at most [`DELETE_MAX`].
    pub(super) fn victims(&self, blocks: u64) -> Removed {
        let gone = self.take_out(|index| {
            let mut sum = 0;
            let mut next = || {
                let known = (sum < blocks).then(|| index.evict()).flatten()?;
                sum += u64::from(known.extent.blocks);
                Some(known)
            };
            std::iter::from_fn(&mut next)
                .take(DELETE_MAX)
                .collect::<Vec<_>>()
        });
        self.0.evicted.fetch_add(gone.known.len() as u64, Relaxed);
        gone
    }

    /// Deletes the files of entries that are out of the index. Their blocks count until the files are gone; if that
    /// fails, a sweep tries again. (No purge is forgotten before that.)
    pub(super) async fn delete(&self, local: &Local, gone: Removed) -> Result<(), Error> {
        self.delete_at(local, gone, None).await.map(drop)
    }

    /// As [`Store::delete`], and returns the space of the files that are gone. `turn`: one that the caller has.
    pub(super) async fn delete_at(
        &self,
        local: &Local,
        gone: Removed,
        turn: Option<&PublishTurn>,
    ) -> Result<Reservation, Error> {
        for known in gone
            .known
            .iter()
            .filter(|known| known.extent.is_in_segment())
        {
            self.leave_segment(known);
        }
        let guarded = |part: &[KnownKey]| DeleteGuard {
            store: self,
            pending: Some(PendingDelete {
                temp: None,
                victims: part.to_vec(),
                room: self.0.space.adopt(blocks_in_files(part)),
                epoch: gone.epoch.clone(),
                failures: 0,
            }),
        };
        // All at once: what a caller that leaves does not come to is left to a sweep.
        let parts: Vec<_> = gone.known.chunks(DELETE_MAX).map(guarded).collect();
        let (mut done, mut freed) = (Ok(()), self.0.space.adopt(0));
        for (part, known) in parts.into_iter().zip(gone.known.chunks(DELETE_MAX)) {
            match part.run(local, turn).await {
                Ok(room) => freed.take_over(room),
                Err(error) => {
                    self.0.undeleted.fetch_add(known.len() as u64, Relaxed);
                    done = done.and(Err(error));
                }
            }
        }
        done.map(|()| freed)
    }

    /// Deletes these files; if that fails, or others are about to take their places, a sweep tries again.
    pub(super) async fn delete_pending(
        &self,
        local: &Local,
        lost: PendingDelete,
        turn: Option<&PublishTurn>,
    ) -> Result<(), Error> {
        let pending = Some(lost);
        let deleting = DeleteGuard {
            store: self,
            pending,
        };
        deleting.run(local, turn).await.map(drop)
    }

    /// Deletes the temp files whose writers are gone, and the files that could not be deleted before, until
    /// [`FAILURES_MAX`] of them fail. Returns the first error.
    pub(super) async fn delete_all_pending(&self, local: &Local) -> Result<(), Error> {
        let lost = self.0.pending_deletes.lock().len();
        let (mut done, mut failures) = (Ok(()), 0);
        for _ in 0..lost {
            let Some(first) = self.0.pending_deletes.lock().pop_front() else {
                break;
            };
            let deleted = self.delete_pending(local, first, None).await;
            failures += usize::from(deleted.is_err());
            done = done.and(deleted);
            if failures == FAILURES_MAX {
                break;
            }
        }
        done
    }

    /// Deletes the files of at most [`DELETE_MAX`] entries that are out of the index, and records that in the journal.
    /// Returns those that are left for later. `turn`: one that the caller has.
    pub(super) async fn delete_files(
        &self,
        local: &Local,
        part: &[KnownKey],
        turn: Option<&PublishTurn>,
    ) -> Result<Vec<KnownKey>, Error> {
        let mut claimed = self.claim_files(part.iter().copied(), turn);
        let left = std::mem::take(&mut claimed.left);
        let (gone, own) = (&claimed.gone, &claimed.own);
        if gone.is_empty() {
            return Ok(left);
        }
        let places = own.iter().map(|key| self.path(key).into());
        let mut steps: Vec<_> = places.map(BatchStep::Unlink).collect();
        // A record names no place: of an entry that was moved, it would remove the one at its new place.
        let records: Vec<_> = gone
            .iter()
            .filter(|known| !self.is_elsewhere(known))
            .map(|known| JournalRecord::Remove {
                key: known.key,
                tag: known.extent.file,
            })
            .collect();
        let journal = &self.0.journal;
        let mut tickets: Vec<_> = records
            .chunks(TICKET_RECORDS_MAX)
            .map(|part| journal.ticket(part))
            .collect::<Result<_, _>>()?;
        steps.extend(tickets.iter().map(Ticket::step));
        let deferred = tickets.iter_mut().flat_map(Ticket::take_deferred).collect();
        // The turns are the job's: a new file of one of the keys comes after it, even if the caller has left.
        let held = (claimed, tickets);
        let done = local.change_holding(steps, &self.0.settings.pool, held);
        if let Err(error) = done.await {
            journal.defer(deferred);
            return Err(error.into());
        }
        Ok(left)
    }

    /// Whether the index has the same entry at another place, where it was moved.
    fn is_elsewhere(&self, known: &KnownKey) -> bool {
        let present = self.0.index.peek(&known.key);
        let present = present.filter(|present| present.state == KeyState::Stored);
        present.is_some_and(|present| present.extent.file == known.extent.file)
    }

    /// Takes the turns of the keys of entries that are out of the index, so that nothing gets their paths before their
    /// files are deleted or used again. `held`: a turn that the caller has.
    pub(super) fn claim_files(
        &self,
        entries: impl Iterator<Item = KnownKey>,
        held: Option<&PublishTurn>,
    ) -> ClaimedFiles {
        let mut claimed = ClaimedFiles::default();
        for known in entries {
            if !known.extent.is_in_segment() {
                let turn = self.try_turn(known.key);
                let is_held = held.is_some_and(|held| held.is_of(&known.key));
                if turn.is_none() && !is_held {
                    claimed.left.push(known);
                    continue;
                }
                // Otherwise a newer entry has overwritten it.
                if !self.has(&known.key) {
                    claimed.own.push(known.key);
                    claimed.turns.extend(turn);
                }
            }
            claimed.gone.push(known);
        }
        claimed
    }
}

/// The blocks of the files of entries.
pub(super) fn blocks_in_files(entries: &[KnownKey]) -> u64 {
    let files = entries.iter().filter(|known| has_file(known));
    files.map(|known| u64::from(known.extent.blocks)).sum()
}
