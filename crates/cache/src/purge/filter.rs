//! The purge filter of an entry: 64 bits in the index that exclude most rules without a look at the entry.
//!
//! 16 bits are of the main key; the others are a Bloom filter of the tags and of those prefixes of the key's text that
//! end with a slash. Invariant: a rule that covers an entry matches its filter.

use super::rule::{PurgeRule, tags_of};
use crate::key::Key;

/// Prefixes of a key's text that are in the filter: up to its first slashes. (`httpexample.com/a/b/` has three of
/// interest.)
const SLASHES_MAX: usize = 8;
/// Bits of the Bloom filter.
const FILTER_BITS: u32 = KEY_BITS_AT;
/// Where the bits of the main key begin: its first two bytes, little-endian.
pub(crate) const KEY_BITS_AT: u32 = 48;

/// The purge filter of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeFilter(pub u64);

/// The bits that an entry's filter must have for a rule to cover it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilterQuery {
    mask: u64,
    value: u64,
}

impl PurgeFilter {
    /// The filter of the main key and the key's text.
    #[must_use]
    pub(crate) fn of_key(main: Key, key_text: &[u8]) -> Self {
        let purge_filter = slashes(key_text).fold(0, |purge_filter, end| {
            purge_filter | bits(PREFIX, &key_text[..end])
        });
        Self(of_main(main) | purge_filter)
    }

    /// Adds the tags in a header line.
    #[must_use]
    pub(crate) fn and_line(self, name: &[u8], value: &[u8]) -> Self {
        Self(tags_of(name, value).fold(self.0, |purge_filter, tag| purge_filter | bits(TAG, tag)))
    }
}

impl FilterQuery {
    pub(crate) fn of(rule: &PurgeRule) -> Self {
        let (mask, value) = match rule {
            PurgeRule::Key(key) => (u64::from(u16::MAX) << FILTER_BITS, of_main(*key)),
            PurgeRule::Prefix(prefix) => {
                let end = slashes(prefix).last();
                let bits = end.map_or(0, |end| bits(PREFIX, &prefix[..end]));
                (bits, bits)
            }
            PurgeRule::Tag(tag) => (bits(TAG, tag), bits(TAG, tag)),
        };
        Self { mask, value }
    }

    pub(crate) fn fits(self, purge_filter: PurgeFilter) -> bool {
        purge_filter.0 & self.mask == self.value
    }
}

/// The positions behind each of the first slashes.
fn slashes(text: &[u8]) -> impl Iterator<Item = usize> {
    let ends = text.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    ends.map(|(at, _)| at + 1).take(SLASHES_MAX)
}

fn of_main(main: Key) -> u64 {
    let [a, b, ..] = main.0;
    u64::from(u16::from_le_bytes([a, b])) << FILTER_BITS
}

const PREFIX: u64 = 0x9E37_79B9_7F4A_7C15;
const TAG: u64 = 0xC2B2_AE3D_27D4_EB4F;

/// Two bits of the filter. (FNV-1a: the texts are short, and deliberate collisions only make a sweep read more.)
fn bits(kind: u64, text: &[u8]) -> u64 {
    let hash = text.iter().fold(kind, |hash, byte| {
        (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0000_01B3)
    });
    let bit = |hash: u64| 1 << (((hash >> 32) * u64::from(FILTER_BITS)) >> 32);
    bit(hash) | bit(hash << 32)
}
