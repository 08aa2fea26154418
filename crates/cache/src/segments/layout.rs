//! The format of a segment: a file of a fixed length that holds many entries.
//!
//! ```text
//! page 0        header: length and number in the order of writing, checksum; then the map of dead entries
//! page 1 …      entries as in files of their own (`entry`), each on a page of its own, padded to a page
//! at the end    the table of its entries, then 64 bytes that say where the table is: once the segment is full
//! ```
//! All numbers are little-endian. The table is what the journal says of each entry, in the journal's frames.
//!
//! Not here: files, and the state of segments (`set`). Invariant: no number is trusted before its checksum was verified.

use crate::codec::FieldReader;
use crate::index::ENTRY_PAGES_MAX;
use bytes::Bytes;

/// Bytes of a page: entries begin on one.
pub(crate) const PAGE: u64 = 4096;
/// Length of a segment: the unit in which the disk layer maps files.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 64 << 20;
/// Length of the segments of a small cache, at least.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 4 << 20;
/// Maximum of bytes of an entry in a segment; a larger one has a file of its own. A body of 1 MiB (`slice 1m`) has room
/// beside its head, key and checksums.
pub(crate) const ENTRY_BYTES_MAX: u64 = (1 << 20) + (64 << 10);
/// Bytes of the trailer.
pub(crate) const TRAILER_BYTES: usize = 64;

const _: () = assert!(ENTRY_BYTES_MAX * 3 < SEGMENT_BYTES_MIN);
const _: () = assert!(ENTRY_BYTES_MAX.div_ceil(PAGE) <= ENTRY_PAGES_MAX as u64);
const PAGES_MAX: usize = (SEGMENT_BYTES_MAX / PAGE) as usize;
const MAP_BYTES: usize = PAGES_MAX / 8;
/// Where the map of dead entries is in the first page.
const MAP_AT: usize = 512;
const _: () = assert!(MAP_AT + MAP_BYTES + 4 <= PAGE as usize);

const MAGIC: &[u8; 8] = b"\x89fws\r\n\x1a\x00";
const TRAILER_MAGIC: &[u8; 8] = b"\x89fwsend\n";
/// Version of the format. A change that older programs cannot read gets the next number.
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 32;

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Its number in the order in which segments were begun; never 0.
    pub sequence: u64,
    /// Its length.
    pub bytes: u64,
}

/// The entries of a segment that are to be found no more, by their first pages: purged, replaced or damaged ones, whose
/// bytes are still there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeadMap(Box<[u8]>);

impl Default for DeadMap {
    fn default() -> Self {
        Self(vec![0; MAP_BYTES].into())
    }
}

impl DeadMap {
    /// All entries are dead.
    pub(crate) fn full() -> Self {
        Self(vec![u8::MAX; MAP_BYTES].into())
    }

    pub(crate) fn set(&mut self, page: u32) {
        if let Some(byte) = self.0.get_mut(page as usize / 8) {
            *byte |= 1 << (page % 8);
        }
    }

    pub(crate) fn unset(&mut self, page: u32) {
        if let Some(byte) = self.0.get_mut(page as usize / 8) {
            *byte &= !(1 << (page % 8));
        }
    }

    #[must_use]
    pub(crate) fn has(&self, page: u32) -> bool {
        let byte = self.0.get(page as usize / 8);
        byte.is_none_or(|byte| byte & 1 << (page % 8) != 0)
    }
}

impl SegmentHeader {
    /// The first page of a segment.
    pub(crate) fn page(&self, dead: &DeadMap) -> Bytes {
        let mut out = Vec::with_capacity(PAGE as usize);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
        debug_assert_eq!(out.len(), HEADER_BYTES);
        out.resize(MAP_AT, 0);
        out.extend_from_slice(&dead.0);
        out.extend_from_slice(&crc32fast::hash(&dead.0).to_le_bytes());
        out.resize(PAGE as usize, 0);
        out.into()
    }

    /// Reads the first page. None: it is no segment's.
    pub(crate) fn decode(page: &[u8]) -> Option<(Self, DeadMap)> {
        let header = page.get(..HEADER_BYTES)?;
        let (checked, crc) = header.split_at(HEADER_BYTES - 4);
        let mut from = FieldReader::new(checked);
        let is_ours = from.take(MAGIC.len())? == MAGIC && from.u32()? == VERSION;
        if !is_ours || crc32fast::hash(checked).to_le_bytes() != crc {
            return None;
        }
        let (sequence, bytes) = (from.u64()?, from.u64()?);
        let is_length =
            bytes.is_power_of_two() && (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&bytes);
        if sequence == 0 || !is_length {
            return None;
        }
        let map = page.get(MAP_AT..MAP_AT + MAP_BYTES)?;
        let crc = page.get(MAP_AT + MAP_BYTES..MAP_AT + MAP_BYTES + 4)?;
        let dead = match crc32fast::hash(map).to_le_bytes() == crc {
            true => DeadMap(map.into()),
            // Which ones are purged is not known.
            false => DeadMap::full(),
        };
        Some((Self { sequence, bytes }, dead))
    }
}

/// The last bytes of a full segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    /// As in the header.
    pub sequence: u64,
    /// Where the table begins, in bytes.
    pub table_at: u32,
    /// Its length in bytes.
    pub table_len: u32,
    pub table_crc: u32,
}

impl Trailer {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(TRAILER_BYTES);
        out.extend_from_slice(TRAILER_MAGIC);
        out.extend_from_slice(&self.sequence.to_le_bytes());
        for number in [self.table_at, self.table_len, self.table_crc] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.resize(TRAILER_BYTES - 4, 0);
        out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
        out.into()
    }

    /// Reads the last bytes of a segment with this number. None: it is not full.
    pub(crate) fn decode(bytes: &[u8], of: &SegmentHeader) -> Option<Self> {
        let bytes = bytes.get(..TRAILER_BYTES)?;
        let (checked, crc) = bytes.split_at(TRAILER_BYTES - 4);
        let mut from = FieldReader::new(checked);
        let is_ours = from.take(TRAILER_MAGIC.len())? == TRAILER_MAGIC;
        if !is_ours || crc32fast::hash(checked).to_le_bytes() != crc {
            return None;
        }
        let trailer = Self {
            sequence: from.u64()?,
            table_at: from.u32()?,
            table_len: from.u32()?,
            table_crc: from.u32()?,
        };
        let end = u64::from(trailer.table_at) + u64::from(trailer.table_len);
        let is_inside = end <= of.bytes - TRAILER_BYTES as u64;
        (trailer.sequence == of.sequence && is_inside).then_some(trailer)
    }
}

/// Pages that so many bytes take.
#[must_use]
pub(crate) fn pages(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(PAGE)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: SegmentHeader = SegmentHeader {
        sequence: 7,
        bytes: SEGMENT_BYTES_MIN,
    };

    #[test]
    fn a_header_survives_its_page_and_no_flipped_bit() {
        let mut dead = DeadMap::default();
        dead.set(3);
        dead.set(PAGES_MAX as u32 - 1);
        let page = HEADER.page(&dead);
        assert_eq!(page.len() as u64, PAGE);
        assert_eq!(SegmentHeader::decode(&page), Some((HEADER, dead.clone())));
        assert!(dead.has(3) && !dead.has(4) && dead.has(PAGES_MAX as u32));
        for at in 0..HEADER_BYTES {
            let mut page = page.to_vec();
            page[at] ^= 4;
            assert_eq!(SegmentHeader::decode(&page), None, "{at}");
        }
        let mut torn = page.to_vec();
        torn[MAP_AT + 1] ^= 1;
        let (_, dead) = SegmentHeader::decode(&torn).unwrap();
        assert!(dead.has(0) && dead.has(9), "all count as dead");
        assert_eq!(SegmentHeader::decode(&[0; PAGE as usize]), None);
        assert_eq!(SegmentHeader::decode(&page[..600]), None);
    }

    #[test]
    fn a_trailer_is_its_segment_s_and_points_into_it() {
        let trailer = Trailer {
            sequence: 7,
            table_at: 4096,
            table_len: 100,
            table_crc: 5,
        };
        let bytes = trailer.encode();
        assert_eq!(Trailer::decode(&bytes, &HEADER), Some(trailer));
        let other = SegmentHeader {
            sequence: 8,
            ..HEADER
        };
        assert_eq!(Trailer::decode(&bytes, &other), None);
        let mut outside = trailer;
        outside.table_len = SEGMENT_BYTES_MIN as u32;
        assert_eq!(Trailer::decode(&outside.encode(), &HEADER), None);
        for at in 0..TRAILER_BYTES {
            let mut bytes = bytes.to_vec();
            bytes[at] ^= 1;
            assert_eq!(Trailer::decode(&bytes, &HEADER), None, "{at}");
        }
    }
}
