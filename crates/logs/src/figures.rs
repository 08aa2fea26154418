//! The counters of the logs.

use std::time::Duration;

/// Figures of all logs of a process since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Lines written (to a file, a terminal, a pipe or syslog).
    pub written: u64,
    /// Bytes of these lines, before compression.
    pub bytes: u64,
    /// Lines lost because the ring was full for too long.
    pub dropped: u64,
    /// Lines lost because writing or sending them failed.
    pub failed: u64,
    /// The longest time that the end of a request waited for room.
    pub worst_wait: Duration,
}

impl Figures {
    pub(super) fn waited(&mut self, span: Duration) {
        self.worst_wait = self.worst_wait.max(span);
    }
}
