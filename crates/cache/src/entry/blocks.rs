//! The checksums of a body's blocks: computed while it is written, compared when a block is first read.

use super::Entry;
use crate::error::EntryFault;
use bytes::Bytes;

/// Bytes of one checksum in the table.
pub const CHECKSUM_BYTES: u64 = 4;

/// Computes the table while a body passes in pieces of any size.
#[derive(Clone, Debug)]
pub(crate) struct Checksums {
    shift: u8,
    table: Vec<u8>,
    block: crc32fast::Hasher,
    /// Bytes of the current block so far.
    filled: usize,
    len: u64,
}

impl Checksums {
    /// For blocks of `1 << shift` bytes.
    #[must_use]
    pub(crate) fn new(shift: u8) -> Self {
        Self {
            shift,
            table: Vec::new(),
            block: crc32fast::Hasher::new(),
            filled: 0,
            len: 0,
        }
    }

    /// Adds the next bytes of the body.
    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        self.len += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = (1 << self.shift) - self.filled;
            let (now, rest) = bytes.split_at(room.min(bytes.len()));
            self.block.update(now);
            self.filled += now.len();
            bytes = rest;
            if self.filled == 1 << self.shift {
                self.end_block();
            }
        }
    }

    /// Bytes of the body so far.
    #[must_use]
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The table of the whole body.
    #[must_use]
    pub(crate) fn finish(mut self) -> Bytes {
        if self.filled > 0 {
            self.end_block();
        }
        Bytes::from(self.table)
    }

    fn end_block(&mut self) {
        let block = std::mem::take(&mut self.block);
        if self.table.is_empty() {
            // Most bodies have one block.
            self.table.reserve_exact(CHECKSUM_BYTES as usize);
        }
        self.table
            .extend_from_slice(&block.finalize().to_le_bytes());
        self.filled = 0;
    }
}

/// The table of an entry, read back and verified.
#[derive(Clone, Debug)]
pub struct ChecksumTable(Bytes);

impl ChecksumTable {
    /// Decodes the bytes at [`Entry::table`].
    ///
    /// # Errors
    /// [`EntryFault::Damaged`].
    pub fn decode(bytes: &Bytes, entry: &Entry) -> Result<Self, EntryFault> {
        let range = entry.table();
        if bytes.len() as u64 != range.end - range.start
            || crc32fast::hash(bytes) != entry.prologue.table_crc
        {
            return Err(EntryFault::Damaged("table of checksums"));
        }
        Ok(Self(bytes.clone()))
    }

    /// Compares a block with its checksum. (Its length matters too: see [`Entry::block`].)
    ///
    /// # Errors
    /// [`EntryFault::Damaged`].
    pub fn verify(&self, index: u32, block: &[u8]) -> Result<(), EntryFault> {
        let at = index as usize * CHECKSUM_BYTES as usize;
        let crc = self.0.get(at..at + CHECKSUM_BYTES as usize);
        if crc != Some(&crc32fast::hash(block).to_le_bytes()) {
            return Err(EntryFault::Damaged("block of the body"));
        }
        Ok(())
    }
}
