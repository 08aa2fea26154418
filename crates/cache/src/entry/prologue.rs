//! The first 128 bytes of an entry.

use super::blocks::CHECKSUM_BYTES;
use super::head::HEAD_BYTES_MAX;
use super::{BLOCK_SHIFTS, BODY_BYTES_MAX, FORMAT_VERSION};
use crate::codec::{FieldReader, FieldWriter};
use crate::error::EntryFault;
use crate::key::Key;
use crate::lifetime::{LIFETIME_BYTES, Lifetime};

/// Length of the prologue.
pub(crate) const PROLOGUE_BYTES: usize = 128;

const MAGIC: &[u8; 8] = b"\x89fw\r\n\x1a\x00\x01";
/// Bytes before the prologue's own checksum, which comes last.
const CHECKED_BYTES: usize = PROLOGUE_BYTES - 4;
const INCOMPLETE: u8 = 0;
const COMPLETE: u8 = 1;

/// The fixed part of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prologue {
    pub is_complete: bool,
    pub block_shift: u8,
    pub status: u16,
    pub tag: u32,
    pub head_len: u32,
    pub body_offset: u32,
    pub body_len: u64,
    pub head_crc: u32,
    pub table_crc: u32,
    pub key: Key,
    pub main: Key,
    pub variant: Key,
    pub lifetime: Lifetime,
}

impl Prologue {
    pub(super) fn encode(&self) -> [u8; PROLOGUE_BYTES] {
        let mut out = [0; PROLOGUE_BYTES];
        let (checked, crc) = out.split_at_mut(CHECKED_BYTES);
        let mut fields = FieldWriter::new(checked);
        fields.put(*MAGIC);
        fields.put(FORMAT_VERSION.to_le_bytes());
        fields.put([match self.is_complete {
            true => COMPLETE,
            false => INCOMPLETE,
        }]);
        fields.put([self.block_shift]);
        fields.put(self.status.to_le_bytes());
        for number in [self.tag, self.head_len, self.body_offset] {
            fields.put(number.to_le_bytes());
        }
        fields.put(self.body_len.to_le_bytes());
        fields.put(self.head_crc.to_le_bytes());
        fields.put(self.table_crc.to_le_bytes());
        for key in [self.key, self.main, self.variant] {
            fields.put(key.0);
        }
        fields.put(self.lifetime.encode());
        crc.copy_from_slice(&crc32fast::hash(checked).to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, EntryFault> {
        let bytes = bytes.get(..PROLOGUE_BYTES);
        let bytes = bytes.ok_or(EntryFault::Needs(PROLOGUE_BYTES))?;
        let mut from = FieldReader::new(bytes);
        if from.take(MAGIC.len()) != Some(MAGIC) {
            return Err(EntryFault::Foreign);
        }
        let (checked, crc) = bytes.split_at(CHECKED_BYTES);
        if crc32fast::hash(checked).to_le_bytes() != crc {
            return Err(EntryFault::Damaged("checksum of the prologue"));
        }
        match from.u16() {
            Some(FORMAT_VERSION) => {}
            version => return Err(EntryFault::Version(version.unwrap_or_default())),
        }
        let prologue = Self::read(&mut from).ok_or(EntryFault::Damaged("prologue"))?;
        if !prologue.is_complete {
            return Err(EntryFault::Incomplete);
        }
        prologue.check()?;
        Ok(prologue)
    }

    fn read(from: &mut FieldReader<'_>) -> Option<Self> {
        let is_complete = match from.u8()? {
            INCOMPLETE => false,
            COMPLETE => true,
            _ => return None,
        };
        Some(Self {
            is_complete,
            block_shift: from.u8()?,
            status: from.u16()?,
            tag: from.u32()?,
            head_len: from.u32()?,
            body_offset: from.u32()?,
            body_len: from.u64()?,
            head_crc: from.u32()?,
            table_crc: from.u32()?,
            key: Key(from.array()?),
            main: Key(from.array()?),
            variant: Key(from.array()?),
            lifetime: Lifetime::decode(from)?,
        })
    }

    /// Checks that the numbers make sense: a correct checksum only shows that they are unchanged.
    fn check(&self) -> Result<(), EntryFault> {
        let room = (self.body_offset as usize).checked_sub(PROLOGUE_BYTES);
        let is_head =
            room.is_some_and(|room| room <= HEAD_BYTES_MAX && self.head_len as usize <= room);
        if !is_head || !BLOCK_SHIFTS.contains(&self.block_shift) || self.body_len > BODY_BYTES_MAX {
            return Err(EntryFault::Damaged("prologue"));
        }
        Ok(())
    }

    pub(super) fn blocks(&self) -> u32 {
        let blocks = self.body_len.div_ceil(1 << self.block_shift);
        u32::try_from(blocks).unwrap_or(u32::MAX)
    }

    /// Length of the whole entry.
    pub(crate) fn entry_len(&self) -> Option<u64> {
        let table = u64::from(self.blocks()) * CHECKSUM_BYTES;
        u64::from(self.body_offset)
            .checked_add(self.body_len)?
            .checked_add(table)
    }
}

const _: () =
    assert!(8 + 2 + 1 + 1 + 2 + 3 * 4 + 8 + 4 + 4 + 3 * 16 + LIFETIME_BYTES <= CHECKED_BYTES);
