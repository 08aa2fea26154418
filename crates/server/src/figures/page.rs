//! All figures as they were at one moment, before they are written.
//!
//! Invariant: a sample has the labels that its family says, in that order.

use disk::figures::Times;

use super::names::{ALL, About, Family, Kind};

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

/// A number and what it is of.
#[derive(Debug, Clone)]
pub struct Sample {
    /// A value for each of the family's labels.
    pub labels: Vec<String>,
    /// The number.
    pub value: Value,
}

/// The figures.
#[derive(Debug)]
pub struct Page(Vec<Vec<Sample>>);

impl Default for Page {
    fn default() -> Self {
        Self(vec![Vec::new(); ALL.len()])
    }
}

impl Page {
    /// Adds a sample.
    pub fn add(&mut self, family: Family, labels: &[&str], value: Value) {
        let about = family.about();
        debug_assert_eq!(labels.len(), about.labels.len(), "{}", about.name);
        debug_assert_eq!(
            matches!(value, Value::Times(_)),
            about.kind == Kind::Histogram,
            "{}",
            about.name
        );
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        self.0[family as usize].push(Sample { labels, value });
    }

    /// Adds a whole number.
    pub fn whole(&mut self, family: Family, labels: &[&str], value: u64) {
        self.add(family, labels, Value::Whole(value));
    }

    /// Adds a time in seconds.
    pub fn nanoseconds(&mut self, family: Family, labels: &[&str], ns: u64) {
        self.add(family, labels, Value::Real(ns as f64 / 1e9));
    }

    /// Adds times.
    pub fn times(&mut self, family: Family, labels: &[&str], times: Times) {
        self.add(family, labels, Value::Times(times));
    }

    /// The families that have samples.
    pub fn families(&self) -> impl Iterator<Item = (&'static About, &[Sample])> {
        ALL.iter()
            .zip(&self.0)
            .filter(|(_, samples)| !samples.is_empty())
            .map(|(about, samples)| (about, &samples[..]))
    }
}
