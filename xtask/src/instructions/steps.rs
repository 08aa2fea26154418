//! A thread of another process in single steps, counted.

use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// A thread that made no step for so long waits in a system call.
const IDLE: Duration = Duration::from_millis(6);

/// Counts until the thread ends.
pub struct Steps {
    count: Arc<AtomicU64>,
}

impl Steps {
    /// Takes hold of the thread.
    pub fn of(process: Pid, thread: Pid) -> Result<Self, String> {
        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        let (seized, is_seized) = mpsc::channel();
        // Only the thread that took hold of another may let it go on (ptrace(2)).
        thread::spawn(move || {
            let held = ptrace::seize(thread, Options::PTRACE_O_EXITKILL)
                .and_then(|()| ptrace::interrupt(thread));
            let is_held = held.is_ok();
            let _ =
                seized.send(held.map_err(|error| {
                    format!("cannot trace thread {thread} of {process}: {error}")
                }));
            if is_held {
                go(thread, &counted);
            }
        });
        is_seized.recv().map_err(|error| error.to_string())??;
        Ok(Steps { count })
    }

    /// The count, once the thread waits.
    pub fn when_idle(&self) -> u64 {
        let mut seen = self.count.load(Ordering::Acquire);
        loop {
            thread::sleep(IDLE);
            let now = self.count.load(Ordering::Acquire);
            if now == seen {
                return now;
            }
            seen = now;
        }
    }
}

fn go(thread: Pid, count: &AtomicU64) {
    loop {
        let signal = match waitpid(thread, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Stopped(_, Signal::SIGTRAP)) => {
                count.fetch_add(1, Ordering::Release);
                None
            }
            Ok(WaitStatus::PtraceEvent(..)) => None,
            Ok(WaitStatus::Stopped(_, signal)) => Some(signal),
            _ => return,
        };
        if ptrace::step(thread, signal).is_err() {
            return;
        }
    }
}
