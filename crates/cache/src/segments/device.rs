//! The format of a device whose segments lie on it directly, without a file system.
//!
//! ```text
//! page 0        header: the device's length, the length of a segment, their number, an identity; checksum
//! page 1        for probes of the disk
//! from 1 MiB    the first page of each segment, one behind the other: a start reads them in a row
//! behind that   the segments, from a multiple of 1 MiB on; their own first pages stay unused
//! the last MiB  nothing: partition tables have a copy there
//! ```
//! All numbers are little-endian. A device that begins with anything else is refused, unless its first and its last MiB
//! are zeros: that one is blank, and is given a header.
//!
//! Not here: what is in a segment (`layout`). Invariant: a device with other contents is written to by [`format()`] only.

use super::SEGMENTS_MAX;
use super::layout::{DeadMap, PAGE, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, SegmentHeader};
use crate::codec::FieldReader;
use bytes::Bytes;
use disk::{Device, DirectFile, SegmentFile};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
/// The file beside the journal that says which device the directory belongs to: its identity and its path, a line each.
pub const DEVICE_FILE: &str = "device";
/// Bytes of the smallest device.
pub const DEVICE_BYTES_MIN: u64 = 16 * MIB;
/// Number of segments that a small device has, at least, before they are as long as they may be.
const SEGMENTS_WISHED: u64 = 4;

const MAGIC: &[u8; 8] = b"\x89fwd\r\n\x1a\x00";
/// Version of the format. A change that older programs cannot read gets the next number.
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 60;

const _: () = assert!(PAGE == disk::DIRECT_ALIGNMENT);
const _: () = assert!(disk::health::PROBED_AT == PAGE);

/// The header of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceHeader {
    /// Bytes of the device when it was formatted.
    pub bytes: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Number of its segments.
    pub segments: u32,
    /// Differs from that of all other devices.
    pub identity: [u8; 16],
}

/// What is on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceContents {
    /// A cache's segments.
    Segments(DeviceHeader),
    /// Nothing: its first and last MiB are zeros.
    Blank,
    /// Segments of another version of the format.
    Version(u32),
    /// Segments of a device that was longer: so many bytes.
    Cut(u64),
    /// Something else; the name of that, where it is known.
    Foreign(Option<&'static str>),
    /// It is too small.
    Small,
}

impl std::fmt::Display for DeviceContents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Segments(header) => {
                write!(
                    f,
                    "segments of a cache ({} of {} MiB)",
                    header.segments,
                    header.segment_bytes >> 20
                )
            }
            Self::Blank => f.write_str("nothing"),
            Self::Version(version) => {
                write!(
                    f,
                    "segments in format {version}, this program has format {VERSION}"
                )
            }
            Self::Cut(bytes) => write!(f, "segments of a device of {bytes} bytes, which is longer"),
            Self::Foreign(Some(name)) => f.write_str(name),
            Self::Foreign(None) => f.write_str("something that is not of this program"),
            Self::Small => write!(f, "less than {} MiB", DEVICE_BYTES_MIN >> 20),
        }
    }
}

impl DeviceContents {
    /// Why a device with these contents is not used. None: it is.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        match self {
            Self::Segments(_) | Self::Blank => None,
            Self::Small => Some(format!(
                "a device for a cache has at least {} MiB",
                DEVICE_BYTES_MIN >> 20
            )),
            other => Some(format!(
                "it holds {other}, which is not overwritten: \"freewheel cache format\" makes it a device for a cache"
            )),
        }
    }
}

impl DeviceHeader {
    /// That of a device of so many bytes. None: it is too small.
    #[must_use]
    fn of(bytes: u64, identity: [u8; 16]) -> Option<Self> {
        if bytes < DEVICE_BYTES_MIN {
            return None;
        }
        // Without the first and the last MiB.
        let room = bytes / MIB * MIB - 2 * MIB;
        let power = 1 << (room / SEGMENTS_WISHED).max(1).ilog2();
        let segment_bytes = u64::clamp(power, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        let most = (room / segment_bytes).min(SEGMENTS_MAX as u64);
        let fits = |count: &u64| heads_bytes(*count) + count * segment_bytes <= room;
        let segments = (1..=most).rev().find(fits)? as u32;
        Some(Self {
            bytes,
            segment_bytes,
            segments,
            identity,
        })
    }

    fn page(&self) -> Bytes {
        let mut out = Vec::with_capacity(PAGE as usize);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.extend_from_slice(&self.segment_bytes.to_le_bytes());
        out.extend_from_slice(&self.segments.to_le_bytes());
        out.extend_from_slice(&self.identity);
        out.resize(HEADER_BYTES - 4, 0);
        out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
        out.resize(PAGE as usize, 0);
        out.into()
    }

    fn decode(page: &[u8]) -> Option<Self> {
        let (checked, crc) = page.get(..HEADER_BYTES)?.split_at(HEADER_BYTES - 4);
        if crc32fast::hash(checked).to_le_bytes() != crc {
            return None;
        }
        let mut from = FieldReader::new(checked);
        from.take(MAGIC.len() + 4)?;
        let header = Self {
            bytes: from.u64()?,
            segment_bytes: from.u64()?,
            segments: from.u32()?,
            identity: from.take(16)?.try_into().ok()?,
        };
        // What follows from the length is not trusted either.
        (Self::of(header.bytes, header.identity) == Some(header)).then_some(header)
    }

    /// Where the first page of a segment lies, in bytes.
    fn head_at(&self, number: u32) -> u64 {
        MIB + u64::from(number) * PAGE
    }

    /// Where a segment begins, in bytes.
    #[must_use]
    pub fn segment_at(&self, number: u32) -> u64 {
        MIB + heads_bytes(u64::from(self.segments)) + u64::from(number) * self.segment_bytes
    }

    /// Its identity, as it is written beside the journal.
    #[must_use]
    pub fn name(&self) -> String {
        self.identity
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

/// Bytes of the first pages of so many segments, up to a multiple of 1 MiB.
fn heads_bytes(segments: u64) -> u64 {
    (segments * PAGE).next_multiple_of(MIB)
}

/// What is on a device. **Waits.**
///
/// # Errors
/// [`disk::Error::System`]: it cannot be read.
pub fn look(device: &DirectFile<'_>) -> Result<DeviceContents, disk::Error> {
    let bytes = device.size()?;
    if bytes < DEVICE_BYTES_MIN {
        return Ok(DeviceContents::Small);
    }
    let first = device.read(0, MIB as usize)?;
    if first.starts_with(MAGIC) {
        let version = first.get(MAGIC.len()..MAGIC.len() + 4);
        let version = version.map_or(0, |bytes| {
            u32::from_le_bytes(bytes.try_into().unwrap_or([0; 4]))
        });
        return Ok(match DeviceHeader::decode(&first) {
            _ if version != VERSION => DeviceContents::Version(version),
            Some(header) if header.bytes > bytes => DeviceContents::Cut(header.bytes),
            Some(header) => DeviceContents::Segments(header),
            None => DeviceContents::Foreign(Some("a damaged header of a cache")),
        });
    }
    let last = device.read((bytes / PAGE - MIB / PAGE) * PAGE, MIB as usize)?;
    let is_zero = |bytes: &Bytes| bytes.iter().all(|byte| *byte == 0);
    if is_zero(&first) && is_zero(&last) {
        return Ok(DeviceContents::Blank);
    }
    Ok(DeviceContents::Foreign(known_contents(&first)))
}

/// What begins with these bytes, for an error message.
fn known_contents(first: &[u8]) -> Option<&'static str> {
    let signs: [(usize, &[u8], &str); 12] = [
        (0x438, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
        (0, b"XFSB", "an XFS file system"),
        (0x10040, b"_BHRfS_M", "a btrfs file system"),
        (0x400, b"\x10\x20\xf5\xf2", "an F2FS file system"),
        (3, b"NTFS    ", "an NTFS file system"),
        (0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
        (0x218, b"LVM2 001", "a physical volume of LVM"),
        (0xff6, b"SWAPSPACE2", "swap space"),
        (0x1000, b"\xfc\x4e\x2b\xa9", "a part of a RAID"),
        (0x200, b"EFI PART", "a partition table (GPT)"),
        (0x1000, b"EFI PART", "a partition table (GPT)"),
        (0x1fe, b"\x55\xaa", "a partition table or a FAT file system"),
    ];
    let is_it =
        |(at, sign, _): &&(usize, &[u8], &str)| first.get(*at..*at + sign.len()) == Some(*sign);
    signs.iter().find(is_it).map(|(_, _, name)| *name)
}

/// Gives a device a header and no segments, whatever is on it. **Waits.**
///
/// # Errors
/// [`disk::Error::System`]; EINVAL: it is too small.
pub fn format(device: &DirectFile<'_>) -> Result<DeviceHeader, disk::Error> {
    let bytes = device.size()?;
    let header = DeviceHeader::of(bytes, new_identity());
    let header = header.ok_or(disk::Error::System {
        call: "format",
        errno: disk::Errno::INVAL,
    })?;
    let zeros = Bytes::from(vec![0; MIB as usize]);
    // First of all nothing is there any more, the header comes last.
    let heads = heads_bytes(u64::from(header.segments));
    for at in (0..MIB + heads).step_by(MIB as usize) {
        device.write(at, std::slice::from_ref(&zeros))?;
    }
    device.write((bytes / PAGE - MIB / PAGE) * PAGE, &[zeros])?;
    device.sync()?;
    device.write(0, &[header.page()])?;
    device.sync()?;
    Ok(header)
}

/// Bytes that no other call returns.
fn new_identity() -> [u8; 16] {
    // Each has keys of its own from the kernel's random numbers.
    let number = || RandomState::new().build_hasher().finish().to_le_bytes();
    let mut identity = [0; 16];
    identity[..8].copy_from_slice(&number());
    identity[8..].copy_from_slice(&number());
    identity
}

/// A device's segments, as the store uses them.
#[derive(Clone, Debug)]
pub(crate) struct DeviceSegments {
    pub device: Arc<Device>,
    pub header: DeviceHeader,
}

impl DeviceSegments {
    /// A segment, as a file.
    pub(crate) fn part(&self, number: u32) -> SegmentFile {
        let DeviceSegments { device, header } = self;
        let (head, at) = (header.head_at(number), header.segment_at(number));
        device.part(head, at, header.segment_bytes)
    }

    /// The headers of all segments that have one, with their numbers. **Waits.** What cannot be read has none.
    pub(crate) fn heads(&self) -> Vec<(u32, SegmentHeader, DeadMap)> {
        let mut found = Vec::new();
        let all = self.header.segments;
        let row = (MIB / PAGE) as u32;
        for from in (0..all).step_by(row as usize) {
            let count = row.min(all - from);
            let len = u64::from(count) * PAGE;
            let read = self
                .device
                .direct()
                .read(self.header.head_at(from), len as usize);
            let pages = read.unwrap_or_default();
            for (number, page) in (from..from + count).zip(pages.chunks_exact(PAGE as usize)) {
                let head = SegmentHeader::decode(page);
                let head = head.filter(|(head, _)| head.bytes == self.header.segment_bytes);
                found.extend(head.map(|(head, dead)| (number, head, dead)));
            }
        }
        found
    }

    /// The number of segments for a `max_size`: at least three.
    pub(crate) fn count_for(&self, max_bytes: Option<u64>) -> usize {
        let all = u64::from(self.header.segments);
        let most = max_bytes.map_or(all, |max| max / self.header.segment_bytes);
        most.clamp(3.min(all), all) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_where_segments_lie_and_survives_no_flipped_bit() {
        for (bytes, segment, segments) in [
            (16 * MIB, 4 * MIB, 3),
            (64 * MIB + 512, 8 * MIB, 7),
            (1 << 30, 64 * MIB, 15),
            (1 << 40, 64 * MIB, 16_382),
            (1 << 44, 64 * MIB, SEGMENTS_MAX as u32),
        ] {
            let header = DeviceHeader::of(bytes, [7; 16]).unwrap();
            assert_eq!(
                (header.segment_bytes, header.segments),
                (segment, segments),
                "{bytes}"
            );
            let end = header.segment_at(segments);
            assert!(
                end <= bytes - MIB && header.segment_at(0).is_multiple_of(MIB),
                "{bytes}"
            );
            assert!(header.head_at(segments) <= header.segment_at(0));
            let page = header.page();
            assert_eq!(DeviceHeader::decode(&page), Some(header));
            for at in 0..HEADER_BYTES {
                let mut page = page.to_vec();
                page[at] ^= 4;
                assert_eq!(DeviceHeader::decode(&page), None, "{at}");
            }
        }
        assert_eq!(DeviceHeader::of(DEVICE_BYTES_MIN - 1, [0; 16]), None);
    }

    #[test]
    fn what_else_may_lie_there_is_told() {
        let mut first = vec![0; MIB as usize];
        assert_eq!(known_contents(&first), None);
        first[0x1fe..0x200].copy_from_slice(b"\x55\xaa");
        assert!(known_contents(&first).unwrap().contains("partition"));
        first[0x200..0x208].copy_from_slice(b"EFI PART");
        assert!(known_contents(&first).unwrap().contains("GPT"));
        first[0x438..0x43a].copy_from_slice(b"\x53\xef");
        assert!(known_contents(&first).unwrap().contains("ext4"));
    }
}
