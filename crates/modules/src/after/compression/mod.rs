//! Compresses answers on their way out: `zstd`, `brotli` and `gzip`, in this order where a client accepts several.
//!
//! That is the order of nginx's modules of these names, each of which leaves an answer alone that already has an
//! encoding. Quality values do not choose among codings, they only refuse one with `q=0`. Not here: which clients
//! accept which coding (`accept`), and how bodies are coded (`coded`). Invariant: sub-requests are never compressed,
//! since their bodies go into another one.

pub mod accept;
pub mod brotli;
pub mod coded;
mod counters;
pub mod gunzip;
pub mod gzip;
mod places;
pub(crate) mod ratio;
pub mod zstd;

pub use counters::METRICS;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use ::config::{Bufs, Groups, Problem, Scope, Size, Value, Word};
use bytes::Bytes;
use disk::memory::MemoryLevel;
use disk::memory::level::level;

use crate::after::compression::accept::Accepting;
use crate::after::compression::brotli::Brotli;
use crate::after::compression::gzip::Gzip;
use crate::after::compression::zstd::Zstd;
use httpcore::Response;
use httpcore::request::Request;
use httpcore::request::state::State;
use message::HeaderId;

use super::media_types::MediaTypes;
use httpcore::body_filter::Steps;

use coded::Coder;
use counters::{Codec, CodecCounters};
use places::Place;
use ratio::Ratio;

/// The codings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// `Content-Encoding: gzip`.
    Gzip,
    /// `br`.
    Brotli,
    /// `zstd`.
    Zstd,
}

impl Coding {
    /// Its name in `Content-Encoding`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Coding::Gzip => "gzip",
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
        }
    }
}

/// Whether the client may be sent gzip: determined once for each answer, by the first step that asks, as in nginx.
#[derive(Debug, Default)]
pub struct GzipTest(Option<bool>);

/// What `gzip_static` has determined, before there was a response.
#[derive(Debug, Default)]
struct TestedBefore(Cell<Option<bool>>);

impl State for TestedBefore {
    fn survives_redirect(&self) -> bool {
        false
    }
}

impl GzipTest {
    /// Determines it where there is no response yet. What this finds holds for the response, too.
    pub fn takes_before(request: &Request) -> bool {
        let takes = accept::takes_gzip(request, None);
        // Only for a proxy does it depend on the response.
        if request.head.get(HeaderId::Via).is_some() {
            let tested: &TestedBefore = request.states.get_or_default();
            tested.0.set(Some(takes));
        }
        takes
    }

    /// For the steps that follow the content.
    #[must_use]
    pub fn of(request: &Request) -> Self {
        let tested: Option<&TestedBefore> = request.states.get();
        Self(tested.and_then(|tested| tested.0.get()))
    }

    /// Whether it may.
    pub fn takes(&mut self, request: &Request, response: &Response) -> bool {
        *self
            .0
            .get_or_insert_with(|| accept::takes_gzip(request, Some(response)))
    }
}

/// A directive that has no effect here, since memory is taken as it is needed: only its line is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unused;

impl Value for Unused {
    const SYNTAX: &'static str = "number size";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        Bufs::parse(args, scope)?;
        Ok(Self)
    }

    fn absent() -> Option<Self> {
        Some(Self)
    }
}

/// Maximum level of `zstd` and `brotli` while memory is scarce: compressors of higher ones take tens of megabytes each.
const SCARCE_LEVEL_MAX: i32 = 4;

/// The level to compress with now, of a configured one.
fn level_now(configured: i32) -> i32 {
    level_at(level(), configured)
}

fn level_at(scarcity: MemoryLevel, configured: i32) -> i32 {
    match scarcity >= MemoryLevel::Windows {
        true => configured.min(SCARCE_LEVEL_MAX),
        false => configured,
    }
}

/// A place for a compressor, and its level: a lower one, if there is room only for that. `None`: there is room for
/// neither. `bytes`: about what a level takes.
fn place(configured: i32, bytes: impl Fn(i32) -> usize) -> Option<(i32, Place)> {
    let level = level_now(configured);
    let of = |level| Some((level, Place::take(bytes(level))?));
    of(level).or_else(|| (level > SCARCE_LEVEL_MAX).then(|| of(SCARCE_LEVEL_MAX))?)
}

/// Whether a level compresses.
#[must_use]
pub fn is_on(settings: &dyn Groups) -> bool {
    settings.own::<Zstd>().zstd || settings.own::<Brotli>().brotli || settings.own::<Gzip>().gzip
}

/// Records that clients that accept other codings would get another answer (`gzip_vary`).
pub fn mark_varying(request: &Request, response: &mut Response) {
    response.vary_accept_encoding |= request.location().own::<Accepting>().gzip_vary;
}

/// Has an answer compressed, if that is due.
pub fn decide(
    request: &mut Request,
    settings: &dyn Groups,
    response: &mut Response,
    test: &mut GzipTest,
    steps: &mut Steps,
) {
    let encoding = response.content_encoding.as_ref();
    let is_encoded = encoding.is_some_and(|encoding| !encoding.is_empty());
    if is_encoded || !matches!(response.status, 200 | 403 | 404) || request.is_subrequest() {
        return;
    }
    let len = response.content_length;
    if settings.own::<Zstd>().zstd {
        let zstd = settings.own::<Zstd>();
        if may_compress(response, zstd.zstd_min_length, &zstd.zstd_types) {
            mark_varying(request, response);
            if accept::takes(request, Coding::Zstd)
                && let Some((level, place)) = counted(request, Codec::Zstd, zstd.place(len))
            {
                let make = move |settings: &dyn Groups| settings.own::<Zstd>().coder(len, level);
                return compress(request, response, (Coding::Zstd, place), make, steps);
            }
        }
    }
    if settings.own::<Brotli>().brotli {
        let brotli = settings.own::<Brotli>();
        if may_compress(response, brotli.brotli_min_length, &brotli.brotli_types) {
            mark_varying(request, response);
            if accept::takes(request, Coding::Brotli)
                && let Some((level, place)) = counted(request, Codec::Brotli, brotli.place(len))
            {
                let make = move |settings: &dyn Groups| settings.own::<Brotli>().coder(len, level);
                return compress(request, response, (Coding::Brotli, place), make, steps);
            }
        }
    }
    if settings.own::<Gzip>().gzip {
        let gzip = settings.own::<Gzip>();
        if may_compress(response, gzip.gzip_min_length, &gzip.gzip_types) {
            mark_varying(request, response);
            if test.takes(request, response)
                && let Some(place) = counted(request, Codec::Gzip, gzip.place())
            {
                let make = |settings: &dyn Groups| settings.own::<Gzip>().coder();
                compress(request, response, (Coding::Gzip, place), make, steps);
            }
        }
    }
}

/// Counts a response for whose compressor there is no place.
fn counted<T>(request: &Request, codec: Codec, place: Option<T>) -> Option<T> {
    if place.is_none() {
        let counters: Arc<CodecCounters> = request.client.loop_.figures.share();
        counters.of(codec).refused.add(1);
    }
    place
}

fn may_compress(response: &Response, min_length: Size, types: &MediaTypes) -> bool {
    let length = response.content_length;
    length.is_none_or(|length| length >= min_length.0) && types.has(response)
}

/// Has an answer compressed by the coder that `make` creates.
fn compress<C: Coder>(
    request: &mut Request,
    response: &mut Response,
    (coding, place): (Coding, Place),
    make: impl FnOnce(&dyn Groups) -> C + 'static,
    steps: &mut Steps,
) {
    response.content_encoding = Some(Bytes::from_static(coding.name().as_bytes()));
    response.becomes_another();
    let ratio = Rc::new(Ratio::new(coding));
    request.states.put(Rc::clone(&ratio));
    steps.push(move |request, body| {
        let coder = make(request.location().groups());
        coded::body(request, body, coder, Some((ratio, place)))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_levels_are_for_times_of_enough_memory() {
        for (scarcity, configured, now) in [
            (MemoryLevel::Buffers, 19, 19),
            (MemoryLevel::Windows, 19, 4),
            (MemoryLevel::Accept, 19, 4),
            (MemoryLevel::Fills, -7, -7),
        ] {
            assert_eq!(level_at(scarcity, configured), now);
        }
    }
}
