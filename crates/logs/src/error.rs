//! Error logs: which lines go to which log.
//!
//! Not the format of a line (`line`) and not the writing (`ring`, `thread`). Invariant: a line is built once and goes
//! to every log that wants its level; a file that is named twice gets it twice.

use std::sync::Arc;

use super::json;
use super::level::Level;
use super::line::Process;
use super::recent;
use super::sink::Target;
use super::syslog;
use crate::wall_clock::{Clock, refresh_past_zone};

/// How many `error_log` lines one level of the configuration may hold.
pub(crate) const LOGS_MAX: usize = 64;

/// The form of a log's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LineForm {
    /// nginx's.
    #[default]
    Text,
    /// A JSON object.
    Json,
}

/// The error logs in force somewhere: of the process, of a server, of a location.
#[derive(Debug, Clone)]
pub struct ErrorLogs {
    logs: Arc<[(Level, Target, LineForm)]>,
    /// The least grave level that any of them wants.
    least: Level,
}

impl Default for ErrorLogs {
    /// No log: every line is lost. Only for tests and for what runs before a log is known.
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl ErrorLogs {
    /// The logs of one place of the configuration (inheritance is the caller's: a place that names logs has these only).
    #[must_use]
    pub fn new(logs: Vec<(Level, Target)>) -> Self {
        let text = |(level, target)| (level, target, LineForm::Text);
        Self::with_forms(logs.into_iter().map(text).collect())
    }

    /// The same, each log with the form of its lines.
    #[must_use]
    pub fn with_forms(logs: Vec<(Level, Target, LineForm)>) -> Self {
        let least = logs
            .iter()
            .map(|(level, _, _)| *level)
            .max()
            .unwrap_or(Level::Emerg);
        Self {
            logs: logs.into(),
            least,
        }
    }

    /// Whether a line of this level would be written anywhere: ask before building its text.
    #[must_use]
    pub fn wants(&self, level: Level) -> bool {
        level <= self.least && !self.logs.is_empty()
    }

    /// Writes a line in the calling thread and waits for the disk: for the master, for a worker before its loops run, never for a
    /// loop. What cannot be written is lost: there is nowhere to say so.
    pub fn write_now(&self, level: Level, write: impl FnOnce(&mut Vec<u8>)) {
        if !self.wants(level) {
            return;
        }
        refresh_past_zone();
        let clock = Clock::new();
        let mut line = Vec::new();
        Process::current().error_line(&clock, level, None, &mut line, write);
        self.each(level, &line, &clock, |target, line| target.write_now(line));
    }

    /// Calls `write` with each log that wants the level, and the line in that log's form.
    pub(super) fn each(
        &self,
        level: Level,
        line: &[u8],
        clock: &Clock,
        mut write: impl FnMut(&Target, &[u8]),
    ) {
        recent::keep(level, line);
        let mut object = Vec::new();
        for (least, target, form) in self.logs.iter() {
            if level > *least {
                continue;
            }
            let line = match form {
                LineForm::Text => line,
                LineForm::Json => {
                    if object.is_empty() {
                        json::append_error_line(line, level, clock, &mut object);
                    }
                    &object
                }
            };
            match target.syslog_head() {
                None => write(target, line),
                Some(head) => {
                    let mut packet = Vec::with_capacity(syslog::HEAD_BYTES_MAX + line.len());
                    head.append(level.severity(), clock, &mut packet);
                    packet.extend_from_slice(line.trim_ascii_end());
                    write(target, &packet);
                }
            }
        }
    }
}
