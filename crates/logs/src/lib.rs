//! Access and error logs, their thread, and what a line needs: the wall clock and the evaluation of templates.
//!
//! * [`directives`]: what the configuration says; [`mod@format`], [`syslog`] with their grammars.
//! * [`AccessLogs`], [`ErrorLogs`]: the logs of one place of the configuration.
//! * [`Feed`]: one loop's way to the logs; [`Logs`]: the process's.
//! * `ring`, `waiters`, `thread`, `sink`, `file`, `named`: from the loops to the log thread, and into files.
//! * `json`: lines as JSON objects.
//! * [`process_log`]: error lines of code that belongs to no request.
//! * [`wall_clock`]: times as texts; [`template`]: texts with variables; [`getaddrinfo`]: names in a configuration, such
//!   as those of syslog servers.
//!
//! Not here: which lines are written when; it knows neither a request nor a loop. Invariant: no loop ever writes to a
//! log, or waits for one without a bound.

#![warn(unreachable_pub)]

mod access;
pub mod directives;
mod error;
mod figures;
mod file;
pub mod format;
pub mod getaddrinfo;
mod json;
mod level;
mod line;
mod named;
pub mod process_log;
pub mod recent;
mod ring;
mod sink;
pub mod syslog;
pub mod template;
#[cfg(test)]
mod tests;
mod thread;
mod waiters;
pub mod wall_clock;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hashbrown::HashSet;
use parking_lot::Mutex;

pub use access::{AccessLogs, FileSet, LogFiles, build_error_logs};
pub use error::{ErrorLogs, LineForm};
pub use figures::Figures;
pub use file::Buffer;
pub use level::Level;
pub use line::{ERROR_LINE_BYTES, ErrorContext, append_failed, append_os_error};
pub use named::OpenLogFileCache;
pub use ring::{Feed, RING_BYTES, ROOM_WAIT, SETTLE_WAIT, Sleep};
pub use sink::{Sink, Target};

use crate::wall_clock::{Clock, refresh_zone};
use named::Named;
use ring::{Batch, Ring};
use sink::Order;
use thread::{Targets, Writer};

/// All logs of a process, and the thread that writes them. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Logs {
    ring: Arc<Ring>,
    targets: Arc<Targets>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Logs {
    /// Starts the log thread, and reads the time zone. For a worker, before its loops run.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start() -> io::Result<Self> {
        refresh_zone();
        let (ring, targets) = (Arc::new(Ring::new()), Arc::new(Targets::default()));
        let (for_thread, its_targets) = (Arc::clone(&ring), Arc::clone(&targets));
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || Writer::new(for_thread, its_targets).run())?;
        Ok(Self {
            ring,
            targets,
            thread: Arc::new(Mutex::new(Some(thread))),
        })
    }

    /// Makes a log file known, open for appending. A path that is known already goes on with the new descriptor, as after a reload,
    /// and with the new buffer.
    pub fn file(
        &self,
        path: &Path,
        descriptor: impl Into<Arc<OwnedFd>>,
        buffer: Option<Buffer>,
    ) -> Target {
        match self.find(path) {
            Some(target) => {
                self.ring.order(Order::Reopen {
                    target: Arc::clone(&target),
                    descriptor: descriptor.into(),
                    buffer: Some(buffer),
                });
                target
            }
            None => self.keep(Sink::file(path, descriptor, buffer)),
        }
    }

    /// The log file of this path.
    #[must_use]
    pub fn find(&self, path: &Path) -> Option<Target> {
        self.targets.all.lock().find(path).cloned()
    }

    /// Standard error.
    #[must_use]
    pub fn stderr(&self) -> Target {
        self.keep(Sink::stderr())
    }

    /// A syslog server (its name resolved).
    #[must_use]
    pub fn syslog(&self, peer: &syslog::Peer) -> Target {
        self.keep(Sink::syslog(peer))
    }

    /// Files whose names come with each line. `errors`: the error logs of the place, which have what goes wrong with them.
    #[must_use]
    pub fn named(&self, cache: Option<OpenLogFileCache>, errors: &ErrorLogs) -> Target {
        self.keep(Sink::named(Named::new(cache, errors.clone())))
    }

    /// Replaces the descriptor of a log file (USR1): lines fed before go to the old one. `false`: no log has this path.
    pub fn reopen(&self, path: &Path, descriptor: impl Into<Arc<OwnedFd>>) -> bool {
        let Some(target) = self.find(path) else {
            return false;
        };
        self.ring.order(Order::Reopen {
            target,
            descriptor: descriptor.into(),
            buffer: None,
        });
        true
    }

    /// A configuration is in force that names these log files and no others: the lines that buffered logs of older ones hold are
    /// written, and what comes for these logs is written at once.
    pub fn keep_only(&self, named: &HashSet<&Path>) {
        let all = self.targets.all.lock();
        for target in all.iter() {
            if target.path().is_some_and(|path| !named.contains(path)) {
                let target = Arc::clone(target);
                self.ring.order(Order::Leave { target });
            }
        }
    }

    /// Closes the files of logs with variables in their names (USR1): the next line opens them anew.
    pub fn forget_named(&self) {
        self.ring.order(Order::ForgetNamed);
    }

    /// Sets the error logs of the process: where the log thread itself complains, and [`Logs::error`] writes.
    pub fn set_main(&self, logs: ErrorLogs) {
        *self.targets.main.lock() = logs;
    }

    /// The error logs of the process.
    #[must_use]
    pub fn main(&self) -> ErrorLogs {
        self.targets.main.lock().clone()
    }

    /// A loop's way to the logs. The loop spawns its [`Feed::run`].
    #[must_use]
    pub fn feed(&self, clock: Rc<Clock>, sleep: Sleep) -> Feed {
        Feed::new(Arc::clone(&self.ring), clock, sleep)
    }

    /// Writes a line to the error logs of the process, from any thread; never waits.
    pub fn error(&self, level: Level, write: impl FnOnce(&mut Vec<u8>)) {
        self.error_to(&self.main(), level, write);
    }

    /// Writes a line to these error logs, from any thread; never waits.
    pub fn error_to(&self, logs: &ErrorLogs, level: Level, write: impl FnOnce(&mut Vec<u8>)) {
        if !logs.wants(level) {
            return;
        }
        let clock = Clock::new();
        let (mut line, mut batch) = (Vec::new(), Batch::default());
        line::Process::current().error_line(&clock, level, None, &mut line, write);
        logs.each(level, &line, &clock, |target, line| {
            batch.push(target, line, (0, 0))
        });
        self.ring.push_now(batch);
    }

    /// Waits until all that was fed is written, buffered logs too; `false` when that took too long. Blocks: not for a
    /// loop.
    pub fn drain(&self, longest: Duration) -> bool {
        self.ring.drain(longest)
    }

    /// Writes everything and ends the thread: the last thing a worker does. Waits no longer than `longest` (a log may lie on a dead
    /// disk). `false`: something may be missing.
    pub fn end(&self, longest: Duration) -> bool {
        let drained = self.drain(longest);
        self.ring.end();
        let thread = self.thread.lock().take();
        if drained && let Some(thread) = thread {
            // It has nothing left to write. A thread that panicked has said so on standard error.
            return thread.join().is_ok();
        }
        drained
    }

    /// What the logs have counted.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.ring.queue.lock().figures
    }

    fn keep(&self, target: Target) -> Target {
        self.targets.all.lock().add(Arc::clone(&target));
        target
    }
}
