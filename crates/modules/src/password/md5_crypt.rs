//! The MD5 form of crypt(3), by Poul-Henning Kamp, and Apache's, which differs only in its prefix.

use md5::{Digest, Md5};

use super::digits;

/// Prefix of the form of crypt(3).
pub(super) const MD5: &[u8] = b"$1$";
/// Prefix of Apache's form.
pub(super) const APR1: &[u8] = b"$apr1$";

const SALT_MAX: usize = 8;
const ROUNDS: usize = 1000;

/// The stored form of a password, with the salt of another one of the same name.
#[must_use]
pub(super) fn hash(name: &[u8], password: &[u8], stored: &[u8]) -> Vec<u8> {
    let salt = &stored[name.len()..];
    let end = memchr::memchr(b'$', salt).unwrap_or(salt.len());
    let salt = &salt[..end.min(SALT_MAX)];
    let sum = rounds(password, salt, &first(name, password, salt));
    let mut out = [name, salt, b"$"].concat();
    for [a, b, c] in [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]] {
        let bits = u32::from(sum[a]) << 16 | u32::from(sum[b]) << 8 | u32::from(sum[c]);
        digits(bits, 4, &mut out);
    }
    digits(u32::from(sum[11]), 2, &mut out);
    out
}

fn first(name: &[u8], password: &[u8], salt: &[u8]) -> [u8; 16] {
    let inner = Md5::new()
        .chain_update(password)
        .chain_update(salt)
        .chain_update(password)
        .finalize();
    let mut outer = Md5::new()
        .chain_update(password)
        .chain_update(name)
        .chain_update(salt);
    let mut left = password.len();
    while left > 0 {
        let part = left.min(inner.len());
        outer.update(&inner[..part]);
        left -= part;
    }
    // A zero byte for each bit that is set, else the first byte of the password: so it has been since 1994.
    let mut bits = password.len();
    while bits > 0 {
        outer.update(if bits & 1 == 1 { &[0] } else { &password[..1] });
        bits >>= 1;
    }
    outer.finalize().into()
}

fn rounds(password: &[u8], salt: &[u8], first: &[u8; 16]) -> [u8; 16] {
    let mut sum = *first;
    for round in 0..ROUNDS {
        let (one, other) = match round % 2 {
            1 => (password, &sum[..]),
            _ => (&sum[..], password),
        };
        let mut next = Md5::new().chain_update(one);
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        next.update(other);
        sum = next.finalize().into();
    }
    sum
}
