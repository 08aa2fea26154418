//! The alert rules: what counts as wrong. They stand in `alerts.json`, once; the dashboard evaluates them, and
//! `contrib/prometheus/alerts.yml` is written from them (`cargo xtask manual`).
//!
//! A rule holds where all its tests hold. A test compares one figure with a bound: `rate` (per second, over 5 minutes),
//! `increase` (in 10 minutes), `p99` of a histogram, `value` of a gauge (as a share `of` another), `until` (seconds left
//! until a moment), `changes` (in 15 minutes), `ended` (values of a histogram per second, over 3 minutes: Prometheus asks
//! once a minute where nothing else is said, and a rate needs two samples). `where` selects labels; `share` divides by the
//! same figure without that selection; `by` sums over all other labels.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;

/// The rules as the dashboard's script has them.
pub const SOURCE: &str = include_str!("alerts.json");

/// A rule.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    name: String,
    #[serde(rename = "section")]
    _section: String,
    comment: Option<String>,
    all: Vec<Test>,
    r#for: String,
    severity: String,
    summary: String,
    description: String,
}

/// A comparison.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Test {
    rate: Option<String>,
    increase: Option<String>,
    p99: Option<String>,
    value: Option<String>,
    until: Option<String>,
    changes: Option<String>,
    ended: Option<String>,
    r#where: BTreeMap<String, Vec<String>>,
    share: bool,
    of: Option<Of>,
    by: Option<Vec<String>>,
    over: Option<f64>,
    under: Option<f64>,
    is: Option<f64>,
}

/// What a gauge is a share of.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Of {
    family: String,
    r#where: BTreeMap<String, Vec<String>>,
}

/// The rules as a file for Prometheus.
///
/// # Errors
/// The rules are malformed, or a test names no figure.
pub fn prometheus() -> Result<String, String> {
    let rules: Vec<Rule> = serde_json::from_str(SOURCE).map_err(|error| error.to_string())?;
    let mut out = String::from(
        "# Alerts for Freewheel, by the names of docs/metrics.md. The bounds are a beginning: what is right depends on the disks.\n\
         # Written by `cargo xtask manual` from crates/server/src/dashboard/alerts.json, which the dashboard evaluates, too.\n\
         groups:\n  - name: freewheel\n    rules:\n",
    );
    for rule in &rules {
        tell(rule, &mut out)?;
    }
    Ok(out)
}

fn tell(rule: &Rule, out: &mut String) -> Result<(), String> {
    let tests = rule.all.iter().map(Test::expression);
    let tests: Option<Vec<String>> = tests.collect();
    let tests =
        tests.ok_or_else(|| format!("{}: a test without a figure or a bound", rule.name))?;
    let _ = writeln!(out, "      - alert: {}", rule.name);
    if let Some(comment) = &rule.comment {
        let _ = writeln!(out, "        # {comment}");
    }
    let _ = writeln!(
        out,
        "        expr: >-\n          {}",
        tests.join("\n          and ")
    );
    if !rule.r#for.is_empty() {
        let _ = writeln!(out, "        for: {}", rule.r#for);
    }
    let summary = templated(&rule.summary);
    let _ = writeln!(
        out,
        "        labels:\n          severity: {}",
        rule.severity
    );
    let _ = writeln!(
        out,
        "        annotations:\n          summary: {:?}\n          description: {:?}",
        format!("{{{{ $labels.instance }}}}: {summary}"),
        rule.description
    );
    Ok(())
}

/// `{label}` and `{value:duration}` as Prometheus writes them.
fn templated(summary: &str) -> String {
    let mut parts = summary.split('{');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').unwrap_or((part, ""));
        let _ = match name {
            "value:duration" => write!(out, "{{{{ $value | humanizeDuration }}}}{rest}"),
            label => write!(out, "{{{{ $labels.{label} }}}}{rest}"),
        };
    }
    out
}

impl Test {
    /// The test as an expression of PromQL; `None`: it is malformed.
    fn expression(&self) -> Option<String> {
        let figure = self.figure()?;
        Some(match (self.over, self.under, self.is) {
            (Some(bound), None, None) => format!("{figure} > {bound}"),
            (None, Some(bound), None) => format!("{figure} < {bound}"),
            (None, None, Some(value)) => format!("{figure} == {value}"),
            _ => return None,
        })
    }

    fn figure(&self) -> Option<String> {
        let selected = selection(&self.r#where);
        if let Some(name) = &self.rate {
            let part = self.summed(&format!("rate({name}_total{selected}[5m])"));
            let all = || self.summed(&format!("rate({name}_total[5m])"));
            return Some(if self.share {
                format!("{part} / {}", all())
            } else {
                part
            });
        }
        if let Some(name) = &self.increase {
            return Some(self.summed(&format!("increase({name}_total{selected}[10m])")));
        }
        if let Some(name) = &self.p99 {
            let by = self.by.iter().flatten().map(|label| format!(", {label}"));
            let by: String = by.collect();
            return Some(format!(
                "histogram_quantile(0.99, sum by (instance{by}, le) (rate({name}_bucket{selected}[5m])))"
            ));
        }
        if let Some(name) = &self.value {
            let part = self.summed(&format!("{name}{selected}"));
            return Some(match &self.of {
                Some(of) => {
                    let whole = format!("{}{}", of.family, selection(&of.r#where));
                    format!("{part} / {}", self.summed(&whole))
                }
                None => part,
            });
        }
        if let Some(name) = &self.ended {
            return Some(self.summed(&format!("rate({name}_count{selected}[3m])")));
        }
        if let Some(name) = &self.until {
            return Some(format!("{name}{selected} - time()"));
        }
        let name = self.changes.as_ref()?;
        Some(format!("changes({name}{selected}[15m])"))
    }

    fn summed(&self, expression: &str) -> String {
        match &self.by {
            Some(by) => {
                let by: String = by.iter().map(|label| format!(", {label}")).collect();
                format!("sum by (instance{by}) ({expression})")
            }
            None => expression.to_owned(),
        }
    }
}

/// The labels that a figure is to have.
fn selection(labels: &BTreeMap<String, Vec<String>>) -> String {
    let one = |(label, values): (&String, &Vec<String>)| match values.as_slice() {
        [value] => format!("{label}=\"{value}\""),
        values => format!("{label}=~\"{}\"", values.join("|")),
    };
    let all: Vec<String> = labels.iter().map(one).collect();
    match all.is_empty() {
        true => String::new(),
        false => format!("{{{}}}", all.join(",")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_an_expression() {
        let of = |text: &str| {
            serde_json::from_str::<Test>(text)
                .ok()
                .and_then(|test| test.expression())
        };
        let share =
            r#"{"rate": "a", "where": {"s": ["x", "y"]}, "share": true, "by": ["z"], "over": 0.5}"#;
        assert_eq!(
            of(share).as_deref(),
            Some(
                "sum by (instance, z) (rate(a_total{s=~\"x|y\"}[5m])) / sum by (instance, z) (rate(a_total[5m])) > 0.5"
            )
        );
        assert_eq!(of(r#"{"value": "b", "is": 1}"#).as_deref(), Some("b == 1"));
        assert_eq!(of(r#"{"value": "b"}"#), None);
        assert_eq!(of(r#"{"over": 1}"#), None);
        assert_eq!(
            templated("a {b} for {value:duration}"),
            "a {{ $labels.b }} for {{ $value | humanizeDuration }}"
        );
    }
}
