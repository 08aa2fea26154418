//! Moving small entries between files of their own and segments, for a directory that was filled with the other `store`.
//!
//! Invariant: an entry that was purged, replaced or evicted meanwhile does not come back.

use super::append::AppendKind;
use crate::entry::Entry;
use crate::error::Error;
use crate::index::{Cursor, EntryExtent, KnownKey};
use crate::journal::{JournalRecord, temp_ending};
use crate::segments::{ENTRY_BYTES_MAX, PAGE, SegmentUse};
use crate::store::removal::Removed;
use crate::store::{FILE_MODE, Store, StoreKind, blocks_of, has_file};
use bytes::Bytes;
use disk::{BatchStep, Errno, Lane, Local, NewFile};
use std::collections::VecDeque;
use std::sync::Arc;

/// Entries that one step looks at.
const ENTRIES_OF_STEP: usize = 64;
/// Steps of the writer in which the segments that were moved away are removed.
const REMOVAL_STEPS_MAX: usize = 64;

/// The progress of a conversion. Out of segments it goes segment by segment, the oldest first: each gives its room to the
/// files of the next.
#[derive(Debug, Default)]
pub struct Conversion {
    /// Segments that are still to be looked through, the newest first; None: it has not begun.
    segments: Option<Vec<SegmentUse>>,
    /// How far the index was looked through for what these do not tell of.
    cursor: Cursor,
    /// What was found there, and was not looked at yet: entries of one segment, or of a part of the index.
    found: VecDeque<KnownKey>,
    /// Entries that were moved so far.
    pub moved: u64,
    /// Entries that could not be read so far, and stay.
    pub unread: u64,
    is_over: bool,
    /// While it lives, segments take the room that files leave.
    mark: Arc<()>,
}

/// What became of an entry.
enum Outcome {
    Moved,
    /// It is damaged, not to be moved, or not the one that was asked for any more.
    Stays,
    /// It could not be read.
    Unread,
}

impl Conversion {
    /// Looks at the next entries, and moves those that do not lie where the store puts them. True: there are more.
    /// Entries that are stored meanwhile lie where they should.
    ///
    /// # Errors
    /// [`Error::Disk`], [`Error::NoRoom`]: to be tried again later, when a sweep has made room.
    pub async fn step(&mut self, store: &Store, local: &Local) -> Result<bool, Error> {
        if let Some(segments) = &store.0.segments {
            segments.note_conversion(&self.mark);
        }
        let moved = self.move_some(store, local).await;
        // Segments without entries give their room back.
        store.poke_segments();
        moved.map(|()| !self.is_over)
    }

    async fn move_some(&mut self, store: &Store, local: &Local) -> Result<(), Error> {
        if self.found.is_empty() {
            self.find_more(store).await?;
        }
        for _ in 0..ENTRIES_OF_STEP {
            let Some(known) = self.found.front().copied() else {
                break;
            };
            let outcome = match store.0.settings.kind {
                StoreKind::Segments if has_file(&known) => {
                    store.move_to_segment(local, &known).await?
                }
                StoreKind::Files if known.extent.is_in_segment() => {
                    store.move_to_file(local, &known).await?
                }
                _ => Outcome::Stays,
            };
            self.moved += u64::from(matches!(outcome, Outcome::Moved));
            self.unread += u64::from(matches!(outcome, Outcome::Unread));
            self.found.pop_front();
        }
        Ok(())
    }

    /// Finds the entries of the next segment, if they are to leave it, or those of the next part of the index.
    async fn find_more(&mut self, store: &Store) -> Result<(), Error> {
        if store.0.settings.kind == StoreKind::Files {
            store.remove_emptied().await?;
        }
        let segments = self
            .segments
            .get_or_insert_with(|| store.segments_to_leave());
        let Some(of) = segments.last().cloned() else {
            let part = store.0.index.scan(&mut self.cursor, ENTRIES_OF_STEP);
            self.is_over = part.is_empty();
            self.found = part.into();
            return Ok(());
        };
        let (reader, pool) = (store.clone(), &store.0.settings.pool);
        let read = pool.run(Lane::Read, move || reader.entries_of(&of)).await;
        // What one that cannot be read does not tell of is found in the index.
        let written = read.map_err(disk::Error::from)?.unwrap_or_default();
        let present = |written: KnownKey| {
            let known = store.0.index.peek(&written.key)?;
            (known.extent == written.extent).then_some(known)
        };
        self.found = written.into_iter().filter_map(present).collect();
        segments.pop();
        Ok(())
    }
}

impl Store {
    /// The segments whose entries get files of their own, the newest first.
    fn segments_to_leave(&self) -> Vec<SegmentUse> {
        match &self.0.segments {
            Some(segments) if segments.set.is_leftover => segments.set.readable(),
            _ => Vec::new(),
        }
    }

    /// Has the writer remove segments that have no entries any more, so that files have their room.
    async fn remove_emptied(&self) -> Result<(), Error> {
        let store = self.clone();
        let remove = move || {
            let is_more = |_| store.write_segments(Vec::new()).1;
            (0..REMOVAL_STEPS_MAX).all(is_more)
        };
        let pool = &self.0.settings.pool;
        let removed = pool.run(Lane::Write, remove).await;
        removed.map_err(disk::Error::from)?;
        Ok(())
    }

    /// Moves an entry from its file into a segment, unless it is large.
    async fn move_to_segment(&self, local: &Local, known: &KnownKey) -> Result<Outcome, Error> {
        let blocks = u64::from(known.extent.blocks);
        if blocks * self.0.space.block_bytes() >= ENTRY_BYTES_MAX + self.0.space.block_bytes() {
            return Ok(Outcome::Stays);
        }
        let (path, pool) = (self.path(&known.key), &self.0.settings.pool);
        let most = ENTRY_BYTES_MAX as usize;
        let (bytes, meta) = match local.read_front(&path, most, pool).await {
            Ok(front) => front,
            Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(Outcome::Stays),
            Err(error) => return self.unread(known, error.into()),
        };
        // A request that finds it damaged deletes it.
        let Some(entry) = whole(&bytes, known) else {
            return Ok(Outcome::Stays);
        };
        if meta.len != bytes.len() as u64 {
            return Ok(Outcome::Stays);
        }
        let turn = match self.turn(known.key, known.extent.file).await {
            Ok(turn) => turn,
            Err(Error::Superseded) => return Ok(Outcome::Stays),
            Err(error) => return Err(error),
        };
        let present = self.0.index.peek(&known.key);
        let Some(present) = present.filter(|present| present.extent == known.extent) else {
            return Ok(Outcome::Stays);
        };
        let moved = KnownKey {
            is_verified: true,
            ..present
        };
        let kind = AppendKind::FromFile(present.extent, entry.vary().clone());
        let stored = self.append(moved, kind, vec![bytes], meta.len).await?;
        let Some(replaced) = stored.displaced.replaced.filter(has_file) else {
            return Ok(Outcome::Stays);
        };
        // Without a record: the journal knows the entry, under the same tag, at its new place. A file that cannot be
        // deleted counts until the next start.
        let unlink = BatchStep::Unlink(path.into());
        local.change(vec![unlink], pool).await?;
        drop(blocks_of(&self.0.space, &replaced));
        drop(turn);
        Ok(Outcome::Moved)
    }

    /// What follows from an error of a read: nothing for others, if it is of this entry alone.
    fn unread(&self, known: &KnownKey, error: Error) -> Result<Outcome, Error> {
        match error.errno() {
            None | Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Err(error),
            Some(_) => {
                self.note_unread(known, &error);
                Ok(Outcome::Unread)
            }
        }
    }

    /// Moves an entry from a segment into a file of its own. One that is damaged is dropped.
    async fn move_to_file(&self, local: &Local, known: &KnownKey) -> Result<Outcome, Error> {
        let (reader, it) = (self.clone(), *known);
        let read = move || reader.read_whole(&it);
        let pool = &self.0.settings.pool;
        let read = pool.run(Lane::Read, read).await;
        let bytes = match read.map_err(disk::Error::from)? {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Outcome::Stays),
            Err(error) => return self.unread(known, error),
        };
        let Some(entry) = whole(&bytes, known) else {
            // Its segment would wait for it.
            self.forget(known);
            return Ok(Outcome::Stays);
        };
        let turn = match self.turn(known.key, known.extent.file).await {
            Ok(turn) => turn,
            Err(Error::Superseded) => return Ok(Outcome::Stays),
            Err(error) => return Err(error),
        };
        let mut room = self.0.space.reserve(0)?;
        self.grow_counting(local, &mut room, bytes.len() as u64)
            .await?;
        if !self.unknown_directories(&known.key).is_empty() {
            self.make_directories(local, &known.key).await?;
        }
        // No purge is forgotten until index and disk agree.
        let epoch = self.0.epochs.begin();
        let present = self.0.index.peek(&known.key);
        let Some(present) = present.filter(|present| present.extent == known.extent) else {
            return Ok(Outcome::Stays);
        };
        let moved = KnownKey {
            is_verified: true,
            extent: EntryExtent {
                file: known.extent.file,
                offset: 0,
                blocks: u32::try_from(room.blocks()).unwrap_or(u32::MAX),
            },
            ..present
        };
        self.write_moved(local, moved, entry.vary().clone(), bytes)
            .await?;
        room.keep();
        let Some(replaced) = self.0.index.put_at(&present.extent, &moved) else {
            // It was purged, replaced or evicted meanwhile: its file goes, too.
            let gone = Removed {
                known: vec![moved],
                epoch: Some(epoch),
            };
            drop(self.delete_at(local, gone, Some(&turn)).await?);
            return Ok(Outcome::Stays);
        };
        self.leave_segment(&replaced);
        drop((turn, epoch));
        Ok(Outcome::Moved)
    }

    /// Writes the record and the file of an entry that was in a segment.
    async fn write_moved(
        &self,
        local: &Local,
        moved: KnownKey,
        vary: Bytes,
        bytes: Bytes,
    ) -> Result<(), Error> {
        let put = JournalRecord::Put { known: moved, vary };
        let put = self.0.journal.ticket(&[put])?;
        let file = NewFile {
            path: self.path(&moved.key).into(),
            ending: temp_ending(moved.extent.file),
            is_watched: true,
            from: None,
            mode: FILE_MODE,
            contents: vec![bytes],
        };
        let steps = vec![put.step(), BatchStep::Create(file)];
        if let Err(error) = local.change(steps, &self.0.settings.pool).await {
            put.defer();
            return Err(error.into());
        }
        self.0.journal.ended(moved.key, moved.extent.file);
        Ok(())
    }

    /// The bytes of an entry in a segment. None: it is there no more. **Waits.**
    fn read_whole(&self, known: &KnownKey) -> Result<Option<Bytes>, Error> {
        let segments = self.0.segments.as_ref();
        let Some(source) = segments.and_then(|segments| segments.set.source(&known.extent)) else {
            return Ok(None);
        };
        let most = u64::from(known.extent.blocks) * PAGE;
        let bytes = source.file.read(source.at, most as usize)?;
        let len = Entry::len_in(&bytes).unwrap_or(0).min(bytes.len() as u64);
        Ok(Some(bytes.slice(..len as usize)))
    }
}

/// The entry that the index knows, if these are its bytes, undamaged.
fn whole(bytes: &Bytes, known: &KnownKey) -> Option<Entry> {
    let entry = Entry::decode_whole(bytes).ok()?;
    (entry.key() == known.key && entry.tag() == known.extent.file).then_some(entry)
}
