//! The kinds of tasks that run on a loop.

/// The purpose of a task; names the culprit of a long poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Takes connections from one listening socket.
    Accept,
    /// Serves one connection.
    Connection,
    /// Carries out the worker's commands: new settings, shutdown, metrics.
    Control,
    /// The timeout wheel.
    Timers,
    /// Hands lines to the log thread.
    Log,
    /// Drops what the disk layer keeps and no request asked for.
    Sweep,
    /// Closes idle connections to upstreams.
    Upstream,
    /// A task of a module, by its name.
    Module(&'static str),
}

impl Kind {
    /// Whether the loop is lost without it.
    pub(super) fn is_vital(self) -> bool {
        match self {
            Self::Accept | Self::Control | Self::Timers | Self::Log => true,
            Self::Connection | Self::Sweep | Self::Upstream | Self::Module(_) => false,
        }
    }

    /// Its name in log lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Connection => "connection",
            Self::Control => "control",
            Self::Sweep => "sweep",
            Self::Upstream => "upstream",
            Self::Timers => "timers",
            Self::Log => "log",
            Self::Module(name) => name,
        }
    }
}
