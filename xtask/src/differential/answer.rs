//! What a server sent over one connection, as text that two servers' answers can be compared by.
//!
//! Taken out: the time of day, the servers' names, the boundary of parts, identifiers that are drawn by lot, the frames of chunks
//! and of codings. Everything else stays as it came, byte for byte. Not here: what is a deliberate difference (`known`).

use std::fmt::Write as _;
use std::io::Read as _;

/// Dates this near to now are told as seconds from the answer's own `Date`.
const NEAR_SECONDS: i64 = 100 * 86_400;
const SERVERS: [&str; 2] = ["nginx", "freewheel"];

/// The text of all answers that came over a connection.
pub fn told(bytes: &[u8], is_head: bool, now: i64) -> String {
    let mut out = String::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        rest = one(rest, is_head, now, &mut out);
    }
    if bytes.is_empty() {
        out.push_str("(closed without a byte)\n");
    }
    out
}

/// Tells the first answer and returns what is behind it.
fn one<'a>(bytes: &'a [u8], is_head: bool, now: i64, out: &mut String) -> &'a [u8] {
    let Some(end) = find(bytes, b"\r\n\r\n").filter(|_| bytes.starts_with(b"HTTP/")) else {
        out.push_str(&visible(&without_names(bytes)));
        out.push('\n');
        return b"";
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let rest = &bytes[end + 4..];
    let lower = head.to_ascii_lowercase();
    let value = |name: &str| {
        let line = lower.split("\r\n").find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.strip_prefix(':')).map(str::trim)
    };
    let status = lower.split(' ').nth(1).unwrap_or_default();
    let is_bare = is_head || status.starts_with('1') || matches!(status, "204" | "304");
    let length = value("content-length").and_then(|length| length.parse::<usize>().ok());
    let (body, trailers, rest) = if is_bare {
        (Vec::new(), String::new(), rest)
    } else if value("transfer-encoding") == Some("chunked") {
        unchunked(rest)
    } else {
        let taken = length.unwrap_or(rest.len()).min(rest.len());
        (rest[..taken].to_vec(), String::new(), &rest[taken..])
    };
    let (body, remark) = match value("content-encoding") {
        Some("gzip") => decoded(body),
        _ => (body, ""),
    };
    let named = without_names(&body);
    // A page with the server's name is as long as that name is.
    let is_page = |status: &str| status >= "300" && value("content-type") == Some("text/html");
    let shown_length = match length {
        Some(length) if length == body.len() => Some(named.len().to_string()),
        Some(_) if is_head && is_page(status) => Some("(of a page)".to_owned()),
        _ => None,
    };
    let boundary = value("content-type").and_then(|kind| kind.split_once("boundary="));
    let boundary = boundary.map(|(_, boundary)| boundary.to_owned());
    let mut text = head_told(&head, shown_length.as_deref(), now);
    text.push('\n');
    text.push_str(remark);
    text.push_str(&visible(&named));
    if length.is_some_and(|length| length > body.len()) && !is_bare && remark.is_empty() {
        text.push_str("(cut off)");
    }
    text.push_str(&trailers);
    if let Some(boundary) = boundary {
        text = text.replace(&boundary, &"B".repeat(boundary.len()));
    }
    out.push_str(&text);
    out.push('\n');
    rest
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

/// The head's lines, with what two servers may say differently taken out.
fn head_told(head: &str, shown_length: Option<&str>, now: i64) -> String {
    let date = head
        .split("\r\n")
        .find_map(|line| line.strip_prefix("Date: "));
    let date = date.and_then(seconds).unwrap_or(now);
    let mut out = String::new();
    for line in head.split("\r\n") {
        let line = match line.split_once(": ") {
            Some(("Server", name)) if SERVERS.iter().any(|server| name.starts_with(server)) => {
                "Server: SERVER".to_owned()
            }
            Some(("Date", value)) if seconds(value).is_some_and(|at| (at - now).abs() < 60) => {
                "Date: DATE".to_owned()
            }
            Some(("Content-Length", _)) if shown_length.is_some() => {
                format!("Content-Length: {}", shown_length.unwrap_or_default())
            }
            Some((name, value)) => {
                let value = relative(&without_identifier(value), date);
                format!("{name}: {value}")
            }
            None => line.to_owned(),
        };
        out.push_str(&visible(line.as_bytes()));
        out.push('\n');
    }
    out
}

/// Dates near to `base` told as seconds from it.
fn relative(value: &str, base: i64) -> String {
    const LENGTH: usize = "Sun, 22 Nov 2026 04:51:42 GMT".len();
    // A cookie's date has dashes where others have blanks.
    let plain = value.replace('-', " ");
    for start in 0..value.len() {
        let Some(at) = plain.get(start..start + LENGTH).and_then(seconds) else {
            continue;
        };
        if (at - base).abs() < NEAR_SECONDS {
            let end = &value[start + LENGTH..];
            return format!("{}DATE{:+}{end}", &value[..start], at - base);
        }
    }
    value.to_owned()
}

/// Seconds since 1970 of a date as HTTP writes it.
fn seconds(text: &str) -> Option<i64> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let text = text.strip_suffix(" GMT")?;
    let (_, text) = text.split_once(", ")?;
    let words: Vec<&str> = text.split(' ').collect();
    let [day, month, year, time] = words[..] else {
        return None;
    };
    let month = i64::try_from(MONTHS.find(month)? / 3 + 1).ok()?;
    let clock: Vec<i64> = time
        .split(':')
        .map_while(|part| part.parse().ok())
        .collect();
    let [hours, minutes, seconds] = clock[..] else {
        return None;
    };
    let (day, year): (i64, i64) = (day.parse().ok()?, year.parse().ok()?);
    // Days from the civil calendar, years beginning in March.
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let of_era = shifted.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
}

/// A cookie of `userid`, whose 16 bytes are drawn by lot: 24 letters of base 64, or 32 hexadecimal digits in a log.
fn without_identifier(value: &str) -> String {
    let Some((name, rest)) = value.split_once('=') else {
        return value.to_owned();
    };
    let (id, end) = rest.split_at(rest.find(';').unwrap_or(rest.len()));
    if id.len() == 24 && id.ends_with("==") {
        return format!("{name}=IDENTIFIER{end}");
    }
    value.to_owned()
}

/// The bytes with `<center>NAME</center>` naming neither server.
fn without_names(body: &[u8]) -> Vec<u8> {
    const OPEN: &[u8] = b"<hr><center>";
    let mut out = Vec::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = find(rest, OPEN) {
        let (before, behind) = rest.split_at(at + OPEN.len());
        out.extend_from_slice(before);
        rest = behind;
        if SERVERS.iter().any(|name| rest.starts_with(name.as_bytes()))
            && let Some(end) = find(rest, b"</center>")
        {
            out.extend_from_slice(b"SERVER");
            rest = &rest[end..];
        }
    }
    out.extend_from_slice(rest);
    out
}

/// A chunked body without its frames, its trailer lines as text, and what is behind it.
fn unchunked(bytes: &[u8]) -> (Vec<u8>, String, &[u8]) {
    let mut body = Vec::new();
    let mut rest = bytes;
    loop {
        let Some(end) = find(rest, b"\r\n") else {
            return (body, "(no last chunk)".to_owned(), b"");
        };
        let size = std::str::from_utf8(&rest[..end]).unwrap_or_default();
        let Ok(size) = usize::from_str_radix(size, 16) else {
            return (body, "(no size of a chunk)".to_owned(), b"");
        };
        rest = &rest[end + 2..];
        if size == 0 {
            break;
        }
        if rest.len() < size + 2 {
            body.extend_from_slice(rest);
            return (body, "(cut off)".to_owned(), b"");
        }
        body.extend_from_slice(&rest[..size]);
        rest = &rest[size + 2..];
    }
    let mut trailers = String::new();
    while let Some(end) = find(rest, b"\r\n") {
        let line = &rest[..end];
        rest = &rest[end + 2..];
        if line.is_empty() {
            break;
        }
        let _ = write!(trailers, "\n(trailer) {}", visible(line));
    }
    (body, trailers, rest)
}

/// What was compressed; two servers need not compress alike.
fn decoded(body: Vec<u8>) -> (Vec<u8>, &'static str) {
    let mut out = Vec::new();
    let is_whole = flate2::read::MultiGzDecoder::new(&body[..])
        .read_to_end(&mut out)
        .is_ok();
    match (body.is_empty(), is_whole) {
        (true, _) => (body, ""),
        (false, true) => (out, "(gzip)\n"),
        (false, false) => (out, "(gzip, broken)\n"),
    }
}

/// Text as it is, everything else as `\xHH`.
pub fn visible(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\n' | b' '..=b'~' => out.push(char::from(byte)),
            other => {
                let _ = write!(out, "\\x{other:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_795_323_102;

    #[test]
    fn dates_are_read() {
        assert_eq!(seconds("Thu, 01 Jan 1970 00:00:01 GMT"), Some(1));
        assert_eq!(seconds("Sun, 22 Nov 2026 04:51:42 GMT"), Some(NOW));
        assert_eq!(seconds("Sun, 22 Nov 2026"), None);
    }

    #[test]
    fn names_and_times_are_taken_out_and_nothing_else() {
        let ours = b"HTTP/1.1 404 Not Found\r\nServer: freewheel/1\r\nDate: Sun, 22 Nov 2026 04:51:42 GMT\r\nContent-Length: 38\r\n\
            Expires: Sun, 22 Nov 2026 04:52:42 GMT\r\n\r\n<hr><center>freewheel/0.1.0</center>\r\n";
        let nginx = b"HTTP/1.1 404 Not Found\r\nServer: nginx/1.31.5\r\nDate: Sun, 22 Nov 2026 04:51:41 GMT\r\nContent-Length: 35\r\n\
            Expires: Sun, 22 Nov 2026 04:52:41 GMT\r\n\r\n<hr><center>nginx/1.31.5</center>\r\n";
        assert_eq!(told(ours, false, NOW), told(nginx, false, NOW));
        let other = String::from_utf8_lossy(ours).replace("42:42", "42:43");
        let other = other.replace("04:52:42", "04:52:43");
        assert_ne!(told(other.as_bytes(), false, NOW), told(nginx, false, NOW));
    }

    #[test]
    fn chunks_are_joined_and_trailers_told() {
        let answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\nX: y\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
        let told = told(answer, false, NOW);
        assert!(
            told.contains("\nabc\n(trailer) X: y\nHTTP/1.1 204"),
            "{told}"
        );
    }

    #[test]
    fn what_is_cut_off_is_told() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab";
        assert!(told(answer, false, NOW).contains("ab(cut off)"));
    }
}
