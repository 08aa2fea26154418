//! What is made for other programs, and the dashboard, name figures that there are, with labels that these have.
#![expect(
    clippy::disallowed_methods,
    reason = "tests run on no loop: they read files"
)]

use std::path::Path;

use runtime::metrics::Family;
use runtime::metrics::families::Kind;
use server::monitoring::families::all;

const FILES: &[&str] = &[
    "contrib/grafana/freewheel.json",
    "contrib/prometheus/alerts.yml",
    "crates/server/src/dashboard/page/panels.js",
    "crates/server/src/dashboard/page/figures.js",
    "crates/server/src/command_line/top/rows.rs",
];

fn text(name: &str) -> String {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(project.join(name)).expect(name)
}

/// The words of a text that begin as names of figures do, each with what stands behind it.
fn names(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.match_indices("freewheel_").map(|(at, _)| {
        let rest = &text[at..];
        let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
        rest.split_at(end.unwrap_or(rest.len()))
    })
}

/// The names of a family's samples as Prometheus has them.
fn samples(family: &Family) -> Vec<String> {
    let suffixes: &[&str] = match family.kind {
        Kind::Counter => &["_total"],
        Kind::Gauge => &[""],
        Kind::Histogram => &["_bucket", "_sum", "_count"],
    };
    let name = |suffix: &&str| format!("{}{suffix}", family.name);
    suffixes.iter().map(name).collect()
}

#[test]
fn every_name_is_one_of_ours() {
    for file in FILES {
        let text = text(file);
        let is_of_prometheus = file.starts_with("contrib/");
        let mut count = 0;
        for (name, _) in names(&text) {
            count += 1;
            let is_known = all().any(|family| match is_of_prometheus {
                true => samples(family).iter().any(|sample| sample == name),
                false => family.name == name,
            });
            assert!(is_known, "{file}: {name}");
        }
        assert!(count > 0, "{file} names no figure");
    }
}

#[test]
fn operators_are_told_of_every_figure() {
    let page = text("docs/watching.md");
    let named: Vec<&str> = names(&page).map(|(name, _)| name).collect();
    for family in all() {
        let name = match family.kind {
            Kind::Counter => format!("{}_total", family.name),
            Kind::Gauge | Kind::Histogram => family.name.to_owned(),
        };
        assert!(named.contains(&&name[..]), "docs/watching.md: {name}");
    }
    let is_known = |name: &&str| {
        all().any(|family| name.strip_suffix("_total").unwrap_or(name) == family.name)
    };
    assert_eq!(named.iter().find(|name| !is_known(name)), None);
    assert!(text("README.md").contains("(docs/watching.md)"));
}

#[test]
fn every_figure_is_on_the_dashboard_for_grafana() {
    let dashboard = text("contrib/grafana/freewheel.json");
    let shown: Vec<&str> = names(&dashboard).map(|(name, _)| name).collect();
    for family in all() {
        let is_shown = samples(family)
            .iter()
            .any(|sample| shown.contains(&&sample[..]));
        assert!(
            is_shown,
            "contrib/grafana/freewheel.json does not show {}",
            family.name
        );
    }
}

#[test]
fn every_label_is_one_of_the_family_s() {
    for file in &FILES[..2] {
        let text = text(file).replace("\\\"", "\"");
        for (name, behind) in names(&text) {
            let Some(labels) = behind
                .strip_prefix('{')
                .and_then(|rest| rest.split('}').next())
            else {
                continue;
            };
            let family = all().find(|family| samples(family).iter().any(|sample| sample == name));
            let family = family.expect("the other test says so");
            for label in labels.split(',') {
                let label = label.trim().split(['=', '!']).next().unwrap_or_default();
                let is_known = label == "instance" || family.labels.contains(&label);
                assert!(is_known, "{file}: {name} has no label {label:?}");
            }
        }
    }
}

/// Prometheus asks once a minute where nothing else is said, and a rate needs two samples.
#[test]
fn alerts_look_at_more_than_two_samples() {
    let text = text("contrib/prometheus/alerts.yml");
    let spans = text.split('[').skip(1).filter_map(|rest| {
        let (span, _) = rest.split_once(']')?;
        Some(span.strip_suffix('m')?.parse::<u32>().unwrap())
    });
    let spans: Vec<u32> = spans.collect();
    assert!(
        !spans.is_empty() && spans.iter().all(|span| *span >= 3),
        "{spans:?}"
    );
}
