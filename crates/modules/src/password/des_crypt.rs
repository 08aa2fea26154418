//! The oldest form of crypt(3): 25 iterations of DES (FIPS 46-3) on a block of zeros. The password is the key, and a
//! salt modifies the expansion.
//!
//! Implemented here, since libraries have DES without the salt. Only the first eight characters of a password count,
//! with seven bits each.

use super::DIGITS;

const TIMES: usize = 25;
/// The characters of a stored form; the first two are the salt.
const LENGTH: usize = 13;

/// The stored form of a password, with the salt of another one; `None`: that is none.
#[must_use]
pub(super) fn hash(password: &[u8], stored: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| DIGITS.iter().position(|known| *known == byte);
    let values: Option<Vec<usize>> = stored.iter().map(|byte| digit(*byte)).collect();
    let values = values.filter(|values| values.len() == LENGTH)?;
    let sum = encrypt(&keys(password), mask(values[0] | values[1] << 6));
    let mut out = stored[..2].to_vec();
    for at in 0..LENGTH - 2 {
        // Six bits at a time, the first first; behind the last there are two zeros.
        let bits = (u128::from(sum) << 2) >> (60 - 6 * at);
        out.push(DIGITS[bits as usize & 63]);
    }
    Some(out)
}

/// Which bits of the expansion change places with those 24 further: bit `i` of the salt stands for the one at `i`.
fn mask(salt: usize) -> u64 {
    let bits = (0..12).filter(|i| salt >> i & 1 == 1);
    bits.fold(0, |mask, i| mask | 1 << (23 - i))
}

/// The keys of the sixteen rounds.
fn keys(password: &[u8]) -> [u64; 16] {
    let mut key = 0;
    for at in 0..8 {
        let byte = password.get(at).copied().unwrap_or(0);
        key = key << 8 | u64::from(byte << 1);
    }
    let halves = permute(key, 64, &PC1);
    let (mut left, mut right) = ((halves >> 28) as u32, (halves & HALF) as u32);
    SHIFTS.map(|shift| {
        for half in [&mut left, &mut right] {
            *half = (*half << shift | *half >> (28 - shift)) & HALF as u32;
        }
        permute(u64::from(left) << 28 | u64::from(right), 56, &PC2)
    })
}

fn encrypt(keys: &[u64; 16], mask: u64) -> u64 {
    // The permutation at the beginning of one time takes back that at the end of the one before.
    let (mut left, mut right) = (0u32, 0u32);
    for _ in 0..TIMES {
        for key in keys {
            (left, right) = (right, left ^ round(right, *key, mask));
        }
        (left, right) = (right, left);
    }
    permute(u64::from(left) << 32 | u64::from(right), 64, &LAST)
}

fn round(half: u32, key: u64, mask: u64) -> u32 {
    let turned = half.rotate_right(1);
    let group = |i: u32| u64::from(turned.rotate_left(4 * i) >> 26);
    let expanded = (0..8).fold(0, |bits, i| bits << 6 | group(i));
    let swapped = (expanded >> 24 ^ expanded) & mask;
    let bits = expanded ^ (swapped | swapped << 24) ^ key;
    let mut out = 0;
    for (i, box_) in BOXES.iter().enumerate() {
        let six = (bits >> (42 - 6 * i) & 63) as usize;
        let place = (six & 0x20) | (six & 1) << 4 | (six >> 1 & 15);
        out = out << 4 | u64::from(box_[place]);
    }
    permute(out, 32, &P) as u32
}

/// Takes bits by their number, from 1, of a value of so many bits.
fn permute(value: u64, width: u32, places: &[u8]) -> u64 {
    let bit = |place: &u8| value >> (width - u32::from(*place)) & 1;
    places.iter().fold(0, |bits, place| bits << 1 | bit(place))
}

const HALF: u64 = (1 << 28) - 1;
const SHIFTS: [u32; 16] = [1, 1, 2, 2, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 1];
#[rustfmt::skip]
const PC1: [u8; 56] = [
    57, 49, 41, 33, 25, 17, 9, 1, 58, 50, 42, 34, 26, 18,
    10, 2, 59, 51, 43, 35, 27, 19, 11, 3, 60, 52, 44, 36,
    63, 55, 47, 39, 31, 23, 15, 7, 62, 54, 46, 38, 30, 22,
    14, 6, 61, 53, 45, 37, 29, 21, 13, 5, 28, 20, 12, 4,
];
#[rustfmt::skip]
const PC2: [u8; 48] = [
    14, 17, 11, 24, 1, 5, 3, 28, 15, 6, 21, 10,
    23, 19, 12, 4, 26, 8, 16, 7, 27, 20, 13, 2,
    41, 52, 31, 37, 47, 55, 30, 40, 51, 45, 33, 48,
    44, 49, 39, 56, 34, 53, 46, 42, 50, 36, 29, 32,
];
#[rustfmt::skip]
const LAST: [u8; 64] = [
    40, 8, 48, 16, 56, 24, 64, 32, 39, 7, 47, 15, 55, 23, 63, 31,
    38, 6, 46, 14, 54, 22, 62, 30, 37, 5, 45, 13, 53, 21, 61, 29,
    36, 4, 44, 12, 52, 20, 60, 28, 35, 3, 43, 11, 51, 19, 59, 27,
    34, 2, 42, 10, 50, 18, 58, 26, 33, 1, 41, 9, 49, 17, 57, 25,
];
#[rustfmt::skip]
const P: [u8; 32] = [
    16, 7, 20, 21, 29, 12, 28, 17, 1, 15, 23, 26, 5, 18, 31, 10,
    2, 8, 24, 14, 32, 27, 3, 9, 19, 13, 30, 6, 22, 11, 4, 25,
];
#[rustfmt::skip]
const BOXES: [[u8; 64]; 8] = [
    [
        14, 4, 13, 1, 2, 15, 11, 8, 3, 10, 6, 12, 5, 9, 0, 7,
        0, 15, 7, 4, 14, 2, 13, 1, 10, 6, 12, 11, 9, 5, 3, 8,
        4, 1, 14, 8, 13, 6, 2, 11, 15, 12, 9, 7, 3, 10, 5, 0,
        15, 12, 8, 2, 4, 9, 1, 7, 5, 11, 3, 14, 10, 0, 6, 13,
    ],
    [
        15, 1, 8, 14, 6, 11, 3, 4, 9, 7, 2, 13, 12, 0, 5, 10,
        3, 13, 4, 7, 15, 2, 8, 14, 12, 0, 1, 10, 6, 9, 11, 5,
        0, 14, 7, 11, 10, 4, 13, 1, 5, 8, 12, 6, 9, 3, 2, 15,
        13, 8, 10, 1, 3, 15, 4, 2, 11, 6, 7, 12, 0, 5, 14, 9,
    ],
    [
        10, 0, 9, 14, 6, 3, 15, 5, 1, 13, 12, 7, 11, 4, 2, 8,
        13, 7, 0, 9, 3, 4, 6, 10, 2, 8, 5, 14, 12, 11, 15, 1,
        13, 6, 4, 9, 8, 15, 3, 0, 11, 1, 2, 12, 5, 10, 14, 7,
        1, 10, 13, 0, 6, 9, 8, 7, 4, 15, 14, 3, 11, 5, 2, 12,
    ],
    [
        7, 13, 14, 3, 0, 6, 9, 10, 1, 2, 8, 5, 11, 12, 4, 15,
        13, 8, 11, 5, 6, 15, 0, 3, 4, 7, 2, 12, 1, 10, 14, 9,
        10, 6, 9, 0, 12, 11, 7, 13, 15, 1, 3, 14, 5, 2, 8, 4,
        3, 15, 0, 6, 10, 1, 13, 8, 9, 4, 5, 11, 12, 7, 2, 14,
    ],
    [
        2, 12, 4, 1, 7, 10, 11, 6, 8, 5, 3, 15, 13, 0, 14, 9,
        14, 11, 2, 12, 4, 7, 13, 1, 5, 0, 15, 10, 3, 9, 8, 6,
        4, 2, 1, 11, 10, 13, 7, 8, 15, 9, 12, 5, 6, 3, 0, 14,
        11, 8, 12, 7, 1, 14, 2, 13, 6, 15, 0, 9, 10, 4, 5, 3,
    ],
    [
        12, 1, 10, 15, 9, 2, 6, 8, 0, 13, 3, 4, 14, 7, 5, 11,
        10, 15, 4, 2, 7, 12, 9, 5, 6, 1, 13, 14, 0, 11, 3, 8,
        9, 14, 15, 5, 2, 8, 12, 3, 7, 0, 4, 10, 1, 13, 11, 6,
        4, 3, 2, 12, 9, 5, 15, 10, 11, 14, 1, 7, 6, 0, 8, 13,
    ],
    [
        4, 11, 2, 14, 15, 0, 8, 13, 3, 12, 9, 7, 5, 10, 6, 1,
        13, 0, 11, 7, 4, 9, 1, 10, 14, 3, 5, 12, 2, 15, 8, 6,
        1, 4, 11, 13, 12, 3, 7, 14, 10, 15, 6, 8, 0, 5, 9, 2,
        6, 11, 13, 8, 1, 4, 10, 7, 9, 5, 0, 15, 14, 2, 3, 12,
    ],
    [
        13, 2, 8, 4, 6, 15, 11, 1, 10, 9, 3, 14, 5, 0, 12, 7,
        1, 15, 13, 8, 10, 3, 7, 4, 12, 5, 6, 11, 0, 14, 9, 2,
        7, 11, 4, 1, 9, 12, 14, 2, 0, 6, 10, 13, 15, 3, 5, 8,
        2, 1, 14, 7, 4, 10, 8, 13, 15, 12, 9, 0, 3, 5, 6, 11,
    ],
];
