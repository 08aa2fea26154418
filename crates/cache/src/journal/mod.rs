//! The index on its disk: a snapshot and logs of the changes since, in `.freewheel` below each cache directory.
//!
//! A job that changes the directory also writes a record of it ([`Journal::ticket`]), so that a killed process loses
//! nothing and a start needs no walk. Now and then the logs are compacted ([`Journal::compact`]): a new log is begun, a
//! snapshot of the index is written beside it while work goes on, and the old files are deleted.
//!
//! A journal has one owner. Its lock is the kernel's, so it is free once the owner is gone, for whatever reason. A
//! start recovers every frame that a truncation or a flipped bit left intact, and says whether any may be missing
//! ([`Recovered::is_complete`]).
//!
//! Not here: entries. Their own bytes are the truth; the journal lets the index answer before they were read.

mod files;
mod frame;
mod outside;
mod parts;
mod record;
mod replay;
mod snapshot;
mod table;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
mod tests;
mod ticket;

pub use outside::JournalView;
pub(crate) use outside::purge;
pub(crate) use record::JournalRecord;
pub(crate) use replay::Recovered;
pub(crate) use table::{TABLE_BYTES_OF_ENTRY, entries_in, table_frame};
pub(crate) use ticket::Ticket;

use crate::error::Error;
use crate::index::{Index, KnownKey};
use crate::key::{Key, Levels};
use crate::purge::PurgeList;
use bytes::Bytes;
use disk::{BatchStep, Local, Lock, Output, Pool};
use files::{JournalFiles, begin_log, begin_log_in, boot_id, log_name, recover, remove_log};
use frame::FrameBatch;
use hashbrown::HashSet;
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::Notify;

/// The directory of the journal, below the cache directory.
pub const FOLDER: &str = ".freewheel";
/// Length from which a log is compacted (a quarter of a million fills of one small entry each).
pub(crate) const LOG_BYTES_MAX: u64 = 64 << 20;
/// Bytes of logs per entry from which they are compacted, if they are longer than [`LOG_BYTES_MIN`]. A snapshot has as
/// many bytes per entry, so compaction makes a fill about a hundredth more expensive, and a start reads at most twice
/// what it needs.
pub(crate) const LOG_BYTES_OF_ENTRY: u64 = 128;
/// Length up to which a log is not compacted.
pub(crate) const LOG_BYTES_MIN: u64 = 1 << 20;
/// Number of logs above which they are compacted: each start begins one.
pub(crate) const LOGS_MAX: usize = 8;
/// Interval at which it is checked whether a compaction has ended, before a directory is given up.
const COMPACTING_TICK: std::time::Duration = std::time::Duration::from_millis(5);
/// Maximum of records of one ticket.
pub(crate) const TICKET_RECORDS_MAX: usize = 16;
/// Maximum of deferred records (of changes already made) that a ticket takes beside its own.
const LATER_MAX: usize = 12;

/// Permissions of files and of the folder.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// The journal of one cache directory. Cheap to clone; any loop may use it with its own [`Local`].
#[derive(Clone, Debug)]
pub(crate) struct Journal(Arc<JournalInner>);

#[derive(Debug)]
struct JournalInner {
    folder: Vec<u8>,
    pool: Pool,
    state: Mutex<JournalState>,
    /// Notified when a ticket was dropped.
    dropped: Notify,
    /// `None` once the directory was given up.
    lock: Mutex<Option<Lock>>,
}

#[derive(Debug)]
struct JournalState {
    generation: u64,
    log: Output,
    /// Of all logs.
    log_bytes: u64,
    /// Of the logs that the running compaction replaces.
    old_bytes: u64,
    snapshot_bytes: u64,
    /// When the last snapshot was written; `None`: there is none.
    snapshot_at: Option<SystemTime>,
    /// The number of the next frame.
    number: u64,
    /// Cloned by all tickets that may still write into the current log.
    writers: Arc<()>,
    /// Fills that may have a temp file: a new log begins with them.
    begun: HashSet<([u8; 16], u32)>,
    /// Deferred records, for the next tickets. (As many as changes end between two tickets; sweeps write them too.)
    later: VecDeque<JournalRecord>,
    /// Pending purges: a new log begins with them too.
    purges: PurgeList,
    /// Is the log's last record a purge that may not be on the disk yet?
    is_to_sync: bool,
    /// Files that the next snapshot replaces.
    old: Vec<Vec<u8>>,
    is_walked: bool,
    /// Does what is found beside it count as purged ([`JournalRecord::LeftOut`])?
    has_left_out: bool,
    /// Is the directory given up, so that nothing is written any more?
    is_sealed: bool,
    /// Blocks of foreign files.
    foreign: u64,
    boot: [u8; 16],
    is_compacting: bool,
    /// Snapshots that were begun; each has a temp file of its own.
    tries: u16,
    /// Was the current log begun for a snapshot that could not be written? Then the next snapshot needs no other.
    is_unsnapped: bool,
    /// Bytes of logs from which compaction is tried again, after a snapshot could not be written.
    retry_from: u64,
}

impl JournalState {
    /// Tracks the running fills and the pending purges.
    fn note(&mut self, record: &JournalRecord) {
        match record {
            JournalRecord::Begin { key, tag } => {
                self.begun.insert((key.0, *tag));
            }
            // In a segment it has no temp file.
            JournalRecord::Put { known, .. } if !known.extent.is_in_segment() => {
                self.begun.insert((known.key.0, known.extent.file));
            }
            JournalRecord::Purge { number, rule } => {
                self.purges.add(*number, rule.clone());
                self.is_to_sync = true;
            }
            JournalRecord::Purged { number } => self.purges.forget(*number),
            _ => {}
        }
    }
}

impl JournalInner {
    /// Defers records again that were not written: they come first.
    fn defer(&self, records: Vec<JournalRecord>) {
        let later = &mut self.state.lock().later;
        let records = records.into_iter().rev();
        records.for_each(|record| later.push_front(record));
    }
}

impl Journal {
    /// Locks a cache directory (an absolute path to a directory that exists, without a slash at its end), and puts the
    /// keys that its journal knows into the index. All work is done in the pool; the index may be in use meanwhile.
    ///
    /// # Errors
    /// [`Error::InUse`]; [`Error::Disk`] if a file cannot be opened or read, or the new log cannot be written.
    pub(crate) async fn open(
        local: &Local,
        directory: &[u8],
        levels: Levels,
        pool: &Pool,
        index: &Arc<Index>,
    ) -> Result<(Self, Recovered), Error> {
        Self::open_for(local, directory, levels, pool, index, None).await
    }

    /// As [`Journal::open`], but with `only` these keys in the index.
    pub(super) async fn open_for(
        local: &Local,
        directory: &[u8],
        levels: Levels,
        pool: &Pool,
        index: &Arc<Index>,
        only: Option<&[Key]>,
    ) -> Result<(Self, Recovered), Error> {
        let folder = [directory, b"/", FOLDER.as_bytes(), b"/"].concat();
        local.mkdir(&folder, FOLDER_MODE, pool).await?;
        let lock = local.lock(&[&folder[..], b"lock"].concat(), pool).await?;
        let lock = lock.ok_or(Error::InUse)?;
        let files = JournalFiles::list(local, &folder, pool).await?;
        let boot = boot_id(local, pool).await;
        let (recovered, number) = recover(local, &folder, &files, pool, index, boot, only).await?;
        let generation = files.last() + 1;
        let place = |key: &Key| [directory, b"/", key.path(levels).as_bytes()].concat();
        let log = match begin_log_in(local, &folder, generation, pool, index, place).await {
            Ok(log) => log,
            Err(error) => {
                remove_log(log_name(&folder, generation), lock, pool).await;
                return Err(error);
            }
        };
        let begun = recovered.unfinished.iter();
        let begun = begun.map(|(key, tag)| (key.0, *tag)).collect();
        let inner = JournalInner {
            state: Mutex::new(JournalState {
                generation,
                log,
                log_bytes: files.log_bytes,
                old_bytes: 0,
                snapshot_bytes: files.snapshot_bytes,
                snapshot_at: files.snapshot_at,
                number,
                writers: Arc::new(()),
                begun,
                purges: recovered.purges.clone(),
                is_to_sync: false,
                later: VecDeque::new(),
                old: files.names(&folder),
                is_walked: recovered.is_complete,
                has_left_out: recovered.has_left_out,
                is_sealed: false,
                foreign: recovered.foreign_blocks,
                boot,
                is_compacting: false,
                tries: 0,
                is_unsnapped: false,
                retry_from: 0,
            }),
            folder,
            pool: pool.clone(),
            dropped: Notify::new(),
            lock: Mutex::new(Some(lock)),
        };
        let journal = Self(Arc::new(inner));
        let opened = JournalRecord::Opened {
            generation,
            boot,
            is_known: recovered.is_complete,
            foreign: recovered.foreign_blocks,
            before: files.logs.last().copied().unwrap_or_default(),
        };
        if let Err(error) = journal.write(local, &[opened]).await {
            journal.withdraw().await;
            return Err(error);
        }
        Ok((journal, recovered))
    }

    /// Ends it without a trace, as far as that can be done: for a directory that cannot be opened after all. Nothing
    /// but the beginning of its log has been written. (Each try would leave a log, and read those of all before it.)
    pub(crate) async fn withdraw(self) {
        let name = log_name(&self.0.folder, self.generation());
        let lock = self.0.lock.lock().take();
        if let Some(lock) = lock {
            remove_log(name, lock, &self.0.pool).await;
        }
    }

    /// Puts records (at most [`TICKET_RECORDS_MAX`]) into a frame that the caller's job appends.
    ///
    /// # Errors
    /// [`Error::InUse`] after [`Journal::give_up`]: the change must not be made.
    pub(crate) fn ticket(&self, records: &[JournalRecord]) -> Result<Ticket, Error> {
        let state = self.0.state.lock();
        if state.is_sealed {
            return Err(Error::InUse);
        }
        Ok(self.ticket_in(state, records))
    }

    fn ticket_in(
        &self,
        mut state: MutexGuard<'_, JournalState>,
        records: &[JournalRecord],
    ) -> Ticket {
        debug_assert!(records.len() <= TICKET_RECORDS_MAX);
        let mut batch = FrameBatch::default();
        // The oldest first: a later record of a key is the one that holds.
        let first = state.later.len().min(LATER_MAX);
        let deferred: Vec<_> = state.later.drain(..first).collect();
        for record in &deferred {
            batch.push(record);
        }
        for record in records {
            batch.push(record);
            state.note(record);
        }
        let mut ticket = self.frame(batch, &mut state);
        ticket.deferred = deferred;
        ticket
    }

    fn frame(&self, batch: FrameBatch, state: &mut JournalState) -> Ticket {
        let number = state.number;
        let frame = batch.frame(number);
        state.number += 1;
        state.log_bytes += frame.len() as u64;
        Ticket {
            frame,
            log: state.log.clone(),
            writer: Some(state.writers.clone()),
            journal: self.0.clone(),
            deferred: Vec::new(),
        }
    }

    /// Puts any number of records into as many frames as they need, in their order. Returns the tickets with the
    /// first frame's first.
    ///
    /// # Errors
    /// As [`Journal::ticket`].
    pub(crate) fn tickets(
        &self,
        records: impl Iterator<Item = JournalRecord>,
    ) -> Result<Vec<Ticket>, Error> {
        let state = &mut *self.0.state.lock();
        if state.is_sealed {
            return Err(Error::InUse);
        }
        let (mut batch, mut tickets) = (FrameBatch::default(), Vec::new());
        for record in records {
            batch.push(&record);
            state.note(&record);
            if batch.is_full() {
                tickets.push(self.frame(std::mem::take(&mut batch), state));
            }
        }
        if !batch.is_empty() {
            tickets.push(self.frame(batch, state));
        }
        Ok(tickets)
    }

    /// Keeps the directory from being given up while the result lives.
    ///
    /// # Errors
    /// As [`Journal::ticket`].
    pub(crate) fn hold(&self) -> Result<Ticket, Error> {
        let state = self.0.state.lock();
        if state.is_sealed {
            return Err(Error::InUse);
        }
        Ok(Ticket {
            frame: Bytes::new(),
            log: state.log.clone(),
            writer: Some(state.writers.clone()),
            journal: self.0.clone(),
            deferred: Vec::new(),
        })
    }

    /// Writes records (at most [`TICKET_RECORDS_MAX`]) in a job of their own.
    ///
    /// # Errors
    /// [`Error::Disk`]: the next start may not know of them, and will know that something is missing.
    pub(crate) async fn write(
        &self,
        local: &Local,
        records: &[JournalRecord],
    ) -> Result<(), Error> {
        let ticket = self.ticket(records)?;
        let done = local.change(vec![ticket.step()], &self.0.pool).await;
        if done.is_err() {
            ticket.defer();
        }
        Ok(done?)
    }

    /// Notes that a fill has no temp file any more. The next ticket records it.
    pub(crate) fn ended(&self, key: Key, tag: u32) {
        let mut state = self.0.state.lock();
        if state.begun.remove(&(key.0, tag)) {
            state.later.push_back(JournalRecord::Ended { key, tag });
        }
    }

    /// Notes an entry that the journal did not know. The next ticket records it.
    pub(crate) fn found(&self, known: KnownKey, vary: Bytes) {
        let (key, tag) = (known.key, known.extent.file);
        let later = &mut self.0.state.lock().later;
        later.extend([
            JournalRecord::Put { known, vary },
            JournalRecord::Ended { key, tag },
        ]);
    }

    /// Notes that an entry's file is gone. The next ticket records it; without that record, the entry is forgotten
    /// when its file is not found.
    pub(crate) fn gone(&self, key: Key, tag: u32) {
        self.0
            .state
            .lock()
            .later
            .push_back(JournalRecord::Remove { key, tag });
    }

    /// Defers records again that went with a ticket which was not written ([`Ticket::take_deferred`]).
    pub(crate) fn defer(&self, records: Vec<JournalRecord>) {
        self.0.defer(records);
    }

    /// Writes the deferred records at once, as the next ticket may be far off.
    ///
    /// # Errors
    /// [`Error::Disk`].
    pub(crate) async fn write_rest(&self, local: &Local) -> Result<(), Error> {
        while !self.0.state.lock().later.is_empty() {
            self.write(local, &[]).await?;
        }
        Ok(())
    }

    /// Notes that a walk has found every entry of the directory (and put it into the index and, by
    /// [`Journal::compact`], into the journal), and `foreign` blocks of foreign files.
    ///
    /// # Errors
    /// [`Error::Disk`].
    pub(crate) async fn walked(&self, local: &Local, foreign: u64) -> Result<(), Error> {
        {
            let mut state = self.0.state.lock();
            (state.is_walked, state.foreign) = (true, foreign);
            state.has_left_out = false;
        }
        self.write(local, &[JournalRecord::Walked { foreign }])
            .await
    }

    /// Notes that what the next start finds beside the journal counts as purged: before a purge is forgotten that may cover
    /// what was left out.
    ///
    /// # Errors
    /// [`Error::Disk`]; to be tried again.
    pub(crate) async fn leave_out(&self, local: &Local) -> Result<(), Error> {
        if std::mem::replace(&mut self.0.state.lock().has_left_out, true) {
            return Ok(());
        }
        let done = self.write(local, &[JournalRecord::LeftOut]).await;
        let mut state = self.0.state.lock();
        state.has_left_out = done.is_ok();
        state.is_walked &= done.is_err();
        done
    }

    /// Does what is found beside the journal count as purged?
    #[must_use]
    pub(crate) fn has_left_out(&self) -> bool {
        self.0.state.lock().has_left_out
    }

    /// Waits until all purges written so far are on the disk, so that they survive a loss of power too.
    ///
    /// # Errors
    /// [`Error::Disk`]; to be tried again.
    pub(crate) async fn sync(&self, local: &Local) -> Result<(), Error> {
        let log = {
            let mut state = self.0.state.lock();
            if !std::mem::take(&mut state.is_to_sync) {
                return Ok(());
            }
            state.log.clone()
        };
        let done = local.sync(&log, &self.0.pool).await;
        if done.is_err() {
            self.0.state.lock().is_to_sync = true;
        }
        Ok(done?)
    }

    /// Records that no entry is left that a purge up to this one covers; all deletions are on the disk before that.
    ///
    /// # Errors
    /// [`Error::Disk`]: the next start compares once more.
    pub(crate) async fn purged(&self, local: &Local, number: u32) -> Result<(), Error> {
        let ticket = self.ticket(&[JournalRecord::Purged { number }])?;
        let steps = vec![BatchStep::Sync(ticket.log.clone()), ticket.step()];
        let done = local.change(steps, &self.0.pool).await;
        if done.is_err() {
            ticket.defer();
        }
        Ok(done?)
    }

    /// Has another file in the place of the log, and returns that.
    #[cfg(test)]
    pub(crate) fn set_log(&self, log: Output) -> Output {
        std::mem::replace(&mut self.0.state.lock().log, log)
    }

    /// The number of the current log: higher with each start.
    #[must_use]
    pub(crate) fn generation(&self) -> u64 {
        self.0.state.lock().generation
    }

    /// May this fill have a temp file?
    #[must_use]
    pub(crate) fn is_running(&self, key: &Key, tag: u32) -> bool {
        self.0.state.lock().begun.contains(&(key.0, tag))
    }

    /// Is it time for [`Journal::compact`], with so many entries? (Not soon after a failure.)
    #[must_use]
    pub(crate) fn is_long(&self, entries: usize) -> bool {
        let bytes = entries as u64 * LOG_BYTES_OF_ENTRY;
        let bytes = bytes.clamp(LOG_BYTES_MIN, LOG_BYTES_MAX);
        let state = self.0.state.lock();
        let is_long = state.log_bytes > bytes || state.old.len() > LOGS_MAX;
        is_long && state.log_bytes >= state.retry_from
    }

    /// When the last snapshot was written; None: there is none.
    #[must_use]
    pub(crate) fn snapshot_at(&self) -> Option<SystemTime> {
        self.0.state.lock().snapshot_at
    }

    /// Bytes of all its files, to be counted in the directory's space.
    #[must_use]
    pub(crate) fn bytes(&self) -> u64 {
        let state = self.0.state.lock();
        state.log_bytes + state.snapshot_bytes
    }

    /// Gives the directory to the next process that asks for it: from now on this one writes nothing there. Returns once
    /// no write is on its way and the lock is free. If the returned future is dropped before that, the lock is kept
    /// until this process ends, and nothing is written either.
    ///
    /// # Errors
    /// [`Error::Disk`]: the last records are not written. As after a crash of this process, nothing is lost.
    pub(crate) async fn give_up(&self, local: &Local) -> Result<(), Error> {
        while std::mem::replace(&mut self.0.state.lock().is_compacting, true) {
            // No other one begins: this is the last.
            tokio::time::sleep(COMPACTING_TICK).await;
        }
        let writers = {
            let mut state = self.0.state.lock();
            state.is_sealed = true;
            std::mem::take(&mut state.writers)
        };
        self.wait_for(&writers).await;
        let mut done = Ok(());
        while done.is_ok() && !self.0.state.lock().later.is_empty() {
            done = self.write_last(local, &[]).await;
        }
        if done.is_ok() {
            done = self.write_last(local, &[JournalRecord::Closed]).await;
        }
        self.0.lock.lock().take();
        done
    }

    /// Writes records after the last ticket.
    async fn write_last(&self, local: &Local, records: &[JournalRecord]) -> Result<(), Error> {
        let ticket = self.ticket_in(self.0.state.lock(), records);
        Ok(local.change(vec![ticket.step()], &self.0.pool).await?)
    }

    /// Compacts the journal and records that it is closed. To be called when no ticket is out and none will be
    /// requested.
    ///
    /// # Errors
    /// [`Error::Disk`]; the next start will find what was written before.
    pub(crate) async fn close(self, local: &Local, index: &Index) -> Result<(), Error> {
        self.compact(local, index).await?;
        self.write(local, &[JournalRecord::Closed]).await
    }
}

/// Bytes that [`push_temp`] adds.
pub(crate) const TEMP_BYTES: usize = disk::ENDING_BYTES;

/// Turns an entry's path into that of a fill's temp file, `PATH.TAG`.
pub(crate) fn push_temp(path: &mut Vec<u8>, tag: u32) {
    path.extend_from_slice(&temp_ending(tag));
}

/// The end of the name of a fill's temp file.
#[must_use]
pub(crate) fn temp_ending(tag: u32) -> [u8; TEMP_BYTES] {
    let mut ending = [b'.'; TEMP_BYTES];
    for (byte, shift) in ending[1..].iter_mut().zip((0..u32::BITS).step_by(4).rev()) {
        *byte = b"0123456789abcdef"[(tag >> shift & 15) as usize];
    }
    ending
}

/// The fill that a temp file belongs to, by its name without directories; None for other files.
#[must_use]
pub(crate) fn temp_of(name: &[u8]) -> Option<(Key, u32)> {
    let (key, tag) = str::from_utf8(name).ok()?.split_once('.')?;
    let is_tag = tag.len() == 8;
    let tag = u32::from_str_radix(tag, 16).ok()?;
    let key = Key::from_name(key.as_bytes())?;
    is_tag.then_some((key, tag))
}
