//! What is made of the figures: a list of series, and a sample of them time after time, both as events of a stream (HTML,
//! 9.2 "Server-sent events").
//!
//! A counter's number is what it has grown by since the last sample, a gauge's is itself, a histogram's is
//! `[count, p50, p99, longest]` of what came since, in microseconds, or 0. A series keeps its place in every sample; the place of
//! one that is no more is given away when no sample that is kept has it.
//!
//! Invariant: at most [`SERIES_MAX`] places.

use std::fmt::Write as _;

use bytes::Bytes;
use disk::figures::Times;
use hashbrown::HashMap;

use super::{SAMPLES_MAX, SERIES_MAX};
use crate::figures::json;
use crate::figures::names::{About, Kind};
use crate::figures::page::{Page, Sample, Value};

/// The series so far.
#[derive(Debug, Default)]
pub struct Series {
    places: Vec<Place>,
    by_name: HashMap<(&'static str, Vec<String>), usize>,
    /// Samples taken.
    taken: u64,
}

/// One series.
#[derive(Debug)]
struct Place {
    about: &'static About,
    labels: Vec<String>,
    last: Value,
    /// The sample that had it last.
    seen: u64,
}

/// A sample.
#[derive(Debug)]
pub struct Taken {
    /// It.
    pub sample: Bytes,
    /// The series that are new with it, to be sent before it.
    pub added: Option<Bytes>,
    /// All series, where there are new ones.
    pub all: Option<Bytes>,
}

impl Series {
    /// Takes a sample.
    pub fn take(&mut self, page: &Page, now_ms: u64) -> Taken {
        self.taken += 1;
        let mut numbers: Vec<String> = vec!["null".to_owned(); self.places.len()];
        let (mut added, mut left_out) = (Vec::new(), 0_u64);
        for (about, samples) in page.families() {
            for sample in samples {
                let Some(index) = self.place(about, sample, &mut added) else {
                    left_out += 1;
                    continue;
                };
                if index >= numbers.len() {
                    numbers.push(String::new());
                }
                let place = &mut self.places[index];
                numbers[index] = number(about.kind, &place.last, &sample.value);
                place.last = sample.value.clone();
                place.seen = self.taken;
            }
        }
        let numbers = numbers.join(",");
        let sample = format!(
            "event: sample\ndata: {{\"t\":{now_ms},\"out\":{left_out},\"v\":[{numbers}]}}\n\n"
        );
        let is_same = added.is_empty();
        Taken {
            sample: sample.into(),
            all: (!is_same).then(|| self.event(0..self.places.len())),
            added: (!is_same).then(|| self.event(added.into_iter())),
        }
    }

    /// The place of a series, a new one if need be; `None`: there is none left.
    fn place(
        &mut self,
        about: &'static About,
        sample: &Sample,
        added: &mut Vec<usize>,
    ) -> Option<usize> {
        let name = (about.name, sample.labels.clone());
        if let Some(index) = self.by_name.get(&name) {
            return Some(*index);
        }
        // What there is from the first sample on has counted before.
        let last = match (self.taken, &sample.value) {
            (1, value) => value.clone(),
            (_, Value::Whole(_)) => Value::Whole(0),
            (_, Value::Real(_)) => Value::Real(0.0),
            (_, Value::Times(_)) => Value::Times(Times::default()),
        };
        let place = Place {
            about,
            labels: sample.labels.clone(),
            last,
            seen: self.taken,
        };
        let index = self.free_place(place)?;
        self.by_name.insert(name, index);
        added.push(index);
        Some(index)
    }

    fn free_place(&mut self, place: Place) -> Option<usize> {
        if self.places.len() < SERIES_MAX {
            self.places.push(place);
            return Some(self.places.len() - 1);
        }
        let forgotten = self.taken.checked_sub(SAMPLES_MAX as u64 + 1)?;
        let index = self.places.iter().position(|old| old.seen <= forgotten)?;
        let old = std::mem::replace(&mut self.places[index], place);
        self.by_name.remove(&(old.about.name, old.labels));
        Some(index)
    }

    /// These series as an event: place, name, kind, labels.
    fn event(&self, indices: impl Iterator<Item = usize>) -> Bytes {
        let mut out = String::from("event: series\ndata: [");
        for (nth, index) in indices.enumerate() {
            let Place { about, labels, .. } = &self.places[index];
            out.push_str(if nth == 0 { "" } else { "," });
            // A String takes all that is written.
            let _ = write!(
                out,
                "[{index},\"{}\",\"{}\",{{",
                about.name,
                about.kind.name()
            );
            for (nth, (name, value)) in about.labels.iter().zip(labels).enumerate() {
                out.push_str(if nth == 0 { "" } else { "," });
                let _ = write!(out, "\"{name}\":");
                json::string(value, &mut out);
            }
            out.push_str("}]");
        }
        out.push_str("]\n\n");
        out.into()
    }
}

fn number(kind: Kind, last: &Value, now: &Value) -> String {
    match (kind, last, now) {
        (Kind::Counter, Value::Whole(last), Value::Whole(now)) => {
            now.saturating_sub(*last).to_string()
        }
        (Kind::Counter, Value::Real(last), Value::Real(now)) => short((now - last).max(0.0)),
        (_, Value::Times(last), Value::Times(now)) => times(&now.since(last)),
        (_, _, Value::Whole(now)) => now.to_string(),
        (_, _, Value::Real(now)) => short(*now),
        (_, _, Value::Times(now)) => times(now),
    }
}

/// To the microsecond, if it is seconds. What is no number has no place in JSON.
fn short(real: f64) -> String {
    let short = (real * 1e6).round() / 1e6;
    if short.is_finite() {
        short.to_string()
    } else {
        "null".to_owned()
    }
}

fn times(times: &Times) -> String {
    match times.count() {
        0 => "0".to_owned(),
        count => {
            let us = |share: f64| times.quantile_ns(share) / 1000;
            format!("[{count},{},{},{}]", us(0.5), us(0.99), us(1.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Family;
    use disk::figures::Histogram;

    fn page(requests: u64, queue: u64, times: &Histogram, pool: &str) -> Page {
        let mut page = Page::default();
        page.times(Family::LoopBlocked, &["0"], times.times());
        page.whole(Family::LoopRequests, &["0"], requests);
        page.whole(Family::PoolQueue, &[pool, "read"], queue);
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
        let all = "event: series\ndata: [[0,\"freewheel_event_loop_blocked_seconds\",\"histogram\",{\"loop\":\"0\"}],\
                   [1,\"freewheel_loop_requests\",\"counter\",{\"loop\":\"0\"}],\
                   [2,\"freewheel_pool_queue\",\"gauge\",{\"pool\":\"a\\\"\\u000a\",\"lane\":\"read\"}]]\n\n";
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
        for number in 0..SERIES_MAX + 10 {
            series.take(&page(0, 0, &times, &number.to_string()), 0);
        }
        let late = series.take(&page(0, 0, &times, "late"), 0);
        assert_eq!(series.places.len(), SERIES_MAX);
        assert!(text(&late.sample).contains("\"out\":0,") && late.added.is_some());
        let mut many = page(0, 0, &times, "late");
        for number in 0..SERIES_MAX {
            many.whole(Family::PoolQueue, &[&format!("x{number}"), "read"], 1);
        }
        let crowded = series.take(&many, 0);
        assert!(!text(&crowded.sample).contains("\"out\":0,"));
    }
}
