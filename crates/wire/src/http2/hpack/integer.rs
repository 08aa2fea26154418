//! Integers with a prefix (RFC 7541, 5.1).

use super::HpackFault;

/// Maximum number of octets behind the prefix: enough for 2^28.
const OCTETS_MAX: usize = 4;

/// Decodes an integer whose first octet, `first`, has been taken from `rest`; its lower `prefix` bits belong to it.
///
/// # Errors
/// More octets than any length or index here needs; the end of the block.
#[inline]
pub fn decode(first: u8, prefix: u32, rest: &mut &[u8]) -> Result<usize, HpackFault> {
    let full = (1u8 << prefix) - 1;
    let value = first & full;
    if value < full {
        return Ok(usize::from(value));
    }
    decode_rest(usize::from(full), rest)
}

fn decode_rest(prefix: usize, rest: &mut &[u8]) -> Result<usize, HpackFault> {
    let mut value = prefix;
    for (count, octet) in rest.iter().take(OCTETS_MAX).enumerate() {
        value += usize::from(octet & 0x7f) << (7 * count);
        if octet & 0x80 == 0 {
            *rest = &rest[count + 1..];
            return Ok(value);
        }
    }
    Err(match rest.len() {
        0..OCTETS_MAX => HpackFault::Truncated,
        _ => HpackFault::Integer,
    })
}

/// Appends an integer; `pattern` holds the bits above the prefix.
#[inline]
pub fn encode(out: &mut Vec<u8>, pattern: u8, prefix: u32, value: usize) {
    let full = (1usize << prefix) - 1;
    if value < full {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | full as u8);
    let mut left = value - full;
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8], prefix: u32) -> Result<(usize, usize), HpackFault> {
        let mut rest = &bytes[1..];
        decode(bytes[0], prefix, &mut rest).map(|value| (value, rest.len()))
    }

    /// RFC 7541, C.1.
    #[test]
    fn examples() {
        assert_eq!(decoded(&[0b1110_1010], 5), Ok((10, 0)));
        assert_eq!(decoded(&[0x1f, 0x9a, 0x0a, 7], 5), Ok((1337, 1)));
        assert_eq!(decoded(&[42], 8 - 1), Ok((42, 0)));
        let mut out = Vec::new();
        encode(&mut out, 0xe0, 5, 10);
        encode(&mut out, 0, 5, 1337);
        encode(&mut out, 0x80, 7, 42);
        assert_eq!(out, [0xea, 0x1f, 0x9a, 0x0a, 0xaa]);
    }

    #[test]
    fn every_length_comes_back() {
        for prefix in 4..8 {
            for value in (0..600).chain([16_383, 16_384, 1 << 21, (1 << 28) - 1]) {
                let mut out = Vec::new();
                encode(&mut out, 0, prefix, value);
                assert_eq!(decoded(&out, prefix), Ok((value, 0)));
                let cut = decoded(&out[..out.len() - 1 + usize::from(out.len() == 1)], prefix);
                assert!(out.len() == 1 || cut == Err(HpackFault::Truncated));
            }
        }
    }

    #[test]
    fn endless_ones_are_refused() {
        let long = [0x7f, 0x80, 0x80, 0x80, 0x80, 0x00];
        assert_eq!(decoded(&long, 7), Err(HpackFault::Integer));
        assert_eq!(decoded(&long[..3], 7), Err(HpackFault::Truncated));
        assert_eq!(decoded(&[0xff; 40], 7), Err(HpackFault::Integer));
    }
}
