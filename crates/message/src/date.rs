//! HTTP dates (RFC 9110, 5.6.7): written as IMF-fixdate, read in all three formats; in seconds since 1970.
//!
//! Reads no clock. The parser accepts any word as the day of the week, as nginx does, and month names in any case
//! (RFC 9111, 4.2).

/// Seconds since 1970-01-01 00:00:00 UTC.
pub type Seconds = i64;

/// Length of a formatted date in bytes.
pub const DATE_LEN: usize = 29;

const DAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"]; // 1970-01-01 was a Thursday
const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];
const DAY: i64 = 86_400;
/// `00` to `99`.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    pairs
};

/// A time broken down into calendar fields, for formats other than HTTP's (directory listings).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// The year.
    pub year: i64,
    /// 1 to 12.
    pub month: u32,
    /// `Jan` to `Dec`.
    pub month_name: &'static str,
    /// 1 to 31.
    pub day: u32,
    /// 0 to 23.
    pub hour: u32,
    /// 0 to 59.
    pub minute: u32,
    /// 0 to 59.
    pub second: u32,
}

impl Civil {
    /// The fields of a time, in UTC. Times before 1970 become 1970, as in nginx.
    pub fn at(time: Seconds) -> Civil {
        let time = time.max(0);
        let (days, second) = (time.div_euclid(DAY), time.rem_euclid(DAY) as u32);
        let (year, month, day) = civil(days);
        let month_name = std::str::from_utf8(MONTHS[month as usize - 1]).unwrap_or_default();
        Civil {
            year,
            month,
            month_name,
            day,
            hour: second / 3600,
            minute: second / 60 % 60,
            second: second % 60,
        }
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`. Years after 9999 are written as 9999, and times before 1970 as 1970, as in nginx.
pub fn format(time: Seconds) -> [u8; DATE_LEN] {
    let time = time.max(0);
    let mut out = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    let (days, second) = (time / DAY, (time % DAY) as u32);
    let (year, month, day) = civil(days);
    let year = year.min(9999) as u32;
    out[0..3].copy_from_slice(DAYS[(days % 7) as usize]);
    two_digits(&mut out[5..7], day);
    out[8..11].copy_from_slice(MONTHS[month as usize - 1]);
    two_digits(&mut out[12..14], year / 100);
    two_digits(&mut out[14..16], year % 100);
    two_digits(&mut out[17..19], second / 3600);
    two_digits(&mut out[20..22], second / 60 % 60);
    two_digits(&mut out[23..25], second % 60);
    out
}

/// `Sun, 06-Nov-94 08:49:37 GMT`, a cookie's date as nginx writes it: the year has four digits after 2037.
pub fn format_for_cookie(time: Seconds) -> Vec<u8> {
    let text = format(time);
    let year = if text[12..16] > b"2037"[..] { 12 } else { 14 };
    [&text[..7], b"-", &text[8..11], b"-", &text[year..]].concat()
}

/// Parses `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday, 06-Nov-94 08:49:37 GMT` or `Sun Nov  6 08:49:37 1994`.
/// Ignores what follows the time of day or, in the third format, the year.
pub fn parse(text: &[u8]) -> Option<Seconds> {
    let end_of_day = text.iter().position(|c| matches!(c, b',' | b' '))?;
    let mut scan = DateScan(&text[end_of_day + 1..]);
    scan.blanks();
    let (year, month, day, clock);
    if text[end_of_day] == b',' {
        day = scan.number(2)?;
        let dash = scan.one_of(b" -")? == b'-';
        month = scan.month()?;
        scan.one_of(if dash { b"-" } else { b" " })?;
        year = if dash {
            two_digit_year(scan.number(2)?)
        } else {
            scan.number(4)?
        };
        scan.one_of(b" ")?;
        clock = scan.clock()?;
    } else {
        month = scan.month()?;
        scan.one_of(b" ")?;
        day = if scan.0.first() == Some(&b' ') {
            scan.one_of(b" ")?;
            scan.number(1)?
        } else if scan.0.get(1) == Some(&b' ') {
            scan.number(1)?
        } else {
            scan.number(2)?
        };
        scan.one_of(b" ")?;
        clock = scan.clock()?;
        scan.one_of(b" ")?;
        year = scan.number(4)?;
    }
    if day > days_in(year, month) {
        return None;
    }
    Some(days_from_civil(year, month, day) * DAY + clock)
}

/// The formatted date of the current second, reused until the second changes.
#[derive(Clone, Debug)]
pub struct Date {
    second: Seconds,
    text: [u8; DATE_LEN],
}

impl Date {
    /// The date at `now`.
    pub fn new(now: Seconds) -> Date {
        Date {
            second: now,
            text: format(now),
        }
    }

    /// The text for `now`.
    pub fn at(&mut self, now: Seconds) -> &[u8; DATE_LEN] {
        if now != self.second {
            *self = Date::new(now);
        }
        &self.text
    }
}

struct DateScan<'a>(&'a [u8]);

impl DateScan<'_> {
    fn blanks(&mut self) {
        while let [b' ', rest @ ..] = self.0 {
            self.0 = rest;
        }
    }

    fn one_of(&mut self, wanted: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        wanted.contains(first).then_some(*first)
    }

    fn number(&mut self, digits: usize) -> Option<i64> {
        let (number, rest) = self.0.split_at_checked(digits)?;
        self.0 = rest;
        number.iter().try_fold(0, |sum, c| {
            c.is_ascii_digit().then(|| sum * 10 + i64::from(c - b'0'))
        })
    }

    fn month(&mut self) -> Option<i64> {
        let (name, rest) = self.0.split_at_checked(3)?;
        self.0 = rest;
        // The usual spelling first: the exact comparison is cheaper.
        let exact = MONTHS.iter().position(|month| *month == name);
        let found = exact.or_else(|| {
            let mut months = MONTHS.iter();
            months.position(|month| month.eq_ignore_ascii_case(name))
        });
        found.map(|index| index as i64 + 1)
    }

    fn clock(&mut self) -> Option<i64> {
        let hour = self.number(2)?;
        self.one_of(b":")?;
        let minute = self.number(2)?;
        self.one_of(b":")?;
        let second = self.number(2)?;
        (hour < 24 && minute < 60 && second < 60).then_some(hour * 3600 + minute * 60 + second)
    }
}

fn two_digits(out: &mut [u8], number: u32) {
    out.copy_from_slice(&PAIRS[number as usize % 100]);
}

fn two_digit_year(year: i64) -> i64 {
    if year < 70 { 2000 + year } else { 1900 + year }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

// Both conversions count years from March, so that the leap day is the last day of a year, in eras of 400 years
// (146,097 days); the first era begins 719,468 days before 1970.

fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}

/// Year, month and day, given the number of days since 1970; times before 1970 become 1970.
fn civil(days: i64) -> (i64, u32, u32) {
    let days = days.max(0) as u64 + 719_468;
    let (era, of_era) = (days / 146_097, (days % 146_097) as u32);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + u64::from(year) + u64::from(month <= 2);
    (year as i64, month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn three_formats_name_the_same_second() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun Nov 06 08:49:37 1994",
            "Sun Nov 6 08:49:37 1994",
        ] {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777), "{text}");
        }
        assert_eq!(&format(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[test]
    fn names_are_read_in_any_case() {
        for text in [
            "SUN, 06 NOV 1994 08:49:37 GMT",
            "sun, 06 nov 1994 08:49:37 gmt",
            "SUNDAY, 06-NOV-94 08:49:37 Gmt",
            "sun nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777), "{text}");
        }
    }

    #[test]
    fn dates_of_cookies() {
        assert_eq!(
            format_for_cookie(784_111_777),
            b"Sun, 06-Nov-94 08:49:37 GMT"
        );
        assert_eq!(format_for_cookie(1 << 31), b"Tue, 19-Jan-2038 03:14:08 GMT");
    }

    #[test]
    fn beyond_2038_and_leap_days() {
        assert_eq!(parse(b"Tue, 19 Jan 2038 03:14:08 GMT"), Some(1 << 31));
        assert_eq!(&format(1 << 31), b"Tue, 19 Jan 2038 03:14:08 GMT");
        assert!(parse(b"Thu, 29 Feb 2024 00:00:00 GMT").is_some());
        assert!(parse(b"Thu, 29 Feb 2100 00:00:00 GMT").is_none());
    }

    #[test]
    fn invalid_dates_are_refused() {
        for text in [
            "",
            "0",
            "Sun",
            "Sun,",
            "Sun, 06 Nov 1994",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 32 Nov 1994 00:00:00 GMT",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn the_cached_text_changes_with_the_second() {
        let mut date = Date::new(0);
        assert_eq!(date.at(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(date.at(61), b"Thu, 01 Jan 1970 00:01:01 GMT");
    }

    proptest! {
        #[test]
        fn written_dates_are_read_back(time in -1_000i64..253_402_300_799) {
            prop_assert_eq!(parse(&format(time)), Some(time.max(0)));
        }

        #[test]
        fn any_bytes_do_not_panic(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse(&text);
        }
    }
}
