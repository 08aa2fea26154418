//! An entry on its way into a segment.

use super::Stored;
use crate::error::{EntryFault, Error};
use crate::index::{Displaced, EntryExtent, KnownKey};
use crate::journal::{JournalRecord, TABLE_BYTES_OF_ENTRY};
use crate::segments::pages;
use crate::store::Store;
use bytes::Bytes;

/// An entry to be appended.
#[derive(Debug)]
pub(in crate::store) struct SegmentAppend {
    /// What the index is to know of it; its place is found by the writer.
    pub known: KnownKey,
    /// All its bytes.
    pub parts: Vec<Bytes>,
    /// Their number.
    pub len: u64,
    pub kind: AppendKind,
}

/// Why an entry is appended.
#[derive(Debug)]
pub(in crate::store) enum AppendKind {
    /// It is new; these are its names in `Vary`.
    New(Bytes),
    /// It is moved from another segment.
    Moved(EntryExtent),
    /// It is moved from the file that it had; with its names in `Vary`.
    FromFile(EntryExtent, Bytes),
}

impl SegmentAppend {
    /// Pages that it takes.
    pub(super) fn pages(&self) -> u32 {
        pages(self.len)
    }

    /// Bytes that it takes in the segment's table, at most.
    pub(super) fn table_bytes(&self) -> u64 {
        let names = match &self.kind {
            AppendKind::New(vary) | AppendKind::FromFile(_, vary) => vary.len(),
            AppendKind::Moved(_) => crate::entry::VARY_BYTES_MAX,
        };
        let names = match self.known.varies.names {
            0 => 0,
            _ => names,
        };
        TABLE_BYTES_OF_ENTRY + names as u64
    }

    /// Gives it its place.
    pub(super) fn set_place(&mut self, offset: u32) {
        self.known.extent.offset = offset;
        self.known.extent.blocks = self.pages();
    }

    pub(super) fn record(&self) -> JournalRecord {
        match &self.kind {
            AppendKind::New(vary) | AppendKind::FromFile(_, vary) => JournalRecord::Put {
                known: self.known,
                vary: vary.clone(),
            },
            AppendKind::Moved(from) => JournalRecord::Move {
                key: self.known.key,
                from: *from,
                offset: self.known.extent.offset,
            },
        }
    }

    /// Puts it into the index, now that it is written.
    pub(super) fn enter(self, store: &Store) -> Stored {
        let Some(segments) = &store.0.segments else {
            return self.stored(Displaced::default());
        };
        let (index, set) = (&store.0.index, &segments.set);
        set.enter(&self.known.extent);
        match self.kind {
            AppendKind::New(_) => {
                let displaced = index.put(&self.known);
                if let Some(replaced) = &displaced.replaced {
                    store.leave_segment(replaced);
                }
                self.stored(displaced)
            }
            AppendKind::Moved(ref from) => {
                match index.relocate(&self.known.key, from, self.known.extent) {
                    true => set.move_away(from),
                    // It was replaced or purged meanwhile.
                    false => set.leave(&self.known.extent),
                }
                self.stored(Displaced::default())
            }
            AppendKind::FromFile(ref from, _) => {
                let replaced = index.put_at(from, &self.known);
                if replaced.is_none() {
                    // The record that it is here is the last one.
                    store.0.journal.gone(self.known.key, self.known.extent.file);
                    set.leave(&self.known.extent);
                }
                self.stored(Displaced {
                    replaced,
                    evicted: None,
                })
            }
        }
    }

    fn stored(self, displaced: Displaced) -> Stored {
        Stored {
            known: self.known,
            displaced,
        }
    }
}

impl Store {
    /// Appends an entry, whose body is complete, to the segments. Returns when the index knows it.
    ///
    /// # Errors
    /// [`Error::Disk`], [`Error::NoRoom`], [`Error::InUse`]: it is not stored.
    pub(in crate::store) async fn append(
        &self,
        known: KnownKey,
        kind: AppendKind,
        parts: Vec<Bytes>,
        len: u64,
    ) -> Result<Stored, Error> {
        let Some(segments) = &self.0.segments else {
            return Err(EntryFault::Unstorable("there are no segments").into());
        };
        let append = SegmentAppend {
            known,
            parts,
            len,
            kind,
        };
        let bytes = usize::try_from(len).unwrap_or(usize::MAX);
        let appended = segments.queue.push(append, bytes).await;
        let appended = appended.map_err(disk::Error::from)?;
        // A writer that panicked has stored nothing.
        appended.unwrap_or(Err(Error::InUse))
    }
}
