//! Figures, times and keys for readers.

use cache::{Lifetime, PurgeRule, Reuse};
use message::date;
use std::fmt::Arguments;
use std::io::Write as _;

/// Writes to standard output. A reader that has gone (`| head`) does not end the command, which may have more to do.
pub(super) fn say(text: Arguments<'_>) {
    // Nowhere else to tell it.
    let _ = std::io::stdout().write_fmt(text);
}

/// Bytes.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(value < 10.0);
    format!("{value:.digits$} {}", UNITS[unit])
}

/// A number of seconds, as one round figure.
pub(super) fn duration(seconds: i64) -> String {
    const UNITS: [(i64, &str); 4] = [(86400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let seconds = seconds.max(0);
    let unit = UNITS.iter().find(|(size, _)| seconds >= 2 * size);
    let (size, name) = unit.copied().unwrap_or((1, "s"));
    format!("{} {name}", seconds / size)
}

/// Text of a request: control characters escaped, the rest as it is.
pub(super) fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter.is_control() {
            true => out.extend(letter.escape_default()),
            false => out.push(letter),
        }
    }
    out
}

/// How long it is fresh, or since when it is not.
pub(super) fn freshness(lifetime: &Lifetime, now: i64) -> String {
    let left = lifetime.expires - now;
    match lifetime.reuse {
        Reuse::Revalidate => "to be revalidated".to_owned(),
        _ if left >= 0 => format!("fresh for {}", duration(left)),
        _ => format!("stale for {}", duration(-left)),
    }
}

/// A moment, and how far off it is.
pub(super) fn moment(at: i64, now: i64) -> String {
    let date = date::format(at);
    let date = String::from_utf8_lossy(&date);
    match at - now {
        0 => format!("{date} (now)"),
        left if left > 0 => format!("{date} (in {})", duration(left)),
        past => format!("{date} ({} ago)", duration(-past)),
    }
}

/// A purge.
pub(super) fn purge(rule: &PurgeRule) -> String {
    match rule {
        PurgeRule::Key(key) => format!("of the key {}", key.name()),
        PurgeRule::Prefix(text) => format!("of the prefix \"{}\"", shown(text)),
        PurgeRule::Tag(text) => format!("of the tag \"{}\"", shown(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(
            [0, 1023, 1024, 1536, 20 << 20, 3 << 40].map(size),
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "20 MiB", "3.0 TiB"]
        );
        assert_eq!(
            [-1, 0, 119, 120, 7200, 200_000].map(duration),
            ["0 s", "0 s", "119 s", "2 min", "2 h", "2 d"]
        );
        assert_eq!(shown(b"a\x1b[1m\xff\n"), "a\\u{1b}[1m\u{fffd}\\n");
    }
}
