//! The figures as text for Prometheus: its own format (0.0.4), and OpenMetrics 1.0.
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>,
//! <https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md>.
//!
//! Not here: the choice between them.

use std::fmt::Write as _;

use disk::metrics::{BOUNDS, Times};

use super::families::{Family, Kind};
use super::page::{Page, Sample, Value};

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus's own.
    Prometheus,
    /// OpenMetrics.
    OpenMetrics,
}

impl Format {
    /// Its media type.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Writes a page.
#[must_use]
pub fn write(page: &Page, format: Format) -> String {
    let mut out = String::with_capacity(64 * 1024);
    for (family, samples) in page.families() {
        head(family, format, &mut out);
        for sample in samples {
            match &sample.value {
                Value::Times(times) => histogram(family, sample, times, &mut out),
                value => number(family, sample, value, &mut out),
            }
        }
    }
    if format == Format::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

// Writing to a String cannot fail.

fn head(family: &Family, format: Format, out: &mut String) {
    let is_open = format == Format::OpenMetrics;
    let name = if is_open {
        family.name.to_owned()
    } else {
        format!("{}{}", family.name, suffix(family))
    };
    let _ = writeln!(out, "# HELP {name} {}", family.help);
    let _ = writeln!(out, "# TYPE {name} {}", family.kind.name());
    if is_open && !family.unit.is_empty() {
        let _ = writeln!(out, "# UNIT {name} {}", family.unit);
    }
}

fn suffix(family: &Family) -> &'static str {
    if family.kind == Kind::Counter {
        "_total"
    } else {
        ""
    }
}

fn number(family: &Family, sample: &Sample, value: &Value, out: &mut String) {
    let _ = write!(out, "{}{}", family.name, suffix(family));
    labels(family, sample, None, out);
    let _ = match value {
        Value::Whole(whole) => writeln!(out, " {whole}"),
        Value::Real(real) => writeln!(out, " {real}"),
        Value::Times(_) => Ok(()),
    };
}

fn histogram(family: &Family, sample: &Sample, times: &Times, out: &mut String) {
    let count = times.count();
    let bounds = BOUNDS.iter().map(|(_, name)| *name).chain(["+Inf"]);
    for (bound, count) in bounds.zip(times.up_to_bounds().into_iter().chain([count])) {
        let _ = write!(out, "{}_bucket", family.name);
        labels(family, sample, Some(bound), out);
        let _ = writeln!(out, " {count}");
    }
    let _ = write!(out, "{}_count", family.name);
    labels(family, sample, None, out);
    let _ = writeln!(out, " {count}");
    let _ = write!(out, "{}_sum", family.name);
    labels(family, sample, None, out);
    let _ = writeln!(out, " {}", times.sum_ns() as f64 / 1e9);
}

fn labels(family: &Family, sample: &Sample, bound: Option<&str>, out: &mut String) {
    if sample.labels.is_empty() && bound.is_none() {
        return;
    }
    let pairs = family.labels.iter().zip(&sample.labels);
    let pairs = pairs.map(|(name, value)| (*name, &value[..]));
    for (index, (name, value)) in pairs.chain(bound.map(|bound| ("le", bound))).enumerate() {
        out.push(if index == 0 { '{' } else { ',' });
        let _ = write!(out, "{name}=\"");
        escape(value, out);
        out.push('"');
    }
    out.push('}');
}

fn escape(value: &str, out: &mut String) {
    for char in value.chars() {
        match char {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{BUSY, LOADED, TOOK};
    use disk::metrics::Histogram;

    fn page() -> Page {
        let mut page = Page::default();
        page.whole(&BUSY, &["0"], 7);
        page.whole(&LOADED, &["a\"b\\c\nd"], 1);
        let histogram = Histogram::default();
        histogram.record(1_500_000);
        page.times(&TOOK, &["0"], histogram.times());
        page
    }

    #[test]
    fn the_text_of_prometheus_names_a_counter_with_its_suffix() {
        let text = write(&page(), Format::Prometheus);
        assert!(text.contains("# TYPE example_requests_total counter\n"));
        assert!(text.contains("\nexample_requests_total{loop=\"0\"} 7\n"));
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"));
        assert!(text.contains("version=\"a\\\"b\\\\c\\nd\"} 1\n"));
    }

    #[test]
    fn open_metrics_names_the_family_without_it_and_says_units() {
        let text = write(&page(), Format::OpenMetrics);
        assert!(text.contains("# TYPE example_requests counter\n"));
        assert!(text.contains("\nexample_requests_total{loop=\"0\"} 7\n"));
        assert!(text.contains("# UNIT example_blocked_seconds seconds\n"));
        assert!(text.ends_with("\n# EOF\n"));
    }

    #[test]
    fn a_histogram_s_buckets_add_up() {
        let text = write(&page(), Format::Prometheus);
        let name = "example_blocked_seconds";
        assert!(text.contains(&format!("{name}_bucket{{loop=\"0\",le=\"0.001\"}} 0\n")));
        assert!(text.contains(&format!("{name}_bucket{{loop=\"0\",le=\"0.002\"}} 1\n")));
        assert!(text.contains(&format!("{name}_bucket{{loop=\"0\",le=\"+Inf\"}} 1\n")));
        assert!(text.contains(&format!("{name}_count{{loop=\"0\"}} 1\n")));
        assert!(text.contains(&format!("{name}_sum{{loop=\"0\"}} 0.0015\n")));
    }
}
