//! Numbers and sizes, parsed as in nginx: decimal digits only, with a suffix `k`, `m` or (for offsets) `g`.

use super::Value;
use crate::syntax::error::Problem;
use crate::syntax::tree::Word;
use crate::value::scope::Scope;

/// The largest number that nginx accepts: its integers are signed and have 64 bits.
const LARGEST: u64 = i64::MAX as u64;

/// A non-negative number of at most 2^63 - 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Number(pub u64);

impl Value for Number {
    const SYNTAX: &'static str = "number";

    fn parse(args: &[Word], _scope: &mut Scope) -> Result<Self, Problem> {
        let number = args.first().and_then(|word| parse_number(word.bytes()));
        number
            .map(Self)
            .ok_or_else(|| Problem::directive("invalid number").at(0))
    }
}

/// A number from `LOW` to `HIGH`, inclusive; a `HIGH` of [`u64::MAX`] means no upper bound.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NumberWithin<const LOW: u64, const HIGH: u64>(pub u64);

impl<const LOW: u64, const HIGH: u64> Value for NumberWithin<LOW, HIGH> {
    const SYNTAX: &'static str = "number";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let Number(number) = Number::parse(args, scope)?;
        if (LOW..=HIGH).contains(&number) {
            return Ok(Self(number));
        }
        Err(Problem::new(match HIGH {
            u64::MAX => format!("value must be equal to or greater than {LOW}"),
            _ => format!("value must be between {LOW} and {HIGH}"),
        })
        .at(0))
    }
}

/// A size in bytes, with an optional suffix `k` (1024) or `m` (1024²).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Size(pub u64);

impl Size {
    /// The size as a length in memory.
    #[must_use]
    pub fn bytes(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl Value for Size {
    const SYNTAX: &'static str = "size";

    fn parse(args: &[Word], _scope: &mut Scope) -> Result<Self, Problem> {
        let size = args.first().and_then(|word| parse_size(word.bytes()));
        size.map(Self).ok_or_else(|| {
            invalid("a size is a number, with \"k\" or \"m\" behind it or not, such as 8k")
        })
    }
}

/// A file size in bytes, with an optional suffix `k` (1024), `m` (1024²) or `g` (1024³).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Offset(pub u64);

impl Value for Offset {
    const SYNTAX: &'static str = "size";

    fn parse(args: &[Word], _scope: &mut Scope) -> Result<Self, Problem> {
        let size = args.first().and_then(|word| parse_offset(word.bytes()));
        let hint = "a size is a number, with \"k\", \"m\" or \"g\" behind it or not, such as 1g";
        size.map(Self).ok_or_else(|| invalid(hint))
    }
}

/// A number of buffers and their size: `8 4k`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bufs {
    /// The number of buffers; not 0.
    pub count: u64,
    /// The size of each in bytes; not 0.
    pub size: u64,
}

impl Value for Bufs {
    const SYNTAX: &'static str = "number size";

    fn parse(args: &[Word], _scope: &mut Scope) -> Result<Self, Problem> {
        let [count, size] = args else {
            return Err(Problem::directive("takes a number and a size"));
        };
        let hint = "a number of buffers and the size of each, such as 4 8k; neither may be 0";
        let not_zero = |number: &u64| *number != 0;
        let count = parse_number(count.bytes())
            .filter(not_zero)
            .ok_or_else(|| invalid(hint))?;
        let size = parse_size(size.bytes())
            .filter(not_zero)
            .ok_or_else(|| invalid(hint).at(1))?;
        Ok(Self { count, size })
    }
}

fn invalid(hint: &str) -> Problem {
    Problem::directive("invalid value").hint_that(hint).at(0)
}

/// Parses a number of digits only, at most 2^63 - 1. `None` where nginx refuses it: a sign, say.
#[must_use]
pub fn parse_number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text)
        .ok()?
        .parse()
        .ok()
        .filter(|number| *number <= LARGEST)
}

/// Parses a size in bytes: `512`, `8k`, `1M`. `None` where nginx refuses it.
#[must_use]
pub fn parse_size(text: &[u8]) -> Option<u64> {
    let (digits, scale) = match text.split_last()? {
        (b'k' | b'K', digits) => (digits, 1 << 10),
        (b'm' | b'M', digits) => (digits, 1 << 20),
        _ => (text, 1),
    };
    parse_number(digits)?
        .checked_mul(scale)
        .filter(|size| *size <= LARGEST)
}

/// Parses a file size in bytes: as [`parse_size`], and `1g`.
#[must_use]
pub fn parse_offset(text: &[u8]) -> Option<u64> {
    match text.split_last()? {
        (b'g' | b'G', digits) => parse_number(digits)?
            .checked_mul(1 << 30)
            .filter(|size| *size <= LARGEST),
        _ => parse_size(text),
    }
}
