//! The figures as JSON, for scripts: `{"NAME": {"type": …, "samples": [{"labels": {…}, "value": …}]}}`. A histogram's
//! sample has `count`, `sum`, quantiles, and `buckets`: upper bounds in seconds, each with the number of values at or
//! below it.

use std::fmt::Write as _;
use std::sync::Arc;

use disk::metrics::{BOUNDS, Times};

use super::families::Family;
use super::page::{Page, Sample, Value};
use super::stalls::Stall;

/// The quantiles that are told.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)];

/// Writes a page.
#[must_use]
pub fn write(page: &Page, stalls: &[Arc<Stall>]) -> String {
    let mut out = String::with_capacity(64 * 1024);
    out.push_str("{\"figures\": {");
    for (index, (family, samples)) in page.families().enumerate() {
        out.push_str(if index == 0 { "\n" } else { ",\n" });
        add_family(family, samples, &mut out);
    }
    out.push_str("\n},\n\"stalls\": [");
    for (index, stall) in stalls.iter().enumerate() {
        out.push_str(if index == 0 { "\n" } else { ",\n" });
        self::stall(stall, &mut out);
    }
    out.push_str("]}\n");
    out
}

// Writing to a String cannot fail.

fn add_family(family: &Family, samples: &[Sample], out: &mut String) {
    let (name, kind, unit) = (family.name, family.kind.name(), family.unit);
    let _ = write!(
        out,
        "\"{name}\": {{\"type\": \"{kind}\", \"unit\": \"{unit}\", \"samples\": ["
    );
    for (index, sample) in samples.iter().enumerate() {
        out.push_str(if index == 0 {
            "\n  {\"labels\": {"
        } else {
            ",\n  {\"labels\": {"
        });
        for (index, (name, value)) in family.labels.iter().zip(&sample.labels).enumerate() {
            out.push_str(if index == 0 { "" } else { ", " });
            let _ = write!(out, "\"{name}\": ");
            string(value, out);
        }
        out.push_str("}, ");
        let _ = match &sample.value {
            Value::Whole(whole) => write!(out, "\"value\": {whole}"),
            Value::Real(real) => write!(out, "\"value\": {real}"),
            Value::Times(times) => histogram(times, out),
        };
        out.push('}');
    }
    out.push_str("]}");
}

fn histogram(times: &Times, out: &mut String) -> std::fmt::Result {
    let seconds = |ns: u64| ns as f64 / 1e9;
    write!(
        out,
        "\"count\": {}, \"sum\": {}",
        times.count(),
        seconds(times.sum_ns())
    )?;
    for (name, share) in QUANTILES {
        write!(out, ", \"{name}\": {}", seconds(times.quantile_ns(share)))?;
    }
    out.push_str(", \"buckets\": [");
    for (index, ((ns, _), count)) in BOUNDS.iter().zip(times.up_to_bounds()).enumerate() {
        out.push_str(if index == 0 { "" } else { ", " });
        write!(out, "[{}, {count}]", seconds(*ns))?;
    }
    out.push(']');
    Ok(())
}

/// Writes a stall as an object.
pub fn stall(stall: &Stall, out: &mut String) {
    let _ = write!(
        out,
        "{{\"number\": {}, \"at\": {}, \"loop\": {}, \"seconds\": {}, \"processor_wait_seconds\": {}, \"task\": ",
        stall.number,
        stall.at_ms as f64 / 1e3,
        stall.loop_index,
        stall.ns as f64 / 1e9,
        stall.unserved_ns as f64 / 1e9
    );
    string(stall.task, out);
    let _ = write!(out, ", \"connection\": {}", stall.connection);
    let texts = [
        ("request", &stall.request[..]),
        ("phase", stall.phase),
        ("operation", stall.operation),
    ];
    for (name, text) in texts {
        let _ = write!(out, ", \"{name}\": ");
        string(text, out);
    }
    out.push('}');
}

/// Writes a text in quotes.
pub fn string(text: &str, out: &mut String) {
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            control if u32::from(control) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
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
        let text = write(&page, &[]);
        assert!(text.starts_with(
            "{\"figures\": {\n\"example_loaded\": {\"type\": \"gauge\", \"unit\": \"\", \"samples\": [\n  \
             {\"labels\": {\"version\": \"a\\\"b\\u000a\"}, \"value\": 1}]},\n"
        ));
        assert!(text.contains("\"count\": 1, \"sum\": 0.0015, \"p50\": 0.0015, "));
        assert!(text.ends_with("[100, 1]]}]}\n},\n\"stalls\": []}\n"));
    }
}
