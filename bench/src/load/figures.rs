//! What a group of clients saw: counts of answers and failures, latencies, and what came when.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Latencies kept for percentiles; a longer run keeps its first ones and its maximum.
const LATENCIES_MAX: usize = 20_000_000;
/// What came when is told by slices of so much time.
const SLICE: Duration = Duration::from_millis(500);
/// Slices of one run, half a day; what comes later is counted, but in none of them.
const SLICES_MAX: usize = 86_400;
/// Shares of all answers at which the curves give the latency.
const CURVE: [f64; 22] = [
    0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999,
    0.9995, 0.9998, 0.9999, 0.99995, 0.99999, 1.0,
];

/// What ended within one slice.
#[derive(Clone, Copy, Default)]
struct Slice {
    requests: u64,
    bytes: u64,
    max: Duration,
}

/// Counted as it happens.
#[derive(Default)]
pub struct Figures {
    micros: Vec<u32>,
    firsts: Vec<u32>,
    max: Duration,
    statuses: BTreeMap<u16, u64>,
    failures: BTreeMap<&'static str, u64>,
    bytes: u64,
    reopened: u64,
    left: u64,
    slices: Vec<Slice>,
}

impl Figures {
    /// A complete answer. `first`: when its head was there; both count from the moment at which it should have been asked for.
    /// `at`: when it ended, from the start of the run.
    pub fn answer(
        &mut self,
        status: u16,
        bytes: u64,
        first: Duration,
        latency: Duration,
        at: Duration,
    ) {
        self.note(bytes, latency, at);
        *self.statuses.entry(status).or_default() += 1;
        self.bytes += bytes;
        self.max = self.max.max(latency);
        if self.micros.len() < LATENCIES_MAX {
            self.micros.push(micros(latency));
            self.firsts.push(micros(first));
        }
    }

    fn note(&mut self, bytes: u64, latency: Duration, at: Duration) {
        let index = (at.as_nanos() / SLICE.as_nanos()).min(SLICES_MAX as u128) as usize;
        if index == SLICES_MAX {
            return;
        }
        if index >= self.slices.len() {
            self.slices.resize(index + 1, Slice::default());
        }
        let slice = &mut self.slices[index];
        slice.requests += 1;
        slice.bytes += bytes;
        slice.max = slice.max.max(latency);
    }

    /// A request without a complete answer; how many of this kind there have been.
    pub fn failure(&mut self, kind: &'static str) -> u64 {
        let count = self.failures.entry(kind).or_default();
        *count += 1;
        *count
    }

    /// A kept connection that the server had closed before the request: not lost, it was sent again over a new one (RFC 9110, 9.2.2).
    pub fn reopened(&mut self) {
        self.reopened += 1;
    }

    /// A request that was still open when the run ended; its time so far counts as latency, so that waiting is not hidden.
    pub fn left_open(&mut self, so_far: Duration) {
        self.left += 1;
        self.max = self.max.max(so_far);
    }

    /// Everything that another group saw, too.
    pub fn add(&mut self, other: &Figures) {
        let room = LATENCIES_MAX - self.micros.len();
        let more = other.micros.len().min(room);
        self.micros.extend_from_slice(&other.micros[..more]);
        self.firsts.extend_from_slice(&other.firsts[..more]);
        self.max = self.max.max(other.max);
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        for (kind, count) in &other.failures {
            *self.failures.entry(kind).or_default() += count;
        }
        self.bytes += other.bytes;
        self.reopened += other.reopened;
        self.left += other.left;
        let count = self.slices.len().max(other.slices.len());
        self.slices.resize(count, Slice::default());
        for (slice, more) in self.slices.iter_mut().zip(&other.slices) {
            slice.requests += more.requests;
            slice.bytes += more.bytes;
            slice.max = slice.max.max(more.max);
        }
    }

    /// As JSON; times in milliseconds.
    pub fn report(mut self, elapsed: Duration) -> Value {
        self.micros.sort_unstable();
        self.firsts.sort_unstable();
        let at = |share: f64| percentile(&self.micros, share);
        let first = |share: f64| percentile(&self.firsts, share);
        let seconds = elapsed.as_secs_f64();
        let statuses: BTreeMap<String, u64> = self
            .statuses
            .iter()
            .map(|(status, count)| (status.to_string(), *count))
            .collect();
        let requests: u64 = self.statuses.values().sum();
        json!({
            "requests": requests,
            "requests_per_second": requests as f64 / seconds,
            "megabytes_per_second": self.bytes as f64 / seconds / 1e6,
            "bytes": self.bytes,
            "seconds": seconds,
            "statuses": statuses,
            "failures": self.failures,
            "reopened": self.reopened,
            "left_open": self.left,
            "min_ms": at(0.0), "p50_ms": at(0.5), "p90_ms": at(0.9), "p99_ms": at(0.99), "p999_ms": at(0.999),
            "max_ms": self.max.as_secs_f64() * 1000.0,
            "first_p50_ms": first(0.5), "first_p90_ms": first(0.9), "first_p99_ms": first(0.99), "first_p999_ms": first(0.999), "first_max_ms": first(1.0),
            "curve_ms": curve(&self.micros), "first_curve_ms": curve(&self.firsts), "over_time": self.over_time(),
        })
    }

    /// Answers, bytes and the longest wait of each slice.
    fn over_time(&self) -> Value {
        let slices = &self.slices;
        json!({
            "slice_seconds": SLICE.as_secs_f64(),
            "requests": slices.iter().map(|slice| slice.requests).collect::<Vec<_>>(),
            "bytes": slices.iter().map(|slice| slice.bytes).collect::<Vec<_>>(),
            "max_ms": slices.iter().map(|slice| f64::from(micros(slice.max)) / 1000.0).collect::<Vec<_>>(),
        })
    }
}

fn micros(latency: Duration) -> u32 {
    u32::try_from(latency.as_micros()).unwrap_or(u32::MAX)
}

/// In milliseconds, of sorted microseconds.
fn percentile(sorted: &[u32], share: f64) -> Option<f64> {
    let last = sorted.len().saturating_sub(1);
    let index = (last as f64 * share).round() as usize;
    sorted.get(index).map(|micros| f64::from(*micros) / 1000.0)
}

/// Pairs of share and milliseconds, of sorted microseconds; shares that fewer answers than one stand for are left out.
fn curve(sorted: &[u32]) -> Vec<(f64, f64)> {
    CURVE
        .iter()
        .filter(|share| **share == 1.0 || (1.0 - **share) * sorted.len() as f64 >= 1.0)
        .filter_map(|share| Some((*share, percentile(sorted, *share)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_together_are_judged_as_one() {
        let of = |status, count: u64, millis, at| {
            let mut figures = Figures::default();
            let took = Duration::from_millis(millis);
            for _ in 0..count {
                figures.answer(status, 10, took, took, Duration::from_millis(at));
            }
            figures
        };
        let mut sum = Figures::default();
        sum.add(&of(200, 90, 1, 100));
        sum.add(&of(404, 10, 500, 1200));
        let report = sum.report(Duration::from_secs(2));
        assert_eq!(report["statuses"], json!({"200": 90, "404": 10}));
        assert_eq!(
            (&report["first_p50_ms"], &report["first_p99_ms"]),
            (&json!(1.0), &json!(500.0))
        );
        assert_eq!(report["over_time"]["requests"], json!([90, 0, 10]));
        assert_eq!(report["over_time"]["max_ms"], json!([1.0, 0.0, 500.0]));
    }

    #[test]
    fn percentiles_are_of_all_answers() {
        let mut figures = Figures::default();
        for millis in 1..=100 {
            figures.answer(
                200,
                10,
                Duration::from_millis(1),
                Duration::from_millis(millis),
                Duration::from_millis(millis * 10),
            );
        }
        figures.failure("cut");
        let report = figures.report(Duration::from_secs(2));
        assert_eq!(report["requests_per_second"], 50.0);
        assert_eq!(
            (report["p50_ms"].as_f64(), report["p99_ms"].as_f64()),
            (Some(51.0), Some(99.0))
        );
        assert_eq!(
            report["over_time"]["requests"],
            json!([49, 50, 1]),
            "10 ms apart from 10 ms on, half a second each"
        );
        assert_eq!(report["curve_ms"][9], json!([0.9, 90.0]));
        assert_eq!(
            report["curve_ms"].as_array().map(Vec::len),
            Some(14),
            "of a hundred answers none stands for 0.995"
        );
        assert_eq!(
            (
                &report["max_ms"],
                &report["failures"]["cut"],
                &report["statuses"]["200"]
            ),
            (&json!(100.0), &json!(1), &json!(100))
        );
    }
}
