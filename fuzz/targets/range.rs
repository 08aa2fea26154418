//! `Range` against a body: never a panic, and never a byte that the body does not have.
#![no_main]

use libfuzzer_sys::fuzz_target;
use message::range::{RangeOutcome, parse};

/// The input's head: the body's length, and how many ranges are allowed.
const HEAD_BYTES: usize = 12;

fuzz_target!(|input: &[u8]| {
    let Some((head, value)) = input.split_at_checked(HEAD_BYTES) else {
        return;
    };
    let (length, most) = head.split_at(8);
    // A file's length is a signed 64-bit number.
    let length = u64::from_le_bytes(length.try_into().expect("eight bytes were split off")) >> 1;
    let most = u32::from_le_bytes(most.try_into().expect("four bytes were split off"));
    let ranges = match parse(value, length, most) {
        RangeOutcome::Full | RangeOutcome::Unsatisfiable => return,
        RangeOutcome::Single(range) => vec![range],
        RangeOutcome::Multi(ranges) => {
            assert!(ranges.len() > 1, "several parts are more than one");
            ranges
        }
    };
    assert!(
        ranges.len() as u64 <= u64::from(most),
        "more parts than allowed"
    );
    for range in ranges {
        assert!(
            range.start < range.end && range.end <= length,
            "{range:?} of {length}"
        );
    }
});
