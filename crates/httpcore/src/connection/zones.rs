//! Requests as their zones count them (`status_zone`): in progress, and at their end.
//!
//! Not here: the counters ([`crate::status_zone`]).

use std::sync::Arc;

use runtime::timing::poll_timing;

use crate::request::Request;
use crate::status_zone::{Ended, Running, ZoneFigures};

/// Counts a request in progress as long as the result lives; `None`: its server has no zone.
#[must_use]
pub(super) fn begin(request: &Request) -> Option<Running> {
    let settings = &request.generation.settings;
    if settings.status_zones.is_empty() {
        return None;
    }
    let own = settings.server(request.server).location;
    let figures = find(request, settings.location(own).zone?);
    Some(Running::begin(figures))
}

/// Counts a request that has ended.
pub(super) fn count(request: &Request) {
    let settings = &request.generation.settings;
    if settings.status_zones.is_empty() {
        return;
    }
    let own = settings.server(request.server).location;
    let of_server = settings.location(own).zone;
    // The first location that had the request, and not the one of an error page that took it over.
    let of_location = request
        .first_zone
        .or_else(|| settings.location(request.location).zone);
    let zones = [
        of_server,
        of_location.filter(|zone| of_server != Some(*zone)),
    ];
    for zone in zones.into_iter().flatten() {
        find(request, zone).count(&ended(request));
    }
}

fn ended(request: &Request) -> Ended {
    let first = Some(request.first_byte.get()).filter(|first| *first > 0);
    Ended {
        status: request.status(),
        received: request.length(),
        sent: request.sent.get().bytes,
        first_byte_ns: first.map(|first| first.saturating_sub(request.moment)),
        total_ns: end_of(request).saturating_sub(request.moment),
    }
}

/// The time of its end: the start of the poll that ended it, unless the response began in that poll. The clock is read
/// only where neither is known.
fn end_of(request: &Request) -> u64 {
    match poll_timing::moment() {
        0 => poll_timing::now_ns(),
        woken => woken.max(request.first_byte.get()),
    }
}

/// The counters of a zone in the request's loop.
fn find(request: &Request, zone: usize) -> &Arc<ZoneFigures> {
    let generation = &request.generation;
    generation.zone(zone, || {
        let name = &generation.settings.status_zones[zone];
        let client = &request.client;
        client.http.zones.of(name, client.loop_.figures.slot)
    })
}
