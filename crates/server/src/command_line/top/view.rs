//! The client's view of the server: the series and their last numbers.

use serde_json::Value;

use super::feed::Told;
use crate::dashboard::SERIES_MAX;

/// Maximum number of error lines, and of stalls, that are shown.
const LINES_MAX: usize = 20;

/// The state.
#[derive(Debug, Default)]
pub(super) struct View {
    series: Vec<Option<Series>>,
    numbers: Vec<Value>,
    /// Time of the last sample in milliseconds since 1970, and time since the one before it.
    at: (u64, u64),
    /// The reason why there is nothing new, after the server has gone.
    pub gone: Option<String>,
    /// The last lines of errors, the newest last.
    pub errors: Vec<String>,
    /// The last stalls, the newest last.
    pub stalls: Vec<String>,
}

/// A series.
#[derive(Debug)]
struct Series {
    name: String,
    labels: Value,
}

/// A histogram's last numbers, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Times {
    /// Number of values.
    pub count: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The longest.
    pub longest: f64,
}

impl View {
    /// Takes in an event of the server.
    pub(super) fn take(&mut self, told: &Told) {
        self.gone = None;
        match &told.name[..] {
            "begin" => *self = Self::default(),
            "series" => told
                .data
                .as_array()
                .into_iter()
                .flatten()
                .for_each(|one| self.add(one)),
            "sample" => {
                let now = told.data["t"].as_u64().unwrap_or(0);
                self.at = (now, now.saturating_sub(self.at.0));
                self.numbers = told.data["v"].as_array().cloned().unwrap_or_default();
            }
            "errors" => keep(&mut self.errors, told, |line| {
                line[1].as_str().unwrap_or_default().to_owned()
            }),
            "stalls" => keep(&mut self.stalls, told, stall),
            _ => {}
        }
    }

    fn add(&mut self, one: &Value) {
        let place = one[0]
            .as_u64()
            .and_then(|place| usize::try_from(place).ok());
        let Some(place) = place.filter(|place| *place < SERIES_MAX) else {
            return;
        };
        if self.series.len() <= place {
            self.series.resize_with(place + 1, || None);
        }
        self.series[place] = one[1].as_str().map(|name| Series {
            name: name.to_owned(),
            labels: one[3].clone(),
        });
    }

    /// Places of the series of a family with these labels, which the last sample has.
    fn places<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&str, &str)],
    ) -> impl Iterator<Item = usize> + 'a {
        let are_those = move |series: &Series| {
            series.name == name
                && labels
                    .iter()
                    .all(|(label, value)| series.labels[label] == *value)
        };
        let places = self.series.iter().enumerate();
        let found = places.filter(move |(_, one)| one.as_ref().is_some_and(are_those));
        let found = found.map(|(place, _)| place);
        found.filter(|place| {
            self.numbers
                .get(*place)
                .is_some_and(|number| !number.is_null())
        })
    }

    /// The values of a label.
    pub(super) fn values(&self, name: &str, label: &str) -> Vec<String> {
        let mut values: Vec<String> = Vec::new();
        for place in self.places(name, &[]) {
            let value = self.series[place]
                .as_ref()
                .and_then(|one| one.labels[label].as_str());
            let value = value.map(str::to_owned).unwrap_or_default();
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    }

    /// The sum of numbers.
    pub(super) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let numbers = self
            .places(name, labels)
            .filter_map(|place| self.numbers[place].as_f64());
        numbers.reduce(|sum, number| sum + number)
    }

    /// The sum of counters, for each second.
    pub(super) fn rate(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let since = crate::dashboard::PERIOD.as_millis() as u64;
        let since = if self.at.1 == 0 || self.at.1 > 60_000 {
            since
        } else {
            self.at.1
        };
        Some(self.sum(name, labels)? * 1000.0 / since as f64)
    }

    /// The slowest of histograms; `None`: nothing came.
    pub(super) fn times(&self, name: &str, labels: &[(&str, &str)]) -> Option<Times> {
        let all = self.places(name, labels).filter_map(|place| {
            let us = |index: usize| self.numbers[place][index].as_f64();
            Some(Times {
                count: us(0)?,
                p50: us(1)? / 1e6,
                p99: us(2)? / 1e6,
                longest: us(3)? / 1e6,
            })
        });
        all.reduce(|one, other| Times {
            count: one.count + other.count,
            p50: one.p50.max(other.p50),
            p99: one.p99.max(other.p99),
            longest: one.longest.max(other.longest),
        })
    }
}

/// Appends an event's list as text, and drops the oldest lines above the maximum.
fn keep(lines: &mut Vec<String>, told: &Told, text: impl Fn(&Value) -> String) {
    let all = told.data.as_array().into_iter().flatten();
    lines.extend(all.map(|one| plain(&text(one))));
    let surplus = lines.len().saturating_sub(LINES_MAX);
    lines.drain(..surplus);
}

/// A stall as text: the time, its duration, the loop, and the cause.
fn stall(stall: &Value) -> String {
    let text = |name: &str| stall[name].as_str().unwrap_or_default();
    let connection = match stall["connection"].as_u64() {
        None | Some(0) => String::new(),
        Some(number) => format!(" *{number}"),
    };
    let second = stall["at"].as_f64().unwrap_or(0.0) as u64 % 86_400;
    let mut out = format!(
        "{:02}:{:02}:{:02} UTC {:.1} ms of loop {}: {}{connection}",
        second / 3600,
        second / 60 % 60,
        second % 60,
        stall["seconds"].as_f64().unwrap_or(0.0) * 1e3,
        stall["loop"].as_u64().unwrap_or(0),
        text("task"),
    );
    for part in ["phase", "operation"].map(text) {
        if !part.is_empty() {
            out += ", ";
            out += part;
        }
    }
    match text("request") {
        "" => out,
        request => format!("{out}, request: \"{request}\""),
    }
}

/// The text without characters that would control the terminal.
pub(super) fn plain(text: &str) -> String {
    text.chars()
        .map(|char| if char.is_control() { '?' } else { char })
        .collect()
}
