//! Reads figures as Prometheus does, and is as strict: every line must be one that the formats know, in its place.

use std::collections::{BTreeMap, BTreeSet};

/// The samples of a page, by name with labels as they stand.
#[derive(Debug, Default)]
pub struct Exposition {
    samples: BTreeMap<String, f64>,
    types: BTreeMap<String, String>,
}

impl Exposition {
    /// Reads a page.
    ///
    /// # Panics
    /// Saying which line is wrong.
    pub fn read(text: &str, is_open: bool) -> Exposition {
        let mut page = Exposition::default();
        let mut family = String::new();
        let mut helped = BTreeSet::new();
        let body = match (is_open, text.strip_suffix("# EOF\n")) {
            (true, Some(body)) => body,
            (true, None) => panic!("no EOF"),
            (false, _) => text,
        };
        assert!(body.ends_with('\n') || body.is_empty());
        for line in body.lines() {
            if let Some(meta) = line.strip_prefix("# ") {
                let (word, rest) = meta.split_once(' ').expect(line);
                let (name, value) = rest.split_once(' ').expect(line);
                assert!(is_name(name), "{line}");
                match word {
                    "HELP" => {
                        assert!(helped.insert(name.to_owned()), "twice: {line}");
                        name.clone_into(&mut family);
                    }
                    "TYPE" => {
                        assert_eq!(name, family, "{line}");
                        assert!(["counter", "gauge", "histogram"].contains(&value), "{line}");
                        page.types.insert(name.to_owned(), value.to_owned());
                    }
                    "UNIT" => {
                        assert!(
                            is_open && name == family && name.ends_with(&format!("_{value}")),
                            "{line}"
                        );
                    }
                    _ => panic!("{line}"),
                }
                continue;
            }
            page.sample(line, &family, is_open);
        }
        page.check_histograms();
        page
    }

    fn sample(&mut self, line: &str, family: &str, is_open: bool) {
        let (key, value) = line.rsplit_once(' ').expect(line);
        let value: f64 = value.parse().expect(line);
        let (name, labels) = match key.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').expect(line)),
            None => (key, ""),
        };
        assert!(is_name(name), "{line}");
        let mut seen = BTreeSet::new();
        for (label, _) in pairs(labels, line) {
            assert!(
                is_name(label) && !label.contains(':') && seen.insert(label),
                "{line}"
            );
        }
        let kind = &self.types[family];
        let suffix = name.strip_prefix(family).expect(line);
        let allowed: &[&str] = match (&kind[..], is_open) {
            ("counter", true) => &["_total"],
            ("histogram", _) => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        assert!(allowed.contains(&suffix), "{line} in {family} ({kind})");
        assert!(kind == "gauge" || value >= 0.0, "{line}");
        assert!(
            self.samples.insert(key.to_owned(), value).is_none(),
            "twice: {line}"
        );
    }

    /// Buckets grow, and the last one is the count.
    fn check_histograms(&self) {
        for (key, count) in self
            .samples
            .iter()
            .filter(|(key, _)| key.contains("_count"))
        {
            let family = &key[..key.find("_count").expect("filtered")];
            if self.types.get(family).map(|kind| &kind[..]) != Some("histogram") {
                continue;
            }
            let labels = key.split_once('{').map_or("", |(_, l)| &l[..l.len() - 1]);
            let comma = if labels.is_empty() { "" } else { "," };
            let start = format!("{family}_bucket{{{labels}{comma}le=\"");
            let mut buckets: Vec<(f64, f64)> = self
                .samples
                .range(start.clone()..)
                .take_while(|(key, _)| key.starts_with(&start))
                .map(|(key, value)| {
                    let bound = &key[start.len()..key.len() - 2];
                    (bound.replace("+Inf", "inf").parse().expect(key), *value)
                })
                .collect();
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(
                buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1),
                "{key}"
            );
            assert_eq!(buckets.last(), Some(&(f64::INFINITY, *count)), "{key}");
        }
    }

    /// The sample of that name and those labels, as they stand.
    pub fn get(&self, key: &str) -> Option<f64> {
        self.samples.get(key).copied()
    }

    /// The sum of the samples of that name whose labels have these words in them.
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        self.samples
            .iter()
            .filter(|(key, _)| key.split('{').next() == Some(name))
            .filter(|(key, _)| labels.iter().all(|label| key.contains(label)))
            .map(|(_, value)| value)
            .sum()
    }

    /// All samples of counters and histograms that are less than they were in an earlier page, or gone.
    pub fn shrunk_since(&self, before: &Exposition) -> Vec<String> {
        let grows = |key: &str| {
            let name = key.split('{').next().unwrap_or_default();
            ["_total", "_bucket", "_sum", "_count"]
                .iter()
                .any(|suffix| name.ends_with(suffix))
        };
        let samples = before.samples.iter().filter(|(key, _)| grows(key));
        samples
            .filter(|(key, value)| self.get(key).is_none_or(|now| now < **value))
            .map(|(key, value)| format!("{key}: {value}, then {:?}", self.get(key)))
            .collect()
    }
}

fn is_name(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}

/// `a="b",c="d"`, with escapes.
fn pairs<'a>(mut labels: &'a str, line: &str) -> Vec<(&'a str, &'a str)> {
    let mut pairs = Vec::new();
    while !labels.is_empty() {
        let (name, rest) = labels.split_once("=\"").expect(line);
        let mut escaped = false;
        let end = rest.char_indices().find(|(_, c)| {
            let ends = *c == '"' && !escaped;
            if escaped {
                assert!(['\\', '"', 'n'].contains(c), "{line}");
            }
            escaped = *c == '\\' && !escaped;
            ends
        });
        let end = end.expect(line).0;
        pairs.push((name, &rest[..end]));
        labels = &rest[end + 1..];
        if !labels.is_empty() {
            labels = labels.strip_prefix(',').expect(line);
        }
    }
    pairs
}
