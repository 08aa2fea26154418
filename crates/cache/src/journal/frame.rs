//! Frames of records with a checksum, which are found again behind damaged bytes.

use super::record::{JournalRecord, RECORD_BYTES_MAX};
use crate::codec::FieldReader;
use bytes::Bytes;

/// Maximum bytes of records in a frame.
pub(super) const FRAME_BYTES_MAX: usize = 64 << 10;
/// Length of a frame's header.
pub(super) const FRAME_HEADER_BYTES: usize = 24;
/// Length of a file's header.
pub(super) const FILE_HEADER_BYTES: usize = 28;

const FILE_MAGIC: &[u8; 8] = b"\x89fwj\r\n\x1a\x00";
/// Has a zero byte, which no text in a record has.
const FRAME_MAGIC: [u8; 4] = [0x00, 0xF5, b'f', b'w'];
/// 2: with purges.
pub(super) const FILE_VERSION: u32 = 2;

/// The header of a journal file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    /// The number of the log or snapshot; both count up.
    pub generation: u64,
    pub is_snapshot: bool,
}

impl FileHeader {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(FILE_HEADER_BYTES);
        out.extend_from_slice(FILE_MAGIC);
        out.extend_from_slice(&FILE_VERSION.to_le_bytes());
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&u32::from(self.is_snapshot).to_le_bytes());
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out.into()
    }

    /// The version that these bytes name, if they begin a file of a journal.
    pub(super) fn version(bytes: &[u8]) -> Option<u32> {
        let mut from = FieldReader::new(bytes);
        (from.take(FILE_MAGIC.len())? == FILE_MAGIC).then(|| from.u32())?
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..FILE_HEADER_BYTES)?;
        let (checked, crc) = bytes.split_at(FILE_HEADER_BYTES - 4);
        let mut from = FieldReader::new(checked);
        let is_ours = from.take(FILE_MAGIC.len())? == FILE_MAGIC && from.u32()? == FILE_VERSION;
        if !is_ours || crc32fast::hash(checked).to_le_bytes() != crc {
            return None;
        }
        Some(Self {
            generation: from.u64()?,
            is_snapshot: from.u32()? == 1,
        })
    }
}

/// Records for one frame, behind room for its header.
#[derive(Debug)]
pub(super) struct FrameBatch(Vec<u8>);

/// Length that most frames do not exceed: a stored entry, and the ends of some others.
const FRAME_TYPICAL: usize = 384;

impl Default for FrameBatch {
    fn default() -> Self {
        let mut bytes = Vec::with_capacity(FRAME_TYPICAL);
        bytes.resize(FRAME_HEADER_BYTES, 0);
        Self(bytes)
    }
}

impl FrameBatch {
    pub(super) fn push(&mut self, record: &JournalRecord) {
        record.encode(&mut self.0);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.len() == FRAME_HEADER_BYTES
    }

    /// Is there less room than a record may need?
    pub(super) fn is_full(&self) -> bool {
        self.0.len() - FRAME_HEADER_BYTES + RECORD_BYTES_MAX > FRAME_BYTES_MAX
    }

    /// The frame, with this number.
    pub(super) fn frame(mut self, number: u64) -> Bytes {
        let (header, records) = self.0.split_at_mut(FRAME_HEADER_BYTES);
        let (checked, crc) = header.split_at_mut(FRAME_HEADER_BYTES - 4);
        checked[..4].copy_from_slice(&FRAME_MAGIC);
        checked[4..8].copy_from_slice(&(records.len() as u32).to_le_bytes());
        checked[8..16].copy_from_slice(&number.to_le_bytes());
        checked[16..].copy_from_slice(&crc32fast::hash(records).to_le_bytes());
        crc.copy_from_slice(&crc32fast::hash(checked).to_le_bytes());
        self.0.into()
    }
}

/// A frame with a correct checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JournalFrame {
    pub number: u64,
    pub records: Bytes,
}

impl JournalFrame {
    /// Its records; None ends them if the rest is malformed.
    pub(super) fn records(&self) -> impl Iterator<Item = Option<JournalRecord>> {
        let mut from = FieldReader::new(&self.records);
        let mut is_over = false;
        std::iter::from_fn(move || {
            if is_over || from.is_empty() {
                return None;
            }
            let record = JournalRecord::decode(&mut from);
            is_over = record.is_none();
            Some(record)
        })
    }
}

/// Finds frames in bytes that come in pieces. Other bytes are skipped, which it remembers; but for a frame that was cut
/// short, at the end or before the next frame. A process that was killed while it wrote (generic_perform_write() ends at
/// a page's end then), or whose disk was full, had not yet made the change that the frame describes.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    bytes: Vec<u8>,
    at: usize,
    /// The place at which a frame would end whose header is whole and whose records are not.
    cut_until: Option<usize>,
    is_damaged: bool,
}

impl Scanner {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.cut_until = self.cut_until.map(|end| end.saturating_sub(self.at));
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Has anything been skipped but frames that were cut short?
    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// The next frame in the bytes so far. With `is_end`, no more bytes come.
    pub(super) fn next(&mut self, is_end: bool) -> Option<JournalFrame> {
        while self.at < self.bytes.len() {
            self.end_cut();
            let left = &self.bytes[self.at..];
            match look(left) {
                FrameLook::Frame(number, records) => {
                    self.cut_until = None;
                    self.at += FRAME_HEADER_BYTES + records.len();
                    let records = Bytes::copy_from_slice(records);
                    return Some(JournalFrame { number, records });
                }
                FrameLook::Short(_) if !is_end => return None,
                FrameLook::Short(len) | FrameLook::Broken(len) => {
                    self.cut_until.get_or_insert(self.at + len);
                }
                FrameLook::Other => self.is_damaged |= self.cut_until.is_none(),
            }
            self.at += skipped(left);
        }
        self.end_cut();
        None
    }

    /// A frame that has its whole length, though not its records, is damaged.
    fn end_cut(&mut self) {
        if self.cut_until.is_some_and(|end| self.at >= end) {
            self.cut_until = None;
            self.is_damaged = true;
        }
    }
}

/// Bytes up to the next one with which a frame may begin, behind the first.
pub(super) fn skipped(bytes: &[u8]) -> usize {
    let next = bytes[1..].iter().position(|byte| *byte == FRAME_MAGIC[0]);
    1 + next.unwrap_or(bytes.len() - 1)
}

/// What bytes begin with.
pub(super) enum FrameLook<'a> {
    /// A frame with a correct checksum: its number, its records.
    Frame(u64, &'a [u8]),
    /// Too short to tell; it may be a frame of at least this length if more bytes come.
    Short(usize),
    /// A frame of this length, by its header, with other records.
    Broken(usize),
    Other,
}

pub(super) fn look(bytes: &[u8]) -> FrameLook<'_> {
    let magic = &bytes[..bytes.len().min(FRAME_MAGIC.len())];
    if !FRAME_MAGIC.starts_with(magic) {
        return FrameLook::Other;
    }
    let Some(header) = bytes.get(..FRAME_HEADER_BYTES) else {
        return FrameLook::Short(FRAME_HEADER_BYTES);
    };
    let Some((len, number, crc)) = header_of(header) else {
        return FrameLook::Other;
    };
    let end = FRAME_HEADER_BYTES + len;
    let Some(records) = bytes.get(FRAME_HEADER_BYTES..end) else {
        return FrameLook::Short(end);
    };
    if crc32fast::hash(records) != crc {
        return FrameLook::Broken(end);
    }
    FrameLook::Frame(number, records)
}

/// Length, number and checksum of the records.
fn header_of(header: &[u8]) -> Option<(usize, u64, u32)> {
    let (checked, crc) = header.split_at(FRAME_HEADER_BYTES - 4);
    if crc32fast::hash(checked).to_le_bytes() != crc {
        return None;
    }
    let mut from = FieldReader::new(checked);
    from.take(FRAME_MAGIC.len())?;
    let len = from.u32()? as usize;
    (len <= FRAME_BYTES_MAX).then_some((len, from.u64()?, from.u32()?))
}
