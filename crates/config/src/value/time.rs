//! Times, parsed as in nginx: `30`, `90s`, `1h 30m`, `1d12h`; from large units to small, each at most once.
//!
//! A month has 30 days, a year 365. A number without a unit counts seconds. Values kept in milliseconds allow `ms` but
//! not years and months; values kept in seconds are the other way round.

use std::time::Duration;

use super::Value;
use crate::syntax::error::Problem;
use crate::syntax::tree::Word;
use crate::value::scope::Scope;

/// A time in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Msec(pub u64);

impl Msec {
    /// The time as a duration.
    #[must_use]
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl Value for Msec {
    const SYNTAX: &'static str = "time";

    fn parse(args: &[Word], _scope: &mut Scope) -> Result<Self, Problem> {
        let time = args.first().and_then(|word| parse_msec(word.bytes()));
        time.map(Self)
            .ok_or_else(|| invalid("a time is such as 500ms, 30s, 5m, \"1h 30m\", 1d"))
    }
}

/// A time in whole seconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Sec(pub u64);

impl Sec {
    /// The time as a duration.
    #[must_use]
    pub fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

impl Value for Sec {
    const SYNTAX: &'static str = "time";

    fn parse(args: &[Word], _scope: &mut Scope) -> Result<Self, Problem> {
        let time = args.first().and_then(|word| parse_sec(word.bytes()));
        time.map(Self)
            .ok_or_else(|| invalid("a time is such as 30s, 5m, \"1h 30m\", 1d, 1y"))
    }
}

fn invalid(hint: &str) -> Problem {
    Problem::directive("invalid value").hint_that(hint).at(0)
}

/// The largest sum: nginx's integers are signed and have 64 bits.
const LARGEST: u64 = i64::MAX as u64;

/// The units from large to small. The byte after an `m` distinguishes `ms` from it; a space ends a number of seconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Start,
    Year,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Last,
}

impl Unit {
    /// The unit in seconds; 1 for milliseconds.
    fn scale(self) -> u64 {
        match self {
            Self::Year => 365 * 86_400,
            Self::Month => 30 * 86_400,
            Self::Week => 7 * 86_400,
            Self::Day => 86_400,
            Self::Hour => 3_600,
            Self::Minute => 60,
            Self::Start | Self::Second | Self::Millisecond | Self::Last => 1,
        }
    }
}

/// Parses a time into milliseconds. `None` where nginx refuses it.
#[must_use]
pub fn parse_msec(text: &[u8]) -> Option<u64> {
    parse(text, false)
}

/// Parses a time into seconds. `None` where nginx refuses it.
#[must_use]
pub fn parse_sec(text: &[u8]) -> Option<u64> {
    parse(text, true)
}

fn parse(text: &[u8], in_seconds: bool) -> Option<u64> {
    let mut rest = text.iter().copied().peekable();
    let mut step = if in_seconds { Unit::Start } else { Unit::Month };
    let (mut total, mut value, mut has_digit) = (0u64, 0u64, false);
    let per_second = if in_seconds { 1 } else { 1000 };
    while let Some(byte) = rest.next() {
        if byte.is_ascii_digit() {
            value = value
                .checked_mul(10)?
                .checked_add(u64::from(byte - b'0'))
                .filter(|value| *value <= LARGEST)?;
            has_digit = true;
            continue;
        }
        let is_millisecond = byte == b'm' && rest.next_if_eq(&b's').is_some();
        let unit = unit_of(byte, is_millisecond)?;
        step = step_to(step, unit, in_seconds)?;
        let scale = if unit == Unit::Millisecond {
            1
        } else {
            unit.scale() * per_second
        };
        total = add(total, value, scale)?;
        value = 0;
        while rest.next_if_eq(&b' ').is_some() {}
    }
    if !has_digit {
        return None;
    }
    add(total, value, per_second)
}

fn add(total: u64, value: u64, scale: u64) -> Option<u64> {
    total
        .checked_add(value.checked_mul(scale)?)
        .filter(|sum| *sum <= LARGEST)
}

fn unit_of(byte: u8, is_millisecond: bool) -> Option<Unit> {
    Some(match byte {
        b'm' if is_millisecond => Unit::Millisecond,
        b'y' => Unit::Year,
        b'M' => Unit::Month,
        b'w' => Unit::Week,
        b'd' => Unit::Day,
        b'h' => Unit::Hour,
        b'm' => Unit::Minute,
        b's' => Unit::Second,
        b' ' => Unit::Last,
        _ => return None,
    })
}

/// The step of this unit if it is allowed here: units must go from large to small.
fn step_to(step: Unit, unit: Unit, in_seconds: bool) -> Option<Unit> {
    let allowed = match unit {
        Unit::Year => step == Unit::Start,
        Unit::Millisecond => !in_seconds && step < Unit::Millisecond,
        Unit::Last => step < Unit::Second,
        _ => step < unit,
    };
    allowed.then_some(unit)
}
