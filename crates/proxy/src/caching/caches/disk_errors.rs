//! Errors of a cache's disk: one log line a minute, however many errors there are.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use logs::Level;
use logs::process_log::error_log;
use wire::loop_clock::monotonic_ms;

/// Minimum time between two log lines.
const PAUSE_MS: u64 = 60_000;

/// The errors of a cache's disk.
#[derive(Debug, Default)]
pub(crate) struct DiskErrors {
    /// When the last line was logged, in milliseconds of the monotonic clock; 0: there was none.
    told: AtomicU64,
    /// Errors since then.
    untold: AtomicU64,
    all: AtomicU64,
}

impl DiskErrors {
    /// Counts one, and logs it unless a line was logged within the last minute. `what` is the operation that failed.
    pub(crate) fn tell(&self, directory: &[u8], what: &str, error: &cache::Error) {
        self.all.fetch_add(1, Relaxed);
        self.say(level(error), directory, what, error);
    }

    /// Logs an event that is counted elsewhere, unless a line was logged within the last minute.
    pub(crate) fn say(&self, level: Level, directory: &[u8], what: &str, why: impl Display) {
        // A wall clock that is put back would keep it silent until it has caught up.
        let now = monotonic_ms();
        let told = self.told.load(Relaxed);
        let is_due = told == 0 || now >= told + PAUSE_MS;
        if !is_due
            || self
                .told
                .compare_exchange(told, now, Relaxed, Relaxed)
                .is_err()
        {
            self.untold.fetch_add(1, Relaxed);
            return;
        }
        let untold = self.untold.swap(0, Relaxed);
        let directory = directory.escape_ascii();
        let more = match untold {
            0 => String::new(),
            _ => format!(", and {untold} more since the last line"),
        };
        error_log(
            level,
            format_args!("cache \"{directory}\": {what}: {why}{more}"),
        );
    }

    /// Number of errors since the start.
    #[must_use]
    pub(crate) fn count(&self) -> u64 {
        self.all.load(Relaxed)
    }
}

/// The log level: a disk that fails deserves more attention than a pool that is full.
fn level(error: &cache::Error) -> Level {
    match error {
        cache::Error::Disk(disk::Error::System { .. }) => Level::Crit,
        cache::Error::Fault(_) => Level::Error,
        _ => Level::Warn,
    }
}
