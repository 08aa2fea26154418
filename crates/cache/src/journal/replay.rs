//! What a journal's files say, put into an index: everything that is whole, whatever happened to the rest.

use super::frame::Frame;
use super::record::Record;
use super::snapshot::UNKNOWN_NAMES;
use crate::index::{Index, Known, State, VARY_UNKNOWN};
use crate::key::Key;
use crate::purge::Purges;
use hashbrown::HashSet;

/// What was found at start.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Entries in the index.
    pub entries: usize,
    /// Does the index know every entry of the directory? If not, keys that it does not know are to be looked for on the disk until
    /// a walk is through ([`Journal::walked`](super::Journal::walked)).
    pub is_complete: bool,
    /// Did the last owner close the journal?
    pub is_clean: bool,
    /// Was anything skipped because its checksum was wrong?
    pub is_damaged: bool,
    /// Entries for which the index had no room: their files are to be deleted.
    pub evicted: Vec<Known>,
    /// Fills that may have been cut short: key and tag of each, whose temp files are to be deleted where they are there.
    pub unfinished: Vec<(Key, u32)>,
    /// Blocks of files of others in the directory, as the last walk found them.
    pub foreign_blocks: u64,
    /// Purges that were pending.
    pub(crate) purges: Purges,
}

/// Frames of a log that are kept until they are sorted, at most; a log is compacted long before.
pub const FRAMES_MAX: usize = 16 << 20;

/// Collects what the files say.
#[derive(Debug)]
pub struct Replay<'a> {
    index: &'a Index,
    found: Recovered,
    is_walked: bool,
    has_snapshot: bool,
    /// In which start of the kernel the last log was begun.
    boot: [u8; 16],
    /// Logs that others say they came after, with their lengths.
    before: Vec<(u64, u64)>,
    entries_seen: u64,
    logs: Vec<Frame>,
    begun: HashSet<([u8; 16], u32)>,
}

impl<'a> Replay<'a> {
    pub fn new(index: &'a Index) -> Self {
        Self {
            index,
            found: Recovered::default(),
            is_walked: false,
            has_snapshot: false,
            boot: [0; 16],
            before: Vec::new(),
            entries_seen: 0,
            logs: Vec::new(),
            begun: HashSet::new(),
        }
    }

    /// A frame of the snapshot, which comes before all logs.
    pub fn snapshot(&mut self, frame: &Frame) {
        for record in frame.records() {
            match record {
                Some(Record::Complete { entries, is_walked }) => {
                    self.has_snapshot = entries == self.entries_seen;
                    self.is_walked = is_walked;
                }
                Some(record) => {
                    self.entries_seen += u64::from(matches!(record, Record::Put { .. }));
                    self.apply(record);
                }
                None => self.found.is_damaged = true,
            }
        }
        // What is in a snapshot has its name; fills that ran beside it are in the log.
        self.begun.clear();
    }

    /// A frame of a log.
    pub fn log(&mut self, frame: Frame) {
        if self.logs.len() < FRAMES_MAX {
            self.logs.push(frame);
        } else {
            self.found.is_damaged = true;
        }
    }

    pub fn set_damaged(&mut self) {
        self.found.is_damaged = true;
    }

    /// Plays the logs, and says what came out; beside it, the number for the next frame. `needed` is the log that belongs to the
    /// snapshot, or the very first one where there is none; `logs` are those whose frames were given, with their lengths; `boot` is
    /// this start of the kernel.
    ///
    /// Frames that are not there are no reason for doubt: whoever was killed before he wrote one had not done yet what it says
    /// (see [`Record`]). What was lost with the kernel may have been done.
    pub fn finish(
        mut self,
        needed: u64,
        logs: &[(u64, u64)],
        starts_with_snapshot: bool,
        boot: [u8; 16],
    ) -> (Recovered, u64) {
        // Loops append as their jobs end: the numbers are the order.
        let mut frames = std::mem::take(&mut self.logs);
        frames.sort_by_key(|frame| frame.number);
        // A job that was taken again wrote its frame again.
        frames.dedup_by_key(|frame| frame.number);
        let mut opened = 0;
        for record in frames.iter().flat_map(Frame::records) {
            match record {
                Some(record) => {
                    opened += usize::from(matches!(record, Record::Opened { .. }));
                    self.apply(record);
                }
                None => self.found.is_damaged = true,
            }
        }
        let is_there = |log: &(u64, u64)| log.0 < needed || log.1 == 0 || logs.contains(log);
        let are_all = self.before.iter().all(is_there)
            && logs.first().is_some_and(|first| first.0 == needed)
            && opened == logs.len()
            && self.has_snapshot == starts_with_snapshot;
        self.index.sort();
        let (index, mut found) = (self.index, self.found);
        let is_on_disk = found.is_clean || self.boot == boot && boot != [0; 16];
        found.entries = index.len();
        found.is_complete = self.is_walked && are_all && is_on_disk && !found.is_damaged;
        found
            .evicted
            .retain(|known| index.peek(&known.key).is_none());
        let begun = self.begun.into_iter();
        found.unfinished = begun.map(|(key, tag)| (Key(key), tag)).collect();
        let next = frames.last().map_or(1, |frame| frame.number + 1);
        (found, next)
    }

    fn apply(&mut self, record: Record) {
        self.found.is_clean = false;
        match record {
            Record::Begin { key, tag } => {
                self.begun.insert((key.0, tag));
            }
            Record::Put { mut known, vary } => {
                self.begun.insert((known.key.0, known.place.file));
                // A purge that was cut off before it was written has left its number with what came after it.
                self.found.purges.is_at_least(known.clean_of);
                known.varies.names = match &vary[..] {
                    UNKNOWN_NAMES => VARY_UNKNOWN,
                    names => self.index.vary_number(names),
                };
                let evicted = self.index.put(&known).evicted;
                let stored = evicted.filter(|known| known.state == State::Stored);
                self.found.evicted.extend(stored);
            }
            Record::Renew { key, tag, lifetime } => {
                self.index.renew(&key, tag, lifetime);
            }
            Record::Ended { key, tag } => {
                self.begun.remove(&(key.0, tag));
            }
            Record::Remove { key, tag } => {
                self.index.remove_entry(&key, tag);
            }
            Record::Purge { number, rule } => self.found.purges.add(number, rule),
            Record::Purged { number } => self.found.purges.forget(number),
            Record::Walked { foreign } => {
                self.is_walked = true;
                self.found.foreign_blocks = foreign;
            }
            Record::Opened {
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
            // Looked at where it may stand.
            Record::Complete { .. } => {}
            Record::Closed => self.found.is_clean = true,
        }
    }
}
