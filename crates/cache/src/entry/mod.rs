//! The format of an entry on the disk: it describes itself, and damage to it is detected.
//!
//! ```text
//! 0         prologue   128 bytes: lengths, keys, lifetime, checksums of prologue, head and table
//! 128       head       the key's text, Vary, the status line, the header lines, and room for them to grow
//! B         body       B is in the prologue
//! B + len   table      a CRC-32 per block of the body
//! ```
//! All numbers are little-endian. While a fill runs, the prologue is marked *incomplete*. At its end the table is
//! written behind the body and a new prologue over the first one, and only then is the file renamed. So the length of a
//! body need not be known at the start.
//!
//! Not here: files. Invariant: no byte is trusted before its checksum was verified, and lengths not even then.

mod blocks;
mod encoder;
mod head;
mod prologue;
#[cfg(test)]
mod tests;

pub use blocks::{CHECKSUM_BYTES, ChecksumTable};
pub use encoder::Description;
pub(crate) use encoder::{EntryEncoder, Finished};
pub(crate) use head::VARY_BYTES_MAX;
pub(crate) use prologue::PROLOGUE_BYTES;

use crate::error::EntryFault;
use crate::key::Key;
use crate::lifetime::Lifetime;
use bytes::Bytes;
use message::{HeaderId, ResponseHead};
use prologue::Prologue;
use std::ops::Range;
use std::sync::Arc;

/// Version of the format that is written. A change that older programs cannot read gets the next number.
pub(crate) const FORMAT_VERSION: u16 = 1;
/// A block has `1 << BLOCK_SHIFT` bytes (64 KiB); the last one has the rest.
pub(crate) const BLOCK_SHIFT: u8 = 16;
/// Block sizes that can be read: from 64 KiB to 256 KiB.
pub(crate) const BLOCK_SHIFTS: std::ops::RangeInclusive<u8> = 16..=18;
/// Maximum of bytes before the body for an entry to be patched: a page.
pub(crate) const PATCH_BYTES_MAX: usize = 4096;
/// Maximum of bytes that an entry's head may keep in memory beside itself.
const BESIDE_MAX: usize = 1024;
/// Maximum length of a body; a longer one is not stored (its table alone would have 16 MiB).
pub(crate) const BODY_BYTES_MAX: u64 = 256 << 30;

/// An entry without its body.
#[derive(Clone, Debug)]
pub struct Entry {
    prologue: Prologue,
    vary: Bytes,
    key_text: Bytes,
    head: Arc<ResponseHead>,
}

impl Entry {
    /// Decodes an entry's head. `bytes` are the first bytes of the entry, `entry_len` is its total length.
    ///
    /// # Errors
    /// [`EntryFault::Needs`]: to be called again with that many bytes. All other errors mean that this is no usable
    /// entry.
    pub fn decode(bytes: &Bytes, entry_len: u64) -> Result<Self, EntryFault> {
        let prologue = Prologue::decode(bytes)?;
        if prologue.entry_len() != Some(entry_len) {
            return Err(EntryFault::Damaged("length"));
        }
        let body_offset = prologue.body_offset as usize;
        let area = bytes.get(PROLOGUE_BYTES..body_offset);
        let area = area.ok_or(EntryFault::Needs(body_offset))?;
        if crc32fast::hash(area) != prologue.head_crc {
            return Err(EntryFault::Damaged("checksum of the head"));
        }
        let used = PROLOGUE_BYTES..PROLOGUE_BYTES + prologue.head_len as usize;
        // A slice of the bytes would keep all of them, the body included, for as long as the entry is in use.
        let head = match used.len() + BESIDE_MAX < bytes.len() {
            true => Bytes::copy_from_slice(&bytes[used]),
            false => bytes.slice(used),
        };
        head::decode(head, prologue)
    }

    /// The length of the whole entry that begins with these bytes.
    ///
    /// # Errors
    /// As [`Entry::decode`].
    pub(crate) fn len_in(bytes: &[u8]) -> Result<u64, EntryFault> {
        let len = Prologue::decode(bytes)?.entry_len();
        len.ok_or(EntryFault::Damaged("length"))
    }

    /// Key and tag of the entry that begins with these bytes.
    #[must_use]
    pub(crate) fn names_in(bytes: &[u8]) -> Option<(Key, u32)> {
        let prologue = Prologue::decode(bytes).ok()?;
        Some((prologue.key, prologue.tag))
    }

    /// Decodes a whole entry and verifies all of it.
    ///
    /// # Errors
    /// As [`Entry::decode`]; [`EntryFault::Damaged`] if any block is damaged.
    pub fn decode_whole(bytes: &Bytes) -> Result<Self, EntryFault> {
        let entry = Self::decode(bytes, bytes.len() as u64)?;
        let part = |range: Range<u64>| bytes.slice(range.start as usize..range.end as usize);
        let table = ChecksumTable::decode(&part(entry.table()), &entry)?;
        for index in 0..entry.blocks() {
            table.verify(index, &part(entry.block(index)))?;
        }
        Ok(entry)
    }

    /// The bytes to write over the start of the entry to change its header lines, lifetime and tag; the body stays
    /// unchanged in its place. Also the bytes that are there now: a file that begins with others is another one. None:
    /// the lines do not fit, or not into one page, within which a write is never cut off by a kill.
    ///
    /// # Errors
    /// [`EntryFault::Unstorable`].
    pub fn patch<'a>(
        &self,
        tag: u32,
        lifetime: Lifetime,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8], HeaderId)>,
    ) -> Result<Option<(Bytes, Bytes)>, EntryFault> {
        let status_line = self.head.status_line.of(&self.head.bytes);
        let front = head::encode(&self.key_text, &self.vary, status_line, fields)?;
        let body_offset = self.prologue.body_offset as usize;
        if front.len() > body_offset || body_offset > PATCH_BYTES_MAX {
            return Ok(None);
        }
        let now = Bytes::copy_from_slice(&self.prologue.encode());
        let prologue = Prologue {
            tag,
            lifetime,
            ..self.prologue
        };
        Ok(Some((now, encoder::front(prologue, front))))
    }

    /// The key that the entry is stored under.
    #[must_use]
    pub fn key(&self) -> Key {
        self.prologue.key
    }

    /// The key without the variant; equal to [`Entry::key`] for a response that does not vary or was the first to.
    #[must_use]
    pub fn main(&self) -> Key {
        self.prologue.main
    }

    /// The key of its variant, if it varies: see [`crate::variant`].
    #[must_use]
    pub fn variant(&self) -> Option<Key> {
        (!self.vary.is_empty()).then_some(self.prologue.variant)
    }

    /// The number that the index gave this entry: a record with another number is of another entry.
    #[must_use]
    pub fn tag(&self) -> u32 {
        self.prologue.tag
    }

    /// The text of `proxy_cache_key`, which tells two texts with the same MD5 apart.
    #[must_use]
    pub fn key_text(&self) -> &Bytes {
        &self.key_text
    }

    /// The names in `Vary`, as written by `vary_names`; empty if there are none.
    #[must_use]
    pub fn vary(&self) -> &Bytes {
        &self.vary
    }

    /// How long it may be used, as far as the entry knows (the index may have a newer lifetime: a 304 is noted there
    /// first).
    #[must_use]
    pub fn lifetime(&self) -> &Lifetime {
        &self.prologue.lifetime
    }

    /// Status and header lines, as if an upstream had just sent them.
    #[must_use]
    pub fn head(&self) -> &Arc<ResponseHead> {
        &self.head
    }

    /// Length of the body.
    #[must_use]
    pub fn body_len(&self) -> u64 {
        self.prologue.body_len
    }

    /// Length of the whole entry.
    pub(crate) fn entry_len(&self) -> Option<u64> {
        self.prologue.entry_len()
    }

    /// The range of the body in the entry.
    #[must_use]
    pub fn body(&self) -> Range<u64> {
        let start = u64::from(self.prologue.body_offset);
        start..start + self.prologue.body_len
    }

    /// The range of the table of checksums in the entry.
    #[must_use]
    pub fn table(&self) -> Range<u64> {
        let start = self.body().end;
        start..start + u64::from(self.blocks()) * CHECKSUM_BYTES
    }

    /// Number of blocks of the body.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.prologue.blocks()
    }

    /// The range of an existing block in the entry.
    #[must_use]
    pub fn block(&self, index: u32) -> Range<u64> {
        let (body, shift) = (self.body(), self.prologue.block_shift);
        let at = |index: u64| (body.start + (index << shift)).min(body.end);
        at(u64::from(index))..at(u64::from(index) + 1)
    }

    /// The blocks that a range of the body touches.
    #[must_use]
    pub(crate) fn blocks_of(&self, range: &Range<u64>) -> Range<u32> {
        let shift = self.prologue.block_shift;
        let end = range.end.min(self.body_len());
        if range.start >= end {
            return 0..0;
        }
        let last = (end - 1) >> shift;
        (range.start >> shift) as u32..last as u32 + 1
    }
}
