//! How long a poll had no processor: the kernel ran other threads there, or other programs.
//!
//! Polls are timed by the wall clock, which goes on meanwhile. Who waits feels that, but no request is to blame for it: named as the
//! culprit would be whoever was at work when the kernel took the processor. What the thread ran is known from its processor time; and where it
//! has not gone to sleep by itself either, it was ready to run all the time. Where a poll did go to sleep (a call that waited), all of it is
//! the poll's own.
//!
//! Invariant: the kernel is asked at the beginning of a turn at most once in [`Stalls::look_ns`] (a millisecond as a rule; a tenth of it where
//! the loop has slept), and behind a poll that took longer than that. So what is told of a poll is exact but for what the kernel took from
//! others in that time. What is not sure is the poll's own.

use std::cell::Cell;

use rustix::time::{ClockId, clock_gettime};

use crate::figures::LoopFigures;
#[cfg(doc)]
use crate::figures::stalls::Stalls;

/// Between two polls: below that the loop found its next event without going to sleep.
const SLEEP_NS: u64 = 5_000;
/// So much more often the kernel is asked behind a sleep: later the sleep could not be told from one of a poll.
const BEHIND_SLEEP: u64 = 10;

/// What the kernel knows of a thread.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    /// When it was asked.
    at_ns: u64,
    /// How long the thread had run.
    ran_ns: u64,
    /// How often it had gone to sleep by itself.
    sleeps: u64,
}

thread_local! {
    static MARK: Cell<Mark> = const { Cell::new(Mark { at_ns: 0, ran_ns: 0, sleeps: 0 }) };
    /// Before that a turn has nothing to ask.
    static DUE: Cell<u64> = const { Cell::new(0) };
}

/// The loop's last poll ended at `ended`, and a turn begins at `now`.
#[inline]
pub(super) fn turn(figures: &LoopFigures, ended: u64, now: u64) {
    if now >= DUE.get() {
        due(figures.stalls.look_ns(), ended, now);
    }
}

#[cold]
fn due(every_ns: u64, ended: u64, now: u64) {
    let has_slept = now.saturating_sub(ended) >= SLEEP_NS;
    if has_slept || now >= MARK.get().at_ns.saturating_add(every_ns) {
        let _ = look(now);
        DUE.set(now.saturating_add(every_ns / BEHIND_SLEEP));
    }
}

/// A poll that took `poll_ns` ended at `now`: how long of that the loop had no processor.
#[cold]
pub(super) fn of_poll(poll_ns: u64, now: u64) -> u64 {
    look(now).min(poll_ns)
}

/// How long the loop had no processor since the kernel was last asked.
fn look(at_ns: u64) -> u64 {
    let ran = clock_gettime(ClockId::ThreadCPUTime);
    let now = Mark {
        at_ns,
        ran_ns: (ran.tv_sec as u64).wrapping_mul(1_000_000_000) + ran.tv_nsec as u64,
        sleeps: sys::sleeps(),
    };
    waited(MARK.replace(now), now)
}

/// How long a thread had no processor between two marks; 0 where it has gone to sleep by itself, and so is not known.
fn waited(then: Mark, now: Mark) -> u64 {
    if then.at_ns == 0 || now.sleeps != then.sleeps {
        return 0;
    }
    let (passed, ran) = (
        now.at_ns.saturating_sub(then.at_ns),
        now.ran_ns.saturating_sub(then.ran_ns),
    );
    passed.saturating_sub(ran)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn mark(at_ms: u64, ran_ms: u64, sleeps: u64) -> Mark {
        Mark {
            at_ns: at_ms * MS,
            ran_ns: ran_ms * MS,
            sleeps,
        }
    }

    #[test]
    fn who_neither_ran_nor_slept_waited_for_a_processor() {
        let then = mark(100, 10, 5);
        assert_eq!(waited(then, mark(120, 30, 5)), 0, "it ran");
        assert_eq!(waited(then, mark(120, 12, 5)), 18 * MS);
        assert_eq!(waited(then, mark(120, 12, 6)), 0, "it slept");
        assert_eq!(waited(mark(0, 0, 0), mark(9, 1, 0)), 0, "the first");
    }

    #[test]
    fn a_poll_that_sleeps_or_runs_has_itself_to_blame() {
        let now = super::super::timing::now_ns;
        let _ = of_poll(0, now());
        #[expect(clippy::disallowed_methods, reason = "a test")]
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert_eq!(of_poll(30 * MS, now()), 0);
    }

    #[test]
    fn what_a_thread_waits_for_a_processor_is_seen() {
        let now = super::super::timing::now_ns;
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
