//! The kinds of tasks that run on a loop.

/// The purpose of a task; names the culprit of a long poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Takes connections from one listening socket.
    Accept,
    /// Serves one connection.
    Connection,
    /// Fetches a response from an origin for a cache.
    Fill,
    /// Carries out the worker's commands: new settings, shutdown, metrics.
    Control,
    /// The timeout wheel.
    Timers,
    /// Hands lines to the log thread.
    Log,
    /// Closes idle connections to upstreams.
    Upstream,
    /// Mirrors one request.
    Mirror,
    /// Stores one response as a file.
    Store,
    /// A task of a module built outside this crate.
    Module(&'static str),
}

impl Kind {
    /// Whether the loop is lost without it.
    pub(super) fn is_vital(self) -> bool {
        match self {
            Self::Accept | Self::Control | Self::Timers | Self::Log => true,
            Self::Connection
            | Self::Fill
            | Self::Upstream
            | Self::Mirror
            | Self::Store
            | Self::Module(_) => false,
        }
    }

    /// Its name in log lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Connection => "connection",
            Self::Fill => "fill",
            Self::Control => "control",
            Self::Upstream => "upstream",
            Self::Mirror => "mirror",
            Self::Store => "store",
            Self::Timers => "timers",
            Self::Log => "log",
            Self::Module(name) => name,
        }
    }
}
