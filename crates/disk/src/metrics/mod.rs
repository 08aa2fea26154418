//! Counters, gauges and histograms that one thread writes and others read; `call_times`: durations of the calls that
//! may wait.
//!
//! Not here: their families, and how they are shown. Invariant: where a method says that it has one writer, two threads
//! never write at the same time (a count would be lost, nothing worse); a reader takes no lock and never waits.

pub mod call_times;
pub(crate) mod counters;
mod histogram;

pub use histogram::{BOUNDS, Histogram, Times};

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Is anything counted? Always, except in a build for comparison (the feature `without_figures`).
pub const ARE_COUNTED: bool = !cfg!(feature = "without_figures");

/// A counter or gauge.
#[derive(Debug, Default)]
pub struct Number(AtomicU64);

impl Number {
    /// Adds, as the only writer.
    pub fn add(&self, more: u64) {
        if ARE_COUNTED {
            self.0.store(self.get().wrapping_add(more), Relaxed);
        }
    }

    /// Subtracts, as the only writer.
    pub fn sub(&self, less: u64) {
        if ARE_COUNTED {
            self.0.store(self.get().wrapping_sub(less), Relaxed);
        }
    }

    /// Sets it.
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Adds, as one of several writers.
    pub fn add_shared(&self, more: u64) {
        if ARE_COUNTED {
            self.0.fetch_add(more, Relaxed);
        }
    }

    /// Its current value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
