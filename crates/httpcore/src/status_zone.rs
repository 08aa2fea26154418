//! Counters of requests, by `status_zone`.
//!
//! They are kept by the zone's name, so that a reload resets nothing; each loop counts in memory of its own.
//! Invariants: a request is counted at its end, once in its server's zone and once in its location's, whatever its
//! outcome: as often as the access log has it. At most [`ZONES_KEPT_MAX`] zones are told apart, over all reloads.

use std::collections::BTreeMap;
use std::sync::Arc;

use disk::metrics::{Histogram, Number, Times};
use parking_lot::Mutex;
use runtime::metrics::Page;
use runtime::{Ledger, PARTS, families};
use slots::slotted;

families! {
    /// The families of these counters.
    pub FAMILIES;
    ZONE_REQUESTS Counter "freewheel_zone_requests" "" ["zone", "status"] "Requests that have ended, by class of status (status_zone).";
    ZONE_RUNNING Gauge "freewheel_zone_requests_running" "" ["zone"] "Requests in progress at the servers of the zone; missing if only locations use it.";
    ZONE_BYTES Counter "freewheel_zone_bytes" "bytes" ["zone", "direction"] "Bytes of these requests: received from clients, sent to them.";
    ZONE_FIRST_BYTE Histogram "freewheel_zone_first_byte_seconds" "seconds" ["zone"] "Time from a request's arrival to the first byte of its response.";
    ZONE_TOTAL Histogram "freewheel_zone_request_seconds" "seconds" ["zone"] "Time from a request's arrival to its end.";
}

slotted!(PARTS: Zones);

/// Maximum number of zones of one configuration.
pub const ZONES_MAX: usize = 1024;
/// Maximum number of zones that are told apart: those in service, and those of earlier configurations. When a further
/// one comes, zones in which nothing is counted any more are forgotten.
pub const ZONES_KEPT_MAX: usize = 4 * ZONES_MAX;
/// Overflow zone: used when [`ZONES_KEPT_MAX`] zones are still referenced by requests of old configurations.
const OTHERS: &str = "";

/// The classes of statuses.
pub const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "other"];

/// One loop's counters of a zone.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ZoneFigures {
    /// Requests that began at a server of this zone.
    begun: Number,
    /// Of these, those that have ended.
    ended: Number,
    classes: [Number; CLASSES.len()],
    received: Number,
    sent: Number,
    first_byte: Histogram,
    total: Histogram,
}

/// A request at a server of a zone, from its header to its end.
#[derive(Debug)]
pub struct Running(Arc<ZoneFigures>);

impl Running {
    /// Counts it as begun.
    #[must_use]
    pub fn begin(figures: &Arc<ZoneFigures>) -> Self {
        figures.begun.add(1);
        Self(Arc::clone(figures))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.ended.add(1);
    }
}

/// The sum over all loops.
#[derive(Debug, Default, Clone)]
pub struct ZoneSum {
    /// Requests in progress; `None`: the zone belongs to locations only, and a request may leave one for another.
    pub running: Option<u64>,
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

/// The loops' counters of one zone, by slot.
type Loops = BTreeMap<usize, Arc<ZoneFigures>>;

/// All zones.
#[derive(Debug, Default)]
pub struct Zones(Mutex<BTreeMap<Arc<str>, Loops>>);

impl Zones {
    /// The counters of a zone in the loop with this slot.
    #[must_use]
    pub fn of(&self, name: &str, slot: usize) -> Arc<ZoneFigures> {
        let zones = &mut *self.0.lock();
        if zones.len() >= ZONES_KEPT_MAX && !zones.contains_key(name) {
            zones.retain(|_, loops| loops.values().any(|figures| Arc::strong_count(figures) > 1));
        }
        let is_known = zones.len() < ZONES_KEPT_MAX || zones.contains_key(name);
        let name = if is_known { name } else { OTHERS };
        let loops = zones.entry(name.into()).or_default();
        Arc::clone(loops.entry(slot).or_default())
    }

    /// The sums over all loops, by zone.
    #[must_use]
    pub fn sums(&self) -> Vec<(Arc<str>, ZoneSum)> {
        // A copy: adding up takes long, and a loop may look for its zone meanwhile.
        let zones: Vec<(Arc<str>, Vec<Arc<ZoneFigures>>)> = {
            let zones = self.0.lock();
            let copy = |(name, loops): (&Arc<str>, &Loops)| {
                (Arc::clone(name), loops.values().cloned().collect())
            };
            zones.iter().map(copy).collect()
        };
        let sum = |(name, loops): (Arc<str>, Vec<Arc<ZoneFigures>>)| {
            let mut sum = ZoneSum::default();
            loops.iter().for_each(|figures| sum.add(figures));
            (name, sum)
        };
        zones.into_iter().map(sum).collect()
    }
}

impl ZoneSum {
    fn add(&mut self, figures: &ZoneFigures) {
        // In this order, so that a request that begins and ends in between cannot make the difference negative.
        let ended = figures.ended.get();
        let begun = figures.begun.get();
        if begun > 0 {
            *self.running.get_or_insert_default() += begun - ended.min(begun);
        }
        for (sum, count) in self.classes.iter_mut().zip(&figures.classes) {
            *sum += count.get();
        }
        self.received += figures.received.get();
        self.sent += figures.sent.get();
        self.first_byte.merge(&figures.first_byte);
        self.total.merge(&figures.total);
    }
}

/// The worker's zones.
pub fn zones(ledger: &Ledger) -> Arc<Zones> {
    ledger.share_part()
}

/// Shows all zones.
pub fn show(ledger: &Ledger, page: &mut Page) {
    for (name, sum) in zones(ledger).sums() {
        for (class, count) in CLASSES.iter().zip(sum.classes) {
            page.whole(&ZONE_REQUESTS, &[&name, class], count);
        }
        if let Some(running) = sum.running {
            page.whole(&ZONE_RUNNING, &[&name], running);
        }
        page.whole(&ZONE_BYTES, &[&name, "received"], sum.received);
        page.whole(&ZONE_BYTES, &[&name, "sent"], sum.sent);
        page.times(&ZONE_FIRST_BYTE, &[&name], sum.first_byte);
        page.times(&ZONE_TOTAL, &[&name], sum.total);
    }
}

/// A request that has ended, as its zones count it.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// The status of its response; 0: none.
    pub status: u16,
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Nanoseconds until the first byte of the response was sent; `None`: it is not known.
    pub first_byte_ns: Option<u64>,
    /// Nanoseconds until its end.
    pub total_ns: u64,
}

impl ZoneFigures {
    /// Counts a request that has ended.
    pub fn count(&self, ended: &Ended) {
        let class = match ended.status {
            status @ 100..=599 => usize::from(status / 100) - 1,
            _ => CLASSES.len() - 1,
        };
        self.classes[class].add(1);
        self.received.add(ended.received);
        self.sent.add(ended.sent);
        if let Some(first_byte_ns) = ended.first_byte_ns {
            self.first_byte.record(first_byte_ns);
        }
        self.total.record(ended.total_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_that_nothing_counts_in_are_forgotten_for_others() {
        let zones = Zones::default();
        let kept = zones.of("kept", 0);
        for number in 0..2 * ZONES_KEPT_MAX {
            let _ = zones.of(&number.to_string(), 0);
            assert!(zones.0.lock().len() <= ZONES_KEPT_MAX);
        }
        assert!(Arc::ptr_eq(&kept, &zones.of("kept", 0)));
    }

    #[test]
    fn what_cannot_be_told_apart_is_counted_together() {
        let zones = Zones::default();
        let names = (0..2 * ZONES_KEPT_MAX).map(|number| number.to_string());
        let all: Vec<_> = names.map(|name| zones.of(&name, 0)).collect();
        let sums = zones.sums();
        assert_eq!(sums.len(), ZONES_KEPT_MAX + 1);
        assert_eq!(&*sums[0].0, OTHERS);
        assert!(Arc::ptr_eq(
            &all[ZONES_KEPT_MAX],
            &all[2 * ZONES_KEPT_MAX - 1]
        ));
        assert!(!Arc::ptr_eq(&all[0], &all[1]));
    }

    #[test]
    fn requests_in_progress_are_those_that_have_not_ended() {
        let zones = Zones::default();
        let figures = zones.of("zone", 0);
        assert_eq!(zones.sums()[0].1.running, None);
        let begin = || {
            figures.begun.add(1);
            Running(Arc::clone(&figures))
        };
        let (one, other) = (begin(), begin());
        assert_eq!(zones.sums()[0].1.running, Some(2));
        drop(one);
        assert_eq!(zones.sums()[0].1.running, Some(1));
        drop(other);
        assert_eq!(zones.sums()[0].1.running, Some(0));
    }
}
