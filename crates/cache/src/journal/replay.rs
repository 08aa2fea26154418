//! Replaying a journal's files into an index: every intact frame, whatever happened to the rest.
//!
//! At most [`HELD_BYTES_MAX`] of a log is in memory, however long it is.

use super::frame::JournalFrame;
use super::parts::{PartsFound, note_displaced};
use super::record::JournalRecord;
use super::snapshot::number_of;
use crate::index::{EntryExtent, Index, KnownKey};
use crate::key::Key;
use crate::purge::PurgeList;
use hashbrown::HashSet;
use std::collections::BTreeMap;

/// What a start found.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Entries in the index.
    pub entries: usize,
    /// Does the index know every entry of the directory? If not, unknown keys are to be looked up on the disk until a
    /// walk is through ([`Journal::walked`](super::Journal::walked)).
    pub is_complete: bool,
    /// Did the last owner close the journal?
    pub is_clean: bool,
    /// Were purges forgotten that may cover what the index does not know, as it was left out?
    pub has_left_out: bool,
    /// Was anything skipped because its checksum was wrong?
    pub is_damaged: bool,
    /// Entries for which the index had no room, and those that entries in segments have replaced: their files are to be
    /// deleted.
    pub evicted: Vec<KnownKey>,
    /// Key and tag of fills that may have been cut off: their temp files are to be deleted, if they exist.
    pub unfinished: Vec<(Key, u32)>,
    /// Blocks of foreign files in the directory, as the last walk found them.
    pub foreign_blocks: u64,
    /// The pending purges.
    pub(crate) purges: PurgeList,
}

impl Recovered {
    /// Does anything count as purged that may still be found?
    pub(crate) fn has_purged(&self) -> bool {
        self.has_left_out || self.purges.pending().next().is_some()
    }
}

/// Maximum bytes of a log's frames that are held until they are in order. Concurrent jobs write their frames in any
/// order; this is as much as some ten thousand jobs write.
pub(super) const HELD_BYTES_MAX: usize = 4 << 20;
/// Approximate memory of a frame beside its records.
const HELD_FRAME_BYTES: usize = 128;

/// Collects the records of the files.
#[derive(Debug)]
pub(super) struct Replay<'a> {
    index: &'a Index,
    found: Recovered,
    is_walked: bool,
    has_snapshot: bool,
    /// The boot id in the last log.
    boot: [u8; 16],
    /// Logs that others name as their predecessors, with their lengths.
    before: Vec<(u64, u64)>,
    entries_seen: u64,
    /// Frames of logs by number, held because earlier ones may still come.
    held: BTreeMap<u64, JournalFrame>,
    held_bytes: usize,
    /// The next frame's number, once the first one is known.
    next: Option<u64>,
    /// Logs that have an `Opened` record.
    opened: usize,
    begun: HashSet<([u8; 16], u32)>,
    /// The keys whose records are played; `None`: all.
    only: Option<&'a [Key]>,
}

impl<'a> Replay<'a> {
    #[cfg(test)]
    pub(super) fn new(index: &'a Index) -> Self {
        Self::of(index, None)
    }

    /// For all keys, or `only` for some.
    pub(super) fn of(index: &'a Index, only: Option<&'a [Key]>) -> Self {
        Self {
            index,
            only,
            found: Recovered::default(),
            is_walked: false,
            has_snapshot: false,
            boot: [0; 16],
            before: Vec::new(),
            entries_seen: 0,
            held: BTreeMap::new(),
            held_bytes: 0,
            next: None,
            opened: 0,
            begun: HashSet::new(),
        }
    }

    /// Plays a frame of the snapshot, which comes before all logs.
    pub(crate) fn snapshot(&mut self, frame: &JournalFrame) {
        for record in frame.records() {
            match record {
                Some(JournalRecord::Complete { entries, is_walked }) => {
                    self.has_snapshot = entries == self.entries_seen;
                    self.is_walked = is_walked;
                }
                Some(record) => {
                    self.entries_seen += u64::from(matches!(record, JournalRecord::Put { .. }));
                    self.apply(record);
                }
                None => self.found.is_damaged = true,
            }
        }
        // The entries of a snapshot have their names; the fills that ran meanwhile are in the log.
        self.begun.clear();
    }

    /// Ends the snapshot. Without its last record it is cut off, which is damage: it got its name when it was whole.
    pub(super) fn end_snapshot(&mut self, is_intact: bool) {
        self.found.is_damaged |= !is_intact || !self.has_snapshot;
    }

    /// Adds what was found in a snapshot that was read in parts, in the place of [`Replay::snapshot`] and
    /// [`Replay::end_snapshot`].
    pub(super) fn adopt(&mut self, parts: PartsFound) {
        if let Some((entries, is_walked)) = parts.complete {
            self.has_snapshot = entries == parts.entries;
            self.is_walked = is_walked;
        }
        self.entries_seen = parts.entries;
        self.found.is_damaged |= parts.is_damaged || !self.has_snapshot;
        self.found.purges.is_at_least(parts.purges.latest);
        self.found.evicted.extend(parts.evicted);
    }

    /// Takes a frame of a log. Loops append as their jobs end, so the numbers give the order.
    pub(super) fn log(&mut self, frame: JournalFrame) {
        if self.next.is_some_and(|next| frame.number < next) {
            // Too late: later frames have been played. A walk repairs the effects.
            self.found.is_damaged = true;
            return self.play(&frame);
        }
        let is_first = self.next.is_none()
            && matches!(
                frame.records().next(),
                Some(Some(JournalRecord::Opened { .. }))
            );
        self.next = self.next.or(is_first.then_some(frame.number));
        self.held_bytes += HELD_FRAME_BYTES + frame.records.len();
        // A job that was repeated wrote its frame twice.
        if let Some(twice) = self.held.insert(frame.number, frame) {
            self.held_bytes -= HELD_FRAME_BYTES + twice.records.len();
        }
        while self.held_bytes > HELD_BYTES_MAX || self.is_next_here() {
            self.play_first();
        }
    }

    fn is_next_here(&self) -> bool {
        let first = self.held.first_key_value();
        first.is_some_and(|(number, _)| Some(*number) == self.next)
    }

    /// Plays the first held frame. False: there is none.
    fn play_first(&mut self) -> bool {
        let Some((number, frame)) = self.held.pop_first() else {
            return false;
        };
        self.held_bytes -= HELD_FRAME_BYTES + frame.records.len();
        self.next = number.checked_add(1);
        self.play(&frame);
        true
    }

    fn play(&mut self, frame: &JournalFrame) {
        for record in frame.records() {
            match record {
                Some(record) => {
                    self.opened += usize::from(matches!(record, JournalRecord::Opened { .. }));
                    self.apply(record);
                }
                None => self.found.is_damaged = true,
            }
        }
    }

    pub(super) fn index(&self) -> &'a Index {
        self.index
    }

    pub(crate) fn set_damaged(&mut self) {
        self.found.is_damaged = true;
    }

    /// Plays the remaining frames of the logs. Returns the result and the number for the next frame. `needed` is the
    /// log that belongs to the snapshot, or the very first log if there is none; `logs` are those whose frames were
    /// passed in, with their lengths; `boot` is the present boot id.
    ///
    /// Missing frames are no reason for doubt: a process that was killed before it wrote one had not yet made the
    /// change that it describes (see [`JournalRecord`]); nor are logs without an `Opened` record, which it had just
    /// begun. After a crash of the kernel, a change may have been made whose frame was lost.
    pub(super) fn finish(
        mut self,
        needed: u64,
        logs: &[(u64, u64)],
        starts_with_snapshot: bool,
        boot: [u8; 16],
    ) -> (Recovered, u64) {
        while self.play_first() {}
        let is_same_boot = self.boot == boot && boot != [0; 16];
        let is_there = |log: &(u64, u64)| log.0 < needed || log.1 == 0 || logs.contains(log);
        let are_all = self.before.iter().all(is_there)
            && logs.first().is_some_and(|first| first.0 == needed)
            && (self.opened == logs.len() || is_same_boot)
            && self.has_snapshot == starts_with_snapshot;
        self.index.sort();
        let (index, mut found) = (self.index, self.found);
        let is_on_disk = found.is_clean || is_same_boot;
        found.entries = index.len();
        found.is_complete = self.is_walked && are_all && is_on_disk && !found.is_damaged;
        found.evicted.retain(|known| {
            let now = index.peek(&known.key);
            let has_file = !known.extent.is_in_segment();
            now.is_none_or(|now| has_file && now.extent.is_in_segment())
        });
        let begun = self.begun.into_iter();
        found.unfinished = begun.map(|(key, tag)| (Key(key), tag)).collect();
        (found, self.next.unwrap_or(1))
    }

    fn apply(&mut self, record: JournalRecord) {
        self.found.is_clean = false;
        // A purge that was cut off before it was written has left its number in later records, also in those of keys that
        // are not asked for.
        if let JournalRecord::Put { known, .. } = &record {
            self.found.purges.is_at_least(known.clean_of);
        }
        let is_others = |key: &Key| self.only.is_some_and(|only| !only.contains(key));
        if record.key().is_some_and(is_others) {
            return;
        }
        match record {
            JournalRecord::Begin { key, tag } => {
                self.begun.insert((key.0, tag));
            }
            JournalRecord::Put { mut known, vary } => {
                // In a segment it has no temp file.
                if !known.extent.is_in_segment() {
                    self.begun.insert((known.key.0, known.extent.file));
                }
                known.varies.names = number_of(self.index, &vary);
                let displaced = self.index.put(&known);
                note_displaced(&mut self.found.evicted, &known, displaced);
            }
            JournalRecord::Move { key, from, offset } => {
                let to = EntryExtent { offset, ..from };
                self.index.relocate(&key, &from, to);
            }
            JournalRecord::Renew { key, tag, lifetime } => {
                self.index.renew(&key, tag, lifetime);
            }
            JournalRecord::Ended { key, tag } => {
                self.begun.remove(&(key.0, tag));
            }
            JournalRecord::Remove { key, tag } => {
                self.index.remove_entry(&key, tag);
            }
            JournalRecord::Purge { number, rule } => self.found.purges.add(number, rule),
            JournalRecord::Purged { number } => self.found.purges.forget(number),
            JournalRecord::Walked { foreign } => {
                self.is_walked = true;
                self.found.has_left_out = false;
                self.found.foreign_blocks = foreign;
            }
            JournalRecord::LeftOut => {
                self.is_walked = false;
                self.found.has_left_out = true;
            }
            JournalRecord::Opened {
                boot,
                is_known,
                foreign,
                before,
                ..
            } => {
                self.found.foreign_blocks = foreign;
                self.boot = boot;
                self.is_walked = is_known;
                self.before.push(before);
            }
            // Handled where it may stand.
            JournalRecord::Complete { .. } => {}
            JournalRecord::Closed => self.found.is_clean = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::{FRAME_HEADER_BYTES, FrameBatch};
    use super::*;
    use crate::index::KeyState;

    fn frame(number: u64, record: &JournalRecord) -> JournalFrame {
        let mut batch = FrameBatch::default();
        batch.push(record);
        let records = batch.frame(number).slice(FRAME_HEADER_BYTES..);
        JournalFrame { number, records }
    }

    fn opened(number: u64) -> JournalFrame {
        let record = JournalRecord::Opened {
            generation: 1,
            boot: [1; 16],
            is_known: true,
            foreign: 0,
            before: (0, 0),
        };
        frame(number, &record)
    }

    fn named(number: u64, is_put: bool) -> JournalFrame {
        let (key, tag) = (Key::of(b"it"), 0);
        let known = KnownKey {
            state: KeyState::Stored,
            ..KnownKey::seen(key, 1)
        };
        let vary = Default::default();
        let put = JournalRecord::Put { known, vary };
        frame(
            number,
            &if is_put {
                put
            } else {
                JournalRecord::Remove { key, tag }
            },
        )
    }

    fn finish(replay: Replay<'_>) -> (Recovered, u64) {
        replay.finish(1, &[(1, 100)], false, [1; 16])
    }

    #[test]
    fn frames_are_played_in_the_order_of_their_numbers() {
        let index = Index::new(100);
        let mut replay = Replay::new(&index);
        for frame in [named(8, false), named(7, true), opened(5), named(10, true)] {
            replay.log(frame);
        }
        let (found, next) = finish(replay);
        assert_eq!((index.len(), found.is_complete, next), (1, true, 11));
    }

    #[test]
    fn a_log_without_a_beginning_is_doubtful_after_a_crash_of_the_kernel() {
        let index = Index::new(100);
        for boot in [[1; 16], [2; 16], [0; 16]] {
            let mut replay = Replay::new(&index);
            replay.log(opened(1));
            replay.log(frame(2, &JournalRecord::Closed));
            let logs = [(1, 100), (2, 24)];
            let (found, _) = replay.finish(1, &logs, false, boot);
            assert!(found.is_clean);
            assert_eq!(found.is_complete, boot == [1; 16]);
        }
    }

    #[test]
    fn one_that_comes_much_too_late_makes_a_walk() {
        let index = Index::new(100);
        let mut replay = Replay::new(&index);
        replay.log(opened(1));
        let enough = HELD_BYTES_MAX / HELD_FRAME_BYTES;
        (3..3 + enough as u64).for_each(|number| replay.log(named(number, true)));
        replay.log(named(2, false));
        let (found, _) = finish(replay);
        assert!(found.is_damaged && !found.is_complete);
    }
}
