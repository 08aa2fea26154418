//! A location's rules for its cache: the values of directives, and where RFC 9111 is followed to the letter.

use super::parsed_fields::ParsedFields;
use crate::lifetime::AGE_MAX;
use message::date::Seconds;

/// One entry of `proxy_cache_valid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidFor {
    /// The status; None: `any`.
    pub status: Option<u16>,
    /// Seconds; 0: not stored.
    pub seconds: u32,
}

/// `proxy_ignore_headers`, as far as it is about storing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IgnoredHeaders {
    /// `X-Accel-Expires`.
    pub accel_expires: bool,
    /// `Cache-Control`.
    pub cache_control: bool,
    /// `Expires`.
    pub expires: bool,
    /// `Set-Cookie`.
    pub set_cookie: bool,
    /// `Vary`.
    pub vary: bool,
}

/// A lifetime for responses without one (RFC 9111, 4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heuristic {
    /// Per cent of the time since `Last-Modified`.
    pub percent: u8,
    /// Maximum, in seconds.
    pub max: u32,
}

/// The rules of a location. Each switch says what it does when it is on; [`Rules::nginx`] and [`Rules::rfc9111`] are
/// the two named sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `proxy_cache_valid`: the first entry for a status counts.
    pub valid: Vec<ValidFor>,
    /// `proxy_ignore_headers`.
    pub ignored: IgnoredHeaders,
    /// `Age` makes a response older, and is sent (RFC 9111, 4.2.3 and 5.1). On in both sets; nginx does neither.
    pub counts_age: bool,
    /// So do a `Date` in the past and the response delay (4.2.3). nginx: no, so that responses of an origin with a
    /// wrong clock are cached.
    pub counts_apparent_age: bool,
    /// Responses to requests with `Authorization` are stored although nothing in them allows it (against 3.5). nginx:
    /// yes; off in both sets here: one user's response is not for the next.
    pub shares_authorized: bool,
    /// A response that is never fresh (`no-cache`, `max-age=0`, an `Expires` in the past) is stored, to be revalidated
    /// at each use. nginx: no.
    pub stores_stale: bool,
    /// `must-revalidate`, `proxy-revalidate` and `s-maxage` forbid stale responses whatever `proxy_cache_use_stale`
    /// says (4.2.4). nginx: no.
    pub forbids_stale: bool,
    /// Of two `Expires` lines, none counts (4.2.1). nginx: the first.
    pub refuses_two_expires: bool,
    /// A date whose zone is not written as GMT is in the past (4.2). nginx: it looks at no zone; here others are counted
    /// if they are numbers, and invalid if they are names.
    pub needs_gmt: bool,
    /// stale-while-revalidate does not stand for stale-if-error (RFC 5861). nginx: it does if the latter is missing.
    pub separates_windows: bool,
    /// stale-if-error is for 500, 502, 503 and 504 too (RFC 5861, 4). nginx: for lost connections only;
    /// `proxy_cache_use_stale` names codes.
    pub covers_5xx: bool,
    /// A response is stale in the second in which its age reaches its lifetime (4.2). nginx: one second later.
    pub ends_on_time: bool,
    /// `Cache-Control` and `Pragma` of requests are obeyed (5.2.1). nginx: no.
    pub obeys_requests: bool,
    /// A successful unsafe request invalidates the responses stored for its URI (4.4). nginx: no.
    pub invalidates: bool,
    /// `CDN-Cache-Control` replaces `Cache-Control` and `Expires` (RFC 9213). nginx: no.
    pub is_targeted: bool,
    /// A heuristic lifetime for responses without one. Off in both sets.
    pub heuristic: Option<Heuristic>,
}

impl Rules {
    /// nginx's rules, corrected: `Age` counts, `Expires` is compared with `Date`, `Vary` may have a `*` anywhere,
    /// responses to `Authorization` are not shared.
    #[must_use]
    pub fn nginx() -> Self {
        Self {
            valid: Vec::new(),
            ignored: IgnoredHeaders::default(),
            counts_age: true,
            counts_apparent_age: false,
            shares_authorized: false,
            stores_stale: false,
            forbids_stale: false,
            refuses_two_expires: false,
            needs_gmt: false,
            separates_windows: false,
            covers_5xx: false,
            ends_on_time: false,
            obeys_requests: false,
            invalidates: false,
            is_targeted: false,
            heuristic: None,
        }
    }

    /// RFC 9111 to the letter.
    #[must_use]
    pub fn rfc9111() -> Self {
        Self {
            counts_apparent_age: true,
            stores_stale: true,
            forbids_stale: true,
            refuses_two_expires: true,
            needs_gmt: true,
            separates_windows: true,
            covers_5xx: true,
            ends_on_time: true,
            obeys_requests: true,
            invalidates: true,
            is_targeted: true,
            ..Self::nginx()
        }
    }

    /// The value of `proxy_cache_valid` for a status, in seconds; None if there is none, or 0.
    #[must_use]
    pub fn valid(&self, status: u16) -> Option<u32> {
        let is_it = |valid: &&ValidFor| valid.status.is_none_or(|of| of == status);
        let seconds = self.valid.iter().find(is_it)?.seconds;
        (seconds > 0).then_some(seconds)
    }
}

/// Status codes that are cacheable by default (RFC 9110, 15.1; a 206 is never stored as a complete response).
const HEURISTICALLY_CACHEABLE: [u16; 11] = [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501];

impl Heuristic {
    /// The heuristic lifetime in seconds; None if none may be guessed.
    pub(super) fn guess(&self, status: u16, now: Seconds, said: &ParsedFields) -> Option<i64> {
        if !HEURISTICALLY_CACHEABLE.contains(&status) && !said.control.public {
            return None;
        }
        let since = said.date.unwrap_or(now).saturating_sub(said.last_modified?);
        let since = since.clamp(0, i64::from(AGE_MAX));
        let guess = since * i64::from(self.percent) / 100;
        Some(guess.min(i64::from(self.max))).filter(|guess| *guess > 0)
    }
}
