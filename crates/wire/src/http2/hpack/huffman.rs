//! The Huffman code of HPACK (RFC 7541, 5.2 and appendix B).
//!
//! The code is canonical: all codes follow from their lengths. Codes of at most eight bits, which is all of letters,
//! digits and most punctuation, are found by one look at a table; longer ones by their length.
//! Invariant: every string has exactly one accepted form, the shortest padding with ones.

use super::HpackFault;

/// Number of bits of each symbol's code.
#[rustfmt::skip]
static LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

/// Length in bits of the longest code (and of EOS, which is all ones).
const LONGEST: usize = 30;

/// Maximum padding of a string in bits (RFC 7541, 5.2).
const PADDING_MAX: u32 = 7;
/// The same of an upstream, as in nginx: a needless octet.
pub(super) const UPSTREAM_PADDING_MAX: u32 = 15;

/// Codes and orders that follow from the lengths.
struct Code {
    /// The code of each symbol, its last bit lowest.
    codes: [u32; 256],
    /// The symbols by length, then by value.
    by_length: [u8; 256],
    /// For each length, the code of its first symbol, aligned to the highest bit of 32.
    first: [u32; LONGEST + 2],
    /// For each length, the place of its first symbol in `by_length`.
    place: [u16; LONGEST + 2],
}

const fn build() -> Code {
    let mut code = Code {
        codes: [0; 256],
        by_length: [0; 256],
        first: [u32::MAX; LONGEST + 2],
        place: [256; LONGEST + 2],
    };
    let (mut next, mut placed, mut length) = (0u32, 0, 1);
    while length <= LONGEST {
        code.first[length] = next << (32 - length);
        code.place[length] = placed as u16;
        let mut symbol = 0;
        while symbol < 256 {
            if LENGTHS[symbol] as usize == length {
                code.codes[symbol] = next;
                code.by_length[placed] = symbol as u8;
                placed += 1;
                next += 1;
            }
            symbol += 1;
        }
        next <<= 1;
        length += 1;
    }
    code
}

static CODE: Code = build();

/// For each symbol, its length, and its code above.
static SYMBOLS: [u64; 256] = {
    let code = build();
    let mut table = [0; 256];
    let mut symbol = 0;
    while symbol < 256 {
        table[symbol] = (code.codes[symbol] as u64) << 8 | LENGTHS[symbol] as u64;
        symbol += 1;
    }
    table
};

/// For the next eight bits, the symbol whose code they begin with, and its length above; 0 if it is longer.
static SHORT: [u16; 256] = {
    let code = build();
    let mut table = [0; 256];
    let mut symbol = 0;
    while symbol < 256 {
        let length = LENGTHS[symbol] as usize;
        if length <= 8 {
            let start = (code.codes[symbol] as usize) << (8 - length);
            let mut index = start;
            while index < start + (1 << (8 - length)) {
                table[index] = (length << 8 | symbol) as u16;
                index += 1;
            }
        }
        symbol += 1;
    }
    table
};

/// Number of bytes that are written at once: a store of a fixed size is one instruction.
const SYMBOLS_AT_ONCE: usize = 8;

/// Bits not decoded yet: the next one is the highest of `bits`, and ones follow the last.
struct BitReader<'a> {
    rest: &'a [u8],
    bits: u64,
    /// Number of bits read from the input and not decoded.
    count: u32,
}

impl BitReader<'_> {
    /// Reads bytes until at least 56 bits are there, or the input ends.
    #[inline]
    fn refill(&mut self) {
        if let Some((word, _)) = self.rest.split_first_chunk::<8>() {
            self.bits = self.kept() | u64::from_be_bytes(*word) >> self.count;
            let bytes = (63 - self.count) / 8;
            self.rest = &self.rest[bytes as usize..];
            self.count += 8 * bytes;
            return;
        }
        while self.count <= 56 {
            let Some((byte, behind)) = self.rest.split_first() else {
                break;
            };
            self.bits = self.kept() | u64::from(*byte) << (56 - self.count);
            self.count += 8;
            self.rest = behind;
        }
        self.bits |= u64::MAX.checked_shr(self.count).unwrap_or(0);
    }

    /// The bits that count, zeros behind them.
    fn kept(&self) -> u64 {
        match self.count {
            0 => 0,
            count => self.bits & (u64::MAX << (64 - count)),
        }
    }

    #[inline]
    fn skip(&mut self, count: u32) {
        self.bits <<= count;
        self.count -= count;
    }

    /// Up to six symbols of codes of at most eight bits, and their number; needs 48 bits.
    #[inline]
    fn short_codes(&mut self) -> ([u8; SYMBOLS_AT_ONCE], usize) {
        let mut symbols = [0; SYMBOLS_AT_ONCE];
        let (mut count, mut bits, mut used) = (0, self.bits, 0);
        for symbol in symbols.iter_mut().take(6) {
            let found = SHORT[(bits >> 56) as usize];
            if found == 0 {
                break;
            }
            *symbol = found as u8;
            bits <<= found >> 8;
            used += u32::from(found >> 8);
            count += 1;
        }
        self.bits = bits;
        self.count -= used;
        (symbols, count)
    }

    /// The symbol of a code of more than eight bits, and the code's length; `None` for EOS.
    fn long(&self) -> Option<(u8, u32)> {
        let bits = (self.bits >> 32) as u32;
        let mut length = 9;
        while length < LONGEST && bits >= CODE.first[length + 1] {
            length += 1;
        }
        // A length without codes has the first code of the next one.
        let offset = (bits - CODE.first[length]) >> (32 - length);
        let place = usize::from(CODE.place[length]) + offset as usize;
        let symbol = CODE.by_length.get(place)?;
        Some((*symbol, length as u32))
    }
}

/// Appends the decoded form of `input`.
///
/// # Errors
/// EOS within the string, or padding that is not fewer than eight ones.
pub fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), HpackFault> {
    decode_padded(input, out, PADDING_MAX)
}

/// As [`decode`], with at most this many bits of padding.
pub(super) fn decode_padded(
    input: &[u8],
    out: &mut Vec<u8>,
    padding_max: u32,
) -> Result<(), HpackFault> {
    let start = out.len();
    // The shortest code has five bits; the eight bytes that are written at once may go beyond.
    out.resize(start + input.len() * 8 / 5 + SYMBOLS_AT_ONCE, 0);
    let decoded = decode_into(input, &mut out[start..], padding_max);
    out.truncate(start + decoded.unwrap_or(0));
    decoded.map(|_| ())
}

/// Decodes into `out`, which is long enough; returns the number of bytes.
fn decode_into(input: &[u8], out: &mut [u8], padding_max: u32) -> Result<usize, HpackFault> {
    let mut reader = BitReader {
        rest: input,
        bits: 0,
        count: 0,
    };
    let mut at = 0;
    loop {
        reader.refill();
        let (symbol, length) = match SHORT[(reader.bits >> 56) as usize] {
            0 => match reader.long() {
                Some(found) => found,
                // What is left is the beginning of EOS, and no more of it than may be.
                None if reader.count <= padding_max => return Ok(at),
                None => return Err(HpackFault::Huffman),
            },
            _ if reader.count >= 48 => {
                let (symbols, count) = reader.short_codes();
                if let Some(place) = out.get_mut(at..at + SYMBOLS_AT_ONCE) {
                    place.copy_from_slice(&symbols);
                }
                at += count;
                continue;
            }
            found => (found as u8, u32::from(found >> 8)),
        };
        if length > reader.count {
            return Err(HpackFault::Huffman);
        }
        out[at] = symbol;
        at += 1;
        reader.skip(length);
    }
}

/// Length in bytes of the encoded form.
#[inline]
pub fn encoded_len(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|c| usize::from(LENGTHS[*c as usize])).sum();
    bits.div_ceil(8)
}

/// Appends the encoded form of `text`.
pub fn encode(text: &[u8], out: &mut Vec<u8>) {
    // The eight bytes that are written at once may go beyond.
    out.reserve(text.len() * 4 + 8);
    let (mut bits, mut count) = (0u64, 0);
    for byte in text {
        let symbol = SYMBOLS[*byte as usize];
        let length = symbol as u32 & 0xff;
        bits |= (symbol >> 8) << (64 - length) >> count;
        count += length;
        if count >= 32 {
            out.extend_from_slice(&((bits >> 32) as u32).to_be_bytes());
            bits <<= 32;
            count -= 32;
        }
    }
    // Ones, up to a whole byte.
    bits |= u64::MAX >> count;
    let end = out.len() + count.div_ceil(8) as usize;
    out.extend_from_slice(&bits.to_be_bytes());
    out.truncate(end);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(text, &mut out);
        assert_eq!(out.len(), encoded_len(text));
        out
    }

    fn decoded(bytes: &[u8]) -> Result<Vec<u8>, HpackFault> {
        let mut out = Vec::new();
        decode(bytes, &mut out).map(|()| out)
    }

    /// RFC 7541, C.4 and C.6.
    #[test]
    fn examples() {
        #[rustfmt::skip]
        let cases: [(&str, &[u8]); 4] = [
            ("www.example.com", &[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff]),
            ("no-cache", &[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]),
            ("302", &[0x64, 0x02]),
            ("Mon, 21 Oct 2013 20:13:21 GMT", &[0xd0, 0x7a, 0xbe, 0x94, 0x10, 0x54, 0xd4, 0x44, 0xa8, 0x20, 0x05, 0x95, 0x04,
                0x0b, 0x81, 0x66, 0xe0, 0x82, 0xa6, 0x2d, 0x1b, 0xff]),
        ];
        for (text, bytes) in cases {
            assert_eq!(encoded(text.as_bytes()), bytes, "{text}");
            assert_eq!(decoded(bytes).as_deref(), Ok(text.as_bytes()));
        }
    }

    #[test]
    fn every_symbol_comes_back() {
        for first in 0..=255 {
            for second in [b'a', b'?', 0, 0xf9, first] {
                let text = [first, second, first];
                assert_eq!(decoded(&encoded(&text)).as_deref(), Ok(&text[..]));
            }
        }
    }

    /// RFC 7541, 5.2: h2spec hpack/5.2.
    #[test]
    fn padding_and_eos() {
        assert_eq!(decoded(b""), Ok(vec![]));
        let long_padding = [encoded(b"a"), vec![0xff]].concat();
        let fault = Err(HpackFault::Huffman);
        assert_eq!(decoded(&long_padding), fault, "more than seven bits");
        assert_eq!(decoded(&[0xff]), fault, "eight bits");
        assert_eq!(decoded(&[0b0001_1000]), fault, "zeros");
        assert_eq!(decoded(&[0b0001_1110]), fault, "a zero at the end");
        assert_eq!(decoded(&[0xff; 4]), fault, "EOS");
        assert_eq!(decoded(&[0xff; 12]), fault, "EOS before more");
        assert_eq!(decoded(&[0b0001_1111]), Ok(b"a".to_vec()));
    }

    proptest! {
        #[test]
        fn strings_come_back(text: Vec<u8>, plain in "[a-z0-9/=; ?!~^]{0,80}") {
            prop_assert_eq!(decoded(&encoded(&text)), Ok(text));
            prop_assert_eq!(decoded(&encoded(plain.as_bytes())), Ok(plain.into_bytes()));
        }

        #[test]
        fn what_is_accepted_is_what_would_be_written(bytes: Vec<u8>) {
            if let Ok(text) = decoded(&bytes) {
                prop_assert_eq!(encoded(&text), bytes);
            }
        }
    }
}
