//! `$date_local` and `$date_gmt`: the time in the format that a page set with `config timefmt`.

use std::cell::RefCell;
use std::io::Write as _;

use bytes::Bytes;
use jiff::Timestamp;
use jiff::fmt::strtime::{BrokenDownTime, Config, PosixCustom};
use jiff::tz::Offset;
use logs::wall_clock;

use httpcore::request::Request;
use httpcore::request::state::State;

/// The format of times on a page that sets none.
const DEFAULT_FORMAT: &[u8] = b"%A, %d-%b-%Y %H:%M:%S %Z";

/// Maximum bytes of a formatted time, as in nginx.
const DATE_MAX: usize = 2048;

httpcore::variables! {
    /// The time in GMT, in the format set by a page (`ssi`).
    "date_gmt" => fresh(|request, out| append_date(request, true, out));
    /// The local time, in the format set by a page (`ssi`).
    "date_local" => fresh(|request, out| append_date(request, false, out));
}

/// Whether a variable, by its name in lower case, is one of these. A command that asks for one fails where the format gives
/// nothing, as in nginx.
pub(super) fn is_date(name: &[u8]) -> bool {
    matches!(name, b"date_gmt" | b"date_local")
}

/// The time format of a request's page; `None`: it has set none.
#[derive(Default)]
struct TimeFormat(RefCell<Option<Bytes>>);

impl State for TimeFormat {
    fn survives_redirect(&self) -> bool {
        false
    }

    fn is_for_stand_in(&self) -> bool {
        true
    }
}

/// Has the request share the time format of its page with those that stand in for it.
pub(super) fn share_format(request: &Request) {
    request.states.get_or_default::<TimeFormat>();
}

/// Sets the time format of the page of a request.
pub(super) fn set_format(request: &Request, format: Bytes) {
    let TimeFormat(known) = request.states.get_or_default();
    *known.borrow_mut() = Some(format);
}

/// Appends the current time, in GMT or in the machine's zone; `false`: the format gives nothing.
fn append_date(request: &Request, is_gmt: bool, out: &mut Vec<u8>) -> bool {
    let format = request.states.get::<TimeFormat>();
    let format = format.and_then(|TimeFormat(format)| format.borrow().clone());
    let format = format.as_deref().unwrap_or(DEFAULT_FORMAT);
    let clock = request.client.loop_.feed.clock();
    let now = clock.now().second();
    if format == b"%s" {
        return write!(out, "{now}").is_ok();
    }
    let (offset, zone) = match is_gmt {
        true => (0, *b"GMT\0\0\0\0\0"),
        false => (clock.utc_offset(), wall_clock::zone_name(now)),
    };
    let name = zone.split(|byte| *byte == 0).next().unwrap_or_default();
    match date(format, now, offset, name) {
        Some(text) if !text.is_empty() && text.len() < DATE_MAX => {
            out.extend_from_slice(&text);
            true
        }
        _ => false,
    }
}

/// Formats a time by strftime(3), in the C locale.
fn date(format: &[u8], second: i64, offset: i32, zone: &[u8]) -> Option<Vec<u8>> {
    let offset = Offset::from_seconds(offset).ok()?;
    let timestamp = Timestamp::from_second(second).ok()?;
    let mut time = BrokenDownTime::from(offset.to_datetime(timestamp));
    time.set_offset(Some(offset));
    time.set_timestamp(Some(timestamp));
    let config = Config::new().custom(PosixCustom::new()).lenient(true);
    let text = time.to_string_with_config(&config, with_zone(format, zone));
    text.ok().map(String::into_bytes)
}

/// The format with the zone's name filled in, which the library cannot know.
fn with_zone(format: &[u8], zone: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(format.len() + zone.len());
    let mut rest = format;
    while let [first, tail @ ..] = rest {
        let (taken, after) = match (first, tail.first()) {
            (b'%', Some(b'Z')) => {
                out.extend_from_slice(zone);
                (0, &tail[1..])
            }
            (b'%', Some(_)) => (2, &tail[1..]),
            _ => (1, tail),
        };
        out.extend_from_slice(&rest[..taken]);
        rest = after;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(format: &str) -> String {
        let text = date(format.as_bytes(), 1_000_000_000, 7200, b"CEST").unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn formats() {
        for (format, text) in [
            (
                "%A, %d-%b-%Y %H:%M:%S %Z",
                "Sunday, 09-Sep-2001 03:46:40 CEST",
            ),
            ("IF", "IF"),
            ("%%Z %z %s", "%Z +0200 1000000000"),
            (
                "%c|%x|%X|%r",
                "Sun Sep  9 03:46:40 2001|09/09/01|03:46:40|03:46:40 AM",
            ),
            (
                "%j %U %V %G %u %w %y %e %I %p",
                "252 36 36 2001 7 0 01  9 03 AM",
            ),
            ("é%Y", "é2001"),
            ("%", "%"),
        ] {
            assert_eq!(shown(format), text, "{format}");
        }
    }
}
