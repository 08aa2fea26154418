//! What the journal says of entries, in its own frames, for a place outside of its files: the table of a segment.

use super::frame::{FRAME_HEADER_BYTES, FrameBatch, Scanner};
use super::record::{JournalRecord, PUT_BYTES_MIN};
use super::snapshot::{names_of, number_of};
use crate::index::{Index, KnownKey};
use bytes::Bytes;

/// Maximum of bytes of an entry in a table, its share of the frames included, beside its names in `Vary`.
pub(crate) const TABLE_BYTES_OF_ENTRY: u64 = PUT_BYTES_MIN + FRAME_HEADER_BYTES as u64;

/// Entries as frames of a table.
#[must_use]
pub(crate) fn table_frame<'a>(
    index: &Index,
    entries: impl Iterator<Item = &'a KnownKey>,
) -> Vec<Bytes> {
    let (mut batch, mut frames) = (FrameBatch::default(), Vec::new());
    for known in entries {
        let vary = names_of(index, known.varies.names);
        batch.push(&JournalRecord::Put {
            known: *known,
            vary,
        });
        if batch.is_full() {
            frames.push(std::mem::take(&mut batch).frame(0));
        }
    }
    if !batch.is_empty() {
        frames.push(batch.frame(0));
    }
    frames
}

/// The entries in the frames of a table. What is damaged is left out.
#[must_use]
pub(crate) fn entries_in(index: &Index, table: &[u8]) -> Vec<KnownKey> {
    let mut scanner = Scanner::default();
    scanner.push(table);
    let mut entries = Vec::new();
    while let Some(frame) = scanner.next(true) {
        for record in frame.records() {
            if let Some(JournalRecord::Put { mut known, vary }) = record {
                known.varies.names = number_of(index, &vary);
                entries.push(known);
            }
        }
    }
    entries
}
