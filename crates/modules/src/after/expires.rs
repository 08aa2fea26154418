//! `expires`: how long an answer stays fresh. nginx-drop-in 31.

use bytes::Bytes;
use config::{Problem, Scope, Template, Value, Word};
use message::date;

use httpcore::request::Request;

/// `expires` as written.
#[derive(Debug, Clone)]
pub enum Expires {
    /// Known when the configuration is read.
    Fixed(Lifetime),
    /// Evaluated from variables; whether `modified` was written.
    Variable(Template, bool),
}

/// The value of `expires`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// No header.
    Off,
    /// Stale since 1970.
    Epoch,
    /// Ten years.
    Max,
    /// Seconds from now; negative: stale.
    Access(i64),
    /// Seconds from the last modification.
    Modified(i64),
    /// Until that second of the local day.
    Daily(i64),
}

impl Lifetime {
    /// Reads one argument; `is_modified`: after the word `modified`.
    ///
    /// # Errors
    /// nginx's sentence.
    fn read(text: &[u8], is_modified: bool) -> Result<Self, &'static str> {
        match text {
            b"epoch" if !is_modified => return Ok(Self::Epoch),
            b"max" if !is_modified => return Ok(Self::Max),
            b"off" if !is_modified => return Ok(Self::Off),
            _ => {}
        }
        let (time, sign, is_daily) = match text {
            [b'@', ..] if is_modified => {
                return Err("daily time cannot be used with \"modified\" parameter");
            }
            [b'@', rest @ ..] => (rest, 1, true),
            [b'+', rest @ ..] => (rest, 1, false),
            [b'-', rest @ ..] => (rest, -1, false),
            _ => (text, 1, false),
        };
        let seconds = config::parse_sec(time).ok_or("invalid value")?;
        let seconds = i64::try_from(seconds).map_err(|_| "invalid value")? * sign;
        if is_daily {
            if seconds > 24 * 3600 {
                return Err("daily time value must be less than 24 hours");
            }
            return Ok(Self::Daily(seconds));
        }
        Ok(if is_modified {
            Self::Modified(seconds)
        } else {
            Self::Access(seconds)
        })
    }
}

impl Value for Expires {
    const SYNTAX: &'static str = "[modified] time | epoch | max | off";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let (word, is_modified) = match args {
            [word] => (word, false),
            [modified, word] if *modified == "modified" => (word, true),
            _ => return Err(Problem::directive("invalid value").at(0)),
        };
        let template = Template::of_word(word, scope)?;
        match template.literal() {
            Some(text) => Lifetime::read(text, is_modified)
                .map(Self::Fixed)
                .map_err(Problem::directive),
            None => Ok(Self::Variable(template, is_modified)),
        }
    }
}

/// Sets `Expires` and `Cache-Control` of the request's response.
pub(crate) fn apply(request: &mut Request, expires: &Expires) {
    let lifetime = match expires {
        Expires::Fixed(lifetime) => *lifetime,
        Expires::Variable(template, is_modified) => {
            Lifetime::read(&request.evaluate(template), *is_modified).unwrap_or(Lifetime::Off)
        }
    };
    let feed = &request.client.loop_.feed;
    let clock = feed.clock();
    let Some(response) = &mut request.response else {
        return;
    };
    let now = clock.now().second();
    let (expires, control) = match lifetime {
        Lifetime::Off => return,
        Lifetime::Epoch => (
            Bytes::from_static(b"Thu, 01 Jan 1970 00:00:01 GMT"),
            Bytes::from_static(b"no-cache"),
        ),
        Lifetime::Max => (
            Bytes::from_static(b"Thu, 31 Dec 2037 23:55:55 GMT"),
            Bytes::from_static(b"max-age=315360000"),
        ),
        Lifetime::Access(0) | Lifetime::Modified(0) => until(now, now, false),
        Lifetime::Access(seconds) => until(now, now + seconds, seconds < 0),
        Lifetime::Modified(seconds) => match response.modified() {
            Some(time) => until(now, time + seconds, seconds < 0),
            None => until(now, now + seconds, seconds < 0),
        },
        Lifetime::Daily(second) => {
            until(now, next(now, second, i64::from(clock.utc_offset())), false)
        }
    };
    response.headers.replace("Expires", expires);
    response.headers.replace("Cache-Control", control);
}

fn until(now: i64, time: i64, is_stale: bool) -> (Bytes, Bytes) {
    let control = match time - now {
        age if is_stale || age < 0 => Bytes::from_static(b"no-cache"),
        age => format!("max-age={age}").into(),
    };
    (Bytes::copy_from_slice(&date::format(time)), control)
}

/// The next time that the local clock shows that second of the day.
fn next(now: i64, second: i64, utc_offset: i64) -> i64 {
    const DAY: i64 = 24 * 3600;
    let local = now + utc_offset;
    let today = local - local.rem_euclid(DAY) + second;
    let time = if today > local { today } else { today + DAY };
    time - utc_offset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        assert_eq!(Lifetime::read(b"epoch", false), Ok(Lifetime::Epoch));
        assert_eq!(Lifetime::read(b"-1", false), Ok(Lifetime::Access(-1)));
        assert_eq!(Lifetime::read(b"24h", true), Ok(Lifetime::Modified(86400)));
        assert_eq!(
            Lifetime::read(b"@15h30m", false),
            Ok(Lifetime::Daily(55800))
        );
        assert_eq!(
            Lifetime::read(b"@25h", false),
            Err("daily time value must be less than 24 hours")
        );
        assert_eq!(Lifetime::read(b"max", true), Err("invalid value"));
        assert_eq!(Lifetime::read(b"x", false), Err("invalid value"));
    }

    #[test]
    fn the_next_time_of_day() {
        assert_eq!(next(0, 3600, 0), 3600);
        assert_eq!(next(3600, 3600, 0), 3600 + 86400);
        assert_eq!(next(0, 3600, 7200), 86400 - 3600);
    }

    #[test]
    fn freshness() {
        let (expires, control) = until(0, 60, false);
        assert_eq!(expires, "Thu, 01 Jan 1970 00:01:00 GMT");
        assert_eq!(control, "max-age=60");
        assert_eq!(until(100, 60, false).1, "no-cache");
        assert_eq!(until(100, 100, false).1, "max-age=0");
    }
}
