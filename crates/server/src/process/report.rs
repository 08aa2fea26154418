//! Lines for the error log from the master, the worker and the loops.
//!
//! Not here: where they go ([`crate::log`] opens the files). Invariant: nothing here waits.

use std::fmt::Arguments;

/// nginx's levels, most severe first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The program cannot go on.
    Emerg,
    /// Something must be done at once.
    Alert,
    /// A serious condition.
    Crit,
    /// A request or a system call failed.
    Error,
    /// Something is odd.
    Warn,
    /// Worth knowing: starts, stops, signals.
    Notice,
    /// For the curious.
    Info,
}

impl Level {
    /// The word between the brackets.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Emerg => "emerg",
            Self::Alert => "alert",
            Self::Crit => "crit",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Notice => "notice",
            Self::Info => "info",
        }
    }
}

/// Writes one line.
pub fn error_log(level: Level, text: Arguments<'_>) {
    eprintln!(
        "[{}] {}#{}: {text}",
        level.name(),
        std::process::id(),
        rustix::thread::gettid()
    );
}
