//! How much of a cache its segments get, and how long one is.

use super::layout::{SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};

/// The segments' share of `max_size`, in quarters; the rest is for entries with files of their own, their directories
/// and the journal (of which segments may have what is not used).
const SHARE_QUARTERS: u64 = 3;
/// Number of segments that a small cache has, at least, before they are as long as they may be: one of them is empty, and
/// what is left over between them is wasted.
const SEGMENTS_WISHED: u64 = 16;
/// Minimum number of segments: one that is filled, one that is read, one that is empty.
const SEGMENTS_MIN: u64 = 3;
/// The smallest `max_size` of a cache with segments, in bytes.
pub const MAX_SIZE_MIN: u64 = (SEGMENTS_MIN * SEGMENT_BYTES_MIN * 4).div_ceil(SHARE_QUARTERS);

/// Bytes of `max_size` that the segments may take.
fn share_of(max_bytes: u64) -> u64 {
    (u128::from(max_bytes) * u128::from(SHARE_QUARTERS) / 4) as u64
}

/// The length of a segment in a cache of so many bytes: 64 MiB, or less, so that there are some.
#[must_use]
pub(crate) fn segment_bytes_for(max_bytes: u64) -> u64 {
    let wished = share_of(max_bytes) / SEGMENTS_WISHED;
    let power = 1 << wished.max(1).ilog2();
    power.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
}

/// The number of segments of this length that a cache with this `max_size` has, and their bytes. None: there would be
/// fewer than three.
#[must_use]
pub(crate) fn segments_share(max_bytes: u64, segment_bytes: u64) -> Option<(u64, u64)> {
    let count = share_of(max_bytes) / segment_bytes;
    (count >= SEGMENTS_MIN).then_some((count, count * segment_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_as_long_as_some_of_them_fit() {
        assert_eq!(MAX_SIZE_MIN, 16 << 20);
        for (max, bytes, count) in [
            (16 << 20, 4 << 20, 3),
            (24 << 20, 4 << 20, 4),
            (64 << 20, 4 << 20, 12),
            (400 << 20, 16 << 20, 18),
            (1 << 30, 32 << 20, 24),
            (2 << 30, 64 << 20, 24),
        ] {
            assert_eq!(segment_bytes_for(max), bytes, "{max}");
            let share = segments_share(max, bytes);
            assert_eq!(share, Some((count, count * bytes)), "{max}");
            assert!(count * bytes <= max);
        }
        assert_eq!(segments_share(MAX_SIZE_MIN - 4, 4 << 20), None);
        assert_eq!(segment_bytes_for(u64::MAX), 64 << 20);
        assert_eq!(segment_bytes_for(0), 4 << 20);
    }
}
