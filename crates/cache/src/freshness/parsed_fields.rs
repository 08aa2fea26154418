//! The header lines of a response that are about storing it, parsed; ignored ones are left out.

use super::control::{CacheControl, seconds};
use super::{FieldLine, Rules};
use crate::vary::vary_names;
use message::HeaderId;
use message::date::{self, Seconds};

/// `X-Accel-Expires`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accel {
    /// `0`.
    Off,
    /// A number of seconds.
    For(i64),
    /// `@` and a time.
    Until(Seconds),
}

/// `ExpiresField`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpiresField {
    At(Seconds),
    Invalid,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ParsedFields {
    pub accel: Option<Accel>,
    pub control: CacheControl,
    /// Is `control` from `CDN-Cache-Control`?
    pub is_targeted: bool,
    pub expires: Option<ExpiresField>,
    /// Parsed only where the rules compare another time with it.
    pub date: Option<Seconds>,
    /// Parsed only where the rules guess.
    pub last_modified: Option<Seconds>,
    pub age: Option<u32>,
    pub has_cookie: bool,
    /// None: `*`.
    pub vary: Option<Vec<u8>>,
}

impl ParsedFields {
    pub(super) fn of<'a, I>(fields: I, rules: &Rules) -> Self
    where
        I: Iterator<Item = FieldLine<'a>> + Clone,
    {
        let seen = fields.clone().fold(0, |seen, (_, _, id)| seen | id.bit());
        let all = |id: HeaderId| {
            // Most are not there, and are not looked for.
            let most = if seen & id.bit() == 0 { 0 } else { usize::MAX };
            let lines = fields.clone().take(most);
            let lines = lines.filter(move |(_, _, of)| *of == id);
            lines.map(|(_, value, _)| value)
        };
        let unless = |is_ignored: bool| (!is_ignored).then_some(());
        let ignored = rules.ignored;
        let accel =
            unless(ignored.accel_expires).and_then(|()| all(HeaderId::XAccelExpires).next());
        let expires = unless(ignored.expires).and_then(|()| expires(all(HeaderId::Expires), rules));
        let mut control = CacheControl::default();
        if !ignored.cache_control {
            all(HeaderId::CacheControl).for_each(|line| control.read(line));
        }
        let targeted = targeted(fields.clone()).filter(|_| rules.is_targeted);
        let date_of = |id| all(id).next().and_then(|text| http_date(text, rules));
        let (guesses, counts) = (rules.heuristic.is_some(), rules.counts_apparent_age);
        let compares_date = expires.is_some() || guesses || counts;
        Self {
            accel: accel.and_then(accel_expires),
            is_targeted: targeted.is_some(),
            control: targeted.unwrap_or(control),
            expires,
            date: compares_date.then(|| date_of(HeaderId::Date)).flatten(),
            last_modified: guesses.then(|| date_of(HeaderId::LastModified)).flatten(),
            age: all(HeaderId::Age).next().and_then(age),
            has_cookie: !ignored.set_cookie && all(HeaderId::SetCookie).next().is_some(),
            vary: match ignored.vary {
                true => Some(Vec::new()),
                false => vary_names(all(HeaderId::Vary)),
            },
        }
    }
}

/// nginx: digits, or `@` and digits; a line with anything else is ignored, and so is the time 0.
fn accel_expires(value: &[u8]) -> Option<Accel> {
    let number = |digits: &[u8]| {
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        let text = str::from_utf8(digits).ok().filter(|_| is_number)?;
        text.parse::<i64>().ok()
    };
    match value {
        [b'@', time @ ..] => number(time).filter(|time| *time > 0).map(Accel::Until),
        _ => match number(value)? {
            0 => Some(Accel::Off),
            seconds => Some(Accel::For(seconds)),
        },
    }
}

fn expires<'a>(mut lines: impl Iterator<Item = &'a [u8]>, rules: &Rules) -> Option<ExpiresField> {
    let first = lines.next()?;
    if rules.refuses_two_expires && lines.next().is_some() {
        return Some(ExpiresField::Invalid);
    }
    Some(http_date(first, rules).map_or(ExpiresField::Invalid, ExpiresField::At))
}

/// A date. Where the rules are strict, its zone is GMT, in any case (RFC 9111, 4.2), or, in asctime's form, absent (RFC
/// 9110, 5.6.7). Otherwise other names of GMT, none, and hours and minutes count, too. The parser does not look behind
/// the time.
fn http_date(text: &[u8], rules: &Rules) -> Option<Seconds> {
    let time = date::parse(text)?;
    let end_of_day = text.iter().find(|byte| matches!(byte, b',' | b' '));
    let is_asctime = end_of_day == Some(&b' ');
    let clock = text.iter().position(|byte| *byte == b':')?;
    let behind = match is_asctime {
        true => ":MM:SS YYYY".len(),
        false => ":MM:SS".len(),
    };
    let zone = text.get(clock + behind..)?.trim_ascii();
    let wanted: &[u8] = if is_asctime { b"" } else { b"GMT" };
    if zone.eq_ignore_ascii_case(wanted) {
        return Some(time);
    }
    let ahead = seconds_ahead(zone).filter(|_| !rules.needs_gmt)?;
    Some(time - ahead)
}

/// The seconds by which a zone's clocks are ahead of GMT; None for names of other zones.
fn seconds_ahead(zone: &[u8]) -> Option<i64> {
    const GMT: [&[u8]; 5] = [b"", b"GMT", b"UTC", b"UT", b"Z"];
    if GMT.iter().any(|name| zone.eq_ignore_ascii_case(name)) {
        return Some(0);
    }
    let (sign, digits) = zone.split_first()?;
    let digits: &[u8; 4] = digits.try_into().ok()?;
    let number = i64::from(seconds(digits)?);
    let ahead = number / 100 * 3600 + number % 100 * 60;
    match sign {
        b'+' => Some(ahead),
        b'-' => Some(-ahead),
        _ => None,
    }
}

/// The first member of the first line; a malformed number is ignored (RFC 9111, 5.1).
fn age(value: &[u8]) -> Option<u32> {
    let first = value.split(|byte| *byte == b',').next()?;
    seconds(first.trim_ascii())
}

/// `CDN-Cache-Control` (RFC 9213, 3.1), if there is one that can be parsed.
fn targeted<'a>(fields: impl Iterator<Item = FieldLine<'a>>) -> Option<CacheControl> {
    let mut control = None;
    let is_it = |(name, _, _): &FieldLine<'_>| name.eq_ignore_ascii_case(b"CDN-Cache-Control");
    for (_, value, _) in fields.filter(is_it) {
        control
            .get_or_insert_with(CacheControl::default)
            .read(value);
    }
    control.filter(CacheControl::is_structured)
}
