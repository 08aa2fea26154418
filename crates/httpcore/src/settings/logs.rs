//! The logs of locations: which files they need, and what each location writes to.
//!
//! Not here: the logs themselves (crate [`logs`]), or who opens their files (the master). Invariant: locations that have
//! their log lines from the same level share their logs.

use std::sync::Arc;

use config::Error;
use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};
use logs::directives::{AccessLog, ErrorLog};
use logs::{AccessLogs, ErrorLogs, LogFiles, Logs, build_error_logs};

use super::Settings;
use super::core::CoreSettings;

impl Settings {
    /// The files of all logs of requests and of errors below `http`: to be opened by the master, and made known to the
    /// worker's logs before [`Settings::equip`].
    ///
    /// # Errors
    /// An unknown format, a file that is buffered in two ways.
    pub fn log_files(&self) -> Result<LogFiles, Error> {
        let mut files = LogFiles::new(&self.prefix, &self.hosts);
        let mut seen = HashSet::new();
        for location in &self.locations {
            let settings = &location.settings;
            if seen.insert(log_lines(settings)) {
                files.add_access(&settings.access_log.access_log, &self.log_formats)?;
                files.add_errors(&settings.error_log.error_log);
            }
        }
        Ok(files)
    }

    /// Gives every location its logs; those without `error_log` get `main`, this configuration's logs of the process.
    /// Files must be known to `logs`; may resolve names, so not on a loop.
    ///
    /// # Errors
    /// A file that was not opened, a syslog server whose name is not found.
    pub fn equip(&self, logs: &Logs, main: &ErrorLogs) -> Result<(), Error> {
        let files = self.log_files()?;
        let mut built = HashMap::new();
        for location in &self.locations {
            let settings = &location.settings;
            let shared = match built.entry(log_lines(settings)) {
                Entry::Occupied(known) => Arc::clone(known.get()),
                Entry::Vacant(place) => {
                    let formats = &self.log_formats;
                    let lines = &settings.error_log.error_log;
                    let errors =
                        build_error_logs(lines, main, &files, logs).map_err(|problem| {
                            Error::without_place(problem.sentence_for("error_log"))
                        })?;
                    let lines = &settings.access_log;
                    let access = AccessLogs::build(lines, formats, &files, logs, &errors)?;
                    Arc::clone(place.insert(Arc::new((access, errors))))
                }
            };
            // A second call finds the same logs.
            let _ = location.logs.set(shared);
        }
        Ok(())
    }
}

/// A key that is the same for locations that have their log lines from the same level.
fn log_lines(settings: &CoreSettings) -> (*const AccessLog, *const ErrorLog) {
    (
        Arc::as_ptr(&settings.access_log),
        Arc::as_ptr(&settings.error_log),
    )
}
