//! The list of all families, in the order in which they are shown, and the page of the manual that is made of it.

use runtime::loops::sums;
use runtime::metrics::families::Kind;
use runtime::metrics::{Families, Family, stalls};

use super::{disk, gather, process};
use crate::memory;
use crate::settings::tables as lists;
use httpcore::handler::Modules;
use httpcore::status_zone;
use proxy::caching;

/// The families of each source, with those of modules from outside.
pub(super) fn tables(modules: Modules) -> impl Iterator<Item = Families> {
    let sources = [
        gather::WORKER,
        process::MEMORY,
        memory::metrics::FAMILIES,
        process::PROCESS,
        sums::FAMILIES,
        stalls::FAMILIES,
        status_zone::FAMILIES,
        disk::FAMILIES,
        caching::metrics::FAMILIES,
        upstream::metrics::FAMILIES,
        upstream::ocsp::metrics::FAMILIES,
    ];
    let modules = lists::metrics(modules).map(|module| module.families);
    sources.into_iter().chain(modules).chain([gather::LOGS])
}

/// All families of this program without modules from outside.
pub fn all() -> impl Iterator<Item = &'static Family> {
    tables(&[]).flatten().copied()
}

/// The page of the manual that lists them.
#[must_use]
pub fn document() -> String {
    use std::fmt::Write as _;
    let mut page = format!(
        "{}\n# Metrics\n\nWhat [`metrics`](reference/metrics-and-status-pages.md) and [`status_json`](reference/metrics-and-status-pages.md) show. As text for Prometheus a \
         counter's samples end with `_total`, those of a histogram with `_bucket` (label `le`), `_sum` and `_count`; times are in \
         seconds. Labels come from the configuration or from lists in the code, never from a request. What to do about them: \
         [watching a server](watching.md).\n\n\
         | name | kind | labels | what it tells |\n|---|---|---|---|\n",
        config::manual::GENERATED
    );
    for family in all() {
        let labels: Vec<String> = family.labels.iter().map(|l| format!("`{l}`")).collect();
        let total = if family.kind == Kind::Counter {
            "_total"
        } else {
            ""
        };
        let _ = writeln!(
            page,
            "| `{}{total}` | {} | {} | {} |",
            family.name,
            family.kind.name(),
            labels.join(", "),
            family.help
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_with_their_unit_and_begin_with_ours() {
        for family in all() {
            assert!(family.name.starts_with("freewheel_"), "{}", family.name);
            assert!(family.name.ends_with(family.unit), "{}", family.name);
            assert!(!family.name.ends_with("_total"), "{}", family.name);
            assert!(family.help.ends_with('.'), "{}", family.name);
            assert!(family.kind != Kind::Histogram || family.unit == "seconds");
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(family.name.chars().all(is_plain), "{}", family.name);
        }
    }

    #[test]
    fn no_name_stands_twice_or_is_another_s_sample() {
        let all: Vec<_> = all().collect();
        for (index, family) in all.iter().enumerate() {
            for other in &all[index + 1..] {
                assert_ne!(family.name, other.name);
            }
            for suffix in ["_total", "_bucket", "_sum", "_count", "_info"] {
                let sample = format!("{}{suffix}", family.name);
                assert!(all.iter().all(|other| other.name != sample));
            }
        }
    }
}
