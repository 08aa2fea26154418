//! All figures as they were at one moment, before they are written.
//!
//! Invariant: a sample has the labels of its family, in that order.

use std::borrow::Cow;
use std::fmt::Write as _;

use disk::metrics::Times;
use hashbrown::HashMap;

use super::families::{Families, Family, Kind};

/// A sample's number.
#[derive(Debug, Clone)]
pub enum Value {
    /// A whole number.
    Whole(u64),
    /// A number, such as seconds.
    Real(f64),
    /// Times, of a histogram.
    Times(Times),
}

impl Value {
    /// Has nothing been counted?
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        match self {
            Self::Whole(whole) => *whole == 0,
            Self::Real(real) => *real == 0.0,
            Self::Times(times) => times.count() == 0,
        }
    }

    /// Adds another one of the same family.
    pub fn add(&mut self, other: &Value) {
        match (self, other) {
            (Self::Whole(sum), Self::Whole(more)) => *sum = sum.saturating_add(*more),
            (Self::Real(sum), Self::Real(more)) => *sum += more,
            (Self::Times(sum), Self::Times(more)) => sum.add(more),
            _ => debug_assert!(false, "a family has values of one kind"),
        }
    }
}

/// A number and what it is of.
#[derive(Debug, Clone)]
pub struct Sample {
    /// A value for each of the family's labels.
    pub labels: Vec<String>,
    /// The number.
    pub value: Value,
}

/// A name of the configuration as a label. Bytes that are not UTF-8 are written as `\xff`, so that two names that differ
/// only in them do not become one label, which readers of metrics accept only once.
#[must_use]
pub fn label(name: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(name) {
        return Cow::Borrowed(text);
    }
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // A String takes all that is written.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    Cow::Owned(text)
}

/// The metrics, by family.
#[derive(Debug, Default)]
pub struct Page {
    families: Vec<(&'static Family, Vec<Sample>)>,
    /// The place of each family, by its name.
    places: HashMap<&'static str, usize>,
}

impl Page {
    /// A page that shows these families first, in this order; others follow as they come.
    #[must_use]
    pub fn in_order(tables: impl IntoIterator<Item = Families>) -> Self {
        let mut page = Self::default();
        for family in tables.into_iter().flatten() {
            page.samples(family);
        }
        page
    }

    /// Adds a sample.
    pub fn add(&mut self, family: &'static Family, labels: &[&str], value: Value) {
        debug_assert_eq!(labels.len(), family.labels.len(), "{}", family.name);
        debug_assert_eq!(
            matches!(value, Value::Times(_)),
            family.kind == Kind::Histogram,
            "{}",
            family.name
        );
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        self.samples(family).push(Sample { labels, value });
    }

    fn samples(&mut self, family: &'static Family) -> &mut Vec<Sample> {
        let families = &mut self.families;
        let place = *self.places.entry(family.name).or_insert_with(|| {
            families.push((family, Vec::new()));
            families.len() - 1
        });
        &mut families[place].1
    }

    /// Adds a whole number.
    pub fn whole(&mut self, family: &'static Family, labels: &[&str], value: u64) {
        self.add(family, labels, Value::Whole(value));
    }

    /// Adds a time in seconds.
    pub fn nanoseconds(&mut self, family: &'static Family, labels: &[&str], ns: u64) {
        self.add(family, labels, Value::Real(ns as f64 / 1e9));
    }

    /// Adds times.
    pub fn times(&mut self, family: &'static Family, labels: &[&str], times: Times) {
        self.add(family, labels, Value::Times(times));
    }

    /// The families that have samples.
    pub fn families(&self) -> impl Iterator<Item = (&'static Family, &[Sample])> {
        self.families
            .iter()
            .filter(|(_, samples)| !samples.is_empty())
            .map(|(family, samples)| (*family, &samples[..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_are_labels_that_differ() {
        assert_eq!(label(b"plain"), "plain");
        assert_eq!(label("gr\u{fc}n".as_bytes()), "gr\u{fc}n");
        assert_eq!(label(b"a\xff\xfeb"), "a\\xff\\xfeb");
        assert_ne!(label(b"a\xff"), label(b"a\xfe"));
    }
}
