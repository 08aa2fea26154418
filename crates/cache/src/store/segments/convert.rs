//! Moving small entries that have files of their own into segments, for a directory that was filled without them.

use crate::entry::Entry;
use crate::error::{EntryFault, Error};
use crate::index::{Cursor, KnownKey};
use crate::segments::ENTRY_BYTES_MAX;
use crate::store::{Store, blocks_of, has_file};
use disk::{BatchStep, Errno, Local};

/// Entries that one step looks at.
const ENTRIES_OF_STEP: usize = 64;

/// The progress of a conversion.
#[derive(Debug, Default)]
pub struct Conversion {
    cursor: Cursor,
    /// Entries that were moved so far.
    pub moved: u64,
    is_over: bool,
}

impl Conversion {
    /// Looks at the next entries. True: there are more. Entries that are stored meanwhile lie where they should.
    ///
    /// # Errors
    /// [`Error::Fault`] if the store has no segments; [`Error::Disk`], [`Error::NoRoom`]: to be tried again later.
    pub async fn step(&mut self, store: &Store, local: &Local) -> Result<bool, Error> {
        if store.0.segments.is_none() {
            return Err(EntryFault::Unstorable("it has no segments (store=segments)").into());
        }
        let before = self.cursor;
        let step = store.0.index.scan(&mut self.cursor, ENTRIES_OF_STEP);
        self.is_over = step.is_empty();
        for known in step.iter().filter(|known| has_file(known)) {
            match store.move_to_segment(local, known).await {
                Ok(is_moved) => self.moved += u64::from(is_moved),
                Err(error) => {
                    self.cursor = before;
                    return Err(error);
                }
            }
        }
        Ok(!self.is_over)
    }
}

impl Store {
    /// Moves an entry from its file into a segment. False: it is large, damaged, or not the one that was asked for any
    /// more; it stays as it is.
    async fn move_to_segment(&self, local: &Local, known: &KnownKey) -> Result<bool, Error> {
        let blocks = u64::from(known.extent.blocks);
        if blocks * self.0.space.block_bytes() >= ENTRY_BYTES_MAX + self.0.space.block_bytes() {
            return Ok(false);
        }
        let (path, pool) = (self.path(&known.key), &self.0.settings.pool);
        let most = ENTRY_BYTES_MAX as usize;
        let (bytes, meta) = match local.read_front(&path, most, pool).await {
            Ok(front) => front,
            Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        // A request that finds it damaged deletes it.
        let Ok(entry) = Entry::decode_whole(&bytes) else {
            return Ok(false);
        };
        let is_it = entry.key() == known.key && entry.tag() == known.extent.file;
        if !is_it || meta.len != bytes.len() as u64 {
            return Ok(false);
        }
        let turn = match self.turn(known.key, known.extent.file).await {
            Ok(turn) => turn,
            Err(Error::Superseded) => return Ok(false),
            Err(error) => return Err(error),
        };
        let present = self.0.index.peek(&known.key);
        let Some(present) = present.filter(|present| present.extent == known.extent) else {
            return Ok(false);
        };
        let moved = KnownKey {
            is_verified: true,
            ..present
        };
        let vary = entry.vary().clone();
        let stored = self.append(moved, vary, vec![bytes], meta.len).await?;
        // Without a record: the journal knows the entry, under the same tag, at its new place. A file that cannot be
        // deleted counts until the next start.
        let unlink = BatchStep::Unlink(path.into());
        local.change(vec![unlink], pool).await?;
        let replaced = stored.displaced.replaced.filter(has_file);
        drop(replaced.and_then(|known| blocks_of(&self.0.space, &known)));
        drop(turn);
        Ok(true)
    }
}
