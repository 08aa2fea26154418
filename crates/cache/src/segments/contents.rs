//! What is in a segment, for whoever reads its file: the owner, and commands beside it.

use super::layout::{ENTRY_BYTES_MAX, PAGE, SegmentHeader, TRAILER_BYTES, Trailer, pages};
use crate::entry::Entry;
use crate::error::EntryFault;
use bytes::Bytes;

/// Reads the table of a sealed segment by a function that returns as many bytes at an offset, or fewer at the end. None:
/// it has none that is intact.
///
/// # Errors
/// Those of `read`.
pub(crate) fn table_of<E>(
    header: &SegmentHeader,
    mut read: impl FnMut(u64, usize) -> Result<Bytes, E>,
) -> Result<Option<Bytes>, E> {
    let trailer = read(header.bytes - TRAILER_BYTES as u64, TRAILER_BYTES)?;
    let Some(trailer) = Trailer::decode(&trailer, header) else {
        return Ok(None);
    };
    let len = trailer.table_len as usize;
    let table = read(u64::from(trailer.table_at), len)?;
    let is_intact = table.len() == len && crc32fast::hash(&table) == trailer.table_crc;
    Ok(is_intact.then_some(table))
}

/// Calls `each` for the entries of a segment, one behind the other, with page and length. What is no entry is passed
/// over.
///
/// # Errors
/// Those of `read`.
pub(crate) fn each_entry<E>(
    segment_bytes: u64,
    mut read: impl FnMut(u64, usize) -> Result<Bytes, E>,
    mut each: impl FnMut(u32, &Entry, u64),
) -> Result<(), E> {
    let mut page = 1;
    let (mut chunk, mut chunk_at) = (Bytes::new(), 0u64);
    while u64::from(page) * PAGE < segment_bytes {
        let at = u64::from(page) * PAGE;
        if at + PAGE > chunk_at + chunk.len() as u64 {
            (chunk, chunk_at) = (read(at, ENTRY_BYTES_MAX as usize)?, at);
            if chunk.is_empty() {
                return Ok(());
            }
        }
        let head = chunk.slice((at - chunk_at) as usize..);
        let len = Entry::len_in(&head).unwrap_or(u64::MAX);
        let is_inside = len <= ENTRY_BYTES_MAX && at + len <= segment_bytes;
        let found = match is_inside.then(|| Entry::decode(&head, len)) {
            Some(Err(EntryFault::Needs(more))) => Entry::decode(&read(at, more)?, len).ok(),
            decoded => decoded.and_then(Result::ok),
        };
        match found {
            Some(entry) => {
                each(page, &entry, len);
                page += pages(len);
            }
            None => page += 1,
        }
    }
    Ok(())
}

/// An entry in a segment, as a command finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedEntry {
    /// Its key.
    pub key: crate::Key,
    /// Its tag.
    pub tag: u32,
    /// Where it begins in the file, in bytes.
    pub at: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// The entries of a segment that may be found, in the order of writing, read entry by entry by a function that returns
/// as many bytes at an offset, or fewer at the file's end. None: it is not one, or is empty. (Its owner may be writing
/// it, so that some are damaged or missing.)
///
/// # Errors
/// Those of `read`.
pub fn entries_in_segment<E>(
    mut read: impl FnMut(u64, usize) -> Result<Bytes, E>,
) -> Result<Option<Vec<PlacedEntry>>, E> {
    let first = read(0, PAGE as usize)?;
    let Some((header, dead)) = SegmentHeader::decode(&first) else {
        return Ok(None);
    };
    let mut found = Vec::new();
    each_entry(header.bytes, read, |page, entry, len| {
        if !dead.has(page) {
            found.push(PlacedEntry {
                key: entry.key(),
                tag: entry.tag(),
                at: u64::from(page) * PAGE,
                len,
            });
        }
    })?;
    Ok(Some(found))
}
