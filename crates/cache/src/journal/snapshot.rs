//! Writing a snapshot of the index while it is in use, so that logs can be deleted.

use super::frame::{FileHeader, FrameBatch};
use super::record::JournalRecord;
use super::{FILE_MODE, Journal, JournalState, LOG_BYTES_MIN, Ticket, begin_log, log_name};
use crate::error::Error;
use crate::index::{Cursor, Index, KeyState, KnownKey, STEP_MAX, VARY_UNKNOWN};
use crate::key::Key;
use bytes::Bytes;
use disk::{BatchStep, Create, Local, Output, STEPS_MAX};
use std::sync::Arc;
use std::time::SystemTime;

/// Stands for names that the index does not keep; no response that varies by `*` is stored.
pub(super) const UNKNOWN_NAMES: &[u8] = b"*";

pub(super) fn name(folder: &[u8], generation: u64) -> Vec<u8> {
    [folder, format!("snapshot.{generation}").as_bytes()].concat()
}

impl Journal {
    /// Begins a new log and writes a snapshot of the index beside it, one job of at most 64 KiB at a time; then deletes
    /// the old files. False: another task is compacting. Others may write and change the index meanwhile; their changes
    /// are in the new log.
    ///
    /// # Errors
    /// [`Error::Disk`]; nothing is lost, the old files stay.
    pub(crate) async fn compact(&self, local: &Local, index: &Index) -> Result<bool, Error> {
        if std::mem::replace(&mut self.0.state.lock().is_compacting, true) {
            return Ok(false);
        }
        // Also if the caller drops this future before its end.
        let _turn = CompactionGuard(self);
        let done = self.switch_and_write(local, index).await;
        let mut state = self.0.state.lock();
        state.retry_from = match done {
            Ok(()) => 0,
            Err(_) => state.log_bytes + LOG_BYTES_MIN,
        };
        done.map(|()| true)
    }

    async fn switch_and_write(&self, local: &Local, index: &Index) -> Result<(), Error> {
        let pool = &self.0.pool;
        let is_begun = self.0.state.lock().is_unsnapped;
        if !is_begun {
            self.begin_next_log(local).await?;
        }
        let generation = self.generation();
        let temp = self.new_temp(generation);
        if let Err(error) = self.write_snapshot(local, index, generation, &temp).await {
            let unlink = BatchStep::Unlink(temp.as_slice().into());
            // The first error is reported, not that the temp file cannot be deleted either.
            if local.change(vec![unlink], pool).await.is_ok() {
                self.0.state.lock().old.retain(|name| *name != temp);
            }
            return Err(error);
        }
        let old = self.take_old(generation);
        for names in old.chunks(STEPS_MAX) {
            let unlink = |name: &Vec<u8>| BatchStep::Unlink(name.as_slice().into());
            local
                .change(names.iter().map(unlink).collect(), pool)
                .await?;
        }
        Ok(())
    }

    /// Begins a new log. A snapshot taken from then on contains all changes in the logs before it.
    async fn begin_next_log(&self, local: &Local) -> Result<(), Error> {
        let (folder, pool) = (&self.0.folder, &self.0.pool);
        let generation = self.generation() + 1;
        let log = begin_log(local, folder, generation, pool).await?;
        let (opened, writers) = self.switch(generation, log);
        let steps = opened.iter().map(Ticket::step).collect();
        local.change(steps, pool).await?;
        drop(opened);
        self.wait_for(&writers).await;
        self.0.state.lock().is_unsnapped = true;
        Ok(())
    }

    /// A name for an incomplete snapshot. No other try has it: an abandoned one may still be written to, and renamed.
    fn new_temp(&self, generation: u64) -> Vec<u8> {
        let state = &mut self.0.state.lock();
        state.tries = state.tries.wrapping_add(1);
        let number = generation << 16 | u64::from(state.tries);
        let name = [&self.0.folder, format!("temp.{number}").as_bytes()].concat();
        state.old.push(name.clone());
        name
    }

    /// The files that this snapshot replaces; the next one replaces this snapshot too.
    fn take_old(&self, generation: u64) -> Vec<Vec<u8>> {
        let mut state = self.0.state.lock();
        state.log_bytes = state.log_bytes.saturating_sub(state.old_bytes);
        let own = vec![name(&self.0.folder, generation)];
        std::mem::replace(&mut state.old, own)
    }

    /// Switches to a new log. Returns its first records (running fills and pending purges are in no snapshot), and the
    /// tickets that still write to the old log.
    fn switch(&self, generation: u64, log: Output) -> (Vec<Ticket>, Arc<()>) {
        let state: &mut JournalState = &mut self.0.state.lock();
        state.old.push(log_name(&self.0.folder, state.generation));
        state.generation = generation;
        state.log = log;
        state.old_bytes = state.log_bytes;
        let writers = std::mem::take(&mut state.writers);
        let mut batches = vec![FrameBatch::default()];
        let begun = state.begun.iter();
        let begun = begun.map(|(key, tag)| JournalRecord::Begin {
            key: Key(*key),
            tag: *tag,
        });
        let purges = &state.purges;
        let number = purges.floor();
        let pending = purges.pending().map(|purge| JournalRecord::Purge {
            number: purge.number,
            rule: purge.rule.clone(),
        });
        // The log before is still written to for a moment.
        let opened = JournalRecord::Opened {
            generation,
            boot: state.boot,
            is_known: state.is_walked,
            foreign: state.foreign,
            before: (0, 0),
        };
        let first = [opened, JournalRecord::Purged { number }];
        let left_out = state.has_left_out.then_some(JournalRecord::LeftOut);
        let rest = pending.chain(begun).chain(left_out);
        for record in first.into_iter().chain(rest) {
            if batches.last().is_some_and(FrameBatch::is_full) && batches.len() < STEPS_MAX {
                batches.push(FrameBatch::default());
            }
            batches
                .iter_mut()
                .rev()
                .take(1)
                .for_each(|batch| batch.push(&record));
        }
        let tickets = batches.into_iter().map(|batch| self.frame(batch, state));
        (tickets.collect(), writers)
    }

    /// Waits until no ticket for the old log is left: only then does the index have all changes in it.
    pub(super) async fn wait_for(&self, writers: &Arc<()>) {
        loop {
            let dropped = self.0.dropped.notified();
            if Arc::strong_count(writers) == 1 {
                return;
            }
            dropped.await;
        }
    }

    async fn write_snapshot(
        &self,
        local: &Local,
        index: &Index,
        generation: u64,
        temp: &[u8],
    ) -> Result<(), Error> {
        let (folder, pool) = (&self.0.folder, &self.0.pool);
        let output = local
            .create(temp, Create::Truncate, FILE_MODE, pool)
            .await?;
        let header = FileHeader {
            generation,
            is_snapshot: true,
        };
        let is_walked = self.0.state.lock().is_walked;
        let mut writer = SnapshotWriter {
            frames: vec![header.encode()],
            batch: FrameBatch::default(),
            number: 0,
            entries: 0,
            bytes: 0,
        };
        let mut cursor = Cursor::default();
        loop {
            let step = index.scan(&mut cursor, STEP_MAX);
            if step.is_empty() {
                break;
            }
            step.iter().for_each(|known| writer.put(known, index));
            local
                .append(&output, std::mem::take(&mut writer.frames), pool)
                .await?;
        }
        let (frames, bytes) = writer.finish(is_walked);
        let steps = vec![
            BatchStep::Append(output.clone(), frames),
            BatchStep::Sync(output),
            BatchStep::Rename(temp.into(), name(folder, generation).into()),
        ];
        local.change(steps, pool).await?;
        let mut state = self.0.state.lock();
        (state.snapshot_bytes, state.is_unsnapped) = (bytes, false);
        state.snapshot_at = Some(SystemTime::now());
        Ok(())
    }
}

/// Marks that a compaction is running.
struct CompactionGuard<'a>(&'a Journal);

impl Drop for CompactionGuard<'_> {
    fn drop(&mut self) {
        self.0.0.state.lock().is_compacting = false;
    }
}

/// Puts entries into frames.
struct SnapshotWriter {
    frames: Vec<Bytes>,
    batch: FrameBatch,
    number: u64,
    entries: u64,
    bytes: u64,
}

impl SnapshotWriter {
    fn put(&mut self, known: &KnownKey, index: &Index) {
        if known.state != KeyState::Stored {
            return;
        }
        self.entries += 1;
        let vary = names_of(index, known.varies.names);
        self.push(&JournalRecord::Put {
            known: *known,
            vary,
        });
    }

    fn push(&mut self, record: &JournalRecord) {
        self.batch.push(record);
        if self.batch.is_full() {
            self.end_frame();
        }
    }

    fn end_frame(&mut self) {
        if !self.batch.is_empty() {
            let frame = std::mem::take(&mut self.batch).frame(self.number);
            self.bytes += frame.len() as u64;
            self.frames.push(frame);
            self.number += 1;
        }
    }

    /// Returns the last frames, and the length of all of them.
    fn finish(mut self, is_walked: bool) -> (Vec<Bytes>, u64) {
        let entries = self.entries;
        self.push(&JournalRecord::Complete { entries, is_walked });
        self.end_frame();
        (self.frames, self.bytes)
    }
}

/// The index's number for the names that a record has.
pub(super) fn number_of(index: &Index, names: &[u8]) -> u16 {
    match names {
        UNKNOWN_NAMES => VARY_UNKNOWN,
        names => index.vary_number(names),
    }
}

/// The names that a record has for a number of [`Index::vary_names`].
pub(super) fn names_of(index: &Index, number: u16) -> Bytes {
    match index.vary_names(number) {
        Some(names) => Bytes::copy_from_slice(&names),
        None if number == VARY_UNKNOWN => Bytes::from_static(UNKNOWN_NAMES),
        None => Bytes::new(),
    }
}
