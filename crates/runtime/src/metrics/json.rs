//! The metrics as JSON, for scripts: `{"NAME": {"type": …, "samples": [{"labels": {…}, "value": …}]}}`. A histogram's
//! sample has `count`, `sum`, quantiles, and `buckets`: upper bounds in seconds, each with the number of values at or
//! below it.

use std::io;
use std::sync::Arc;

use disk::metrics::{BOUNDS, Times};
use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;

use super::families::Family;
use super::page::{Page, Sample, Value};
use super::stalls::Stall;

/// Writes a page.
#[must_use]
pub fn write(page: &Page, stalls: &[Arc<Stall>]) -> Vec<u8> {
    let document = Document {
        figures: page,
        stalls: stalls.iter().map(|stall| StallObject::of(stall)).collect(),
    };
    let mut out = Vec::with_capacity(64 * 1024);
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, Lines::default());
    let written = document.serialize(&mut serializer);
    written.expect("a Vec takes all that is written, and keys are strings");
    out.push(b'\n');
    out
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(serialize_with = "families")]
    figures: &'a Page,
    stalls: Vec<StallObject<'a>>,
}

fn families<S: Serializer>(page: &Page, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(page.families().map(|(family, samples)| {
        let samples = samples
            .iter()
            .map(|sample| SampleObject::of(family, sample));
        let object = FamilyObject {
            kind: family.kind.name(),
            unit: family.unit,
            samples: samples.collect(),
        };
        (family.name, object)
    }))
}

#[derive(Serialize)]
struct FamilyObject<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    unit: &'static str,
    samples: Vec<SampleObject<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum SampleObject<'a> {
    Whole {
        labels: Labels<'a>,
        value: u64,
    },
    Real {
        labels: Labels<'a>,
        value: f64,
    },
    Histogram {
        labels: Labels<'a>,
        count: u64,
        sum: f64,
        p50: f64,
        p90: f64,
        p99: f64,
        p999: f64,
        /// Boxed: most samples are numbers.
        buckets: Box<[(f64, u64); BOUNDS.len()]>,
    },
}

impl<'a> SampleObject<'a> {
    fn of(family: &'static Family, sample: &'a Sample) -> Self {
        let labels = Labels(family, &sample.labels);
        match &sample.value {
            Value::Whole(value) => Self::Whole {
                labels,
                value: *value,
            },
            Value::Real(value) => Self::Real {
                labels,
                value: *value,
            },
            Value::Times(times) => Self::of_times(labels, times),
        }
    }

    fn of_times(labels: Labels<'a>, times: &Times) -> Self {
        let quantile = |share: f64| seconds(times.quantile_ns(share));
        let counts = times.up_to_bounds();
        Self::Histogram {
            labels,
            count: times.count(),
            sum: seconds(times.sum_ns()),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            buckets: Box::new(std::array::from_fn(|index| {
                (seconds(BOUNDS[index].0), counts[index])
            })),
        }
    }
}

/// The labels of a sample: the names, and a value for each.
#[derive(Debug)]
pub struct Labels<'a>(pub &'static Family, pub &'a [String]);

impl Serialize for Labels<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.labels.iter().zip(self.1))
    }
}

/// A stall as an object.
#[derive(Debug, Serialize)]
pub struct StallObject<'a> {
    number: u64,
    at: f64,
    #[serde(rename = "loop")]
    loop_index: usize,
    seconds: f64,
    processor_wait_seconds: f64,
    task: &'static str,
    connection: u64,
    request: &'a str,
    phase: &'static str,
    operation: &'static str,
}

impl<'a> StallObject<'a> {
    /// The object of a stall.
    #[must_use]
    pub fn of(stall: &'a Stall) -> Self {
        Self {
            number: stall.number,
            at: stall.at_ms as f64 / 1e3,
            loop_index: stall.loop_index,
            seconds: seconds(stall.ns),
            processor_wait_seconds: seconds(stall.unserved_ns),
            task: stall.task,
            connection: stall.connection,
            request: &stall.request,
            phase: stall.phase,
            operation: stall.operation,
        }
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Depth of the object with the families.
const FAMILIES_DEPTH: usize = 2;
/// Depth of the arrays of samples; the array of stalls lies above.
const SAMPLES_DEPTH: usize = 4;

/// Writes each family, each sample and each stall on a line of its own, for readers.
#[derive(Debug, Default)]
struct Lines {
    depth: usize,
}

impl Formatter for Lines {
    fn write_f64<W: io::Write + ?Sized>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        write!(out, "{value}")
    }

    fn begin_array<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth += 1;
        out.write_all(b"[")
    }

    fn end_array<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth -= 1;
        out.write_all(b"]")
    }

    fn begin_array_value<W: io::Write + ?Sized>(
        &mut self,
        out: &mut W,
        is_first: bool,
    ) -> io::Result<()> {
        let separator: &[u8] = match (self.depth, is_first) {
            (..=FAMILIES_DEPTH, true) => b"\n",
            (..=FAMILIES_DEPTH, false) => b",\n",
            (..=SAMPLES_DEPTH, true) => b"\n  ",
            (..=SAMPLES_DEPTH, false) => b",\n  ",
            (_, true) => b"",
            (_, false) => b", ",
        };
        out.write_all(separator)
    }

    fn begin_object<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth += 1;
        out.write_all(b"{")
    }

    fn end_object<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        let is_of_families = self.depth == FAMILIES_DEPTH;
        self.depth -= 1;
        out.write_all(if is_of_families { b"\n}" } else { b"}" })
    }

    fn begin_object_key<W: io::Write + ?Sized>(
        &mut self,
        out: &mut W,
        is_first: bool,
    ) -> io::Result<()> {
        let separator: &[u8] = match (self.depth, is_first) {
            (FAMILIES_DEPTH, true) => b"\n",
            (..=FAMILIES_DEPTH, false) => b",\n",
            (_, true) => b"",
            (_, false) => b", ",
        };
        out.write_all(separator)
    }

    fn begin_object_value<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{LOADED, TOOK};
    use disk::metrics::Histogram;

    #[test]
    fn a_page_is_one_object() {
        let mut page = Page::default();
        page.whole(&LOADED, &["a\"b\n"], 1);
        let histogram = Histogram::default();
        histogram.record(1_500_000);
        page.times(&TOOK, &["0"], histogram.times());
        let text = String::from_utf8(write(&page, &[])).unwrap();
        assert!(text.starts_with(
            "{\"figures\": {\n\"example_loaded\": {\"type\": \"gauge\", \"unit\": \"\", \"samples\": [\n  \
             {\"labels\": {\"version\": \"a\\\"b\\n\"}, \"value\": 1}]},\n"
        ));
        assert!(text.contains("\"count\": 1, \"sum\": 0.0015, \"p50\": 0.0015, "));
        assert!(text.ends_with("[100, 1]]}]}\n},\n\"stalls\": []}\n"));
    }
}
