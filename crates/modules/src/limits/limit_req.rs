//! `limit_req`: delays or refuses requests that come faster than a rate. nginx-drop-in 51.
//!
//! Not here: the counting (`crate::limits::requests`). Invariant: a request is checked once; no zone charges it
//! before all zones have let it pass, and the longest delay of any zone applies.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use config::{Flag, NumberWithin, Problem, Scope, Value, Word, directives};
use logs::Level;
use logs::process_log::error_log;
use smallvec::SmallVec;

use crate::limits::Zones;
use crate::limits::requests::{Requests, Rule, Verdict, delay_ms};
use crate::limits::table::Slot;
use crate::limits::zones::{REQUEST_ZONES, Zone, number};
use crate::limits::{LIMITS_MAX, Paced, RefusalLevel, ZoneName, limited};
use httpcore::Failure;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::request_body::CLIENT_CLOSED;
use httpcore::settings::Location;

/// Maximum bytes of a key.
const KEY_BYTES_MAX: usize = 65_535;

/// One `limit_req` line.
#[derive(Debug, Clone)]
pub struct Limit {
    /// The zone that counts the requests.
    pub zone: ZoneName,
    burst: i64,
    delay: i64,
}

/// The lines of one level.
#[derive(Debug, Clone, Default)]
pub struct Limits(pub Vec<Limit>);

impl Value for Limits {
    const SYNTAX: &'static str = "zone=name [burst=number] [nodelay | delay=number]";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let mut zone = None;
        let (mut burst, mut delay) = (0, 0);
        for (index, word) in args.iter().enumerate() {
            let text = word.bytes();
            let thousandths = |digits: &[u8], name: &str| {
                let number = number(digits).map(|number: i64| number.saturating_mul(1000));
                number.ok_or_else(|| {
                    Problem::new(format!("invalid {name} value \"{}\"", word.display())).at(index)
                })
            };
            match &text[..] {
                [b'z', b'o', b'n', b'e', b'=', name @ ..] => {
                    let named = scope.name_zone(name, 0, REQUEST_ZONES);
                    named.map_err(|problem| problem.at(index))?;
                    zone = Some(ZoneName::new(text.slice(5..)));
                }
                [b'b', b'u', b'r', b's', b't', b'=', digits @ ..] => {
                    burst = thousandths(digits, "burst")?;
                }
                [b'd', b'e', b'l', b'a', b'y', b'=', digits @ ..] => {
                    delay = thousandths(digits, "delay")?;
                }
                b"nodelay" => delay = i64::MAX,
                _ => {
                    let sentence = format!("invalid parameter \"{}\"", word.display());
                    return Err(Problem::new(sentence).at(index));
                }
            }
        }
        let must = || Problem::new("\"limit_req\" must have \"zone\" parameter");
        let zone = zone.ok_or_else(must)?;
        Ok(Self(vec![Limit { zone, burst, delay }]))
    }

    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        let Self(line) = Self::parse(args, scope)?;
        let Self(limits) = slot.get_or_insert_default();
        if limits
            .iter()
            .any(|known| known.zone.name == line[0].zone.name)
        {
            return Err(Problem::duplicate());
        }
        if limits.len() == LIMITS_MAX {
            let rest = format!("is repeated too often, there may be {LIMITS_MAX}");
            return Err(Problem::directive(rest));
        }
        limits.extend(line);
        Ok(())
    }

    fn absent() -> Option<Self> {
        Some(Self::default())
    }
}

directives! {
    /// Request rate (limit_req).
    pub struct LimitReq in Location {
        /// Limits requests to the rate of a zone (`limit_req_zone`). Up to `burst` excess requests are delayed until
        /// they conform to the rate; further ones are rejected. The first `delay` requests of the burst pass at once,
        /// all of them with `nodelay`. Several lines apply together. A level with lines of its own inherits none.
        limit_req: Limits = none, [HTTP | SERVER | LOCATION] 1..=3;
        /// Only logs requests that would be delayed or rejected.
        limit_req_dry_run: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Sets the level of log messages about rejected requests; delays are logged one level lower.
        limit_req_log_level: RefusalLevel = "error", [HTTP | SERVER | LOCATION] 1;
        /// Sets the status of rejected requests.
        limit_req_status: NumberWithin<400, 599> = "503", [HTTP | SERVER | LOCATION] 1;
    }
}

httpcore::variables! {
    /// The result of `limit_req`: `PASSED`, `DELAYED`, `REJECTED`, `DELAYED_DRY_RUN` or `REJECTED_DRY_RUN`.
    "limit_req_status" => fresh(limited::append_paced);
}

/// Whether requests are limited at a location.
#[must_use]
pub fn is_on(location: &Location) -> bool {
    !location.own::<LimitReq>().limit_req.0.is_empty()
}

/// Checks the zones; `Some`: the request is refused, or its client left during the delay.
pub async fn run(request: &Request) -> Option<Outcome> {
    let settings = request.location().own::<LimitReq>();
    if settings.limit_req.0.is_empty() || limited::of(request).paced.get().is_some() {
        return None;
    }
    // Boxed, since few requests are limited.
    Box::pin(ask(request)).await
}

async fn ask(request: &Request) -> Option<Outcome> {
    let generation = Rc::clone(&request.generation);
    let settings = generation.settings.location(request.location).groups();
    let settings = settings.own::<LimitReq>();
    let said = weigh(request, &settings.limit_req.0)?;
    let is_dry = settings.limit_req_dry_run;
    tell(request, settings, &said);
    let paced = match (&said, is_dry) {
        (RateVerdict::Refused { .. }, false) => Paced::Rejected,
        (RateVerdict::Refused { .. }, true) => Paced::RejectedDryRun,
        (RateVerdict::Passed { delay_ms: 0, .. }, _) => Paced::Passed,
        (RateVerdict::Passed { .. }, false) => Paced::Delayed,
        (RateVerdict::Passed { .. }, true) => Paced::DelayedDryRun,
    };
    limited::of(request).paced.set(Some(paced));
    if let Some(requests) = said.zone().state() {
        requests.figures().pace(paced);
    }
    match said {
        RateVerdict::Refused { .. } if !is_dry => {
            let status = u16::try_from(settings.limit_req_status.0).unwrap_or(503);
            Some(Outcome::Failed(Failure::new(status)))
        }
        RateVerdict::Passed { delay_ms, .. } if delay_ms > 0 && !is_dry => {
            wait(request, delay_ms).await
        }
        _ => None,
    }
}

/// The common verdict of the zones.
enum RateVerdict<'a> {
    /// It may pass after `delay_ms` milliseconds; `excess` is the excess over the rate of the zone that decided.
    Passed {
        delay_ms: u64,
        excess: i64,
        zone: &'a Zone<Requests>,
    },
    /// It may not pass. `excess` is the excess over the rate; `None`: the zone had no room for the key, which is
    /// logged.
    Refused {
        excess: Option<i64>,
        zone: &'a Zone<Requests>,
    },
}

impl<'a> RateVerdict<'a> {
    /// The zone that decided.
    fn zone(&self) -> &'a Zone<Requests> {
        match self {
            Self::Passed { zone, .. } | Self::Refused { zone, .. } => zone,
        }
    }
}

/// A zone that let the request pass and has not charged it yet.
struct PendingCharge<'a> {
    zone: &'a Zone<Requests>,
    requests: &'a Requests,
    slot: Slot,
    rule: Rule,
}

/// Checks one zone after the other; `None`: the request has no key that counts. The figures of every zone that let it
/// pass count it as passed, except those of the deciding zone.
fn weigh<'a>(request: &'a Request, limits: &[Limit]) -> Option<RateVerdict<'a>> {
    let zones = &request.settings().made::<Zones>().requests;
    let now_ms = i64::try_from(wire::loop_clock::monotonic_ms()).unwrap_or(i64::MAX);
    let mut asked: SmallVec<[PendingCharge<'_>; 4]> = SmallVec::new();
    let mut longest: Option<(u64, i64, &Zone<Requests>, &Requests)> = None;
    for (number, limit) in limits.iter().enumerate() {
        let Some((zone, requests)) = limit.zone.of(zones).and_then(|z| Some((z, z.state()?)))
        else {
            continue;
        };
        let Some(key) = key_of(request, zone) else {
            continue;
        };
        let rule = Rule {
            rate: zone.rate,
            burst: limit.burst,
            delay: limit.delay,
        };
        let is_last = number + 1 == limits.len();
        match requests.ask(&key, &rule, is_last, now_ms) {
            Verdict::Asked(slot) => asked.push(PendingCharge {
                zone,
                requests,
                slot,
                rule,
            }),
            Verdict::Charged(excess) => {
                longest = Some((delay_ms(excess, &rule), excess, zone, requests));
            }
            Verdict::Refused(excess) => return Some(refuse(&asked, zone, Some(excess))),
            Verdict::Full => return Some(refuse(&asked, zone, None)),
        }
    }
    for one in asked.iter().rev() {
        let excess = one.requests.charge(one.slot, &one.rule, now_ms);
        let delay_ms = delay_ms(excess, &one.rule);
        let is_longer = longest.is_none_or(|(known, ..)| delay_ms > known);
        let other = match is_longer {
            true => longest.replace((delay_ms, excess, one.zone, one.requests)),
            false => Some((delay_ms, excess, one.zone, one.requests)),
        };
        if let Some((.., requests)) = other {
            requests.figures().pace(Paced::Passed);
        }
    }
    longest.map(|(delay_ms, excess, zone, _)| RateVerdict::Passed {
        delay_ms,
        excess,
        zone,
    })
}

fn refuse<'a>(
    asked: &[PendingCharge<'_>],
    zone: &'a Zone<Requests>,
    excess: Option<i64>,
) -> RateVerdict<'a> {
    for one in asked {
        one.requests.forget(one.slot);
    }
    if excess.is_none() {
        let name = String::from_utf8_lossy(&zone.name);
        let text = format_args!("could not allocate node in limit_req zone \"{name}\"");
        error_log(logs::process_log::Level::Alert, text);
    }
    RateVerdict::Refused { excess, zone }
}

/// The request's key in a zone; `None` if it is empty or too long.
fn key_of(request: &Request, zone: &Zone<Requests>) -> Option<Bytes> {
    let key = request.evaluate(&zone.key);
    if key.len() > KEY_BYTES_MAX {
        super::limit_conn::log_long_key(request, &zone.key, &key, KEY_BYTES_MAX);
        return None;
    }
    (!key.is_empty()).then_some(key)
}

/// Logs the verdict, unless the request passes without delay.
fn tell(request: &Request, settings: &LimitReq, said: &RateVerdict<'_>) {
    let dry_run = match settings.limit_req_dry_run {
        true => ", dry run",
        false => "",
    };
    let gravity = settings.limit_req_log_level;
    let (level, what, excess, end, zone) = match said {
        RateVerdict::Refused {
            excess: Some(excess),
            zone,
        } => (gravity.level(), "limiting requests", *excess, "", zone),
        RateVerdict::Passed {
            delay_ms: 1..,
            excess,
            zone,
        } => (gravity.milder(), "delaying request", *excess, ",", zone),
        _ => return,
    };
    request.log(level, &|out| {
        let (whole, rest) = (excess / 1000, excess % 1000);
        let text = format!("{what}{dry_run}, excess: {whole}.{rest:03}{end} by zone \"");
        out.extend_from_slice(text.as_bytes());
        out.extend_from_slice(&zone.name);
        out.push(b'"');
    });
}

/// Waits, unless the client leaves meanwhile.
async fn wait(request: &Request, delay_ms: u64) -> Option<Outcome> {
    let wheel = &request.client.loop_.wire.wheel;
    let left = request.transport.peer_closed();
    let waited = wheel.timeout(Duration::from_millis(delay_ms), left);
    if waited.await.is_err() {
        return None;
    }
    request.log(Level::Info, &|out| {
        out.extend_from_slice(b"client prematurely closed connection");
    });
    Some(Outcome::Close(CLIENT_CLOSED))
}
