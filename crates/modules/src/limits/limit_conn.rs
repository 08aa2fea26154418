//! `limit_conn`: limits the requests with the same key that are answered at the same time. nginx-drop-in 52.
//!
//! Not here: the counting (`crate::limits::connections`). Invariant: a request is checked once, and counted once in a
//! zone, until it and its sub-requests have ended.

use bytes::Bytes;
use config::{Flag, NumberWithin, Problem, Scope, Template, Value, Word, directives};
use logs::Level;
use logs::process_log::error_log;

use crate::limits::Zones;
use crate::limits::connections::{CountedRequest, Refused};
use crate::limits::zones::{CONNECTION_ZONES, number};
use crate::limits::{Counted, LIMITS_MAX, RefusalLevel, ZoneName, limited};
use httpcore::Failure;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::settings::Location;

/// Maximum bytes of a key.
const KEY_BYTES_MAX: usize = 255;
/// Maximum requests that a line may allow for one key.
const COUNT_MAX: i64 = 65_535;

/// One `limit_conn` line.
#[derive(Debug, Clone)]
pub struct Limit {
    /// The zone that counts the requests.
    pub zone: ZoneName,
    max: u32,
}

/// The lines of one level.
#[derive(Debug, Clone, Default)]
pub struct Limits(pub Vec<Limit>);

impl Value for Limits {
    const SYNTAX: &'static str = "zone number";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let [zone, count] = args else {
            return Err(Problem::argument_count("limit_conn"));
        };
        let named = scope.name_zone(zone.bytes(), 0, CONNECTION_ZONES);
        named.map_err(|problem| problem.at(0))?;
        let invalid = || {
            let text = count.display();
            Problem::new(format!("invalid number of connections \"{text}\"")).at(1)
        };
        let max = number(count.bytes()).ok_or_else(invalid)?;
        if max > COUNT_MAX {
            return Err(Problem::new("connection limit must be less 65536").at(1));
        }
        Ok(Self(vec![Limit {
            zone: ZoneName::new(zone.bytes().clone()),
            max: u32::try_from(max).map_err(|_| invalid())?,
        }]))
    }

    fn set(slot: &mut Option<Self>, args: &[Word], scope: &mut Scope) -> Result<(), Problem> {
        let Self(limits) = slot.get_or_insert_default();
        if limits
            .iter()
            .any(|known| args[0].bytes() == &known.zone.name)
        {
            return Err(Problem::duplicate());
        }
        if limits.len() == LIMITS_MAX {
            let rest = format!("is repeated too often, there may be {LIMITS_MAX}");
            return Err(Problem::directive(rest));
        }
        limits.extend(Self::parse(args, scope)?.0);
        Ok(())
    }

    fn absent() -> Option<Self> {
        Some(Self::default())
    }
}

directives! {
    /// Concurrent requests (limit_conn).
    pub struct LimitConn in Location {
        /// Limits the requests being answered at a time for one key of a zone (`limit_conn_zone`); that is mostly the
        /// number of connections. Several lines apply together. A level with lines of its own inherits none.
        limit_conn: Limits = none, [HTTP | SERVER | LOCATION] 2;
        /// Only logs requests that would be rejected.
        limit_conn_dry_run: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Sets the level of log messages about rejected requests.
        limit_conn_log_level: RefusalLevel = "error", [HTTP | SERVER | LOCATION] 1;
        /// Sets the status of rejected requests.
        limit_conn_status: NumberWithin<400, 599> = "503", [HTTP | SERVER | LOCATION] 1;
    }
}

httpcore::variables! {
    /// The result of `limit_conn`: `PASSED`, `REJECTED` or `REJECTED_DRY_RUN`.
    "limit_conn_status" => fresh(limited::append_counted);
}

/// Whether requests are limited at a location.
#[must_use]
pub fn is_on(location: &Location) -> bool {
    !location.own::<LimitConn>().limit_conn.0.is_empty()
}

/// Counts the request; `Some`: it is refused.
pub fn run(request: &Request) -> Option<Outcome> {
    let settings = request.location().own::<LimitConn>();
    if settings.limit_conn.0.is_empty() {
        return None;
    }
    let limited = limited::of(request);
    if limited.counted.get().is_some() {
        return None;
    }
    for limit in &settings.limit_conn.0 {
        let zones = &request.settings().made::<Zones>().connections;
        let Some((zone, connections)) = limit.zone.of(zones).and_then(|z| Some((z, z.state()?)))
        else {
            continue;
        };
        let key = request.evaluate(&zone.key);
        if key.len() > KEY_BYTES_MAX {
            log_long_key(request, &zone.key, &key, KEY_BYTES_MAX);
            continue;
        }
        if key.is_empty() {
            continue;
        }
        limited.counted.set(Some(Counted::Passed));
        match connections.take(&key, limit.max) {
            Ok(held) => limited.held.borrow_mut().push(held),
            Err(refused) => {
                limited.held.take();
                let outcome = refuse(request, settings, refused, &zone.name);
                if let Some(said) = limited.counted.get() {
                    connections.figures().count(said);
                }
                return outcome;
            }
        }
    }
    limited
        .held
        .borrow()
        .iter()
        .for_each(CountedRequest::count_passed);
    None
}

fn refuse(
    request: &Request,
    settings: &LimitConn,
    refused: Refused,
    zone: &Bytes,
) -> Option<Outcome> {
    let is_dry = settings.limit_conn_dry_run;
    let counted = &limited::of(request).counted;
    match refused {
        Refused::Limit => request.log(settings.limit_conn_log_level.level(), &|out| {
            out.extend_from_slice(b"limiting connections");
            if is_dry {
                out.extend_from_slice(b", dry run,");
            }
            out.extend_from_slice(b" by zone \"");
            out.extend_from_slice(zone);
            out.push(b'"');
        }),
        Refused::Full => {
            let name = String::from_utf8_lossy(zone);
            error_log(
                logs::process_log::Level::Crit,
                format_args!("ngx_slab_alloc() failed: no memory in limit_conn_zone \"{name}\""),
            );
        }
    }
    if is_dry {
        counted.set(Some(Counted::RejectedDryRun));
        return None;
    }
    counted.set(Some(Counted::Rejected));
    let status = u16::try_from(settings.limit_conn_status.0).unwrap_or(503);
    Some(Outcome::Failed(Failure::new(status)))
}

/// Logs that a request is not counted, since its key is too long.
pub fn log_long_key(request: &Request, key: &Template, value: &[u8], max: usize) {
    request.log(Level::Error, &|out| {
        out.extend_from_slice(b"the value of the \"");
        out.extend_from_slice(key.source());
        out.extend_from_slice(format!("\" key is more than {max} bytes: \"").as_bytes());
        out.extend_from_slice(value);
        out.push(b'"');
    });
}
