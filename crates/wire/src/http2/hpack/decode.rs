//! Decodes header blocks into lines of a head (RFC 7541, 3 and 6).
//!
//! Each field is appended to the caller's buffer as `name: value CRLF`: from a table as one copy, from a literal
//! straight out of its Huffman code. Not here: what the fields mean. Invariant: limits are counted while decoding,
//! so that a block never grows beyond them, whatever it refers to (CVE-2026-49975); the number of fields is the caller's
//! to limit.

use message::Span;

use super::dynamic_table::{DynamicTable, TABLE_SIZE_MAX};
use super::static_table::{STATIC_LEN, STATIC_TABLE};
use super::{HpackFault, huffman, integer};
use crate::http2::field_class::{NameKind, is_value_valid};

/// The limits of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLimits {
    /// Maximum length in bytes of a name or value as it was sent (`large_client_header_buffers`, its size).
    pub string_max: usize,
    /// Maximum sum in bytes of all names and values (`large_client_header_buffers`, number times size).
    pub block_max: usize,
    /// Maximum number of bytes beyond both that are decoded all the same, so that the tables stay the same; the caller
    /// keeps nothing of such a block.
    pub dropped_max: usize,
}

impl Default for BlockLimits {
    /// nginx's defaults: 4 buffers of 8 KiB.
    fn default() -> BlockLimits {
        BlockLimits {
            string_max: 8192,
            block_max: 4 * 8192,
            dropped_max: 0,
        }
    }
}

/// A field that was appended as a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodedLine {
    /// The name in the buffer.
    pub name: Span,
    /// The value in the buffer.
    pub value: Span,
    /// What the name is.
    pub kind: NameKind,
    /// Whether the value is valid.
    pub is_value_valid: bool,
}

/// The decoder of a connection.
#[derive(Debug, Default)]
pub struct Decoder {
    table: DynamicTable,
    is_of_upstream: bool,
}

impl Decoder {
    /// The decoder of a connection to an upstream, which may pad a Huffman string by a needless octet, as in nginx.
    pub fn of_upstream() -> Decoder {
        Decoder {
            is_of_upstream: true,
            ..Decoder::default()
        }
    }

    /// Starts on a whole block. It must be decoded to its end, or the connection be closed.
    pub fn block<'a>(&'a mut self, block: &'a [u8], limits: &BlockLimits) -> BlockDecoder<'a> {
        BlockDecoder {
            table: &mut self.table,
            is_of_upstream: self.is_of_upstream,
            rest: block,
            string_max: limits.string_max.saturating_add(limits.dropped_max),
            left: limits.block_max.saturating_add(limits.dropped_max),
            has_field: false,
        }
    }
}

/// A block that is being decoded.
#[derive(Debug)]
pub struct BlockDecoder<'a> {
    table: &'a mut DynamicTable,
    is_of_upstream: bool,
    rest: &'a [u8],
    string_max: usize,
    /// Bytes left of `block_max` and `dropped_max`.
    left: usize,
    has_field: bool,
}

impl BlockDecoder<'_> {
    /// Appends the next field to `out`; `None` at the end.
    ///
    /// # Errors
    /// The connection must end. `out` may hold a part of a line.
    #[inline]
    pub fn next(&mut self, out: &mut Vec<u8>) -> Result<Option<DecodedLine>, HpackFault> {
        while let Some((first, rest)) = self.rest.split_first() {
            self.rest = rest;
            let line = match first {
                0x80.. => self.indexed(*first, out)?,
                0x40.. => self.literal(*first, 6, out)?,
                0x20.. => {
                    self.update_size(*first)?;
                    continue;
                }
                _ => self.literal(*first, 4, out)?,
            };
            self.has_field = true;
            return Ok(Some(line));
        }
        Ok(None)
    }

    fn indexed(&mut self, first: u8, out: &mut Vec<u8>) -> Result<DecodedLine, HpackFault> {
        let index = integer::decode(first, 7, &mut self.rest)?;
        let start = out.len();
        if let Some(entry) = STATIC_TABLE.get(index.wrapping_sub(1)) {
            let value_len = entry.line.len() - entry.name_len - 4;
            self.count(entry.name_len + value_len)?;
            out.extend_from_slice(entry.line);
            return Ok(line(start, entry.name_len, value_len, entry.kind, true));
        }
        let (entry, text) = self.dynamic(index)?;
        let (name_len, value_len) = (entry.name_len(), entry.value_len());
        out.extend_from_slice(text);
        self.count(name_len + value_len)?;
        let is_valid = entry.is_value_valid;
        Ok(line(start, name_len, value_len, entry.kind, is_valid))
    }

    fn dynamic(&self, index: usize) -> Result<(super::dynamic_table::Entry, &[u8]), HpackFault> {
        let place = index.checked_sub(STATIC_LEN + 1);
        let found = place.and_then(|place| self.table.get(place));
        found.ok_or(HpackFault::Index)
    }

    /// A literal: with incremental indexing if `prefix` is 6.
    fn literal(
        &mut self,
        first: u8,
        prefix: u32,
        out: &mut Vec<u8>,
    ) -> Result<DecodedLine, HpackFault> {
        let index = integer::decode(first, prefix, &mut self.rest)?;
        let start = out.len();
        let kind = self.name(index, out)?;
        let name_len = out.len() - start;
        out.extend_from_slice(b": ");
        let at = out.len();
        self.string(out)?;
        let value_len = out.len() - at;
        self.count(name_len + value_len)?;
        let is_valid = is_value_valid(&out[at..]);
        out.extend_from_slice(b"\r\n");
        if prefix == 6 {
            let line = &out[start..];
            self.table.insert(line, name_len, kind, is_valid);
        }
        Ok(line(start, name_len, value_len, kind, is_valid))
    }

    /// Appends a name, by its index or as a string.
    fn name(&mut self, index: usize, out: &mut Vec<u8>) -> Result<NameKind, HpackFault> {
        if index == 0 {
            let start = out.len();
            self.string(out)?;
            return Ok(NameKind::of(&out[start..]));
        }
        if let Some(entry) = STATIC_TABLE.get(index - 1) {
            out.extend_from_slice(entry.name());
            return Ok(entry.kind);
        }
        let (entry, text) = self.dynamic(index)?;
        out.extend_from_slice(&text[..entry.name_len()]);
        Ok(entry.kind)
    }

    /// Appends a string (RFC 7541, 5.2).
    fn string(&mut self, out: &mut Vec<u8>) -> Result<(), HpackFault> {
        let (first, rest) = self.rest.split_first().ok_or(HpackFault::Truncated)?;
        self.rest = rest;
        let len = integer::decode(*first, 7, &mut self.rest)?;
        if len > self.string_max {
            return Err(HpackFault::FieldTooLarge);
        }
        let (text, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(HpackFault::Truncated)?;
        self.rest = rest;
        if first & 0x80 != 0 {
            return match self.is_of_upstream {
                true => huffman::decode_padded(text, out, huffman::UPSTREAM_PADDING_MAX),
                false => huffman::decode(text, out),
            };
        }
        out.extend_from_slice(text);
        Ok(())
    }

    fn count(&mut self, len: usize) -> Result<(), HpackFault> {
        self.left = self
            .left
            .checked_sub(len)
            .ok_or(HpackFault::BlockTooLarge)?;
        Ok(())
    }

    /// RFC 7541, 4.2: only before the first field.
    fn update_size(&mut self, first: u8) -> Result<(), HpackFault> {
        let size = integer::decode(first, 5, &mut self.rest)?;
        if self.has_field || size > TABLE_SIZE_MAX {
            return Err(HpackFault::TableSize);
        }
        self.table.resize(size);
        Ok(())
    }
}

#[inline]
fn line(
    start: usize,
    name_len: usize,
    value_len: usize,
    kind: NameKind,
    is_value_valid: bool,
) -> DecodedLine {
    let value = start + name_len + 2;
    DecodedLine {
        name: Span::new(start, start + name_len),
        value: Span::new(value, value + value_len),
        kind,
        is_value_valid,
    }
}
