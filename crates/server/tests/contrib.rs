//! What is made for other programs, and the dashboard, name figures that there are, with labels that these have.
#![expect(
    clippy::disallowed_methods,
    reason = "tests run on no loop: they read files"
)]

use std::path::Path;

use server::figures::names::{ALL, About, Kind};

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
