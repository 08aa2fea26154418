//! How many arguments a directive takes, and whether it has a block.
//!
//! The number is that of the words after the name. It is a set of numbers rather than a range, because some directives
//! of nginx take one or three. Written in tables as `1`, `1..=2`, `2..`, `[1, 3]`, `FLAG`, `ANY`; in constants with the
//! functions below.

use std::fmt;
use std::ops::{RangeFrom, RangeInclusive};

/// The largest count that is distinguished; every larger number of arguments is treated as this one.
const COUNT_MAX: u32 = 31;

/// The numbers of arguments that a directive takes (a `flag` takes one: on or off), and whether it opens a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Args {
    /// Bit n is set if n arguments are accepted. The highest bit also stands for every larger number.
    counts: u32,
    is_flag: bool,
    has_block: bool,
}

/// `on` or `off`.
pub const FLAG: Args = Args {
    counts: 1 << 1,
    is_flag: true,
    has_block: false,
};
/// Any number of arguments, including none.
pub const ANY: Args = Args::at_least(0);

impl Args {
    /// `on` or `off`.
    pub const FLAG: Self = FLAG;
    /// Any number of arguments, including none.
    pub const ANY: Self = ANY;
    /// No argument at all.
    pub const NONE: Self = Self::exactly(0);

    const fn of(counts: u32) -> Self {
        Self {
            counts,
            is_flag: false,
            has_block: false,
        }
    }

    /// Exactly this many arguments.
    #[must_use]
    pub const fn exactly(count: u32) -> Self {
        assert!(
            count < COUNT_MAX,
            "an argument count of a table is below 31"
        );
        Self::of(1 << count)
    }

    /// From `least` to `most` arguments, inclusive.
    #[must_use]
    pub const fn between(least: u32, most: u32) -> Self {
        assert!(
            least <= most && most < COUNT_MAX,
            "an argument count of a table is below 31"
        );
        Self::of((u32::MAX << least) & !(u32::MAX << (most + 1)))
    }

    /// At least this many arguments.
    #[must_use]
    pub const fn at_least(least: u32) -> Self {
        assert!(
            least <= COUNT_MAX,
            "an argument count of a table is below 31"
        );
        Self::of(u32::MAX << least)
    }

    /// Any of these numbers of arguments, such as one or three.
    #[must_use]
    pub const fn one_of(counts: &[u32]) -> Self {
        let (mut set, mut next) = (0, 0);
        while next < counts.len() {
            set |= Self::exactly(counts[next]).counts;
            next += 1;
        }
        Self::of(set)
    }

    /// The same arguments, followed by a block `{ … }` instead of `;`.
    #[must_use]
    pub const fn block(mut self) -> Self {
        self.has_block = true;
        self
    }

    /// Whether this number of arguments is accepted.
    #[must_use]
    pub const fn accepts(self, count: usize) -> bool {
        let bit = if count < COUNT_MAX as usize {
            count as u32
        } else {
            COUNT_MAX
        };
        self.counts & (1 << bit) != 0
    }

    /// Whether the directive opens a block.
    #[must_use]
    pub(crate) const fn has_block(self) -> bool {
        self.has_block
    }

    /// Whether the argument is `on` or `off`.
    #[must_use]
    pub const fn is_flag(self) -> bool {
        self.is_flag
    }
}

impl From<u32> for Args {
    fn from(count: u32) -> Self {
        Self::exactly(count)
    }
}

impl From<RangeInclusive<u32>> for Args {
    fn from(range: RangeInclusive<u32>) -> Self {
        Self::between(*range.start(), *range.end())
    }
}

impl From<RangeFrom<u32>> for Args {
    fn from(range: RangeFrom<u32>) -> Self {
        Self::at_least(range.start)
    }
}

impl<const N: usize> From<[u32; N]> for Args {
    fn from(counts: [u32; N]) -> Self {
        Self::one_of(&counts)
    }
}

/// The words used in hints: `no argument`, `1 argument`, `1 or 2 arguments`, `at least 2 arguments`.
impl fmt::Display for Args {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_flag {
            return out.write_str("\"on\" or \"off\"");
        }
        let counts: Vec<u32> = (0..COUNT_MAX)
            .filter(|count| self.accepts(*count as usize))
            .collect();
        let open = self.accepts(COUNT_MAX as usize);
        match counts.as_slice() {
            [0, ..] if open => out.write_str("any number of arguments"),
            [1, ..] if open => out.write_str("at least 1 argument"),
            [least, ..] if open => write!(out, "at least {least} arguments"),
            [0] => out.write_str("no argument"),
            [1] => out.write_str("1 argument"),
            [one] => write!(out, "{one} arguments"),
            [one, two] => write!(out, "{one} or {two} arguments"),
            [first, .., last] if (last - first) as usize + 1 == counts.len() => {
                write!(out, "{first} to {last} arguments")
            }
            _ => {
                let words: Vec<String> = counts.iter().map(u32::to_string).collect();
                write!(out, "{} arguments", words.join(" or "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_accepted_as_declared() {
        let right = |args: Args| {
            (0..40)
                .filter(|count| args.accepts(*count))
                .collect::<Vec<_>>()
        };
        assert_eq!(right(1.into()), [1]);
        assert_eq!(right((1..=3).into()), [1, 2, 3]);
        assert_eq!(right([1, 3].into()), [1, 3]);
        assert_eq!(right((2..).into()), (2..40).collect::<Vec<_>>());
        assert_eq!(right(ANY).len(), 40);
        assert_eq!(right(FLAG), [1]);
        assert_eq!(right(Args::NONE.block()), [0]);
    }

    #[test]
    fn a_hint_says_the_count_in_words() {
        assert_eq!(Args::from(0).to_string(), "no argument");
        assert_eq!(Args::from(1).to_string(), "1 argument");
        assert_eq!(Args::from(1..=2).to_string(), "1 or 2 arguments");
        assert_eq!(Args::from(1..=3).to_string(), "1 to 3 arguments");
        assert_eq!(Args::from([1, 2, 4]).to_string(), "1 or 2 or 4 arguments");
        assert_eq!(Args::from(2..).to_string(), "at least 2 arguments");
        assert_eq!(FLAG.to_string(), "\"on\" or \"off\"");
    }
}
