//! Limits that all loops share: the rate of requests with a key (`limit_req`), and the number that are being answered
//! (`limit_conn`).
//!
//! * [`limit_req`], [`limit_conn`]: the steps that check them.
//! * [`zones`]: the lines that declare zones, and how zones survive reloads.
//! * `keys`: the keys of a zone; `requests`, `connections`: the state of each key.
//! * `table`: keys in a bounded number of bytes.
//! * `limited`: the results that a request remembers.
//! * [`metrics`]: the counters of each zone.
//!
//! Invariant: a zone's lock is held for one look at one key, never while anything is evaluated, logged or waited for.

pub(crate) mod connections;
pub(crate) mod keys;
pub mod limit_conn;
pub mod limit_req;
pub(crate) mod limited;
pub mod metrics;
pub(crate) mod requests;
pub(crate) mod table;
pub mod zones;

pub use limited::{Counted, Limited, Paced};
use logs::Level;
pub use zones::{ZoneName, Zones};

/// Maximum number of `limit_req` lines, or `limit_conn` lines, of one level.
pub const LIMITS_MAX: usize = 64;

config::choices! {
    /// How grave a refusal is.
    pub enum RefusalLevel {
        /// Information.
        Info = "info",
        /// Worth a note.
        Notice = "notice",
        /// A warning.
        Warn = "warn",
        /// An error.
        Error = "error",
    }
}

impl RefusalLevel {
    /// The corresponding level of the log.
    #[must_use]
    pub fn level(self) -> Level {
        match self {
            Self::Info => Level::Info,
            Self::Notice => Level::Notice,
            Self::Warn => Level::Warn,
            Self::Error => Level::Error,
        }
    }

    /// The level one below, for requests that are only delayed.
    #[must_use]
    pub fn milder(self) -> Level {
        match self {
            Self::Info | Self::Notice => Level::Info,
            Self::Warn => Level::Notice,
            Self::Error => Level::Warn,
        }
    }
}
