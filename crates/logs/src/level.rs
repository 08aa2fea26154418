//! The severity levels of the error log.

/// A level of the error log, gravest first. A log set to a level takes the lines of that level and all graver ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    /// The program cannot go on.
    Emerg = 1,
    /// Someone must act now.
    Alert = 2,
    /// A part of the program does not work.
    Crit = 3,
    /// A request failed.
    Error = 4,
    /// Something is not as it should be.
    Warn = 5,
    /// Worth knowing in normal operation.
    Notice = 6,
    /// About single connections, of interest when looking for something.
    Info = 7,
    /// Accepted as a setting; no line of this level is ever written, as in an nginx without `--with-debug`.
    Debug = 8,
}

impl Level {
    /// All levels, gravest first.
    pub const ALL: [Self; 8] = [
        Self::Emerg,
        Self::Alert,
        Self::Crit,
        Self::Error,
        Self::Warn,
        Self::Notice,
        Self::Info,
        Self::Debug,
    ];

    /// The word in configurations and in lines.
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
            Self::Debug => "debug",
        }
    }

    /// The level with this word; `debug_http` and its like are given to the configuration's reader as `Debug`.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|level| level.name().as_bytes() == name)
    }

    /// Syslog's number for it (RFC 3164 4.1.1).
    #[must_use]
    pub fn severity(self) -> u8 {
        self as u8 - 1
    }
}
