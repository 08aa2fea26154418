//! A thread of another process in single steps, counted.

use super::clock::Clock;
use super::wakes::{Wake, Wakes};
use nix::libc::user_regs_struct;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A thread that sleeps in a system call, and still does after so long, is done.
const IDLE: Duration = Duration::from_millis(6);
/// Maximum time until it sleeps: some hundred times of what a request takes in single steps.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Counts until the thread ends.
pub struct Steps {
    shared: Arc<Shared>,
    stat: String,
}

/// What the tracer is told, and tells.
#[derive(Default)]
struct Shared {
    count: AtomicU64,
    /// Steps by their address, while a request is counted.
    addresses: Mutex<HashMap<u64, u64>>,
    is_still: AtomicBool,
}

impl Steps {
    /// Takes hold of the thread.
    pub fn of(process: Pid, thread: Pid) -> Result<Self, String> {
        let shared = Arc::new(Shared::default());
        let traced = Traced {
            thread,
            clock: Clock::of(process)?,
            wakes: Wakes::of(process)?,
            before: None,
            has_events: true,
            shared: Arc::clone(&shared),
        };
        let (seized, is_seized) = mpsc::channel();
        // Only the thread that took hold of another may let it go on (ptrace(2)).
        thread::spawn(move || {
            let held = one_processor(thread)
                .and_then(|()| ptrace::seize(thread, Options::PTRACE_O_EXITKILL))
                .and_then(|()| ptrace::interrupt(thread));
            let is_held = held.is_ok();
            let _ =
                seized.send(held.map_err(|error| {
                    format!("cannot trace thread {thread} of {process}: {error}")
                }));
            if is_held {
                traced.go();
            }
        });
        is_seized.recv().map_err(|error| error.to_string())??;
        let stat = format!("/proc/{process}/task/{thread}/stat");
        Ok(Steps { shared, stat })
    }

    /// How many it makes for what is asked, until the thread waits again. Its clock stands still meanwhile.
    pub fn count_during(&self, ask: impl FnOnce() -> Result<(), String>) -> Result<u64, String> {
        let before = self.when_idle()?;
        self.shared.is_still.store(true, Ordering::Release);
        let after = ask().and_then(|()| self.when_idle());
        self.shared.is_still.store(false, Ordering::Release);
        Ok(after? - before)
    }

    /// The steps of the last request that was counted, by their address.
    pub fn take_addresses(&self) -> HashMap<u64, u64> {
        std::mem::take(&mut *self.shared.addresses.lock().expect("no holder panics"))
    }

    /// The count, once the thread waits. That it makes no step says nothing on a busy machine, where it may wait for a processor.
    fn when_idle(&self) -> Result<u64, String> {
        let count = || self.shared.count.load(Ordering::Acquire);
        let until = Instant::now() + IDLE_MAX;
        while Instant::now() < until {
            let seen = self.is_asleep().then(count);
            thread::sleep(IDLE);
            if let Some(seen) = seen
                && self.is_asleep()
                && count() == seen
            {
                return Ok(seen);
            }
        }
        let seconds = IDLE_MAX.as_secs();
        Err(format!(
            "the loop's thread did not come to rest within {seconds} s: nothing is counted"
        ))
    }

    /// Does it sleep in a system call (proc(5): state S), neither stopped between two steps nor about to run? One that has ended does, too.
    fn is_asleep(&self) -> bool {
        let stat = std::fs::read_to_string(&self.stat).unwrap_or_default();
        let state = stat.rsplit(") ").next().unwrap_or_default();
        state.starts_with('S') || stat.is_empty()
    }
}

/// Has the thread and its tracer, which is this one, on one processor: waking another one takes longer than the step.
fn one_processor(thread: Pid) -> nix::Result<()> {
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let last = (0..CpuSet::count())
        .rev()
        .find(|cpu| allowed.is_set(*cpu).unwrap_or(false));
    let mut one = CpuSet::new();
    one.set(last.unwrap_or(0))?;
    sched_setaffinity(thread, &one)?;
    sched_setaffinity(Pid::from_raw(0), &one)
}

/// What the tracer knows of the thread.
struct Traced {
    thread: Pid,
    clock: Clock,
    wakes: Wakes,
    /// Its registers before the last step.
    before: Option<user_regs_struct>,
    /// Did it last wake up for events? What a timer has it do is not the request's.
    has_events: bool,
    shared: Arc<Shared>,
}

impl Traced {
    fn go(mut self) {
        loop {
            let signal = match waitpid(self.thread, Some(WaitPidFlag::__WALL)) {
                Ok(WaitStatus::Stopped(_, Signal::SIGTRAP)) => {
                    if self.count().is_err() {
                        return;
                    }
                    None
                }
                Ok(WaitStatus::PtraceEvent(..)) => None,
                Ok(WaitStatus::Stopped(_, signal)) => Some(signal),
                _ => return,
            };
            if ptrace::step(self.thread, signal).is_err() {
                return;
            }
        }
    }

    /// A step was made.
    fn count(&mut self) -> nix::Result<()> {
        let registers = ptrace::getregs(self.thread)?;
        let before = self.before.as_ref();
        let wake = before.and_then(|before| self.wakes.find(self.thread, before, &registers));
        if let Some(Wake {
            has_events,
            is_by_timer,
        }) = wake
        {
            self.has_events = has_events;
            // The kernel's time goes on. A thread whose clock did not would ask for the same time again and again.
            if is_by_timer {
                self.clock.hold(false);
            }
        }
        self.before = Some(registers);
        self.clock
            .hold(self.shared.is_still.load(Ordering::Acquire));
        let answered = self.clock.answer(self.thread, &registers)?;
        if self.has_events {
            let count = answered.unwrap_or(1);
            self.shared.count.fetch_add(count, Ordering::Release);
            if self.shared.is_still.load(Ordering::Acquire) {
                let mut addresses = self.shared.addresses.lock().expect("no holder panics");
                *addresses.entry(registers.rip).or_default() += count;
            }
        }
        Ok(())
    }
}
