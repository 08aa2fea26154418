//! What is counted, by one thread and read by others: counters, gauges, histograms of times.
//!
//! Not here: what is counted, and how it is shown. Invariant: where a type says that it has one writer, two threads never
//! write it at the same time (a number would be lost, nothing worse); a reader takes no lock and waits for nobody.

pub(crate) mod counters;
mod histogram;

pub use histogram::{BOUNDS, Histogram, Times};

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Is anything counted? It is, but in a program that is built to be compared with (the feature `without_figures`).
pub const ARE_COUNTED: bool = !cfg!(feature = "without_figures");

/// A number that one thread changes and others read.
#[derive(Debug, Default)]
pub struct Number(AtomicU64);

impl Number {
    /// Adds, as the only writer.
    pub fn add(&self, more: u64) {
        if ARE_COUNTED {
            self.0.store(self.get().wrapping_add(more), Relaxed);
        }
    }

    /// Takes away, as the only writer.
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

    /// As it is now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
