//! Emptying a segment: entries that were used since they were written, and are fresh, are appended again; all others
//! leave the index.

use super::append::{AppendKind, SegmentAppend};
use super::writer::SegmentWriter;
use super::{BATCH_BYTES_MAX, BATCH_ENTRIES_MAX, SegmentStore};
use crate::entry::Entry;
use crate::error::Error;
use crate::index::{Cursor, KnownKey, STEP_MAX};
use crate::journal::{JournalRecord, Ticket};
use crate::segments::{PAGE, SegmentUse};
use crate::store::Store;
use bytes::Bytes;
use disk::{BatchStep, take_steps};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

/// Entries that leave the index in one step.
const ENTRIES_OF_STEP: usize = 1024;
/// Parts of the index, of `STEP_MAX` keys each, that are looked through in one step.
const SCANS_OF_STEP: usize = 64;
/// Maximum share of a segment's bytes that is written again, in percent.
const READMITTED_PERCENT: u64 = 25;

/// A segment that is being emptied.
#[derive(Debug)]
pub(super) struct Emptying {
    of: SegmentUse,
    /// Entries that are to leave the index.
    leaving: Vec<KnownKey>,
    /// Entries that are to be written again, the most used first.
    staying: VecDeque<KnownKey>,
    /// How far the index was looked through for entries that the segment does not tell of; None: all of it was.
    unlisted: Option<Cursor>,
}

impl SegmentWriter {
    /// A step of the emptying of a segment, if one is to be emptied. True: there is more to do. **Waits.**
    pub(super) fn advance(&mut self, store: &Store) -> bool {
        let Some(segments) = &store.0.segments else {
            return false;
        };
        let Some(mut emptying) = self.emptying.take() else {
            self.leave_unreadable(segments);
            if segments.set.is_emptying_due() && !store.raise_while_converting(segments) {
                self.emptying = begin(store, segments);
            }
            return self.emptying.is_some();
        };
        if !emptying.leaving.is_empty() {
            let at = emptying.leaving.len().saturating_sub(ENTRIES_OF_STEP);
            let leaving = emptying.leaving.split_off(at);
            // Entries whose records could not be written come back with the next start, where each is compared with
            // what lies at its place.
            let _ = take_out(store, &leaving);
        } else if !emptying.staying.is_empty() {
            if !self.has_room(u64::try_from(2 * BATCH_BYTES_MAX).unwrap_or(u64::MAX))
                && !segments.set.has_free()
            {
                // What is new comes first.
                emptying.leaving.extend(emptying.staying.drain(..));
            }
            let batch = read_batch(&mut emptying);
            self.emptying = Some(emptying);
            self.readmit(store, batch);
            return true;
        } else if let Some(cursor) = &mut emptying.unlisted
            && segments.set.has_live(emptying.of.number)
        {
            let (found, is_end) = known_in(store, segments, emptying.of.number, cursor);
            emptying.leaving = found;
            if is_end {
                emptying.unlisted = None;
            }
        } else {
            end(store, segments, &emptying.of);
            store.clear_drained();
            return segments.set.is_emptying_due();
        }
        self.emptying = Some(emptying);
        true
    }

    /// A step for an append that has no segment: what was to be written again leaves, too. False: there is no more to
    /// do.
    pub(super) fn empty_at_once(&mut self, store: &Store) -> bool {
        if let Some(emptying) = &mut self.emptying {
            emptying.leaving.extend(emptying.staying.drain(..));
        }
        let was_emptying = self.emptying.is_some();
        self.advance(store) || was_emptying
    }

    fn readmit(&mut self, store: &Store, batch: Vec<SegmentAppend>) {
        let Some(segments) = &store.0.segments else {
            return;
        };
        // From before the entries are compared with the index until they are there under their new places.
        let epoch = store.0.epochs.begin();
        let before: Vec<_> = batch.iter().map(|item| item.known).collect();
        let done = self.append(store, batch);
        for (known, done) in before.iter().zip(done) {
            match done {
                Ok(_) => {
                    segments.readmitted.fetch_add(1, Relaxed);
                    let bytes = u64::from(known.extent.blocks) * PAGE;
                    segments.readmitted_bytes.fetch_add(bytes, Relaxed);
                }
                Err(_) => {
                    let _ = take_out(store, std::slice::from_ref(known));
                }
            }
        }
        drop(epoch);
    }
}

/// Chooses a segment, and what becomes of its entries.
fn begin(store: &Store, segments: &SegmentStore) -> Option<Emptying> {
    let of = segments.set.begin_emptying()?;
    let now = segments.now.load(Relaxed);
    let (mut leaving, mut used) = (Vec::new(), Vec::new());
    let is_unreadable = segments.set.is_unreadable(of.number);
    let may_stay = !is_unreadable && !segments.set.is_leftover;
    for written in store.entries_of(&of).unwrap_or_default() {
        let known = store.0.index.peek(&written.key);
        let Some(known) = known.filter(|known| known.extent == written.extent) else {
            continue;
        };
        let uses = known.uses.saturating_sub(written.uses);
        match uses > 0 && known.lifetime.expires >= now && may_stay {
            true => used.push((uses, known)),
            false => leaving.push(known),
        }
    }
    used.sort_by_key(|(uses, _)| std::cmp::Reverse(*uses));
    let mut left = segments.set.bytes * READMITTED_PERCENT / 100;
    let mut staying = VecDeque::new();
    for (_, known) in used {
        match left.checked_sub(u64::from(known.extent.blocks) * PAGE) {
            Some(less) => {
                left = less;
                staying.push_back(known);
            }
            None => leaving.push(known),
        }
    }
    Some(Emptying {
        of,
        leaving,
        staying,
        unlisted: Some(Cursor::default()),
    })
}

/// What the next part of the index knows in a segment; and whether it was the last part. A segment that cannot be read
/// tells of none of its entries; and after a crash of the machine the journal may know more than the segment's table, which
/// may be that of an earlier use. Whatever stayed in the index would be found in what is written there next.
fn known_in(
    store: &Store,
    segments: &SegmentStore,
    number: u32,
    cursor: &mut Cursor,
) -> (Vec<KnownKey>, bool) {
    let mut found = Vec::new();
    for _ in 0..SCANS_OF_STEP {
        let known = store.0.index.scan(cursor, STEP_MAX);
        if known.is_empty() {
            return (found, true);
        }
        let is_there = |known: &KnownKey| {
            known.extent.is_in_segment() && segments.set.place(known.extent.offset).0 == number
        };
        found.extend(known.into_iter().filter(is_there));
    }
    (found, false)
}

/// Reads the next entries that are to be written again.
fn read_batch(emptying: &mut Emptying) -> Vec<SegmentAppend> {
    let (mut batch, mut bytes) = (Vec::new(), 0usize);
    while batch.len() < BATCH_ENTRIES_MAX && bytes < BATCH_BYTES_MAX {
        let Some(known) = emptying.staying.pop_front() else {
            break;
        };
        match read(&emptying.of, &known) {
            Some(whole) => {
                bytes += whole.len();
                batch.push(SegmentAppend {
                    known,
                    len: whole.len() as u64,
                    parts: vec![whole],
                    kind: AppendKind::Moved(known.extent),
                });
            }
            None => emptying.leaving.push(known),
        }
    }
    batch
}

/// The bytes of an entry, if they are its own.
fn read(of: &SegmentUse, known: &KnownKey) -> Option<Bytes> {
    let all = (of.header.bytes / PAGE) as u32;
    let at = u64::from(known.extent.offset % all) * PAGE;
    let len = u64::from(known.extent.blocks) * PAGE;
    let bytes = of.file.read(at, len as usize).ok()?;
    let is_it = Entry::names_in(&bytes) == Some((known.key, known.extent.file));
    (is_it && bytes.len() as u64 == len).then_some(bytes)
}

/// Takes entries out of the index, and records that.
fn take_out(store: &Store, leaving: &[KnownKey]) -> Result<(), Error> {
    // No purge is forgotten before the records are written.
    let epoch = store.0.epochs.begin();
    let mut gone = Vec::with_capacity(leaving.len());
    for known in leaving {
        gone.extend(store.0.index.remove_at(&known.key, &known.extent));
    }
    store.0.evicted.fetch_add(gone.len() as u64, Relaxed);
    for known in &gone {
        store.leave_segment(known);
    }
    let records = gone.iter().map(|known| JournalRecord::Remove {
        key: known.key,
        tag: known.extent.file,
    });
    let tickets = store.0.journal.tickets(records)?;
    let steps: Vec<BatchStep> = tickets.iter().map(Ticket::step).collect();
    let done = take_steps(&steps);
    drop((tickets, epoch));
    Ok(done?)
}

/// The segment has no entry any more. From now on a start does not find any in it either.
fn end(store: &Store, segments: &SegmentStore, of: &SegmentUse) {
    let nothing = Bytes::from(vec![0; PAGE as usize]);
    if of.file.write(0, &[nothing]).is_err() {
        store.0.may_leave_out.store(true, Relaxed);
    }
    segments.set.set_unsynced(of.number);
    segments.emptied.fetch_add(1, Relaxed);
    segments.set.end_emptying(of.number);
}
