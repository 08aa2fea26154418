//! Whether a client accepts a compressed answer: by its `Accept-Encoding`, and by `gzip_proxied` and similar
//! directives.
//!
//! As in nginx, only the first `Accept-Encoding` line is read, `*` is unknown, and of a coding that is listed twice the
//! first mention decides.

use std::sync::Arc;

use config::{Append, Flag, Problem, Scope, Value, Word, directives};
use message::{HeaderId, Version, date};

use httpcore::Response;
use httpcore::regex::Regex;
use httpcore::request::Request;

use super::Coding;

config::choices! {
    /// The least version of HTTP.
    pub enum LeastVersion {
        /// HTTP/1.0.
        Http10 = "1.0",
        /// HTTP/1.1.
        Http11 = "1.1",
    }
}

config::choice_set! {
    /// Which answers to proxies are compressed.
    pub struct Proxied: u32 {
        /// None.
        OFF = "off",
        /// Those with an `Expires` in the past.
        EXPIRED = "expired",
        /// Those with `Cache-Control: no-cache`.
        NO_CACHE = "no-cache",
        /// Those with `Cache-Control: no-store`.
        NO_STORE = "no-store",
        /// Those with `Cache-Control: private`.
        PRIVATE = "private",
        /// Those without `Last-Modified`.
        NO_LAST_MODIFIED = "no_last_modified",
        /// Those without `ETag`.
        NO_ETAG = "no_etag",
        /// Those to requests with `Authorization`.
        AUTH = "auth",
        /// All.
        ANY = "any",
    }
}

/// The clients of one level's `gzip_disable` lines.
#[derive(Debug, Clone, Default)]
pub struct Disabled {
    is_msie6: bool,
    agents: Vec<Arc<Regex>>,
}

/// Regular expressions of `gzip_disable` at one level.
pub const AGENTS_MAX: usize = 256;

impl Append for Disabled {
    /// As nginx: the regular expressions of an inner level replace those around; `msie6` stays switched on.
    fn append(parent: &Self, child: Self) -> Self {
        Self {
            is_msie6: child.is_msie6 || parent.is_msie6,
            ..child
        }
    }
}

impl Value for Disabled {
    const SYNTAX: &'static str = "regex … | msie6";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let mut disabled = Self::default();
        for (at, word) in args.iter().enumerate() {
            if *word == "msie6" {
                disabled.is_msie6 = true;
                continue;
            }
            if disabled.agents.len() == AGENTS_MAX {
                return Err(Problem::new(format!("more than {AGENTS_MAX} patterns")).at(at));
            }
            let regex = Regex::of_configuration(word.bytes(), true, word, scope);
            let regex = regex.map_err(|problem| problem.at(at))?;
            disabled.agents.push(Arc::new(regex));
        }
        Ok(disabled)
    }

    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        let line = Self::parse(args, scope)?;
        let known = slot.get_or_insert_default();
        known.is_msie6 |= line.is_msie6;
        known.agents.extend(line.agents);
        match known.agents.len() > AGENTS_MAX {
            true => Err(Problem::new(format!("more than {AGENTS_MAX} patterns"))),
            false => Ok(()),
        }
    }
}

directives! {
    /// Conditions for compressed responses.
    pub struct Accepting in Location {
        /// Sends `Vary: Accept-Encoding` with responses that are, or could be, compressed or decompressed (`gzip`,
        /// `gunzip`, `gzip_static`, `brotli`, `zstd`).
        gzip_vary: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Sets the lowest HTTP version of requests whose responses are compressed with gzip.
        gzip_http_version: LeastVersion = "1.1", [HTTP | SERVER | LOCATION] 1;
        /// Sets which responses are compressed with gzip for requests that came through a proxy, recognised by `Via`.
        gzip_proxied: Proxied = "off", [HTTP | SERVER | LOCATION] 1..;
        /// Switches gzip off for clients whose `User-Agent` matches one of the regular expressions, without regard to
        /// case. `msie6` stands for MSIE 4 to 6 except 6.0 with `SV1`, and remains in force at inner levels.
        gzip_disable: Option<Disabled> = none, [HTTP | SERVER | LOCATION] 1.., inherit joined;
    }
}

/// Whether an answer may be sent with gzip, by nginx's rules; nginx asks once for each request. `response` is the part
/// of the answer that is known.
#[must_use]
pub fn takes_gzip(request: &Request, response: Option<&Response>) -> bool {
    let settings = request.location().own::<Accepting>();
    let head = &request.head;
    if request.is_subrequest() {
        return false;
    }
    let Some(accepted) = head.get(HeaderId::AcceptEncoding) else {
        return false;
    };
    let least = match settings.gzip_http_version {
        LeastVersion::Http10 => Version::HTTP_10,
        LeastVersion::Http11 => Version::HTTP_11,
    };
    names_gzip(accepted)
        && head.version >= least
        && (head.get(HeaderId::Via).is_none() || may_go_to_proxy(request, response))
        && !is_disabled(request, settings.gzip_disable.as_ref())
}

/// Whether the client accepts this coding, which is not gzip: other codings have no further conditions.
#[must_use]
pub fn takes(request: &Request, coding: Coding) -> bool {
    let accepted = request.head.get(HeaderId::AcceptEncoding);
    !request.is_subrequest()
        && accepted.is_some_and(|accepted| names(accepted, coding.name().as_bytes()))
}

fn is_disabled(request: &Request, disabled: Option<&Disabled>) -> bool {
    let (Some(disabled), Some(agent)) = (disabled, request.head.get(HeaderId::UserAgent)) else {
        return false;
    };
    // As in nginx an agent whose match fails gets nothing compressed.
    let is_one = |regex: &Arc<Regex>| {
        regex.is_match(agent).unwrap_or_else(|failed| {
            request.match_failed(&failed);
            true
        })
    };
    (disabled.is_msie6 && is_msie6(agent)) || disabled.agents.iter().any(is_one)
}

/// As in nginx an Opera that says it is one of these is none.
fn is_msie6(agent: &[u8]) -> bool {
    if memchr::memmem::find(agent, b"Opera").is_some() {
        return false;
    }
    let Some(at) = memchr::memmem::find(agent, b"MSIE ") else {
        return false;
    };
    match agent[at + b"MSIE ".len()..] {
        [b'4' | b'5', b'.', ..] => true,
        [b'6', b'.', ref rest @ ..] => memchr::memmem::find(rest, b"SV1").is_none(),
        _ => false,
    }
}

/// Whether `gzip_proxied` allows compressing an answer.
fn may_go_to_proxy(request: &Request, response: Option<&Response>) -> bool {
    let proxied = request.location().own::<Accepting>().gzip_proxied;
    let on = |flag: Proxied| proxied.contains(flag);
    if on(Proxied::OFF) {
        return false;
    }
    if on(Proxied::ANY) {
        return true;
    }
    if on(Proxied::AUTH) && request.head.get(HeaderId::Authorization).is_some() {
        return true;
    }
    let Some(response) = response else {
        return true;
    };
    if let Some(expires) = own_expires(response) {
        return on(Proxied::EXPIRED) && is_past(expires, response);
    }
    if response.headers.get(b"Cache-Control").is_some() {
        return (on(Proxied::NO_CACHE) && says(response, b"no-cache"))
            || (on(Proxied::NO_STORE) && says(response, b"no-store"))
            || (on(Proxied::PRIVATE) && says(response, b"private"));
    }
    // nginx looks for a header line here, and it writes the line of a file's time later.
    let has_time = response.headers.get(b"Last-Modified").is_some()
        || (response.last_modified.is_some() && request.is_of_upstream());
    let is_excluded = (on(Proxied::NO_LAST_MODIFIED) && has_time)
        || (on(Proxied::NO_ETAG) && response.etag.is_some());
    !is_excluded
}

/// The first `Expires` that was not added by `add_header`: added ones come after the answer's own.
fn own_expires(response: &Response) -> Option<&[u8]> {
    let lines = response.headers.get_all(b"Expires").count();
    let first = response.headers.get(b"Expires").map(|value| &value[..]);
    first.filter(|_| lines > response.added_expires)
}

fn is_past(expires: &[u8], response: &Response) -> bool {
    let now = match response.headers.get(b"Date") {
        Some(date) => date::parse(date),
        None => Some(logs::wall_clock::Moment::now().second() as date::Seconds),
    };
    let expires = date::parse(expires);
    matches!((expires, now), (Some(expires), Some(now)) if expires < now)
}

/// Whether `Cache-Control` contains this word.
fn says(response: &Response, word: &[u8]) -> bool {
    let lines = response.headers.get_all(b"Cache-Control");
    lines.into_iter().any(|line| {
        let members = line.split(|c| matches!(c, b',' | b';' | b' ' | b'='));
        members
            .into_iter()
            .any(|member| member.eq_ignore_ascii_case(word))
    })
}

/// Whether gzip is among these codings, with a quality over 0. As in nginx, the text after the first `gzip` decides.
#[must_use]
pub fn names_gzip(accepted: &[u8]) -> bool {
    accepted.starts_with(b"gzip,")
        || behind(accepted, b"gzip").is_some_and(|rest| {
            let rest = skip_blanks(rest);
            match rest {
                [] | [b',', ..] => true,
                [b';', rest @ ..] => match skip_blanks(rest) {
                    [] => true,
                    [b'q' | b'Q', b'=', rest @ ..] => is_quality_over_0(rest),
                    _ => false,
                },
                _ => false,
            }
        })
}

/// Whether this coding is among them, with a quality over 0.
#[must_use]
pub fn names(accepted: &[u8], coding: &[u8]) -> bool {
    let mut rest = accepted;
    while let Some(found) = behind(rest, coding) {
        rest = found;
        if !matches!(rest, [] | [b',' | b' ' | b';', ..]) {
            continue;
        }
        return match skip_blanks(rest) {
            [b';', rest @ ..] => match skip_blanks(rest) {
                [b'q' | b'Q', b'=', rest @ ..] => is_quality_over_0(rest),
                _ => true,
            },
            _ => true,
        };
    }
    false
}

/// The text after the first word that begins like this.
fn behind<'a>(text: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    let at = text.windows(word.len()).enumerate().find(|(at, part)| {
        part.eq_ignore_ascii_case(word) && (*at == 0 || matches!(text[at - 1], b',' | b' '))
    });
    at.map(|(at, _)| &text[at + word.len()..])
}

fn skip_blanks(text: &[u8]) -> &[u8] {
    let blanks = text.iter().take_while(|c| **c == b' ').count();
    &text[blanks..]
}

/// A quality as nginx reads it: `0` or `1`, at most three digits after the point, in total at most 1.
fn is_quality_over_0(text: &[u8]) -> bool {
    let end = text.iter().position(|c| matches!(c, b',' | b' '));
    let text = &text[..end.unwrap_or(text.len())];
    let (first, digits) = match text {
        [first] => (first, &[][..]),
        [first, b'.', digits @ ..] => (first, digits),
        _ => return false,
    };
    let is_sound = digits.len() <= 3 && digits.iter().all(u8::is_ascii_digit);
    let has_more = digits.iter().any(|c| *c != b'0');
    match first {
        b'0' => is_sound && has_more,
        b'1' => is_sound && !has_more,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_found_as_nginx_finds_it() {
        for yes in [
            "gzip",
            "gzip,",
            "GZip, deflate",
            "deflate, gzip",
            "deflate gzip",
            "gzip;q=1",
            "gzip; q=0.001",
            "gzip ; Q=1.000, x",
            "x-gzip, gzip",
            "gzip;",
            "gzip,gzip;q=0",
        ] {
            assert!(names_gzip(yes.as_bytes()), "{yes}");
        }
        for no in [
            "",
            "*",
            "x-gzip",
            "gzipped",
            "gzip;q=0",
            "gzip; q=0.000",
            "gzip;q=0.0000",
            "gzip;q=1.001",
            "gzip;q=2",
            "gzip;q=0.5x",
            "gzip;q = 1",
            "gzip;x=1",
            "gzip;q=0, gzip",
            "gzip-foo, gzip",
            "deflate;gzip",
        ] {
            assert!(!names_gzip(no.as_bytes()), "{no}");
        }
    }

    #[test]
    fn other_codings_are_found_as_whole_words() {
        for yes in [
            "br",
            "gzip, br",
            "brx, br",
            "br;q=0.1",
            "br;x",
            "gzip,BR;q=1",
        ] {
            assert!(names(yes.as_bytes(), b"br"), "{yes}");
        }
        for no in [
            "",
            "*",
            "brx",
            "xbr",
            "br;q=0",
            "br ; q=0.00, gzip",
            "br;q=0, br",
        ] {
            assert!(!names(no.as_bytes(), b"br"), "{no}");
        }
    }

    #[test]
    fn old_browsers_are_known() {
        assert!(is_msie6(b"Mozilla/4.0 (compatible; MSIE 6.0; Windows 98)"));
        assert!(is_msie6(b"MSIE 5.5"));
        assert!(!is_msie6(
            b"Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1; SV1)"
        ));
        assert!(!is_msie6(b"MSIE 7.0"));
        assert!(!is_msie6(b"MSIE "));
    }
}
