//! Encoding an entry while its body arrives.

use super::blocks::Checksums;
use super::head;
use super::prologue::{PROLOGUE_BYTES, Prologue};
use super::{BLOCK_SHIFT, BODY_BYTES_MAX};
use crate::error::EntryFault;
use crate::key::Key;
use crate::lifetime::Lifetime;
use bytes::Bytes;
use message::HeaderId;

/// Minimum of free bytes behind a head, for its lines to grow in place ([`Entry::patch`](super::Entry::patch)).
pub(crate) const HEAD_ROOM: usize = 64;

/// The description of an entry, known once the head of the response is there.
#[derive(Clone, Copy, Debug)]
pub struct Description<'a> {
    /// The key that it is stored under.
    pub key: Key,
    /// The key without the variant.
    pub main: Key,
    /// The key of its variant ([`crate::variant`]); without meaning if `vary` is empty.
    pub variant: Key,
    /// The index's number for it.
    pub tag: u32,
    /// The text of `proxy_cache_key`.
    pub key_text: &'a [u8],
    /// The names in `Vary`, as `vary_names` writes them; empty if there are none.
    pub vary: &'a [u8],
    /// The status code.
    pub status: u16,
    /// Status code and reason phrase, `404 Not Found`.
    pub status_line: &'a [u8],
    /// How long it may be used.
    pub lifetime: Lifetime,
}

/// Encodes an entry: its front, then each piece of the body as it comes (passed to [`EntryEncoder::body`]), then the
/// table. If the front is written before the body is complete, it is [`EntryEncoder::front`], and [`Finished::front`]
/// is written over it at the end.
#[derive(Clone, Debug)]
pub(crate) struct EntryEncoder {
    prologue: Prologue,
    /// The head, behind free bytes for the prologue.
    front: Vec<u8>,
    checksums: Checksums,
}

/// A finished entry without its body.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    /// To be written before the body, or over the bytes there; only the prologue at its start differs.
    pub front: Bytes,
    /// To be written behind the body.
    pub table: Bytes,
    /// Length of the whole entry.
    pub entry_len: u64,
}

impl EntryEncoder {
    /// Begins an entry with these header lines.
    ///
    /// # Errors
    /// [`EntryFault::Unstorable`].
    pub(crate) fn new<'a>(
        description: &Description<'_>,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8], HeaderId)>,
    ) -> Result<Self, EntryFault> {
        let Description {
            key_text,
            vary,
            status_line,
            ..
        } = *description;
        let front = head::encode(key_text, vary, status_line, fields)?;
        // At most half of HEAD_BYTES_MAX, and the room to grow.
        let body_offset = (front.len() + HEAD_ROOM).next_multiple_of(HEAD_ROOM) as u32;
        let prologue = Prologue {
            is_complete: false,
            block_shift: BLOCK_SHIFT,
            status: description.status,
            tag: description.tag,
            head_len: 0,
            body_offset,
            body_len: 0,
            head_crc: 0,
            table_crc: 0,
            key: description.key,
            main: description.main,
            variant: description.variant,
            lifetime: description.lifetime,
        };
        Ok(Self {
            prologue,
            front,
            checksums: Checksums::new(BLOCK_SHIFT),
        })
    }

    /// The first bytes of the file, up to the body, as long as the body is incomplete: they mark the entry as
    /// incomplete.
    #[must_use]
    pub(crate) fn front(&self) -> Bytes {
        front(self.prologue, self.front.clone())
    }

    /// Adds the next bytes of the body to the checksums; the caller writes them.
    ///
    /// # Errors
    /// [`EntryFault::Unstorable`] beyond [`BODY_BYTES_MAX`].
    pub(crate) fn body(&mut self, bytes: &[u8]) -> Result<(), EntryFault> {
        if self.checksums.len() + bytes.len() as u64 > BODY_BYTES_MAX {
            return Err(EntryFault::Unstorable("too long a body"));
        }
        self.checksums.update(bytes);
        Ok(())
    }

    /// Bytes of the body so far.
    #[must_use]
    pub(crate) fn body_len(&self) -> u64 {
        self.checksums.len()
    }

    /// Length of the file if the body ends at `body_len`, for the reservation of space.
    #[must_use]
    pub(crate) fn entry_len(&self, body_len: u64) -> u64 {
        let prologue = Prologue {
            body_len,
            ..self.prologue
        };
        prologue.entry_len().unwrap_or(u64::MAX)
    }

    /// Finishes the entry, whose body is complete.
    #[must_use]
    pub(crate) fn finish(&mut self) -> Finished {
        let checksums = std::mem::replace(&mut self.checksums, Checksums::new(BLOCK_SHIFT));
        let body_len = checksums.len();
        let table = checksums.finish();
        let prologue = Prologue {
            is_complete: true,
            body_len,
            table_crc: crc32fast::hash(&table),
            ..self.prologue
        };
        Finished {
            entry_len: u64::from(prologue.body_offset) + body_len + table.len() as u64,
            front: front(prologue, std::mem::take(&mut self.front)),
            table,
        }
    }
}

/// Fills in the prologue and pads the head up to the start of the body. `front` is the head, behind free bytes for the
/// prologue.
pub(super) fn front(mut prologue: Prologue, mut front: Vec<u8>) -> Bytes {
    prologue.head_len = (front.len() - PROLOGUE_BYTES) as u32;
    front.resize(prologue.body_offset as usize, 0);
    prologue.head_crc = crc32fast::hash(&front[PROLOGUE_BYTES..]);
    front[..PROLOGUE_BYTES].copy_from_slice(&prologue.encode());
    Bytes::from(front)
}
