//! Times of certificates: read (RFC 5280, 4.1.2.5), and written as OpenSSL writes them.
//!
//! Not here: the clock. Every function takes the time that it needs.

use crate::x509::der;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const DAY_SECONDS: i64 = 86_400;

/// A moment: seconds since 1970 in UTC, negative before.
pub type Seconds = i64;

/// The moment that a UTCTime or GeneralizedTime names; `None` for any form that RFC 5280 does not allow.
pub(crate) fn read(value: der::Value<'_>) -> Option<Seconds> {
    let text = value.contents;
    let (year, rest) = match value.tag {
        der::UTC_TIME if text.len() == 13 => {
            let short = number(&text[..2])?;
            (short + if short < 50 { 2000 } else { 1900 }, &text[2..])
        }
        der::GENERALIZED_TIME if text.len() == 15 => (number(&text[..4])?, &text[4..]),
        _ => return None,
    };
    let field = |at: usize| number(&rest[2 * at..2 * at + 2]);
    let (month, day) = (field(0)?, field(1)?);
    let (hour, minute, second) = (field(2)?, field(3)?, field(4)?);
    let is_time = (1..=12).contains(&month)
        && (1..=days_of(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60
        && rest[10] == b'Z';
    let days = is_time.then(|| days_before(year, month) + day - 1)?;
    Some(days * DAY_SECONDS + hour * 3600 + minute * 60 + second)
}

/// `May  4 12:00:00 2026 GMT`, as `ASN1_TIME_print` writes it.
#[must_use]
pub fn text(moment: Seconds) -> String {
    let (days, seconds) = (
        moment.div_euclid(DAY_SECONDS),
        moment.rem_euclid(DAY_SECONDS),
    );
    let (year, month, day) = date(days);
    format!(
        "{} {day:2} {:02}:{:02}:{:02} {year} GMT",
        MONTHS[(month - 1) as usize],
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
    )
}

/// Whole days from `now` until `end`: `$ssl_client_v_remain`. None are left on the last day.
#[must_use]
pub fn days_left(end: Seconds, now: Seconds) -> i64 {
    (end.saturating_sub(now) / DAY_SECONDS).max(0)
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |sum, digit| {
        digit
            .is_ascii_digit()
            .then(|| sum * 10 + i64::from(digit - b'0'))
    })
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970 to the first of a month.
fn days_before(year: i64, month: i64) -> i64 {
    let before = year - 1;
    let leap_days = before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400);
    let years = before * 365 + leap_days - 719_162;
    years + (1..month).map(|month| days_of(year, month)).sum::<i64>()
}

/// Days from the first of March of the year 0 to 1970, and of 400 years.
const MARCH_DAYS: i64 = 719_468;
const ERA_DAYS: i64 = 146_097;

/// Year, month and day of a number of days since 1970. Years begin in March, so that the odd day is their last one.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + MARCH_DAYS;
    let (era, day) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, following) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (400 * era + year + following, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(tag: u8, text: &str) -> Option<Seconds> {
        let whole = der::value(tag, text.as_bytes());
        read(der::Reader::new(&whole).next()?)
    }

    #[test]
    fn both_forms_are_read() {
        assert_eq!(moment(der::UTC_TIME, "700101000000Z"), Some(0));
        assert_eq!(
            moment(der::UTC_TIME, "491231235959Z"),
            moment(der::GENERALIZED_TIME, "20491231235959Z")
        );
        assert_eq!(moment(der::UTC_TIME, "500101000000Z"), Some(-631_152_000));
        assert_eq!(
            moment(der::GENERALIZED_TIME, "20240229120001Z"),
            Some(1_709_208_001)
        );
    }

    #[test]
    fn what_is_no_time_is_none() {
        for (tag, text) in [
            (der::UTC_TIME, "7001010000Z"),
            (der::UTC_TIME, "700101000000+"),
            (der::UTC_TIME, "701301000000Z"),
            (der::UTC_TIME, "700132000000Z"),
            (der::UTC_TIME, "230229000000Z"),
            (der::UTC_TIME, "700101240000Z"),
            (der::UTC_TIME, "7001010x0000Z"),
            (der::GENERALIZED_TIME, "20240101000000.5Z"),
            (der::OCTET_STRING, "700101000000Z"),
        ] {
            assert_eq!(moment(tag, text), None, "{text}");
        }
    }

    #[test]
    fn the_text_is_openssls() {
        assert_eq!(text(0), "Jan  1 00:00:00 1970 GMT");
        assert_eq!(text(1_709_208_001), "Feb 29 12:00:01 2024 GMT");
        assert_eq!(text(253_402_300_799), "Dec 31 23:59:59 9999 GMT");
        assert_eq!(text(-631_152_000), "Jan  1 00:00:00 1950 GMT");
        let first = moment(der::GENERALIZED_TIME, "00000101000000Z").unwrap();
        assert_eq!(text(first), "Jan  1 00:00:00 0 GMT");
    }

    #[test]
    fn every_day_has_its_date() {
        for days in (days_before(0, 1)..days_before(10_000, 1)).step_by(13) {
            let (year, month, day) = date(days);
            assert!((1..=days_of(year, month)).contains(&day));
            assert_eq!(days_before(year, month) + day - 1, days);
        }
    }

    #[test]
    fn remaining_days_are_whole_ones() {
        assert_eq!(days_left(DAY_SECONDS - 1, 0), 0);
        assert_eq!(days_left(DAY_SECONDS, 0), 1);
        assert_eq!(days_left(0, DAY_SECONDS), 0);
    }
}
