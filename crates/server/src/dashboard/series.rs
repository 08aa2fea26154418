//! The series that are made of the figures, and a sample of them at each interval, both as events of a stream (HTML,
//! 9.2 "Server-sent events").
//!
//! A counter's number is its growth since the last sample, a gauge's is its value, a histogram's is `[count, p50, p99,
//! longest]` of the values since then, in microseconds, or 0. A series keeps its place in every sample; the place of a
//! series that has ended is reused when no kept sample has it any more.
//!
//! Where names of the configuration (zones, peers) make more than [`FAMILY_MAX`] series of a family, the first that
//! count anything have places of their own, and the rest is one series: added up, so that the sum of all is always right; of
//! moments, ages and states it is the worst.
//!
//! Invariant: at most [`SERIES_MAX`] places; families with few series get them first.

use bytes::Bytes;
use disk::metrics::Times;
use hashbrown::HashMap;
use runtime::metrics::families::{Family, Kind};
use runtime::metrics::json::Labels;
use runtime::metrics::page::{Page, Sample, Value};
use serde::Serialize;

use super::event::event;
use super::{FAMILY_MAX, SAMPLES_MAX, SERIES_MAX};

/// Labels whose values are names, of which a configuration or a machine may have any number; the sums have no such
/// label.
const NAMES: [&str; 9] = [
    "loop",
    "zone",
    "pool",
    "device",
    "mount",
    "cache",
    "upstream",
    "peer",
    "certificate",
];

/// Families of moments, of which the first one counts.
const FIRST: [&str; 2] = [
    "freewheel_tls_certificate_end_seconds",
    "freewheel_acme_next_attempt_seconds",
];
/// Families of ages, times and states, of which the greatest one counts.
const GREATEST: [&str; 6] = [
    "freewheel_cache_snapshot_age_seconds",
    "freewheel_cache_disk_state",
    "freewheel_cache_disk_write_state",
    "freewheel_cache_disk_usual_seconds",
    "freewheel_loop_longest_poll_seconds",
    "freewheel_loop_current_poll_seconds",
];

/// The series so far.
#[derive(Debug, Default)]
pub(crate) struct Series {
    places: Vec<TrackedSeries>,
    by_name: HashMap<(&'static str, Vec<String>), usize>,
    /// Families some of whose series were added up in the last sample.
    crowded: Vec<&'static str>,
    /// Samples taken.
    taken: u64,
}

/// One series.
#[derive(Debug)]
struct TrackedSeries {
    family: &'static Family,
    labels: Vec<String>,
    last: Value,
    /// The last sample that had it.
    seen: u64,
}

/// A sample.
#[derive(Debug)]
pub(crate) struct Taken {
    /// The event with the sample.
    pub sample: Bytes,
    /// The series that are new with it, to be sent before it.
    pub added: Option<Bytes>,
    /// All series, where there are new ones.
    pub all: Option<Bytes>,
}

/// The number of a series in a sample.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
enum Number {
    /// The series is not in it.
    Missing,
    Whole(u64),
    Real(f64),
    /// Number, p50, p99 and the longest, in microseconds.
    Times(u64, u64, u64, u64),
}

/// The value of the event of a sample.
#[derive(Debug, Serialize)]
struct SampleEvent<'a> {
    /// Time in milliseconds since 1970.
    t: u64,
    /// Series that have no place, or none of their own.
    out: u64,
    /// The numbers, by place.
    v: &'a [Number],
}

/// The numbers of a sample while it is taken.
#[derive(Debug, Default)]
struct Taking {
    numbers: Vec<Number>,
    /// Places of series that are new.
    added: Vec<usize>,
    /// Series that have no place, or none of their own.
    left_out: u64,
}

impl Series {
    /// Takes a sample.
    pub(crate) fn take(&mut self, page: &Page, now_ms: u64) -> Taken {
        self.taken += 1;
        let mut taking = Taking {
            numbers: vec![Number::Missing; self.places.len()],
            ..Taking::default()
        };
        let mut families: Vec<_> = page.families().collect();
        families.sort_by_key(|(_, samples)| samples.len());
        let crowded = families.into_iter().filter_map(|(family, samples)| {
            let is_crowded = self.take_family(family, samples, &mut taking);
            is_crowded.then_some(family.name)
        });
        self.crowded = crowded.collect();
        let sample = SampleEvent {
            t: now_ms,
            out: taking.left_out,
            v: &taking.numbers,
        };
        let is_same = taking.added.is_empty();
        Taken {
            sample: event("sample", &sample),
            all: (!is_same).then(|| self.event(0..self.places.len())),
            added: (!is_same).then(|| self.event(taking.added.into_iter())),
        }
    }

    /// Takes the samples of a family. Returns whether some of them are added up.
    fn take_family(
        &mut self,
        family: &'static Family,
        samples: &[Sample],
        taking: &mut Taking,
    ) -> bool {
        let may_add_up = family.labels.iter().any(|label| NAMES.contains(label));
        if samples.len() <= FAMILY_MAX || !may_add_up {
            samples.iter().for_each(|one| self.put(family, one, taking));
            return false;
        }
        let is_alone = |place: &&TrackedSeries| {
            place.family.name == family.name && !is_nameless(family, &place.labels)
        };
        let mut alone = self.places.iter().filter(is_alone).count();
        let (mut sums, mut is_crowded): (Vec<Sample>, bool) = (Vec::new(), false);
        for sample in samples {
            let name = (family.name, sample.labels.clone());
            let is_known = self.by_name.contains_key(&name);
            let may_be_new = alone < FAMILY_MAX && !sample.value.is_nothing();
            if (is_known || may_be_new) && !is_nameless(family, &sample.labels) {
                alone += usize::from(!is_known);
                self.put(family, sample, taking);
                continue;
            }
            is_crowded |= !sample.value.is_nothing();
            taking.left_out += u64::from(!sample.value.is_nothing());
            add_up(family, sample, &mut sums);
        }
        sums.iter().for_each(|sum| self.put(family, sum, taking));
        is_crowded
    }

    /// Takes a sample in its place.
    fn put(&mut self, family: &'static Family, sample: &Sample, taking: &mut Taking) {
        let Some(index) = self.place(family, sample, &mut taking.added) else {
            taking.left_out += 1;
            return;
        };
        if index >= taking.numbers.len() {
            taking.numbers.push(Number::Missing);
        }
        let place = &mut self.places[index];
        taking.numbers[index] = number(family.kind, &place.last, &sample.value);
        place.last = sample.value.clone();
        place.seen = self.taken;
    }

    /// The place of a series, a new one if need be; `None`: there is none left.
    fn place(
        &mut self,
        family: &'static Family,
        sample: &Sample,
        added: &mut Vec<usize>,
    ) -> Option<usize> {
        let name = (family.name, sample.labels.clone());
        if let Some(index) = self.by_name.get(&name) {
            return Some(*index);
        }
        // Everything in the first sample may have counted before, and so may a series that was added up until now.
        let has_counted = self.taken == 1 || self.crowded.contains(&family.name);
        let last = match &sample.value {
            value if has_counted => value.clone(),
            Value::Whole(_) => Value::Whole(0),
            Value::Real(_) => Value::Real(0.0),
            Value::Times(_) => Value::Times(Times::default()),
        };
        let place = TrackedSeries {
            family,
            labels: sample.labels.clone(),
            last,
            seen: self.taken,
        };
        let index = self.free_place(place)?;
        self.by_name.insert(name, index);
        added.push(index);
        Some(index)
    }

    fn free_place(&mut self, place: TrackedSeries) -> Option<usize> {
        if self.places.len() < SERIES_MAX {
            self.places.push(place);
            return Some(self.places.len() - 1);
        }
        let forgotten = self.taken.checked_sub(SAMPLES_MAX as u64 + 1)?;
        let index = self.places.iter().position(|old| old.seen <= forgotten)?;
        let old = std::mem::replace(&mut self.places[index], place);
        self.by_name.remove(&(old.family.name, old.labels));
        Some(index)
    }

    /// These series as an event: place, name, kind, labels.
    fn event(&self, indices: impl Iterator<Item = usize>) -> Bytes {
        let series = indices.map(|index| {
            let TrackedSeries { family, labels, .. } = &self.places[index];
            (
                index,
                family.name,
                family.kind.name(),
                Labels(family, labels),
            )
        });
        event("series", &series.collect::<Vec<_>>())
    }
}

/// Whether it has no name, like figures that are summed at their source.
fn is_nameless(family: &Family, labels: &[String]) -> bool {
    let mut labels = family.labels.iter().zip(labels);
    labels.all(|(label, value)| value.is_empty() || !NAMES.contains(label))
}

/// Joins a sample with those that have the same labels but for names.
fn add_up(family: &Family, sample: &Sample, sums: &mut Vec<Sample>) {
    let labels = family.labels.iter().zip(&sample.labels);
    let labels = labels.map(|(label, value)| match NAMES.contains(label) {
        true => String::new(),
        false => value.clone(),
    });
    let labels: Vec<String> = labels.collect();
    match sums.iter_mut().find(|sum| sum.labels == labels) {
        Some(sum) => join(family, &mut sum.value, &sample.value),
        None => sums.push(Sample {
            labels,
            value: sample.value.clone(),
        }),
    }
}

fn join(family: &Family, joined: &mut Value, one: &Value) {
    let is_before = match (&*joined, one) {
        (Value::Whole(joined), Value::Whole(one)) => one < joined,
        (Value::Real(joined), Value::Real(one)) => one < joined,
        _ => false,
    };
    match family.name {
        name if FIRST.contains(&name) && is_before => *joined = one.clone(),
        name if FIRST.contains(&name) => {}
        name if GREATEST.contains(&name) && is_before => {}
        name if GREATEST.contains(&name) => *joined = one.clone(),
        _ => joined.add(one),
    }
}

fn number(kind: Kind, last: &Value, now: &Value) -> Number {
    match (kind, last, now) {
        (Kind::Counter, Value::Whole(last), Value::Whole(now)) => {
            Number::Whole(now.saturating_sub(*last))
        }
        (Kind::Counter, Value::Real(last), Value::Real(now)) => short((now - last).max(0.0)),
        (_, Value::Times(last), Value::Times(now)) => times(&now.since(last)),
        (_, _, Value::Whole(now)) => Number::Whole(*now),
        (_, _, Value::Real(now)) => short(*now),
        (_, _, Value::Times(now)) => times(now),
    }
}

/// A number to the microsecond, if it is in seconds. A value that is not a number becomes `null`.
fn short(real: f64) -> Number {
    Number::Real((real * 1e6).round() / 1e6)
}

fn times(times: &Times) -> Number {
    match times.count() {
        0 => Number::Whole(0),
        count => {
            let us = |share: f64| times.quantile_ns(share) / 1000;
            Number::Times(count, us(0.5), us(0.99), us(1.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk::metrics::Histogram;

    runtime::families! {
        /// Families for tests.
        _EXAMPLES;
        TOOK Histogram "example_blocked_seconds" "seconds" ["loop"] "Times.";
        BUSY Counter "example_requests" "" ["loop"] "Requests.";
        QUEUE Gauge "example_queue" "" ["pool", "lane"] "Jobs.";
        ZONES Counter "example_zone_requests" "" ["zone", "status"] "Requests.";
        ENDS Gauge "freewheel_tls_certificate_end_seconds" "seconds" ["certificate"] "Ends.";
        AGES Gauge "freewheel_cache_snapshot_age_seconds" "seconds" ["cache"] "Ages.";
        LINES Counter "example_lines" "" ["outcome"] "Lines.";
        BYTES Counter "example_bytes" "bytes" [] "Bytes.";
    }

    fn page(requests: u64, queue: u64, times: &Histogram, pool: &str) -> Page {
        let mut page = Page::default();
        page.times(&TOOK, &["0"], times.times());
        page.whole(&BUSY, &["0"], requests);
        page.whole(&QUEUE, &[pool, "read"], queue);
        page
    }

    fn text(bytes: &Bytes) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_sample_is_what_came_since_the_last() {
        let (mut series, times) = (Series::default(), Histogram::default());
        times.record(5_000_000);
        let first = series.take(&page(100, 3, &times, "a\"\n"), 7);
        assert_eq!(
            text(&first.sample),
            "event: sample\ndata: {\"t\":7,\"out\":0,\"v\":[0,0,3]}\n\n"
        );
        let all = "event: series\ndata: [[0,\"example_blocked_seconds\",\"histogram\",{\"loop\":\"0\"}],\
                   [1,\"example_requests\",\"counter\",{\"loop\":\"0\"}],\
                   [2,\"example_queue\",\"gauge\",{\"pool\":\"a\\\"\\n\",\"lane\":\"read\"}]]\n\n";
        assert_eq!(first.all.as_ref().map(text), Some(all));
        times.record(1_500_000);
        let second = series.take(&page(107, 2, &times, "b"), 9);
        assert!(text(&second.sample).contains("\"v\":[[1,1500,1500,1500],7,null,2]"));
        assert!(text(second.added.as_ref().unwrap()).starts_with("event: series\ndata: [[3,"));
        let third = series.take(&page(107, 2, &times, "b"), 11);
        assert!(third.added.is_none() && text(&third.sample).contains("\"v\":[0,0,null,2]"));
    }

    #[test]
    fn places_are_given_away_when_no_sample_has_them() {
        let (mut series, times) = (Series::default(), Histogram::default());
        let mut many = page(0, 0, &times, "first");
        for number in 0..SERIES_MAX {
            many.whole(&LINES, &[&number.to_string()], 1);
        }
        let crowded = series.take(&many, 0);
        assert!(text(&crowded.sample).contains("\"out\":3,"));
        assert_eq!(series.places.len(), SERIES_MAX);
        for _ in 0..=SAMPLES_MAX {
            series.take(&page(0, 0, &times, "first"), 0);
        }
        let late = series.take(&page(0, 0, &times, "late"), 0);
        assert_eq!(series.places.len(), SERIES_MAX);
        assert!(text(&late.sample).contains("\"out\":0,") && late.added.is_some());
    }

    /// The numbers of the series whose labels say so, in the last sample.
    fn told(series: &Series, taken: &Taken, label: &str) -> Vec<String> {
        let sample = text(&taken.sample);
        let numbers = sample
            .split("\"v\":[")
            .nth(1)
            .unwrap()
            .trim_end_matches("]}\n\n");
        let numbers: Vec<&str> = numbers.split(',').collect();
        let places = series.places.iter().enumerate();
        let found =
            places.filter(|(_, place)| place.labels.first().is_some_and(|first| first == label));
        found.map(|(index, _)| numbers[index].to_owned()).collect()
    }

    #[test]
    fn what_is_too_much_for_one_family_is_added_up_and_leaves_room_for_others() {
        let zones = |count: usize, requests: u64| {
            let mut page = Page::default();
            for number in 0..count {
                let requests = if number % 2 == 0 { 0 } else { requests };
                page.whole(&ZONES, &[&format!("{number:04}"), "2xx"], requests);
            }
            page.whole(&BYTES, &[], 1);
            page
        };
        let mut series = Series::default();
        let count = 4 * FAMILY_MAX;
        series.take(&zones(count, 5), 0);
        assert_eq!(series.places.len(), 1 + FAMILY_MAX + 1);
        let second = series.take(&zones(count, 7), 0);
        assert_eq!(told(&series, &second, "0001"), ["2"]);
        assert_eq!(told(&series, &second, "0000"), [""; 0]);
        let together = 2 * (2 * FAMILY_MAX - FAMILY_MAX);
        assert_eq!(told(&series, &second, ""), [together.to_string()]);
        assert!(text(&second.sample).contains(&format!("\"out\":{},", together / 2)));
        // One that gets a place of its own has counted before.
        series.places[5].family = &LINES;
        let third = series.take(&zones(count + 1, 7), 0);
        assert_eq!(
            told(&series, &third, &format!("{:04}", 2 * FAMILY_MAX + 1)),
            ["0"]
        );
    }

    #[test]
    fn of_moments_and_ages_without_a_place_the_worst_is_told() {
        let page = |ending: u64| {
            let mut page = Page::default();
            for number in 0..2 * FAMILY_MAX as u64 {
                let name = format!("{number:04}");
                let is_last = number == 2 * FAMILY_MAX as u64 - 1;
                page.whole(
                    &ENDS,
                    &[&name],
                    if is_last { ending } else { 5000 + number },
                );
                page.whole(&AGES, &[&name], if is_last { 90_000 } else { 10 + number });
            }
            page
        };
        let mut series = Series::default();
        series.take(&page(9000), 0);
        let second = series.take(&page(700), 0);
        let mut worst = told(&series, &second, "");
        worst.sort();
        assert_eq!(worst, ["700", "90000"]);
    }

    #[test]
    fn families_of_moments_and_states_are_there() {
        let is_gauge = |name: &&str| {
            let mut all = crate::monitoring::families::all();
            all.any(|family| family.name == *name && family.kind == Kind::Gauge)
        };
        assert!(FIRST.iter().chain(&GREATEST).all(is_gauge));
    }

    #[test]
    fn names_are_labels_that_there_are() {
        let all = || crate::monitoring::families::all().flat_map(|family| family.labels);
        assert!(NAMES.iter().all(|name| all().any(|label| label == name)));
    }
}
