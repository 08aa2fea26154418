//! What is made for other programs, and the dashboard, name figures that there are, with labels that these have.
#![expect(
    clippy::disallowed_methods,
    reason = "tests run on no loop: they read files"
)]

use std::path::Path;

use server::metrics::names::{ALL, About, Kind};

const FILES: &[&str] = &[
    "contrib/grafana/freewheel.json",
    "contrib/prometheus/alerts.yml",
    "crates/server/src/dashboard/page/panels.js",
    "crates/server/src/dashboard/page/page.js",
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
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_');
        rest.split_at(end.unwrap_or(rest.len()))
    })
}

/// The names of a family's samples as Prometheus has them.
fn samples(about: &About) -> Vec<String> {
    let suffixes: &[&str] = match about.kind {
        Kind::Counter => &["_total"],
        Kind::Gauge => &[""],
        Kind::Histogram => &["_bucket", "_sum", "_count"],
    };
    let name = |suffix: &&str| format!("{}{suffix}", about.name);
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
            let is_known = ALL.iter().any(|about| match is_of_prometheus {
                true => samples(about).iter().any(|sample| sample == name),
                false => about.name == name,
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
    for about in ALL {
        let name = match about.kind {
            Kind::Counter => format!("{}_total", about.name),
            Kind::Gauge | Kind::Histogram => about.name.to_owned(),
        };
        assert!(named.contains(&&name[..]), "docs/watching.md: {name}");
    }
    let is_known = |name: &&str| {
        ALL.iter()
            .any(|about| name.strip_suffix("_total").unwrap_or(name) == about.name)
    };
    assert_eq!(named.iter().find(|name| !is_known(name)), None);
    assert!(text("README.md").contains("(docs/watching.md)"));
}

#[test]
fn every_figure_is_on_the_dashboard_for_grafana() {
    let dashboard = text("contrib/grafana/freewheel.json");
    let shown: Vec<&str> = names(&dashboard).map(|(name, _)| name).collect();
    for about in ALL {
        let is_shown = samples(about)
            .iter()
            .any(|sample| shown.contains(&&sample[..]));
        assert!(
            is_shown,
            "contrib/grafana/freewheel.json does not show {}",
            about.name
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
            let about = ALL
                .iter()
                .find(|about| samples(about).iter().any(|sample| sample == name));
            let about = about.expect("the other test says so");
            for label in labels.split(',') {
                let label = label.trim().split(['=', '!']).next().unwrap_or_default();
                let is_known = label == "instance" || about.labels.contains(&label);
                assert!(is_known, "{file}: {name} has no label {label:?}");
            }
        }
    }
}
