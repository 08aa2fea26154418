//! The directives of a location that concern its cache.

use cache::freshness::{IgnoredHeaders, Rules, ValidFor};
use config::{
    Flag, Msec, Number, Offset, OrOff, Placed, Problem, Scope, Template, Value, Word, choice_set,
    directives, parse_number, parse_sec,
};
use message::Method;

use crate::settings::directives::{IgnoreHeaders, ProxyAnswers};
use httpcore::settings::Location;
use httpcore::settings::conditions::{Conditions, VALUES_MAX};

choice_set! {
    /// `proxy_cache_methods`.
    pub struct CachedMethods: u32 {
        /// GET; always among them.
        GET = "GET",
        /// HEAD; always among them.
        HEAD = "HEAD",
        /// POST.
        POST = "POST",
    }
}

impl CachedMethods {
    /// Whether responses to this method are looked up and stored.
    #[must_use]
    pub fn has(self, method: Method) -> bool {
        match method {
            Method::Get | Method::Head => true,
            Method::Post => self.contains(Self::POST),
            _ => false,
        }
    }
}

choice_set! {
    /// `proxy_cache_use_stale`.
    pub struct UseStale: u32 {
        /// No connection, or a lost one.
        ERROR = "error",
        /// It took too long.
        TIMEOUT = "timeout",
        /// An answer that is none.
        INVALID_HEADER = "invalid_header",
        /// While it is being fetched anew.
        UPDATING = "updating",
        /// The origin answered 500.
        HTTP_500 = "http_500",
        /// 502.
        HTTP_502 = "http_502",
        /// 503.
        HTTP_503 = "http_503",
        /// 504.
        HTTP_504 = "http_504",
        /// 403.
        HTTP_403 = "http_403",
        /// 404.
        HTTP_404 = "http_404",
        /// 429.
        HTTP_429 = "http_429",
        /// Nothing here: it is a word of `proxy_next_upstream` alone.
        NON_IDEMPOTENT = "non_idempotent",
        /// Never.
        OFF = "off",
    }
}

impl UseStale {
    /// Whether this condition is set.
    #[must_use]
    pub fn has(self, kind: Self) -> bool {
        !self.contains(Self::OFF) && self.contains(kind)
    }

    /// The condition for a response with this status.
    #[must_use]
    pub fn of_status(status: u16) -> Option<Self> {
        Some(match status {
            500 => Self::HTTP_500,
            502 => Self::HTTP_502,
            503 => Self::HTTP_503,
            504 => Self::HTTP_504,
            403 => Self::HTTP_403,
            404 => Self::HTTP_404,
            429 => Self::HTTP_429,
            _ => return None,
        })
    }
}

/// Adds the values of one more line.
fn extend<T>(all: &mut Vec<T>, more: Vec<T>) -> Result<(), Problem> {
    all.extend(more);
    match all.len() {
        ..=VALUES_MAX => Ok(()),
        _ => Err(Problem::directive(format!(
            "has more than {VALUES_MAX} values"
        ))),
    }
}

/// The requests that are purge commands.
#[derive(Clone, Debug, Default)]
pub struct PurgeConditions(pub Conditions);

/// The third-party module whose directive has this name takes other arguments, `ZONE KEY` and `METHOD from ADDRESS`,
/// which would turn every request into a purge. So a condition that holds for all requests is refused.
impl Value for PurgeConditions {
    const SYNTAX: &'static str = Conditions::SYNTAX;

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let conditions = Conditions::parse(args, scope)?;
        let is_always = |template: &Template| {
            template
                .literal()
                .is_some_and(|text| !matches!(&text[..], b"" | b"0"))
        };
        if let Some(index) = conditions.templates().iter().position(is_always) {
            let sentence = format!(
                "has a value that holds for every request: \"{}\"",
                args[index].display()
            );
            let hint = "the arguments of ngx_cache_purge are not built in: let a \"map\" say which requests are orders to delete, \
                        and send them to the location that has the cache";
            return Err(Problem::directive(sentence).at(index).hint_that(hint));
        }
        Ok(Self(conditions))
    }

    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        let more = Self::parse(args, scope)?;
        slot.get_or_insert_default().0.add(more.0)
    }

    fn absent() -> Option<Self> {
        Some(Self::default())
    }
}

/// `proxy_cache_hedge`: a share of requests, in hundredths of a percent; 0: off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HedgeShare(pub u64);

impl Value for HedgeShare {
    const SYNTAX: &'static str = "percentage | off";

    fn parse(args: &[Word], _: &mut Scope) -> Result<Self, Problem> {
        if args[0] == "off" {
            return Ok(Self(0));
        }
        let share = std::str::from_utf8(args[0].bytes())
            .ok()
            .and_then(hundredths);
        share.map(Self).ok_or_else(|| {
            let sentence = format!("invalid percentage \"{}\"", args[0].display());
            Problem::new(sentence)
                .at(0)
                .hint_that("a share of the requests is meant, as \"5%\" or \"0.5%\", or \"off\"")
        })
    }
}

/// Hundredths of a percent in a text like `12.5%`, at most 100 %.
fn hundredths(text: &str) -> Option<u64> {
    let number = text.strip_suffix('%')?;
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let are_digits =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !are_digits(whole) || !are_digits(part) || part.len() > 2 {
        return None;
    }
    let scale = if part.len() == 1 { 10 } else { 1 };
    let sum = whole.parse::<u64>().ok()?.checked_mul(100)?;
    let sum = sum.checked_add(part.parse::<u64>().ok()? * scale)?;
    (sum <= 10_000).then_some(sum)
}

/// `proxy_cache_valid`: all lines of a level.
#[derive(Clone, Debug, Default)]
pub struct Validities(pub Vec<ValidFor>);

impl Value for Validities {
    const SYNTAX: &'static str = "[code …] time";

    fn parse(args: &[Word], _: &mut Scope) -> Result<Self, Problem> {
        /// The statuses that a time without codes applies to.
        const ALONE: [u16; 3] = [200, 301, 302];
        let Some((time, codes)) = args.split_last() else {
            return Ok(Self::default());
        };
        let seconds = parse_sec(time.bytes()).ok_or_else(|| {
            Problem::new(format!("invalid time value \"{}\"", time.display())).at(codes.len())
        })?;
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        let of = |status| ValidFor { status, seconds };
        if codes.is_empty() {
            return Ok(Self(ALONE.into_iter().map(|code| of(Some(code))).collect()));
        }
        let mut all = Vec::with_capacity(codes.len());
        for (index, word) in codes.iter().enumerate() {
            let code = parse_number(word.bytes()).and_then(|code| u16::try_from(code).ok());
            all.push(match code.filter(|code| (100..=599).contains(code)) {
                _ if *word == "any" => of(None),
                Some(code) => of(Some(code)),
                None => {
                    let sentence = format!("invalid status \"{}\"", word.display());
                    return Err(Problem::new(sentence).at(index));
                }
            });
        }
        Ok(Self(all))
    }

    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        let more = Self::parse(args, scope)?;
        extend(&mut slot.get_or_insert_default().0, more.0)
    }

    fn absent() -> Option<Self> {
        Some(Self::default())
    }
}

directives! {
    /// Caching of proxied responses.
    ///
    /// A stored response is a file of its own that describes itself and has a checksum for every 64 KiB. A client that
    /// requests a key while it is being fetched follows that fetch at its own speed (`proxy_cache_lock`). Trouble with
    /// a cache's disk never fails a request that the origin can answer: such responses are passed on and not stored.
    pub struct Caching in Location {
        /// Sets the cache (a `keys_zone` of `proxy_cache_path`) that responses are stored in. The name may contain
        /// variables: a request for which it names no cache gets 500.
        proxy_cache: Placed<OrOff<Template>> = "off", [HTTP | SERVER | LOCATION] 1, syntax "zone | off";
        /// Sets the key that a response is stored under. By default: scheme, host (or unix socket) and URI of the
        /// request to the origin.
        proxy_cache_key: Option<Template> = none, [HTTP | SERVER | LOCATION] 1, syntax "string";
        /// Sets how long responses without a lifetime of their own are fresh, by status; a time alone applies to 200,
        /// 301 and 302. `any` means every status.
        ///
        /// `X-Accel-Expires`, then `Cache-Control`, then `Expires` take precedence. `X-Accel-Expires: 0`, `no-cache`,
        /// `no-store`, `private`, `max-age=0`, `Set-Cookie` and `Vary: *` keep a response out of the cache.
        proxy_cache_valid: Validities = none, [HTTP | SERVER | LOCATION] 1..;
        /// Sets the methods whose responses are stored. GET and HEAD always are.
        proxy_cache_methods: CachedMethods = "GET HEAD", [HTTP | SERVER | LOCATION] 1..;
        /// Stores a response only once its key has been requested this many times.
        proxy_cache_min_uses: Number = "1", [HTTP | SERVER | LOCATION] 1;
        /// Does not respond from the cache if one of the values is neither empty nor `0`; the response is stored all
        /// the same.
        proxy_cache_bypass: Conditions = none, [HTTP | SERVER | LOCATION] 1..;
        /// Does not store the response if one of the values is neither empty nor `0`. They may use the response's
        /// header fields.
        proxy_no_cache: Conditions = none, [HTTP | SERVER | LOCATION] 1..;
        /// Sets when a stale response may be used: instead of failures of the origin, and while a new one is being
        /// fetched (`updating`).
        proxy_cache_use_stale: UseStale = "off", [HTTP | SERVER | LOCATION] 1..;
        /// Fetches a new version of a stale response in the background while the client gets the old one (where
        /// `updating` or the response's stale-while-revalidate allows it).
        proxy_cache_background_update: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Sends the origin one request for what several clients request at the same time: the others follow that fetch
        /// from its first byte on, each at its own speed. With `off` every client's request goes to the origin.
        proxy_cache_lock: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Limits how long a request waits for the head of another request's response. After that it goes to the
        /// origin, and its response is not stored.
        proxy_cache_lock_timeout: Msec = "5s", [HTTP | SERVER | LOCATION] 1;
        /// Sets the time without a response head after which another request goes to the origin; further requests
        /// follow that one.
        proxy_cache_lock_age: Msec = "5s", [HTTP | SERVER | LOCATION] 1;
        /// Races a stored response's disk with the origin, where the disk takes longer than it usually does for 99 of 100
        /// reads (and 25 ms) and nothing was sent yet (not in nginx). The first of the two is the response; the origin's is
        /// not stored then. At most this share of the requests of the last 10 seconds, of all disks of the cache together, is sent
        /// to the origin so. `off`: such requests wait, two seconds at least, before they go to the origin.
        proxy_cache_hedge: HedgeShare = "5%", [HTTP | SERVER | LOCATION] 1;
        /// Revalidates stored responses with the origin (`If-Modified-Since`, `If-None-Match`) instead of fetching them
        /// whole. A 304 makes the response fresh again and replaces the header fields that it has (RFC 9111, 3.2).
        proxy_cache_revalidate: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// A request for a range that begins at this byte or later is passed on unchanged, and its response is not
        /// stored.
        proxy_cache_max_range_offset: Option<Offset> = none, [HTTP | SERVER | LOCATION] 1;
        /// Treats requests for which one of the values is neither empty nor `0` as purge requests: they delete the
        /// entry of the key or, with `*` at the key's end, all entries whose keys have that prefix. A purge request
        /// with tags of its own (`Surrogate-Key: a b`, `Cache-Tag: a, b`; at most 256) instead deletes all responses
        /// that came with one of them. The response is 204; 404 if the key had no entry; 503 while 1024 purges are
        /// still in progress. A constant (`proxy_cache_purge 1`) is refused, since it would make every request a purge:
        /// a `map` says which requests are.
        proxy_cache_purge: PurgeConditions = none, [HTTP | SERVER | LOCATION] 1..;
        /// Follows RFC 9111 to the letter where nginx does not and configurations may rely on that:
        /// * the response's transit time, and a `Date` in the past, add to its age (4.2.3); it is stale in the second
        ///   in which its age reaches its lifetime (4.2); of two `Expires` fields neither is used (4.2.1), nor one whose
        ///   zone is not `GMT`;
        /// * responses with `no-cache`, `max-age=0` and the like are stored, and revalidated at each use (5.2.2.4);
        /// * `must-revalidate`, `proxy-revalidate` and `s-maxage` forbid stale responses regardless of
        ///   `proxy_cache_use_stale` (4.2.4); stale-while-revalidate does not imply stale-if-error, and that covers
        ///   500, 502, 503 and 504 (RFC 5861);
        /// * `Cache-Control` and `Pragma` of requests are obeyed (5.2.1);
        /// * a successful unsafe request invalidates what is stored for its URI (4.4);
        /// * a client's `If-None-Match` takes precedence over `If-Modified-Since` (RFC 9110, 13.1.3), and ranges of
        ///   stored responses are served even if the origin does not offer them;
        /// * stored responses are revalidated, and used while a new version is fetched, without further directives;
        /// * `CDN-Cache-Control` replaces `Cache-Control` and `Expires` (RFC 9213).
        ///
        /// Regardless of this directive: `Age` is calculated and sent, `Expires` is compared with `Date`, `*` anywhere
        /// in `Vary` keeps a response out, responses to requests with `Authorization` are stored only where they allow
        /// it, and connection-specific fields are not stored.
        proxy_cache_rfc9111: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
    }
}

impl Caching {
    /// Whether there is a cache.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.proxy_cache.value.on().is_some()
    }

    /// The freshness rules that the directives ask for.
    #[must_use]
    pub fn rules(&self, ignored: IgnoredHeaders) -> Rules {
        let rules = match self.proxy_cache_rfc9111 {
            true => Rules::rfc9111(),
            false => Rules::nginx(),
        };
        Rules {
            valid: self.proxy_cache_valid.0.clone(),
            ignored,
            ..rules
        }
    }

    /// Whether stored responses are revalidated.
    #[must_use]
    pub fn revalidates(&self) -> bool {
        self.proxy_cache_revalidate || self.proxy_cache_rfc9111
    }

    /// Whether they are used while they are fetched anew.
    #[must_use]
    pub fn updates_behind(&self) -> bool {
        self.proxy_cache_background_update || self.proxy_cache_rfc9111
    }
}

slots::slotted!(config::made::LOCATION: FreshnessRules);

/// A location's freshness rules, made on first use.
#[derive(Debug)]
pub struct FreshnessRules(pub Rules);

/// A location's freshness rules.
pub fn rules(location: &Location) -> &Rules {
    let rules = location.made.get_or_init(|| {
        let settings = location.groups();
        let ignored = settings.own::<ProxyAnswers>().proxy_ignore_headers;
        let ignores = |line| ignored.is_some_and(|ignored| ignored.contains(line));
        let ignored = IgnoredHeaders {
            accel_expires: ignores(IgnoreHeaders::X_ACCEL_EXPIRES),
            cache_control: ignores(IgnoreHeaders::CACHE_CONTROL),
            expires: ignores(IgnoreHeaders::EXPIRES),
            set_cookie: ignores(IgnoreHeaders::SET_COOKIE),
            vary: ignores(IgnoreHeaders::VARY),
        };
        FreshnessRules(settings.own::<Caching>().rules(ignored))
    });
    &rules.0
}

#[cfg(test)]
mod tests {
    use super::hundredths;

    #[test]
    fn shares_are_hundredths_of_a_percent() {
        for (text, share) in [
            ("5%", Some(500)),
            ("0.5%", Some(50)),
            ("0.05%", Some(5)),
            ("100%", Some(10_000)),
            ("0%", Some(0)),
            ("100.01%", None),
            ("5", None),
            ("%", None),
            ("-1%", None),
            ("1.%", None),
            ("0.005%", None),
            ("99999999999999999999%", None),
        ] {
            assert_eq!(hundredths(text), share, "{text}");
        }
    }
}
