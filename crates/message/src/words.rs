//! Searches in short texts, eight bytes at a time: what a call of `memchr` costs before it begins is more than a header
//! line needs.

/// Maximum offset plus one at which [`find_soon`] finds a byte.
pub const SOON: usize = 24;

const ONES: u64 = u64::from_ne_bytes([1; 8]);
const HIGHS: u64 = ONES << 7;

/// The highest bit of the lowest byte of a word that is `byte`; 0: none is. Bits above that one mean nothing. (The test
/// for a zero byte in Hacker's Delight, 6-1.)
#[inline]
fn find(word: u64, byte: u8) -> u64 {
    let differences = word ^ (ONES * u64::from(byte));
    differences.wrapping_sub(ONES) & !differences & HIGHS
}

/// The offset of the first `byte` in the first [`SOON`] bytes of a text. `None`: it is not among them, or the text is
/// shorter.
#[inline]
#[must_use]
pub fn find_soon(text: &[u8], byte: u8) -> Option<usize> {
    let (words, _) = text.first_chunk::<SOON>()?.as_chunks();
    for (at, word) in words.iter().enumerate() {
        let found = find(u64::from_le_bytes(*word), byte);
        if found != 0 {
            return Some(8 * at + found.trailing_zeros() as usize / 8);
        }
    }
    None
}

/// Whether one of these bytes is in a text.
#[inline]
#[must_use]
pub fn has_any<const N: usize>(text: &[u8], bytes: [u8; N]) -> bool {
    let has = |word: u64| bytes.iter().fold(0, |all, byte| all | find(word, *byte)) != 0;
    // Words that overlap, in the place of a copy of what is left, which would be a call.
    let Some(last) = text.last_chunk() else {
        return text.iter().any(|byte| bytes.contains(byte));
    };
    let (words, _) = text.as_chunks();
    let mut words = words.iter().chain([last]);
    words.any(|word| has(u64::from_le_bytes(*word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_found_at_each_offset() {
        for at in 0..SOON {
            for behind in [b'a', b':', b';', 0, 0xff] {
                let mut text = [behind; SOON + 1];
                text[..at].fill(b';');
                text[at] = b':';
                assert_eq!(find_soon(&text, b':'), Some(at));
                assert_eq!(find_soon(&text[..SOON - 1], b':'), None);
            }
        }
        assert_eq!(find_soon(&[b';'; 40], b':'), None);
        assert_eq!(find_soon(&[b'a'; 40], b':'), None);
    }

    #[test]
    fn no_byte_is_overlooked_and_none_is_made_up() {
        for len in 0..40 {
            for filling in [b'a', 1, b'\x0c', b'\x0e', 0x80, 0x8d, 0xff] {
                let mut text = vec![filling; len];
                assert!(!has_any(&text, [0, b'\r']), "{len}");
                for at in 0..len {
                    for byte in [0, b'\r'] {
                        text[at] = byte;
                        assert!(has_any(&text, [0, b'\r']), "{len} {at}");
                        text[at] = filling;
                    }
                }
            }
        }
    }
}
