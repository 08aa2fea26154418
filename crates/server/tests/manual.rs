//! The generated manual: `docs/reference/` is what the tables say, and the tables are nginx's.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests run on no loop"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// `cargo xtask manual` sets it: the pages are written instead of compared.
const WRITE: &str = "FREEWHEEL_WRITE_MANUAL";

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference")
}

#[test]
fn no_page_of_the_reference_is_stale() {
    let directory = directory();
    let pages = server::manual::pages();
    if std::env::var_os(WRITE).is_some() {
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        for (name, text) in &pages {
            std::fs::write(directory.join(name), text).unwrap();
        }
    }
    let wanted: BTreeSet<String> = pages.iter().map(|(name, _)| name.clone()).collect();
    let there: BTreeSet<String> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(there, wanted, "run `cargo xtask manual`");
    for (name, text) in pages {
        let page = std::fs::read_to_string(directory.join(&name)).unwrap();
        assert!(
            page == text,
            "docs/reference/{name} is stale: run `cargo xtask manual`"
        );
    }
}

#[test]
fn the_page_of_metrics_is_not_stale() {
    let page = directory().join("../metrics.md");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&page, server::monitoring::families::document()).unwrap();
    }
    let there = std::fs::read_to_string(&page).unwrap_or_default();
    assert!(
        there == server::monitoring::families::document(),
        "docs/metrics.md is stale: run `cargo xtask manual`"
    );
}

#[test]
fn the_alerts_for_prometheus_are_those_of_the_dashboard() {
    let file = directory().join("../../contrib/prometheus/alerts.yml");
    let rules = server::alerts::prometheus().unwrap();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&file, &rules).unwrap();
    }
    let there = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        there == rules,
        "contrib/prometheus/alerts.yml is stale: run `cargo xtask manual`"
    );
}

#[test]
fn contexts_and_arguments_are_those_of_nginx() {
    let found = config::differences(&server::process::tables());
    assert_eq!(found, [""; 0]);
}

#[test]
fn every_name_is_explained_or_refused() {
    let explain = |name: &str| server::manual::explain(&[], name);
    assert!(
        explain("sendfile")
            .unwrap()
            .starts_with("Syntax:   sendfile on | off;\n")
    );
    assert!(explain("proxy_pass").unwrap().contains("not built yet"));
    assert!(explain("perl").unwrap().contains("refused: "));
    assert!(
        explain("rot")
            .unwrap_err()
            .contains("did you mean \"root\"?")
    );
    assert!(
        explain("$uri")
            .unwrap()
            .starts_with("$uri: The current URI")
    );
    assert!(explain("$http_x").unwrap().contains("header"));
    assert!(explain("$no_such").is_err());
}
