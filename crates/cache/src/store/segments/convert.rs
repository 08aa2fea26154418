//! Moving small entries between files of their own and segments, for a directory that was filled with the other `store`.
//!
//! Invariant: an entry that was purged, replaced or evicted meanwhile does not come back.

use super::append::AppendKind;
use crate::entry::Entry;
use crate::error::Error;
use crate::index::{Cursor, EntryExtent, KnownKey};
use crate::journal::{JournalRecord, temp_ending};
use crate::segments::{ENTRY_BYTES_MAX, PAGE};
use crate::store::removal::Removed;
use crate::store::{FILE_MODE, Store, StoreKind, blocks_of, has_file};
use bytes::Bytes;
use disk::{BatchStep, Errno, Lane, Local, NewFile};

/// Entries that one step looks at.
const ENTRIES_OF_STEP: usize = 64;

/// The progress of a conversion.
#[derive(Debug, Default)]
pub struct Conversion {
    cursor: Cursor,
    /// Entries that were moved so far.
    pub moved: u64,
    /// Entries that could not be read so far, and stay.
    pub unread: u64,
    is_over: bool,
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
    /// [`Error::Disk`], [`Error::NoRoom`]: to be tried again later.
    pub async fn step(&mut self, store: &Store, local: &Local) -> Result<bool, Error> {
        let before = self.cursor;
        let step = store.0.index.scan(&mut self.cursor, ENTRIES_OF_STEP);
        self.is_over = step.is_empty();
        let mut unread = 0;
        for known in &step {
            let moved = match store.0.settings.kind {
                StoreKind::Segments if has_file(known) => store.move_to_segment(local, known).await,
                StoreKind::Files if known.extent.is_in_segment() => {
                    store.move_to_file(local, known).await
                }
                _ => Ok(Outcome::Stays),
            };
            match moved {
                Ok(Outcome::Moved) => self.moved += 1,
                Ok(Outcome::Stays) => {}
                Ok(Outcome::Unread) => unread += 1,
                Err(error) => {
                    self.cursor = before;
                    return Err(error);
                }
            }
        }
        self.unread += unread;
        // Segments without entries give their room back.
        store.poke_segments();
        Ok(!self.is_over)
    }
}

impl Store {
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
        local.change(steps, &self.0.settings.pool).await?;
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
