//! Workers that have ended but for threads that wait for a disk, and those that ended before they knew what to serve. The
//! kernel ends a thread that waits when its call returns, and only then reports the end of the process: with a disk that
//! hangs, never.
//!
//! Not here: the start of another worker ([`super::supervise`]). Invariant: each child is waited for as long as the master
//! runs.

#![expect(clippy::disallowed_methods, reason = "no loop runs in the master")]

use std::process::Child;
use std::time::{Duration, Instant};

use super::supervise::note_end;

/// Interval at which workers are looked at. One that has ended at two looks running counts as gone: usually the rest of
/// it goes within milliseconds.
const LOOK: Duration = Duration::from_secs(1);

/// Maximum of workers of which something is left; a further one is waited for, as by nginx.
const LEFT_MAX: usize = 64;

/// What is left of ended workers.
#[derive(Debug)]
pub(super) struct Remains {
    looked: Instant,
    /// With the words for each.
    left: Vec<(&'static str, Child)>,
}

impl Remains {
    pub(super) fn new() -> Self {
        Self {
            looked: Instant::now(),
            left: Vec::new(),
        }
    }

    /// When workers are to be looked at.
    pub(super) fn due(&self) -> Instant {
        self.looked + LOOK
    }

    /// Whether that is now, and there is room for what may be found; the next time is a [`LOOK`] later.
    pub(super) fn takes_look(&mut self) -> bool {
        let is_due = Instant::now() >= self.due();
        if is_due {
            self.looked = Instant::now();
        }
        is_due && self.left.len() < LEFT_MAX
    }

    /// Keeps what is left of a worker until the kernel has ended that, too.
    pub(super) fn keep(&mut self, child: Child) {
        self.left.push(("the rest of worker process", child));
    }

    /// Ends a process that could not be told what to serve (it may have ended before), and waits for its end where fewer
    /// than [`LEFT_MAX`] are waited for.
    pub(super) fn kill(&mut self, mut child: Child) {
        let _ = child.kill();
        if self.left.len() < LEFT_MAX {
            self.left.push(("worker process", child));
        }
    }

    pub(super) fn reap(&mut self) {
        self.left.retain_mut(|(name, child)| {
            let Ok(Some(status)) = child.try_wait() else {
                return true;
            };
            note_end(name, child.id(), status);
            false
        });
    }
}

/// Whether a process's main thread has ended (proc_pid_stat(5), state Z or X).
pub(super) fn has_ended(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    stat.is_ok_and(|stat| is_ended(&stat))
}

fn is_ended(stat: &str) -> bool {
    // The program's name stands in parentheses, and may have some.
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
    state.is_some_and(|state| state.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_ended_with_its_main_thread() {
        assert!(is_ended("12 (a) R (b) Z 1 12 12 0 -1"));
        assert!(!is_ended("12 (a) Z (b) S 1 12 12 0 -1"));
        assert!(!has_ended(std::process::id()));
    }
}
