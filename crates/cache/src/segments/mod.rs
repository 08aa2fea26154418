//! Segments: files of a fixed length that stay open and hold the small entries of a cache, one behind the other; or
//! parts of a device ([`device`]).
//!
//! A segment is filled from its beginning to its end, then its entries are found in it until it is emptied; it is
//! cleared before it is filled again. [`Segments`] knows the state of each.
//!
//! Not here: what is written to them, and when one is emptied (`store::segments`). Invariants: a segment is cleared only
//! when no entry of the index is in it and no reader has it; together they are never longer than their share of
//! `max_size`.

mod contents;
pub mod device;
mod found;
mod layout;
mod number;
mod retired;
mod set;
mod share;

pub use contents::{PlacedEntry, entries_in_segment};
pub(crate) use contents::{each_entry, table_of};
pub(crate) use device::DeviceSegments;
pub(crate) use layout::{
    DeadMap, ENTRY_BYTES_MAX, PAGE, SegmentHeader, TRAILER_BYTES, Trailer, pages,
};
pub use set::SegmentCounts;
pub(crate) use set::{Segment, SegmentSource, SegmentState, SegmentUse, Segments};
pub use share::MAX_SIZE_MIN;
pub(crate) use share::{segment_bytes_for, segments_share};

/// The directory of the segments, below the cache directory.
pub const SEGMENTS_FOLDER: &str = "segments";
/// Maximum of segments of one cache: 4 TiB of 64 MiB each. Each has a descriptor, but on a device.
pub(crate) const SEGMENTS_MAX: usize = 1 << 16;
/// Maximum of emptied segments that wait for their readers; while there are as many, none is emptied.
pub(crate) const DRAINING_MAX: usize = 64;

/// The number of a segment by the name of its file; None: it is no segment's.
#[must_use]
pub(crate) fn number_of(name: &[u8]) -> Option<u32> {
    let number: u32 = str::from_utf8(name).ok()?.parse().ok()?;
    let is_name = number.to_string().as_bytes() == name;
    (is_name && (number as usize) < SEGMENTS_MAX).then_some(number)
}
