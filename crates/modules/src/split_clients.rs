//! `split_clients`: a variable that splits clients into groups by a hash of a value.
//!
//! Invariant: the choice is bit for bit nginx's, so that users keep their variant when this server replaces nginx.

use std::sync::Arc;

use bytes::Bytes;
use config::{Directive, Error, Scope, Template, VariableIndex, blocks};

use httpcore::request::Request;
use httpcore::variables::block::{Defined, Definition, VariableBlock, source_and_target};

blocks! {
    /// Groups of clients (split_clients).
    pub fn lines in Http {
        /// Creates a variable that splits clients into groups by a hash of a value.
        "split_clients": [HTTP] 2 => LINES, syntax "string $variable";
    }
}

/// `split_clients`.
pub const BLOCK: VariableBlock = VariableBlock {
    name: "split_clients",
    read,
};

/// 100 %, in the unit in which percentages are kept: hundredths of a percent.
const WHOLE: u32 = 10_000;
/// Maximum number of variants of one block.
pub const PARTS_MAX: usize = 10_000;

/// The reason why a `split_clients` block is refused; the texts are nginx's.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Problem {
    /// A share that is neither `*` nor a positive percentage with at most two decimals.
    #[error("invalid percent value \"{0}\"")]
    Percent(String),
    /// The shares add up to more than the whole.
    #[error("percent total is greater than 100%")]
    Total,
    /// More lines than [`PARTS_MAX`].
    #[error("too many lines in \"split_clients\"")]
    TooMany,
}

/// A block as it was read.
#[derive(Debug)]
struct Lines {
    source: Template,
    parts: SplitClients,
    sources: Box<[VariableIndex]>,
}

fn read(block: &Directive, scope: &mut Scope) -> Result<Definition, Error> {
    let (source, target) = source_and_target(block, scope)?;
    let mut lines = Vec::with_capacity(block.children().len());
    for line in block.children() {
        let [value] = &line.args[..] else {
            let sentence = "invalid number of the split_clients parameters";
            return Err(line.error(&config::Problem::new(sentence)));
        };
        lines.push((&line.name.bytes()[..], value.bytes().clone()));
    }
    let parts = SplitClients::new(lines)
        .map_err(|found| block.error(&config::Problem::new(found.to_string())))?;
    let sources = source.variables().collect();
    let lines = Lines {
        source,
        parts,
        sources,
    };
    Ok((target, Arc::new(lines)))
}

impl Defined for Lines {
    fn value(&self, request: &Request) -> Option<Bytes> {
        let source = request.evaluate(&self.source);
        // As in nginx, there is a value outside of all shares, too.
        Some(self.parts.choose(&source).cloned().unwrap_or_default())
    }

    fn sources(&self) -> &[VariableIndex] {
        &self.sources
    }
}

/// The variants of one block.
#[derive(Debug, Default)]
pub struct SplitClients {
    parts: Vec<Share>,
}

#[derive(Debug)]
struct Share {
    /// Hashes below it belong to this variant; `None` takes all that are left.
    below: Option<u32>,
    value: Bytes,
}

impl SplitClients {
    /// Makes the variants from the lines of a block: share (`51.2%`, `*`) and value.
    ///
    /// # Errors
    /// A share that cannot be read, or more than 100 % in sum.
    pub fn new<'a>(lines: impl IntoIterator<Item = (&'a [u8], Bytes)>) -> Result<Self, Problem> {
        let mut parts = Vec::new();
        let (mut sum, mut last) = (0_u32, 0_u32);
        for (share, value) in lines {
            if parts.len() == PARTS_MAX {
                return Err(Problem::TooMany);
            }
            let hundredths = hundredths(share)?;
            sum = hundredths.map_or(WHOLE, |part| sum.saturating_add(part));
            if sum > WHOLE {
                return Err(Problem::Total);
            }
            // The part that fills the whole takes the rounding's rest too.
            let below = hundredths.filter(|_| sum < WHOLE).map(|part| {
                let width = u64::from(part) * u64::from(u32::MAX) / u64::from(WHOLE);
                last =
                    last.wrapping_add(u32::try_from(width).expect("a share is at most the whole"));
                last
            });
            parts.push(Share { below, value });
        }
        Ok(Self { parts })
    }

    /// The variant for a source string; `None` if its hash is outside all shares.
    #[must_use]
    pub fn choose(&self, source: &[u8]) -> Option<&Bytes> {
        let hash = murmur2(source);
        self.parts
            .iter()
            .find(|part| part.below.is_none_or(|below| hash < below))
            .map(|part| &part.value)
    }
}

/// A percentage in hundredths; `None` for `*`.
fn hundredths(share: &[u8]) -> Result<Option<u32>, Problem> {
    if share == b"*" {
        return Ok(None);
    }
    share
        .strip_suffix(b"%")
        .and_then(decimal)
        .filter(|part| *part > 0)
        .map(Some)
        .ok_or_else(|| Problem::Percent(String::from_utf8_lossy(share).into_owned()))
}

/// Digits with at most one point and two digits behind it, times 100.
fn decimal(text: &[u8]) -> Option<u32> {
    let mut number = 0_u32;
    let mut left: Option<u32> = None;
    if text.is_empty() {
        return None;
    }
    for byte in text {
        if *byte == b'.' && left.is_none() {
            left = Some(2);
            continue;
        }
        if !byte.is_ascii_digit() || left == Some(0) {
            return None;
        }
        number = number
            .checked_mul(10)?
            .checked_add(u32::from(byte - b'0'))?;
        left = left.map(|places| places - 1);
    }
    number.checked_mul(10_u32.pow(left.unwrap_or(2)))
}

/// MurmurHash2 (Austin Appleby, 32 bits, seed 0) as nginx uses it. Not for keys that an attacker can
/// choose.
fn murmur2(bytes: &[u8]) -> u32 {
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

    fn split(lines: &[(&'static str, &'static str)]) -> Result<SplitClients, Problem> {
        SplitClients::new(
            lines
                .iter()
                .map(|(share, value)| (share.as_bytes(), Bytes::from_static(value.as_bytes()))),
        )
    }

    #[test]
    fn connections_fall_as_nginx_lets_them() {
        let split = split(&[("51.2%", "one"), ("10%", "two"), ("*", "three")]).unwrap();
        let mut counts = [0; 3];
        // $connection counts every accepted connection from 1 on (nginx-drop-in 47: 12, 2, 6).
        for connection in 1..=20 {
            let value = split.choose(connection.to_string().as_bytes()).unwrap();
            counts[["one", "two", "three"]
                .iter()
                .position(|name| value == name)
                .unwrap()] += 1;
        }
        assert_eq!(counts, [12, 2, 6]);
    }

    #[test]
    fn what_is_left_out_has_no_value() {
        let split = split(&[("0.01%", "rare")]).unwrap();
        assert!((0..100).filter(|n| split.choose(&[*n]).is_some()).count() < 10);
    }

    #[test]
    fn the_last_part_of_a_whole_takes_every_hash() {
        let split = split(&[("33.3%", "a"), ("66.7%", "b")]).unwrap();
        assert!((0..=255).all(|n| split.choose(&[n, n]).is_some()));
    }

    #[test]
    fn wrong_shares_are_refused_with_nginx_s_words() {
        for share in ["", "%", "5", "0%", "1.234%", "-1%", "a%", "1.2.3%"] {
            let problem = split(&[(share, "x")]).unwrap_err();
            assert_eq!(
                problem.to_string(),
                format!("invalid percent value \"{share}\"")
            );
        }
        for lines in [
            &[("60%", "a"), ("50%", "b")][..],
            &[("*", "a"), ("1%", "b")],
        ] {
            assert_eq!(
                split(lines).unwrap_err().to_string(),
                "percent total is greater than 100%"
            );
        }
    }

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
