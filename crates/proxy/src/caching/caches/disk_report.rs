//! The state of a cache's disk for a reader in another process: one line of text, and back.

use std::time::{SystemTime, UNIX_EPOCH};

use disk::{DiskHealth, DiskState, HealthChange, WriteState};

/// Changes that are told: the latest ones, so that an answer has a bounded length.
const CHANGES_TOLD: usize = 8;

/// The state of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskReport {
    /// Its state's name.
    pub state: String,
    /// The name of the state of writing.
    pub writing: String,
    /// The usual p99 of its reads, in microseconds.
    pub usual_us: u64,
    /// The latest changes, the oldest first.
    pub changes: Vec<ToldChange>,
}

/// A change of a disk's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldChange {
    /// Seconds since 1970.
    pub at: i64,
    /// The state since then.
    pub state: String,
    /// The state of writing since then.
    pub writing: String,
    /// Why.
    pub reason: String,
}

impl DiskReport {
    /// That of a disk.
    #[must_use]
    pub fn of(disk: &DiskHealth) -> Self {
        let history = disk.history();
        let first = history.len().saturating_sub(CHANGES_TOLD);
        Self {
            state: disk.state().name().to_owned(),
            writing: disk.writing().name().to_owned(),
            usual_us: u64::try_from(disk.usual().as_micros()).unwrap_or(u64::MAX),
            changes: history[first..].iter().map(ToldChange::of).collect(),
        }
    }

    /// Whether it is well, and written to.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.state == DiskState::Well.name() && self.writing == WriteState::Allowed.name()
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("{} {} {}", self.state, self.writing, self.usual_us);
        for change in &self.changes {
            let ToldChange {
                at,
                state,
                writing,
                reason,
            } = change;
            text.push_str(&format!("|{at} {state} {writing} {reason}"));
        }
        text
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('|');
        let mut words = parts.next()?.split(' ');
        Some(Self {
            state: words.next()?.to_owned(),
            writing: words.next()?.to_owned(),
            usual_us: words.next()?.parse().ok()?,
            changes: parts.map(ToldChange::parse).collect::<Option<_>>()?,
        })
    }
}

impl ToldChange {
    fn of(change: &HealthChange) -> Self {
        let since = change.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            at: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            state: change.state.name().to_owned(),
            writing: change.writing.name().to_owned(),
            reason: change.reason.replace(['|', '\n'], " "),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.splitn(4, ' ');
        Some(Self {
            at: words.next()?.parse().ok()?,
            state: words.next()?.to_owned(),
            writing: words.next()?.to_owned(),
            reason: words.next()?.to_owned(),
        })
    }

    /// Seconds since the change.
    #[must_use]
    pub fn age(&self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs();
        (i64::try_from(now).unwrap_or(i64::MAX) - self.at).max(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_its_line() {
        let change = ToldChange {
            at: 1_800_000_000,
            state: "out".to_owned(),
            writing: "read-only".to_owned(),
            reason: "none of 3 reads has come a step further".to_owned(),
        };
        for changes in [vec![], vec![change.clone()], vec![change.clone(), change]] {
            let report = DiskReport {
                state: "failing".to_owned(),
                writing: "allowed".to_owned(),
                usual_us: 1500,
                changes,
            };
            assert_eq!(DiskReport::parse(&report.text()), Some(report));
        }
        assert_eq!(DiskReport::parse("well allowed"), None);
    }
}
