//! How severe a message about the configuration is.

use std::fmt;

/// How severe a message is: those of nginx's log levels that a configuration needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// The configuration cannot be used.
    Emerg,
    /// The configuration can be used, but the user should know.
    Warn,
}

impl fmt::Display for Severity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Emerg => "emerg",
            Self::Warn => "warn",
        })
    }
}
