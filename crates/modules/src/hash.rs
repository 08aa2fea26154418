//! MurmurHash2, whose values `split_clients` fixes bit by bit.
//!
//! Not for the server's own tables (they use hashbrown's hasher), nor for keys that an attacker can choose.

/// MurmurHash2 (Austin Appleby, 32 bits, seed 0) as `split_clients` uses it.
#[must_use]
pub(crate) fn murmur2(bytes: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    // The C original folds the length into 32 bits.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the algorithm takes the length modulo 2^32"
    )]
    let mut hash = bytes.len() as u32;
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !rest.is_empty() {
        for (at, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * at);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Computed with SMHasher's MurmurHash2 (seed 0) compiled from its C source.
    #[test]
    fn murmur2_has_the_values_of_the_original() {
        for (text, hash) in MURMUR {
            assert_eq!(murmur2(text.as_bytes()), hash, "{text:?}");
        }
    }

    const MURMUR: [(&str, u32); 9] = [
        ("", 0x00000000),
        ("a", 0x92685f5e),
        ("ab", 0x1aa14063),
        ("abc", 0x13577c9b),
        ("abcd", 0x26873021),
        ("1", 0x49342faf),
        ("20", 0xe67d1aa8),
        ("127.0.0.1", 0xb6131d91),
        ("The quick brown fox jumps over the lazy dog", 0x212729d0),
    ];
}
