//! Entries that leave: out of the index first, off the disk then; and which of them have not come so far.
//!
//! A sweep that compares what is stored with a purge sees what the index knows. What is out of the index and still on the disk, or on
//! the disk and not yet in the index, is known to the journal alone, and after a kill the next start finds it there. So whoever takes
//! an entry out, or gives one its name, has a [`Passage`] from before that until index and disk say the same, and no purge is
//! forgotten that an entry on its passage may be covered by.
//!
//! Invariant: what is taken out is deleted, here or, where that fails, by a sweep; its blocks count until then.

use super::{DELETE_MAX, Store};
use crate::error::Error;
use crate::index::{Index, Known, State};
use crate::journal::{Record, TICKET_RECORDS_MAX, Ticket};
use crate::key::Key;
use crate::space::Reservation;
use disk::{Local, Step};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Who is on a passage, by the time in which that began: a sweep's pass through the index ends one and begins another.
#[derive(Debug)]
pub(super) struct Passages(Mutex<Times>);

#[derive(Debug)]
struct Times {
    /// The number of the first.
    first: u64,
    /// Each shared by the passages that began in it; the last is now.
    times: VecDeque<Arc<()>>,
}

/// While it lives, no purge is forgotten.
#[derive(Clone, Debug)]
#[must_use = "it ends when this is dropped"]
pub(super) struct Passage(#[expect(dead_code, reason = "it is counted")] Arc<()>);

/// Entries that are out of the index, and whose files are to go.
#[derive(Debug, Default)]
#[must_use = "their files are to be deleted"]
pub(super) struct Gone {
    pub known: Vec<Known>,
    pub passage: Option<Passage>,
}

/// Files that are still to be deleted.
#[derive(Debug)]
pub(super) struct Lost {
    /// A temp file whose writer has gone.
    pub temp: Option<(Key, u32)>,
    /// Entries that are out of the index, at most [`DELETE_MAX`].
    pub victims: Vec<Known>,
    /// It counts until the files are gone.
    pub room: Reservation,
    pub passage: Option<Passage>,
}

/// Files that somebody is at; where he does not come to an end with them, a sweep does.
struct Deleting<'a> {
    store: &'a Store,
    lost: Option<Lost>,
}

impl Default for Passages {
    fn default() -> Self {
        Self(Mutex::new(Times {
            first: 0,
            times: VecDeque::from([Arc::default()]),
        }))
    }
}

impl Passages {
    /// To be asked for before the index is changed.
    pub fn begin(&self) -> Passage {
        let times = self.0.lock();
        let now = times.times.back().expect("the last time is never taken");
        Passage(now.clone())
    }

    /// Ends a time; what [`Passages::are_over`] is to be asked with.
    pub fn end_time(&self) -> u64 {
        let mut times = self.0.lock();
        times.times.push_back(Arc::default());
        times.first + times.times.len() as u64 - 2
    }

    /// Has everybody come through who was on a passage when this time ended?
    pub fn are_over(&self, time: u64) -> bool {
        let mut times = self.0.lock();
        while times.first <= time && Arc::get_mut(&mut times.times[0]).is_some() {
            times.times.pop_front();
            times.first += 1;
        }
        times.first > time
    }
}

impl Drop for Deleting<'_> {
    fn drop(&mut self) {
        if let Some(lost) = self.lost.take() {
            self.store.0.lost.lock().push_back(lost);
        }
    }
}

impl Store {
    /// Takes entries out of the index, to delete their files.
    pub(super) fn take_out<I>(&self, which: impl FnOnce(&Index) -> I) -> Gone
    where
        I: IntoIterator<Item = Known>,
    {
        let passage = self.0.passages.begin();
        let known: Vec<_> = which(&self.0.index).into_iter().collect();
        Gone {
            passage: (!known.is_empty()).then_some(passage),
            known,
        }
    }

    /// Takes entries out of the index for so many blocks, at most [`DELETE_MAX`].
    pub(super) fn victims(&self, blocks: u64) -> Gone {
        let gone = self.take_out(|index| {
            let mut sum = 0;
            let mut next = || {
                let known = (sum < blocks).then(|| index.evict()).flatten()?;
                sum += u64::from(known.place.blocks);
                Some(known)
            };
            std::iter::from_fn(&mut next)
                .take(DELETE_MAX)
                .collect::<Vec<_>>()
        });
        self.0.evicted.fetch_add(gone.known.len() as u64, Relaxed);
        gone
    }

    /// Deletes the files of entries that are out of the index. Their blocks count until the files are gone; where that fails, a
    /// sweep tries again. (No purge is forgotten before that.)
    pub(super) async fn delete(&self, local: &Local, gone: Gone) -> Result<(), Error> {
        let mut done = Ok(());
        for part in gone.known.chunks(DELETE_MAX) {
            let stored = part.iter().filter(|known| known.state == State::Stored);
            let blocks = stored.map(|known| u64::from(known.place.blocks)).sum();
            let lost = Lost {
                temp: None,
                victims: part.to_vec(),
                room: self.0.space.adopt(blocks),
                passage: gone.passage.clone(),
            };
            let deleted = self.delete_lost(local, lost).await;
            if deleted.is_err() {
                self.0.undeleted.fetch_add(part.len() as u64, Relaxed);
            }
            done = done.and(deleted);
        }
        done
    }

    /// Deletes these files; where that fails, a sweep tries again.
    pub(super) async fn delete_lost(&self, local: &Local, lost: Lost) -> Result<(), Error> {
        let mut deleting = Deleting {
            store: self,
            lost: Some(lost),
        };
        if let Some(lost) = &deleting.lost {
            self.delete_temps(local, lost.temp.as_slice()).await?;
            self.delete_files(local, &lost.victims).await?;
        }
        if let Some(Lost { room, passage, .. }) = deleting.lost.take() {
            drop((room, passage));
        }
        Ok(())
    }

    /// Deletes the temp files whose writers have gone, and what could not be deleted before. After one that cannot be deleted, the
    /// others are for the next time.
    pub(super) async fn delete_all_lost(&self, local: &Local) -> Result<(), Error> {
        let lost = self.0.lost.lock().len();
        for _ in 0..lost {
            let Some(first) = self.0.lost.lock().pop_front() else {
                break;
            };
            self.delete_lost(local, first).await?;
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
            .chunks(TICKET_RECORDS_MAX)
            .map(|part| {
                let gone = part.iter().map(|known| Record::Remove {
                    key: known.key,
                    tag: known.place.file,
                });
                self.0.journal.ticket(&gone.collect::<Vec<_>>())
            })
            .collect();
        steps.extend(tickets.iter().map(Ticket::step));
        Ok(local.change(steps, &self.0.settings.pool).await?)
    }

    /// Is the file in its place still that of an entry that is out of the index? (Else a newer one has overwritten it.)
    pub(super) fn is_its_own(&self, known: &Known) -> bool {
        !self.has(&known.key)
    }
}
