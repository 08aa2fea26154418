//! What is counted of requests where `status_zone` says so.
//!
//! By the zone's name, so that a reload begins nothing anew; each loop in memory of its own. Invariant: a request is counted when it has
//! ended, once in its server's zone and once in its location's, whatever became of it: as often as the access log has it.

use std::collections::BTreeMap;
use std::sync::Arc;

use disk::figures::{Histogram, Number, Times};
use parking_lot::Mutex;

use crate::loops::timing;
use crate::request::Request;

/// Zones of one configuration.
pub const ZONES_MAX: usize = 1024;

/// Of what kinds statuses are told apart.
pub const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "other"];

/// What one loop has counted of a zone.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ZoneFigures {
    classes: [Number; CLASSES.len()],
    received: Number,
    sent: Number,
    first_byte: Histogram,
    total: Histogram,
}

/// What all loops have.
#[derive(Debug, Default, Clone)]
pub struct ZoneSum {
    /// Requests by class of status.
    pub classes: [u64; CLASSES.len()],
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Until the first byte of the answer was sent.
    pub first_byte: Times,
    /// Until the request had ended.
    pub total: Times,
}

/// All zones: of each, what the loops count, by their slots.
#[derive(Debug, Default)]
pub struct Zones(Mutex<BTreeMap<String, BTreeMap<usize, Arc<ZoneFigures>>>>);

impl Zones {
    /// What the loop with this slot counts of a zone.
    #[must_use]
    pub fn of(&self, name: &str, slot: usize) -> Arc<ZoneFigures> {
        let mut zones = self.0.lock();
        let loops = zones.entry(name.to_owned()).or_default();
        Arc::clone(loops.entry(slot).or_default())
    }

    /// What all loops have counted of each.
    #[must_use]
    pub fn sums(&self) -> Vec<(String, ZoneSum)> {
        let zones = self.0.lock();
        let sums = zones.iter().map(|(name, loops)| {
            let mut sum = ZoneSum::default();
            loops.values().for_each(|figures| sum.add(figures));
            (name.clone(), sum)
        });
        sums.collect()
    }
}

impl ZoneSum {
    fn add(&mut self, figures: &ZoneFigures) {
        for (sum, count) in self.classes.iter_mut().zip(&figures.classes) {
            *sum += count.get();
        }
        self.received += figures.received.get();
        self.sent += figures.sent.get();
        self.first_byte.merge(&figures.first_byte);
        self.total.merge(&figures.total);
    }
}

/// A request has ended.
pub fn count(request: &Request) {
    let settings = &request.generation.settings;
    if settings.status_zones.is_empty() {
        return;
    }
    let own = settings.server(request.server).location;
    let zones = [
        settings.location(own).zone,
        settings
            .location(request.location)
            .zone
            .filter(|_| own != request.location),
    ];
    let now = timing::now_ns();
    let loop_ = &request.client.loop_;
    for zone in zones.into_iter().flatten() {
        let name = &settings.status_zones[zone];
        let figures = request
            .generation
            .zone(zone, || loop_.ledger.zones.of(name, loop_.figures.slot));
        figures.count(request, now);
    }
}

impl ZoneFigures {
    fn count(&self, request: &Request, now: u64) {
        let class = match request.status() {
            status @ 100..=599 => usize::from(status / 100) - 1,
            _ => CLASSES.len() - 1,
        };
        self.classes[class].add(1);
        self.received.add(request.length());
        self.sent.add(request.sent.get().bytes);
        let first = request.first_byte.get();
        if first > 0 {
            self.first_byte.record(first.saturating_sub(request.moment));
        }
        self.total.record(now.saturating_sub(request.moment));
    }
}
