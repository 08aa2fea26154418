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

/// An entry being written: what [`Writer::new`] gives first, then each piece of the body as it comes (told to [`Writer::body`]),
/// then what [`Writer::finish`] gives.
#[derive(Clone, Debug)]
pub struct Writer {
    prologue: Prologue,
    checksums: Checksums,
}

/// How an entry ends.
#[derive(Clone, Debug)]
pub struct Finished {
    /// To be written behind the body.
    pub table: Bytes,
    /// To be written over the first bytes, after the table, before the file gets its name.
    pub prologue: Bytes,
    /// Bytes of the whole entry.
    pub entry_len: u64,
}

impl Writer {
    /// Begins an entry with these header lines. Beside the writer come the first bytes of the file, up to the body; they say that
    /// the entry is not complete.
    ///
    /// # Errors
    /// [`Fault::Unstorable`].
    pub fn new<'a>(
        description: &Description<'_>,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8], HeaderId)>,
    ) -> Result<(Self, Bytes), Fault> {
        let Description {
            key_text,
            vary,
            status_line,
            ..
        } = *description;
        let head = head::encode(key_text, vary, status_line, fields)?;
        // At most half of HEAD_BYTES_MAX, and the room.
        let body_offset = (PROLOGUE_BYTES + head.len() + HEAD_ROOM).next_multiple_of(HEAD_ROOM);
        let body_offset = body_offset as u32;
        let mut prologue = Prologue {
            is_complete: false,
            block_shift: BLOCK_SHIFT,
            status: description.status,
            tag: description.tag,
            head_len: head.len() as u32,
            body_offset,
            body_len: 0,
            head_crc: 0,
            table_crc: 0,
            key: description.key,
            main: description.main,
            variant: description.variant,
            lifetime: description.lifetime,
        };
        let front = front(prologue, head);
        prologue.head_crc = crc32fast::hash(&front[PROLOGUE_BYTES..]);
        let checksums = Checksums::new(BLOCK_SHIFT);
        Ok((
            Self {
                prologue,
                checksums,
            },
            front,
        ))
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
    pub fn finish(self) -> Finished {
        let body_len = self.checksums.len();
        let table = self.checksums.finish();
        let prologue = Prologue {
            is_complete: true,
            body_len,
            table_crc: crc32fast::hash(&table),
            ..self.prologue
        };
        Finished {
            entry_len: u64::from(prologue.body_offset) + body_len + table.len() as u64,
            prologue: Bytes::copy_from_slice(&prologue.encode()),
            table,
        }
    }
}

/// Prologue and head, filled up to where the body begins.
pub fn front(mut prologue: Prologue, mut head: Vec<u8>) -> Bytes {
    prologue.head_len = head.len() as u32;
    head.resize(prologue.body_offset as usize - PROLOGUE_BYTES, 0);
    prologue.head_crc = crc32fast::hash(&head);
    let mut out = Vec::with_capacity(prologue.body_offset as usize);
    out.extend_from_slice(&prologue.encode());
    out.extend_from_slice(&head);
    Bytes::from(out)
}
