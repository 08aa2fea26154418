//! Writing an entry while its body arrives.

use super::blocks::Checksums;
use super::head;
use super::prologue::{PROLOGUE_BYTES, Prologue};
use super::{BLOCK_SHIFT, BODY_BYTES_MAX};
use crate::error::Fault;
use crate::key::Key;
use crate::lifetime::Lifetime;
use bytes::Bytes;
use message::HeaderId;

/// Room behind a head, at least: so much may its lines grow by where they lie ([`Entry::patch`](super::Entry::patch)).
pub const HEAD_ROOM: usize = 64;

/// What an entry says of itself, known when the head of the answer is there.
#[derive(Clone, Copy, Debug)]
pub struct Description<'a> {
    /// What it is stored under.
    pub key: Key,
    /// The key without what Vary adds.
    pub main: Key,
    /// Which variant it is ([`crate::variant`]); of no meaning where `vary` is empty.
    pub variant: Key,
    /// The index's number for it.
    pub tag: u32,
    /// The text of `proxy_cache_key`.
    pub key_text: &'a [u8],
    /// The names that it varies by, as [`crate::vary_names`] writes them; empty if it does not.
    pub vary: &'a [u8],
    /// The code.
    pub status: u16,
    /// Code and text, `404 Not Found`.
    pub status_line: &'a [u8],
    /// How long it may be used.
    pub lifetime: Lifetime,
}

/// An entry being written: its front, then each piece of the body as it comes (told to [`Encoder::body`]), then the table. Where the
/// front is written before the body is whole, it is [`Encoder::front`], and [`Finished::front`] is written over it at the end.
#[derive(Clone, Debug)]
pub struct Encoder {
    prologue: Prologue,
    /// Room for the prologue, and the head.
    front: Vec<u8>,
    checksums: Checksums,
}

/// The whole of an entry but its body.
#[derive(Clone, Debug)]
pub struct Finished {
    /// To be written before the body, or over what lies there; what comes first is what changes.
    pub front: Bytes,
    /// To be written behind the body.
    pub table: Bytes,
    /// Bytes of the whole entry.
    pub entry_len: u64,
}

impl Encoder {
    /// Begins an entry with these header lines.
    ///
    /// # Errors
    /// [`Fault::Unstorable`].
    pub fn new<'a>(
        description: &Description<'_>,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8], HeaderId)>,
    ) -> Result<Self, Fault> {
        let Description {
            key_text,
            vary,
            status_line,
            ..
        } = *description;
        let front = head::encode(key_text, vary, status_line, fields)?;
        // At most half of HEAD_BYTES_MAX, and the room.
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

    /// The first bytes of the file, up to the body, for as long as that is not whole: they say that the entry is not complete.
    #[must_use]
    pub fn front(&self) -> Bytes {
        front(self.prologue, self.front.clone())
    }

    /// Takes note of the next bytes of the body, which the caller writes.
    ///
    /// # Errors
    /// [`Fault::Unstorable`] beyond [`BODY_BYTES_MAX`].
    pub fn body(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        if self.checksums.len() + bytes.len() as u64 > BODY_BYTES_MAX {
            return Err(Fault::Unstorable("too long a body"));
        }
        self.checksums.update(bytes);
        Ok(())
    }

    /// Bytes of the body so far.
    #[must_use]
    pub fn body_len(&self) -> u64 {
        self.checksums.len()
    }

    /// Bytes that the file will have if the body ends at `body_len`, for the reservation of space.
    #[must_use]
    pub fn entry_len(&self, body_len: u64) -> u64 {
        let prologue = Prologue {
            body_len,
            ..self.prologue
        };
        prologue.entry_len().unwrap_or(u64::MAX)
    }

    /// Ends the entry; the body is whole.
    #[must_use]
    pub fn finish(&mut self) -> Finished {
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

/// Prologue and head (behind room for it), filled up to where the body begins.
pub fn front(mut prologue: Prologue, mut front: Vec<u8>) -> Bytes {
    prologue.head_len = (front.len() - PROLOGUE_BYTES) as u32;
    front.resize(prologue.body_offset as usize, 0);
    prologue.head_crc = crc32fast::hash(&front[PROLOGUE_BYTES..]);
    front[..PROLOGUE_BYTES].copy_from_slice(&prologue.encode());
    Bytes::from(front)
}
