//! Metrics: families of them, samples, and the formats in which these are written.
//!
//! * [`Family`]: the name, unit and meaning of metrics; each source declares its own ([`crate::families!`]).
//! * [`Page`]: all samples at one moment; [`text`] and [`json`] write one.
//! * [`stalls`]: polls that took too long.
//!
//! Not here: what a loop counts ([`crate::timing`]), the other sources and the list of them. Invariant: labels come from the configuration
//! and from lists in the code, never from a request; a counter never decreases while the worker lives, whatever is
//! reloaded.

pub mod families;
pub mod json;
pub mod page;
pub mod stalls;
pub mod text;

use std::time::{SystemTime, UNIX_EPOCH};

pub use families::{Families, Family};
pub use page::Page;

/// Milliseconds since 1970.
#[must_use]
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
crate::families! {
    /// Families for tests.
    _EXAMPLES;
    LOADED Gauge "example_loaded" "" ["version"] "Always 1.";
    BUSY Counter "example_requests" "" ["loop"] "Requests.";
    TOOK Histogram "example_blocked_seconds" "seconds" ["loop"] "Times.";
}
