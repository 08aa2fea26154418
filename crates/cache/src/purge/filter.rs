//! The purge filter of an entry: 64 bits in the index that exclude most rules without a look at the entry.
//!
//! 16 bits are of the main key; the others are a Bloom filter of the tags and of those prefixes of the key's text that
//! end with a slash. Invariant: a rule that covers an entry matches its filter.

use super::rule::{PurgeRule, tags_of};
use crate::key::Key;
use std::ops::BitOr;

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
        Self(prefixes(key_text).fold(of_main(main), BitOr::bitor))
    }

    /// Adds the tags in a header line.
    #[must_use]
    pub(crate) fn and_line(self, name: &[u8], value: &[u8]) -> Self {
        let tags = tags_of(name, value);
        Self(tags.fold(self.0, |purge_filter, tag| purge_filter | of_tag(tag)))
    }
}

impl FilterQuery {
    pub(crate) fn of(rule: &PurgeRule) -> Self {
        let (mask, value) = match rule {
            PurgeRule::Key(key) => (u64::from(u16::MAX) << FILTER_BITS, of_main(*key)),
            PurgeRule::Prefix(prefix) => {
                let bits = prefixes(prefix).last().unwrap_or(0);
                (bits, bits)
            }
            PurgeRule::Tag(tag) => (of_tag(tag), of_tag(tag)),
        };
        Self { mask, value }
    }

    pub(crate) fn fits(self, purge_filter: PurgeFilter) -> bool {
        purge_filter.0 & self.mask == self.value
    }
}

/// The bits of a text's prefixes, up to each of its first slashes.
fn prefixes(text: &[u8]) -> impl Iterator<Item = u64> {
    // The hash of one is a step on the way to that of the next.
    let mut hash = PREFIX;
    let prefixes = text.iter().filter_map(move |byte| {
        hash = with_byte(hash, *byte);
        (*byte == b'/').then(|| bits(hash))
    });
    prefixes.take(SLASHES_MAX)
}

fn of_tag(tag: &[u8]) -> u64 {
    bits(tag.iter().fold(TAG, |hash, byte| with_byte(hash, *byte)))
}

fn of_main(main: Key) -> u64 {
    let [a, b, ..] = main.0;
    u64::from(u16::from_le_bytes([a, b])) << FILTER_BITS
}

const PREFIX: u64 = 0x9E37_79B9_7F4A_7C15;
const TAG: u64 = 0xC2B2_AE3D_27D4_EB4F;

/// The hash of a text with one more byte. (FNV-1a: the texts are short, and deliberate collisions only make a sweep read
/// more.)
fn with_byte(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0000_01B3)
}

/// Two bits of the filter, by a hash.
fn bits(hash: u64) -> u64 {
    let bit = |hash: u64| 1 << (((hash >> 32) * u64::from(FILTER_BITS)) >> 32);
    bit(hash) | bit(hash << 32)
}
