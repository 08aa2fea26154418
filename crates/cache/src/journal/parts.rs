//! The snapshot read in parts: jobs of the pool replay several at once, each into shards of the index that no other part
//! puts anything into.
//!
//! A snapshot has the shards one behind the other, so a part of the file is about what a part of the shards holds. The
//! rest of it (`strays`) is put in last. Where a key was written twice, its last record is the one that holds, as it is
//! for one reader.
//!
//! Not here: logs, whose records depend on each other, and a snapshot that is read for some keys only (`files`).
//! Invariant: what is not exactly as one reader would have it is found out ([`replay_parts`] returns none); the file is
//! then read once more, by one reader, which also repairs what the parts have put into the index.

use super::frame::{FRAME_HEADER_BYTES, FrameLook, look, skipped};
use super::record::JournalRecord;
use super::snapshot::number_of;
use crate::codec::FieldReader;
use crate::error::Error;
use crate::index::{Displaced, Index, KeyState, KnownKey, SHARDS, shard_of};
use crate::purge::PurgeList;
use disk::{Access, FileReader, Local, OpenFile, Pool};
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::task::Poll;

/// Maximum of parts, and so of threads that a start keeps busy.
const PARTS_MAX: usize = 4;
/// Minimum of entries in a part: fewer take some milliseconds.
const PART_ENTRIES_MIN: usize = 50_000;
/// Bytes that one job reads and replays, in about a millisecond: others wait for a thread of the pool, too.
const SLICE_BYTES: usize = 256 << 10;
/// Maximum of entries of a part that are of another part's shards (4 MiB of memory). Keys are hashes: half of the shards
/// have half of ten million entries, give or take a few thousand. More are read again by one reader.
const STRAYS_MAX: usize = 1 << 15;

/// The processors that this process may use.
static CORES: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));

/// In how many parts a snapshot of so many entries is read. One processor reads several no faster than one.
pub(super) fn parts_for(entries: usize, pool: &Pool) -> usize {
    let most = PARTS_MAX.min(*CORES).min(pool.threads());
    (entries / PART_ENTRIES_MIN).clamp(1, most)
}

/// What the parts have found, all counted.
#[derive(Debug, Default)]
pub(super) struct PartsFound {
    pub entries: u64,
    /// What the record at the end says: the number of entries, and whether the directory was walked.
    pub complete: Option<(u64, bool)>,
    pub is_damaged: bool,
    /// The latest purge that an entry names.
    pub purges: PurgeList,
    /// Entries that had to give way.
    pub evicted: Vec<KnownKey>,
}

/// The frames that begin in a range of the file.
#[derive(Debug)]
struct Part {
    index: Arc<Index>,
    /// The shards that nothing but this part is put into meanwhile.
    shards: Range<usize>,
    /// Entries that the whole snapshot has.
    expected: usize,
    /// Where the range ends.
    until: u64,
    /// Where the buffer begins in the file.
    offset: u64,
    buffer: Vec<u8>,
    /// What has been looked at of the buffer.
    at: usize,
    /// Where the first frame begins.
    first: Option<u64>,
    /// Where the last one ends.
    end: u64,
    /// Is there anything that only one reader replays as it is to be?
    is_unusual: bool,
    found: PartsFound,
    /// Entries of other shards, in the order of the file.
    strays: Vec<KnownKey>,
    /// Those of a frame.
    batch: Vec<KnownKey>,
    /// The last names in a `Vary`, and their number in the index.
    names: (Vec<u8>, u16),
    /// The last shard that an entry was put into.
    shard: Option<usize>,
}

/// Replays the frames behind `header_bytes` of a snapshot with so many entries, which the index has room for, in so many
/// parts. None: one reader is to replay it.
///
/// # Errors
/// [`Error::Disk`].
pub(super) async fn replay_parts(
    local: &Local,
    file: &Rc<OpenFile>,
    access: &Access<'_>,
    index: &Arc<Index>,
    (expected, parts): (usize, usize),
    header_bytes: u64,
) -> Result<Option<PartsFound>, Error> {
    let len = file.meta().len;
    let border = |part: usize| {
        let bytes = len.saturating_sub(header_bytes);
        header_bytes + bytes / parts as u64 * part as u64
    };
    let read = (0..parts).map(|number| {
        let is_last = number + 1 == parts;
        let range = border(number)..if is_last { len } else { border(number + 1) };
        let shards = SHARDS * number / parts..SHARDS * (number + 1) / parts;
        let part = Part::new(index, shards, expected, range);
        Box::pin(read_part(local, file, access, part))
    });
    let parts = all(read.collect()).await;
    let parts = parts.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(merge(index, parts, header_bytes..len))
}

/// Reads a part, one job after the other: one that took all of it would keep others from its thread for seconds.
async fn read_part(
    local: &Local,
    file: &Rc<OpenFile>,
    access: &Access<'_>,
    mut part: Part,
) -> Result<Part, Error> {
    loop {
        let job = move |reader: &FileReader| {
            let is_over = part.step(reader);
            (part, is_over)
        };
        let (after, is_over) = local.examine(file, access, job).await?;
        part = after;
        if is_over? {
            return Ok(part);
        }
    }
}

/// Waits for all of them; their number is bounded by [`PARTS_MAX`].
async fn all<F: Future>(mut running: Vec<Pin<Box<F>>>) -> Vec<F::Output> {
    let mut done: Vec<_> = running.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, done) in running.iter_mut().zip(&mut done) {
            if done.is_none()
                && let Poll::Ready(output) = future.as_mut().poll(context)
            {
                *done = Some(output);
            }
        }
        match done.iter().all(Option::is_some) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    done.into_iter().flatten().collect()
}

impl Part {
    fn new(index: &Arc<Index>, shards: Range<usize>, expected: usize, range: Range<u64>) -> Self {
        Self {
            index: Arc::clone(index),
            shards,
            expected,
            until: range.end,
            offset: range.start,
            buffer: Vec::new(),
            at: 0,
            first: None,
            end: range.start,
            is_unusual: false,
            found: PartsFound::default(),
            strays: Vec::new(),
            batch: Vec::new(),
            names: (Vec::new(), 0),
            shard: None,
        }
    }

    /// Reads on, and replays what has come. Returns whether that was all. **Waits.**
    fn step(&mut self, reader: &FileReader) -> Result<bool, Error> {
        self.buffer.drain(..self.at);
        self.offset += self.at as u64;
        self.at = 0;
        let from = self.offset + self.buffer.len() as u64;
        let is_end = reader.append(&mut self.buffer, from, SLICE_BYTES)? == 0;
        // Its frames borrow from it, and it is changed meanwhile.
        let buffer = std::mem::take(&mut self.buffer);
        let is_over = self.scan(&buffer, is_end);
        self.buffer = buffer;
        Ok(is_over || is_end || self.is_unusual)
    }

    /// Replays the frames that begin before the part's end. Returns whether the end was reached. With `is_end`, no more
    /// bytes come.
    fn scan(&mut self, buffer: &[u8], is_end: bool) -> bool {
        while self.offset + (self.at as u64) < self.until {
            let left = &buffer[self.at..];
            if left.is_empty() {
                return false;
            }
            match look(left) {
                FrameLook::Frame(_, records) => {
                    let begin = self.offset + self.at as u64;
                    self.found.is_damaged |= self.first.is_some() && begin != self.end;
                    self.first = self.first.or(Some(begin));
                    self.at += FRAME_HEADER_BYTES + records.len();
                    self.end = self.offset + self.at as u64;
                    self.play(records);
                }
                FrameLook::Short(_) if !is_end => return false,
                FrameLook::Short(_) | FrameLook::Broken(_) | FrameLook::Other => {
                    self.at += skipped(left);
                }
            }
        }
        true
    }

    fn play(&mut self, records: &[u8]) {
        let mut from = FieldReader::new(records);
        while !from.is_empty() {
            match JournalRecord::decode_put(&mut from) {
                Some((known, names)) => self.put(known, names),
                None => match JournalRecord::decode(&mut from) {
                    Some(JournalRecord::Complete { entries, is_walked }) => {
                        self.is_unusual |= self.found.complete.is_some();
                        self.found.complete = Some((entries, is_walked));
                    }
                    // A writer puts no other into a snapshot.
                    Some(_) => self.is_unusual = true,
                    None => {
                        self.found.is_damaged = true;
                        break;
                    }
                },
            }
        }
        self.put_batch();
    }

    fn put(&mut self, mut known: KnownKey, names: &[u8]) {
        // The end says how many there were before it.
        self.is_unusual |= self.found.complete.is_some();
        self.found.entries += 1;
        self.found.purges.is_at_least(known.clean_of);
        if !names.is_empty() {
            known.varies.names = self.number_of(names);
        }
        let shard = shard_of(&known.key);
        if !self.shards.contains(&shard) {
            self.is_unusual |= self.strays.len() == STRAYS_MAX;
            if !self.is_unusual {
                self.strays.push(known);
            }
            return;
        }
        if self.shard.replace(shard) != Some(shard) {
            let has_file = !known.extent.is_in_segment();
            self.index.expect_in(shard, self.expected, has_file);
        }
        self.batch.push(known);
    }

    /// The index's number for names in a `Vary`: as a rule those of the entry before.
    fn number_of(&mut self, names: &[u8]) -> u16 {
        if self.names.0 != names {
            self.names.0.clear();
            self.names.0.extend_from_slice(names);
            self.names.1 = number_of(&self.index, names);
        }
        self.names.1
    }

    fn put_batch(&mut self) {
        let evicted = &mut self.found.evicted;
        self.index.put_all(&self.batch, |known, displaced| {
            note_displaced(evicted, known, displaced);
        });
        self.batch.clear();
    }
}

/// Notes what an entry has displaced, of which there may be a file.
pub(super) fn note_displaced(
    evicted: &mut Vec<KnownKey>,
    known: &KnownKey,
    Displaced {
        replaced,
        evicted: other,
    }: Displaced,
) {
    // An entry in a segment does not replace the file of the one before it.
    let replaced = replaced.filter(|_| known.extent.is_in_segment());
    let stored = |known: &KnownKey| known.state == KeyState::Stored;
    evicted.extend([other, replaced].into_iter().flatten().filter(stored));
}

/// Puts the parts together, which are all that is in `range` of the file. None: see the module.
fn merge(index: &Index, parts: Vec<Part>, range: Range<u64>) -> Option<PartsFound> {
    let mut all = PartsFound::default();
    let mut end = range.start;
    for part in &parts {
        let begin = part.first.unwrap_or(end);
        // A frame that begins in another one: one reader does not see it.
        let is_inside = begin < end;
        let is_behind_the_end = all.complete.is_some() && part.first.is_some();
        if part.is_unusual || is_inside || is_behind_the_end {
            return None;
        }
        all.is_damaged |= begin != end || part.found.is_damaged;
        end = end.max(part.end);
        all.entries += part.found.entries;
        all.complete = part.found.complete;
        all.purges.is_at_least(part.found.purges.latest);
    }
    all.is_damaged |= end != range.end;
    put_strays(index, &parts, &mut all.evicted);
    for part in parts {
        all.evicted.extend(part.found.evicted);
    }
    Some(all)
}

/// Puts in what was found in a part of the file that another part's shards are to have.
fn put_strays(index: &Index, parts: &[Part], evicted: &mut Vec<KnownKey>) {
    let is_of = |part: &Part, known: &KnownKey| shard_of(&known.key) >= part.shards.end;
    let mut put = |known: &KnownKey| {
        let displaced = index.put(known);
        note_displaced(evicted, known, displaced);
    };
    // What lies before the part of its own shards in the file is older than that, and than what lies behind itself.
    let mut earlier = Vec::new();
    for part in parts.iter().rev() {
        let strays = part.strays.iter().rev();
        for known in strays.filter(|known| is_of(part, known)) {
            match index.peek(&known.key) {
                Some(newer) if newer.state == KeyState::Stored => earlier.push((newer, *known)),
                _ => put(known),
            }
        }
    }
    for part in parts {
        let strays = part.strays.iter();
        strays
            .filter(|known| !is_of(part, known))
            .for_each(&mut put);
    }
    for (newer, known) in earlier {
        let replaced = Some(known);
        let displaced = Displaced {
            replaced,
            evicted: None,
        };
        note_displaced(evicted, &newer, displaced);
    }
}
