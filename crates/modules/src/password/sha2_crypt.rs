//! The SHA-256 and SHA-512 forms of crypt(3), by Ulrich Drepper: `$5$` and `$6$`.
//!
//! Not here: the rounds themselves (`sha_crypt`, whose reader of stored forms refuses salts that crypt(3) takes). Invariant: the
//! work is bounded.

use sha_crypt::{Params, sha256_crypt, sha512_crypt};

use super::digits;

/// Maximum of rounds: some ten seconds.
const ROUNDS_MAX: u32 = 10_000_000;
const SALT_MAX: usize = 16;
const NAME: usize = "$5$".len();

/// The stored form of a password, with the name, rounds and salt of another one. `None`: it asks for too many rounds, or
/// their number is one that crypt(3) does not write.
#[must_use]
pub(super) fn hash(password: &[u8], stored: &str) -> Option<Vec<u8>> {
    let (name, rest) = stored.split_at(NAME);
    let (params, rest) = match rest.strip_prefix("rounds=") {
        Some(rest) => {
            let (rounds, rest) = rest.split_once('$')?;
            (params(rounds)?, rest)
        }
        None => (Params::default(), rest),
    };
    let before = &stored[..stored.len() - rest.len()];
    let end = rest.find('$').unwrap_or(rest.len());
    let salt = &rest.as_bytes()[..end.min(SALT_MAX)];
    let mut out = [before.as_bytes(), salt, b"$"].concat();
    match name {
        "$5$" => append_256(&sha256_crypt(password, salt, params), &mut out),
        _ => append_512(&sha512_crypt(password, salt, params), &mut out),
    }
    Some(out)
}

fn params(rounds: &str) -> Option<Params> {
    let is_written_so = rounds.starts_with(|first| matches!(first, '1'..='9'));
    let number: Option<u32> = rounds.parse().ok();
    let number = number.filter(|number| is_written_so && *number <= ROUNDS_MAX)?;
    Params::new(number).ok()
}

fn append_256(sum: &[u8; 32], out: &mut Vec<u8>) {
    for i in 0..10 {
        let mut three = [i, i + 10, i + 20];
        three.rotate_right(i % 3);
        append(three.map(|at| sum[at]), 4, out);
    }
    append([0, sum[31], sum[30]], 3, out);
}

fn append_512(sum: &[u8; 64], out: &mut Vec<u8>) {
    for i in 0..21 {
        let mut three = [i, i + 21, i + 42];
        three.rotate_left(i % 3);
        append(three.map(|at| sum[at]), 4, out);
    }
    append([0, 0, sum[63]], 2, out);
}

fn append([a, b, c]: [u8; 3], count: usize, out: &mut Vec<u8>) {
    let bits = u32::from(a) << 16 | u32::from(b) << 8 | u32::from(c);
    digits(bits, count, out);
}
