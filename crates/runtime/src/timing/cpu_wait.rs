//! The time that a loop's thread was ready and had no processor, because the kernel ran other threads or programs.
//!
//! Polls are timed by the wall clock, which goes on meanwhile. A client feels that time, but no request is to blame for
//! it: the culprit that is named would be the request at hand when the kernel took the processor away. The kernel tells
//! how long a thread was runnable without running (`/proc/thread-self/schedstat`, the kernel's `sched-stats.rst`),
//! whether or not it slept in between. It does not tell how long the hypervisor ran other machines. That is seen where
//! the thread did not go to sleep by itself: the time that passed and is missing in its processor time. Where neither
//! source tells anything (a call that waited, on a kernel that keeps no account), the whole poll counts as its own.
//!
//! Invariant: the kernel is asked at the beginning of a turn, at most once in [`Stalls::look_ns`] (a millisecond as a
//! rule), and after a poll that took longer than that. The figure of a poll is exact but for what the kernel took in
//! that time.

use std::cell::{Cell, OnceCell};
use std::fs::File;

use rustix::time::{ClockId, clock_gettime};

use super::LoopFigures;
#[cfg(doc)]
use crate::metrics::stalls::Stalls;

/// Maximum time between two readings, in nanoseconds, also while no threshold needs them: one may be set later.
const EVERY_MAX_NS: u64 = 1_000_000_000;
/// Maximum size of the kernel's text in bytes: three numbers.
const TOLD_MAX: usize = 80;

/// A reading of the kernel's figures of a thread.
#[derive(Debug, Clone, Copy)]
struct Mark {
    /// When it was taken.
    at_ns: u64,
    /// CPU time of the thread so far.
    ran_ns: u64,
    /// How often the thread had gone to sleep by itself.
    sleeps: u64,
    /// How long it had been runnable without a processor.
    unserved_ns: u64,
}

const NO_MARK: Mark = Mark {
    at_ns: 0,
    ran_ns: 0,
    sleeps: 0,
    unserved_ns: 0,
};

thread_local! {
    static MARK: Cell<Mark> = const { Cell::new(NO_MARK) };
    /// A turn that begins earlier takes no reading.
    static DUE: Cell<u64> = const { Cell::new(0) };
    /// The open `schedstat` file.
    static TOLD: OnceCell<File> = const { OnceCell::new() };
}

/// Opens the kernel's figures of this thread, which is about to become a loop's.
pub(super) fn enter() {
    #[expect(
        clippy::disallowed_methods,
        reason = "a file without a disk, before the loop runs"
    )]
    let told = File::open("/proc/thread-self/schedstat");
    if let Ok(told) = told {
        // A thread that enters again has it open already.
        TOLD.with(|slot| drop(slot.set(told)));
    }
}

/// Called when a turn begins at `now`.
#[inline]
pub(super) fn turn(figures: &LoopFigures, now: u64) {
    if now >= DUE.get() {
        due(figures.stalls.look_ns(), now);
    }
}

#[cold]
fn due(every_ns: u64, now: u64) {
    let _ = look(now);
    DUE.set(now.saturating_add(every_ns.min(EVERY_MAX_NS)));
}

/// The time for which the loop had no processor, of a poll that took `poll_ns` and ended at `now`.
#[cold]
pub(super) fn of_poll(poll_ns: u64, now: u64) -> u64 {
    look(now).min(poll_ns)
}

/// The time for which the loop had no processor since the last reading.
fn look(at_ns: u64) -> u64 {
    let ran = clock_gettime(ClockId::ThreadCPUTime);
    let now = Mark {
        at_ns,
        ran_ns: (ran.tv_sec as u64).wrapping_mul(1_000_000_000) + ran.tv_nsec as u64,
        sleeps: sys::sleeps(),
        unserved_ns: unserved_ns().unwrap_or_default(),
    };
    waited(MARK.replace(now), now)
}

/// The time for which a thread had no processor between two readings.
fn waited(then: Mark, now: Mark) -> u64 {
    if then.at_ns == 0 {
        return 0;
    }
    let told = now.unserved_ns.saturating_sub(then.unserved_ns);
    if now.sleeps != then.sleeps {
        return told;
    }
    let passed = now.at_ns.saturating_sub(then.at_ns);
    let ran = now.ran_ns.saturating_sub(then.ran_ns);
    told.max(passed.saturating_sub(ran))
}

/// The time for which this thread has been runnable without a processor so far, where the kernel tells it.
fn unserved_ns() -> Option<u64> {
    TOLD.with(|told| {
        let mut text = [0; TOLD_MAX];
        #[expect(clippy::disallowed_methods, reason = "the kernel makes it up")]
        let len = rustix::io::pread(told.get()?, &mut text, 0).ok()?;
        unserved_in(&text[..len])
    })
}

/// Time that a thread was ready without a processor, in nanoseconds, from the kernel's text about it
/// (`sched-stats.rst`): the second of three numbers.
#[must_use]
pub(crate) fn unserved_in(told: &[u8]) -> Option<u64> {
    let number = told.split(|byte| *byte == b' ').nth(1)?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn mark(at_ms: u64, ran_ms: u64, sleeps: u64, unserved_ms: u64) -> Mark {
        Mark {
            at_ns: at_ms * MS,
            ran_ns: ran_ms * MS,
            sleeps,
            unserved_ns: unserved_ms * MS,
        }
    }

    #[test]
    fn who_neither_ran_nor_slept_waited_for_a_processor() {
        let then = mark(100, 10, 5, 50);
        assert_eq!(waited(then, mark(120, 30, 5, 50)), 0, "it ran");
        assert_eq!(waited(then, mark(120, 12, 5, 50)), 18 * MS);
        assert_eq!(waited(then, mark(120, 12, 5, 60)), 18 * MS);
        assert_eq!(waited(then, mark(120, 12, 6, 50)), 0, "it slept");
        assert_eq!(waited(then, mark(120, 12, 6, 57)), 7 * MS, "and waited");
        assert_eq!(waited(NO_MARK, mark(9, 1, 0, 3)), 0, "the first");
    }

    #[test]
    fn a_poll_that_sleeps_has_itself_to_blame() {
        let now = super::super::poll_timing::now_ns;
        enter();
        let _ = of_poll(0, now());
        #[expect(clippy::disallowed_methods, reason = "a test")]
        std::thread::sleep(std::time::Duration::from_millis(30));
        // It may wait a moment when it wakes.
        assert!(of_poll(30 * MS, now()) < 20 * MS);
    }

    #[test]
    fn what_a_thread_waits_for_a_processor_is_seen() {
        let now = super::super::poll_timing::now_ns;
        enter();
        if unserved_ns().is_none() {
            return;
        }
        let core = rustix::thread::sched_getaffinity(None).expect("the cores");
        let one = (0..rustix::thread::CpuSet::MAX_CPU).find(|index| core.is_set(*index));
        let mut only = rustix::thread::CpuSet::new();
        only.set(one.expect("a core"));
        // Two threads on one core, for half a second of each: at least a tenth of a second is the other one's.
        let rival = only;
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let stopped = std::sync::Arc::clone(&stop);
        let other = std::thread::spawn(move || {
            rustix::thread::sched_setaffinity(None, &rival).expect("a core that is ours");
            while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        rustix::thread::sched_setaffinity(None, &only).expect("a core that is ours");
        let mut begun = now();
        let _ = of_poll(0, begun);
        let mut waited = 0;
        for _ in 0..100 {
            while now() - begun < 10 * MS {
                std::hint::spin_loop();
            }
            let ended = now();
            waited += of_poll(ended - begun, ended);
            begun = ended;
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        other.join().expect("it only spins");
        assert!(waited > 100 * MS, "{waited}");
    }
}
