//! The wall clock of one loop: the time now, and the strings that logs and variables make of it, renewed once a second.
//!
//! Not a timer (the wheel of `wire` is) and not the `Date` header (`message` writes it). Invariant: reading a string never
//! allocates, and never looks at the time zone database: the offset from UTC comes from `refresh_zone`, which the log thread
//! calls (jiff may open files there), and the master, which runs no loop.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;

/// `28/Sep/1970:12:00:00 +0600`, the form of `$time_local`.
pub const TIME_LOCAL_BYTES: usize = 26;
/// `1970-09-28T12:00:00+06:00`, the form of `$time_iso8601`.
pub const TIME_ISO8601_BYTES: usize = 25;
/// `1970/09/28 12:00:00`, the form of the error log.
pub const TIME_ERROR_BYTES: usize = 19;
/// `Sep 28 12:00:00`, the form of syslog (RFC 3164 4.1.2).
pub const TIME_SYSLOG_BYTES: usize = 15;

/// Maximum number of bytes of a zone's name, such as `CEST`.
const ZONE_NAME_BYTES: usize = 8;

/// The offset from UTC, as known until its next change.
#[derive(Clone, Copy)]
struct Zone {
    /// Seconds east of UTC, valid before `until`.
    offset: i32,
    /// The zone's name until then, and from then on; padded with zeros.
    names: [[u8; ZONE_NAME_BYTES]; 2],
    /// Unix time of the next change (daylight saving), `i64::MAX` without one.
    until: i64,
    /// Seconds east of UTC from `until` on.
    then: i32,
}

// One for the process: TZ and /etc/localtime are the process's, and it is written about once a minute.
static ZONE: RwLock<Zone> = RwLock::new(Zone {
    offset: 0,
    names: [*b"UTC\0\0\0\0\0"; 2],
    until: i64::MAX,
    then: 0,
});

/// Reads the time zone anew. May open files, so never on a loop: the log thread calls it, and the master when it starts and at its signals.
pub fn refresh_zone() {
    let zone = jiff::tz::TimeZone::system();
    let now = jiff::Timestamp::now();
    let next = zone.following(now).next();
    let name = zone_name_of(zone.to_offset_info(now).abbreviation());
    let then = next.as_ref();
    *ZONE.write() = Zone {
        offset: zone.to_offset(now).seconds(),
        names: [
            name,
            then.map_or(name, |change| zone_name_of(change.abbreviation())),
        ],
        until: next
            .as_ref()
            .map_or(i64::MAX, |change| change.timestamp().as_second()),
        then: next.map_or(0, |change| change.offset().seconds()),
    };
}

/// As [`refresh_zone`], where the known period has passed: for a process without a log thread, before it shows a time.
pub(crate) fn refresh_past_zone() {
    if Moment::now().second() >= ZONE.read().until {
        refresh_zone();
    }
}

/// Seconds east of UTC at this Unix time, as far as `refresh_zone` has found out.
fn offset_at(second: i64) -> i32 {
    let zone = *ZONE.read();
    if second < zone.until {
        zone.offset
    } else {
        zone.then
    }
}

/// The name of the zone at this Unix time, with zeros behind it, as far as `refresh_zone` has found out.
#[must_use]
pub fn zone_name(second: i64) -> [u8; ZONE_NAME_BYTES] {
    let zone = *ZONE.read();
    zone.names[usize::from(second >= zone.until)]
}

fn zone_name_of(text: &str) -> [u8; ZONE_NAME_BYTES] {
    let mut name = [0; ZONE_NAME_BYTES];
    for (place, byte) in name.iter_mut().zip(text.bytes()) {
        *place = byte;
    }
    name
}

/// A moment, in whole milliseconds since 1970 (UTC).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Moment {
    /// Milliseconds since 1970-01-01 00:00 UTC.
    pub ms: i64,
}

impl Moment {
    /// The time now, from the kernel (20–30 ns: no system call).
    #[must_use]
    pub fn now() -> Self {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        }
    }

    /// Whole seconds since 1970.
    #[must_use]
    pub fn second(self) -> i64 {
        self.ms.div_euclid(1000)
    }

    /// Appends `SECONDS.mmm`, the form of `$msec`.
    pub fn append_msec(self, out: &mut Vec<u8>) {
        append_seconds(self.ms, out);
    }

    /// Appends the time from `start` to `self` as `SECONDS.mmm`, the form of `$request_time`; a clock set back counts as 0.
    pub fn append_since(self, start: Moment, out: &mut Vec<u8>) {
        append_seconds((self.ms - start.ms).max(0), out);
    }
}

fn append_seconds(ms: i64, out: &mut Vec<u8>) {
    let ms = ms.max(0);
    out.extend_from_slice(itoa::Buffer::new().format(ms / 1000).as_bytes());
    let rest = ms % 1000;
    out.push(b'.');
    for unit in [100, 10, 1] {
        out.push(digit(rest / unit % 10));
    }
}

/// The clock of one loop. Cheap to read; not shared between threads.
#[derive(Debug)]
pub struct Clock {
    now: Cell<Moment>,
    second: Cell<i64>,
    local: Cell<[u8; TIME_LOCAL_BYTES]>,
    iso8601: Cell<[u8; TIME_ISO8601_BYTES]>,
    error: Cell<[u8; TIME_ERROR_BYTES]>,
    syslog: Cell<[u8; TIME_SYSLOG_BYTES]>,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// A clock that shows the time now.
    #[must_use]
    pub fn new() -> Self {
        let clock = Self {
            now: Cell::default(),
            second: Cell::new(i64::MIN),
            local: Cell::new([0; TIME_LOCAL_BYTES]),
            iso8601: Cell::new([0; TIME_ISO8601_BYTES]),
            error: Cell::new([0; TIME_ERROR_BYTES]),
            syslog: Cell::new([0; TIME_SYSLOG_BYTES]),
        };
        clock.tick();
        clock
    }

    /// Reads the time; renews the strings when the second has changed. Call it where a request starts and ends.
    pub fn tick(&self) -> Moment {
        let now = Moment::now();
        self.set(now);
        now
    }

    /// Seconds east of UTC now.
    #[must_use]
    pub fn utc_offset(&self) -> i32 {
        offset_at(self.now.get().second())
    }

    /// The time as of the last tick.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.now.get()
    }

    /// `$time_local` as of the last tick.
    #[must_use]
    pub fn time_local(&self) -> [u8; TIME_LOCAL_BYTES] {
        self.local.get()
    }

    /// `$time_iso8601` as of the last tick.
    #[must_use]
    pub fn time_iso8601(&self) -> [u8; TIME_ISO8601_BYTES] {
        self.iso8601.get()
    }

    /// The time in the error log's form as of the last tick.
    #[must_use]
    pub fn time_error(&self) -> [u8; TIME_ERROR_BYTES] {
        self.error.get()
    }

    /// The time in syslog's form as of the last tick.
    #[must_use]
    pub fn time_syslog(&self) -> [u8; TIME_SYSLOG_BYTES] {
        self.syslog.get()
    }

    fn set(&self, now: Moment) {
        self.now.set(now);
        let second = now.second();
        if self.second.replace(second) == second {
            return;
        }
        let offset = offset_at(second);
        let date = Civil::at(second + i64::from(offset));
        self.local.set(date.local(offset));
        self.iso8601.set(date.iso8601(offset));
        self.error.set(date.error());
        self.syslog.set(date.syslog());
    }
}

/// A date and time of day in the proleptic Gregorian calendar.
struct Civil {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

impl Civil {
    /// The date of a Unix time (Howard Hinnant's `civil_from_days`).
    fn at(unix: i64) -> Self {
        let (days, rest) = (unix.div_euclid(86_400), unix.rem_euclid(86_400));
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let month = if from_march < 10 {
            from_march + 3
        } else {
            from_march - 9
        };
        Self {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month,
            day: day_of_year - (153 * from_march + 2) / 5 + 1,
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
        }
    }

    fn month_name(&self) -> &'static [u8; 3] {
        const NAMES: [&[u8; 3]; 12] = [
            b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov",
            b"Dec",
        ];
        NAMES[usize::try_from(self.month - 1).expect("a month is 1 to 12")]
    }

    fn local(&self, offset: i32) -> [u8; TIME_LOCAL_BYTES] {
        let mut text = *b"00/Jan/0000:00:00:00 +0000";
        two(&mut text, 0, self.day);
        text[3..6].copy_from_slice(self.month_name());
        four(&mut text, 7, self.year);
        self.time_of_day(&mut text, 12);
        text[21] = sign(offset);
        two(&mut text, 22, hours(offset));
        two(&mut text, 24, minutes(offset));
        text
    }

    fn iso8601(&self, offset: i32) -> [u8; TIME_ISO8601_BYTES] {
        let mut text = *b"0000-00-00T00:00:00+00:00";
        four(&mut text, 0, self.year);
        two(&mut text, 5, self.month);
        two(&mut text, 8, self.day);
        self.time_of_day(&mut text, 11);
        text[19] = sign(offset);
        two(&mut text, 20, hours(offset));
        two(&mut text, 23, minutes(offset));
        text
    }

    fn error(&self) -> [u8; TIME_ERROR_BYTES] {
        let mut text = *b"0000/00/00 00:00:00";
        four(&mut text, 0, self.year);
        two(&mut text, 5, self.month);
        two(&mut text, 8, self.day);
        self.time_of_day(&mut text, 11);
        text
    }

    fn syslog(&self) -> [u8; TIME_SYSLOG_BYTES] {
        let mut text = *b"Jan 00 00:00:00";
        text[0..3].copy_from_slice(self.month_name());
        two(&mut text, 4, self.day);
        if self.day < 10 {
            text[4] = b' ';
        }
        self.time_of_day(&mut text, 7);
        text
    }

    fn time_of_day(&self, text: &mut [u8], at: usize) {
        two(text, at, self.hour);
        two(text, at + 3, self.minute);
        two(text, at + 6, self.second);
    }
}

fn sign(offset: i32) -> u8 {
    if offset < 0 { b'-' } else { b'+' }
}

fn hours(offset: i32) -> i64 {
    i64::from(offset.abs() / 3600)
}

fn minutes(offset: i32) -> i64 {
    i64::from(offset.abs() / 60 % 60)
}

fn digit(number: i64) -> u8 {
    b'0' + u8::try_from(number.rem_euclid(10)).expect("one decimal digit")
}

fn two(text: &mut [u8], at: usize, number: i64) {
    text[at] = digit(number / 10);
    text[at + 1] = digit(number);
}

fn four(text: &mut [u8], at: usize, number: i64) {
    two(text, at, number / 100);
    two(text, at + 2, number);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn the_forms_are_nginx_s() {
        // 1970-09-28 06:00:00 UTC, six hours east.
        let date = Civil::at(23_328_000 + 6 * 3600 + 21_600);
        assert_eq!(text(&date.local(21_600)), "28/Sep/1970:12:00:00 +0600");
        assert_eq!(text(&date.iso8601(21_600)), "1970-09-28T12:00:00+06:00");
        assert_eq!(text(&date.error()), "1970/09/28 12:00:00");
        assert_eq!(text(&date.syslog()), "Sep 28 12:00:00");
        assert_eq!(
            text(&Civil::at(951_782_400).local(-12_600)),
            "29/Feb/2000:00:00:00 -0330"
        );
        assert_eq!(text(&Civil::at(1_767_225_599).syslog()), "Dec 31 23:59:59");
        assert_eq!(text(&Civil::at(1_767_225_600).syslog()), "Jan  1 00:00:00");
    }

    #[test]
    fn dates_agree_with_jiff_over_centuries() {
        for day in (-40_000..80_000).step_by(13) {
            let unix = day * 86_400 + 12_345;
            let ours = text(&Civil::at(unix).error()).to_owned();
            let theirs = jiff::Timestamp::from_second(unix)
                .unwrap()
                .strftime("%Y/%m/%d %H:%M:%S")
                .to_string();
            assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn milliseconds_have_three_digits() {
        let mut out = Vec::new();
        Moment {
            ms: 1_700_000_000_007,
        }
        .append_msec(&mut out);
        assert_eq!(text(&out), "1700000000.007");
        out.clear();
        Moment { ms: 12_050 }.append_since(Moment { ms: 10_000 }, &mut out);
        assert_eq!(text(&out), "2.050");
        out.clear();
        Moment { ms: 0 }.append_since(Moment { ms: 10_000 }, &mut out);
        assert_eq!(text(&out), "0.000");
    }

    #[test]
    fn a_clock_shows_the_system_s_local_time() {
        refresh_zone();
        let clock = Clock::new();
        let shown = clock.now();
        let zoned = jiff::Timestamp::from_second(shown.second())
            .unwrap()
            .to_zoned(jiff::tz::TimeZone::system());
        assert_eq!(
            text(&clock.time_local()),
            zoned.strftime("%d/%b/%Y:%H:%M:%S %z").to_string()
        );
    }
}
