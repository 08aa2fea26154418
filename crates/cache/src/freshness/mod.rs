//! Whether a response may be stored, how long it is fresh, and when it may be used: nginx's rules, corrected where RFC
//! 9111 is plain and no configuration relies on the error, and one set of switches for the rest.
//!
//! Pure: reads no clock and no disk; times are arguments, in seconds since 1970. Invariant: of two readings of a
//! header, the one that makes the response older is taken.

mod control;
mod fields;
mod parsed_fields;
mod rules;
#[cfg(test)]
mod tests;
mod usage;

pub use control::{DELTA_MAX, RequestControl};
pub use fields::{invalidates, stored_fields, updated_fields};
pub use rules::{Heuristic, IgnoredHeaders, Rules, ValidFor};
pub use usage::{OriginFailure, ReuseDecision};

use crate::entry::VARY_BYTES_MAX;
use crate::lifetime::{Lifetime, Reuse};
use control::{CacheControl, Delta};
use message::HeaderId;
use message::date::Seconds;
use parsed_fields::{Accel, ExpiresField, ParsedFields};

/// A header line: name, value, and the id of a well-known name.
pub type FieldLine<'a> = (&'a [u8], &'a [u8], HeaderId);

/// A response of the origin that is to be judged.
#[derive(Clone, Copy, Debug)]
pub struct OriginResponse<I> {
    /// The status code.
    pub status: u16,
    /// The header lines.
    pub fields: I,
    /// Did the request have `Authorization`?
    pub is_authorized: bool,
    /// Is a 206 the response to a range that this server itself requested (`slice`), so that it may be stored as it is?
    pub is_slice: bool,
    /// When the request was sent.
    pub asked: Seconds,
    /// When the response's head was received.
    pub now: Seconds,
}

/// Whether a response is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreVerdict {
    /// It may be stored.
    Store(Storable),
    /// It may not be stored, and why.
    Pass(PassReason),
}

/// How a response is to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storable {
    /// How long it may be used.
    pub lifetime: Lifetime,
    /// The names in `Vary`, as `vary_names` writes them; empty if there are none.
    pub vary: Vec<u8>,
    /// Names of fields that may not be stored (`no-cache="f"`, `private="f"`; RFC 9111, 5.2.2.4 and 5.2.2.7), in lower
    /// case.
    pub without: Vec<Vec<u8>>,
}

/// Why a response is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PassReason {
    /// 1xx, 304, or a 206 that is no slice.
    #[error("its status")]
    Status,
    /// `Set-Cookie`.
    #[error("Set-Cookie")]
    SetCookie,
    /// `Vary: *`, or too many names.
    #[error("Vary")]
    Vary,
    /// The request had `Authorization`, and nothing in the response allows sharing it (RFC 9111, 3.5).
    #[error("Authorization")]
    Authorization,
    /// `X-Accel-Expires: 0`.
    #[error("X-Accel-Expires")]
    Accel,
    /// `no-store`.
    #[error("no-store")]
    NoStore,
    /// `private`.
    #[error("private")]
    Private,
    /// `no-cache`, if responses are not stored only to be revalidated.
    #[error("no-cache")]
    NoCache,
    /// It would never be fresh.
    #[error("stale when it came")]
    Stale,
    /// A number in `Cache-Control` is malformed.
    #[error("Cache-Control")]
    Invalid,
    /// No header line and no rule gives a lifetime.
    #[error("no lifetime")]
    NoLifetime,
}

/// Judges a response (RFC 9111, 3; nginx: `X-Accel-Expires`, then `Cache-Control`, then `ExpiresField`, then
/// `proxy_cache_valid`, whatever the order of the lines).
pub fn judge<'a, I>(answer: &OriginResponse<I>, rules: &Rules) -> StoreVerdict
where
    I: Iterator<Item = FieldLine<'a>> + Clone,
{
    let said = ParsedFields::of(answer.fields.clone(), rules);
    match weigh(answer, &said, rules) {
        Ok((lifetime, without)) => StoreVerdict::Store(Storable {
            lifetime,
            vary: said.vary.unwrap_or_default(),
            without,
        }),
        Err(why) => StoreVerdict::Pass(why),
    }
}

fn weigh<I>(
    answer: &OriginResponse<I>,
    said: &ParsedFields,
    rules: &Rules,
) -> Result<(Lifetime, Vec<Vec<u8>>), PassReason> {
    may_be_shared(answer, said, rules)?;
    let control = &said.control;
    let age = initial_age(answer, said, rules);
    let (expires, reuse) = match lifetime(answer, said, rules)? {
        FreshnessLifetime::Until(time) => (time, Reuse::Plain),
        FreshnessLifetime::For(seconds) => (answer.now.saturating_add(seconds), Reuse::Plain),
        FreshnessLifetime::Aging(seconds) => {
            (answer.now.saturating_add(seconds - age), Reuse::Plain)
        }
        FreshnessLifetime::Never => (answer.now - 1, Reuse::Revalidate),
    };
    let is_aged_out = expires < answer.now && said.accel.is_none();
    if is_aged_out && !rules.stores_stale {
        return Err(PassReason::Stale);
    }
    let never_stale = control.is_never_stale() && reuse == Reuse::Plain;
    let updating = control.stale_while_revalidate.map(Delta::or_zero);
    let error = control.stale_if_error.map(Delta::or_zero);
    // nginx: the first window is the second's default.
    let error = error.or(updating.filter(|_| !rules.separates_windows));
    let lifetime = Lifetime {
        date: answer.now,
        expires,
        updating: updating.unwrap_or_default(),
        error: error.unwrap_or_default(),
        initial_age: u32::try_from(age).unwrap_or(u32::MAX),
        reuse: if never_stale {
            Reuse::NeverStale
        } else {
            reuse
        },
    };
    Ok((lifetime, control.fields.clone()))
}

/// The conditions that forbid storing, whatever the lifetime.
fn may_be_shared<I>(
    answer: &OriginResponse<I>,
    said: &ParsedFields,
    rules: &Rules,
) -> Result<(), PassReason> {
    match answer.status {
        ..200 | 304 => return Err(PassReason::Status),
        206 if !answer.is_slice => return Err(PassReason::Status),
        _ => {}
    }
    if said.has_cookie {
        return Err(PassReason::SetCookie);
    }
    let names = said.vary.as_ref().ok_or(PassReason::Vary)?;
    if names.len() > VARY_BYTES_MAX {
        return Err(PassReason::Vary);
    }
    if answer.is_authorized && !rules.shares_authorized && !said.control.allows_authorized() {
        return Err(PassReason::Authorization);
    }
    Ok(())
}

/// The freshness lifetime of a response (RFC 9111, 4.2.1).
enum FreshnessLifetime {
    /// Fresh until this time.
    Until(Seconds),
    /// Seconds from now, whatever its age: the field is meant for this cache.
    For(i64),
    /// Seconds less the time that it spent elsewhere (RFC 9111, 4.2.3).
    Aging(i64),
    /// Never fresh: to be revalidated at each use.
    Never,
}

fn lifetime<I>(
    answer: &OriginResponse<I>,
    said: &ParsedFields,
    rules: &Rules,
) -> Result<FreshnessLifetime, PassReason> {
    match said.accel {
        Some(Accel::Off) => return Err(PassReason::Accel),
        Some(Accel::Until(time)) => return Ok(FreshnessLifetime::Until(time)),
        Some(Accel::For(seconds)) => return Ok(FreshnessLifetime::For(seconds)),
        None => {}
    }
    if let Some(term) = controlled(&said.control, rules)? {
        return Ok(term);
    }
    // RFC 9213, 2.1: with a targeted field, Expires is ignored.
    match said.expires.filter(|_| !said.is_targeted) {
        Some(ExpiresField::At(time)) => {
            // RFC 9111, 4.2.1: the difference of two times of one clock.
            let lifetime = time.saturating_sub(said.date.unwrap_or(answer.now));
            return stale_or(lifetime, lifetime < 0, rules);
        }
        Some(ExpiresField::Invalid) => return stale_or(0, true, rules),
        None => {}
    }
    if let Some(seconds) = rules.valid(answer.status) {
        return Ok(FreshnessLifetime::For(i64::from(seconds)));
    }
    let heuristic = rules.heuristic.as_ref();
    let guess = heuristic.and_then(|heuristic| heuristic.guess(answer.status, answer.now, said));
    guess
        .map(FreshnessLifetime::Aging)
        .ok_or(PassReason::NoLifetime)
}

/// The lifetime by `Cache-Control`; None if it gives no time.
fn controlled(
    control: &CacheControl,
    rules: &Rules,
) -> Result<Option<FreshnessLifetime>, PassReason> {
    if control.no_store {
        return Err(PassReason::NoStore);
    }
    if control.private {
        return Err(PassReason::Private);
    }
    if control.no_cache {
        return stale_or(0, true, rules)
            .map_err(|_| PassReason::NoCache)
            .map(|_| Some(FreshnessLifetime::Never));
    }
    if control.has_invalid() && !rules.stores_stale {
        return Err(PassReason::Invalid);
    }
    let age = control.s_maxage.or(control.max_age);
    let Some(seconds) = age.map(Delta::or_zero) else {
        return Ok(None);
    };
    let seconds = i64::from(seconds);
    stale_or(seconds, seconds == 0, rules).map(Some)
}

/// A response that is never fresh is stored only if the rules want it for revalidation.
fn stale_or(seconds: i64, is_stale: bool, rules: &Rules) -> Result<FreshnessLifetime, PassReason> {
    match is_stale {
        false => Ok(FreshnessLifetime::Aging(seconds)),
        true if rules.stores_stale => Ok(FreshnessLifetime::Aging(seconds.min(-1))),
        true => Err(PassReason::Stale),
    }
}

/// corrected_initial_age (RFC 9111, 4.2.3).
fn initial_age<I>(answer: &OriginResponse<I>, said: &ParsedFields, rules: &Rules) -> i64 {
    if !rules.counts_age {
        return 0;
    }
    let delay = answer.now.saturating_sub(answer.asked).max(0);
    let received = said.age.map(|age| i64::from(age).saturating_add(delay));
    if !rules.counts_apparent_age {
        return received.unwrap_or_default();
    }
    let apparent = said.date.map(|date| answer.now.saturating_sub(date));
    let apparent = apparent.unwrap_or_default().max(0);
    apparent.max(received.unwrap_or(delay))
}
