//! What a group of clients saw: counts of answers and failures, and latencies.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Latencies kept for percentiles; a longer run keeps its first ones and its maximum.
const LATENCIES_MAX: usize = 20_000_000;

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
}

impl Figures {
    /// A complete answer. `first`: when its head was there; both count from the moment at which it should have been asked for.
    pub fn answer(&mut self, status: u16, bytes: u64, first: Duration, latency: Duration) {
        *self.statuses.entry(status).or_default() += 1;
        self.bytes += bytes;
        self.max = self.max.max(latency);
        if self.micros.len() < LATENCIES_MAX {
            self.micros.push(micros(latency));
            self.firsts.push(micros(first));
        }
    }

    /// A request without a complete answer.
    pub fn failure(&mut self, kind: &'static str) {
        *self.failures.entry(kind).or_default() += 1;
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
            "first_p50_ms": first(0.5), "first_p99_ms": first(0.99), "first_p999_ms": first(0.999), "first_max_ms": first(1.0),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_all_answers() {
        let mut figures = Figures::default();
        for millis in 1..=100 {
            figures.answer(
                200,
                10,
                Duration::from_millis(1),
                Duration::from_millis(millis),
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
            (
                &report["max_ms"],
                &report["failures"]["cut"],
                &report["statuses"]["200"]
            ),
            (&json!(100.0), &json!(1), &json!(100))
        );
    }
}
