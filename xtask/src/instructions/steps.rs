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

/// A thread that sleeps in a system call, and still does after so long, is done.
const IDLE: Duration = Duration::from_millis(6);

/// Counts until the thread ends.
pub struct Steps {
    count: Arc<AtomicU64>,
    stat: String,
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
        let stat = format!("/proc/{process}/task/{thread}/stat");
        Ok(Steps { count, stat })
    }

    /// The count, once the thread waits. That it makes no step says nothing on a busy machine, where it may wait for a processor.
    pub fn when_idle(&self) -> u64 {
        loop {
            let seen = self.is_asleep().then(|| self.count.load(Ordering::Acquire));
            thread::sleep(IDLE);
            if let Some(seen) = seen
                && self.is_asleep()
                && self.count.load(Ordering::Acquire) == seen
            {
                return seen;
            }
        }
    }

    /// Does it sleep in a system call (proc(5): state S), neither stopped between two steps nor about to run? One that has ended does, too.
    fn is_asleep(&self) -> bool {
        let stat = std::fs::read_to_string(&self.stat).unwrap_or_default();
        let state = stat.rsplit(") ").next().unwrap_or_default();
        state.starts_with('S') || stat.is_empty()
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
