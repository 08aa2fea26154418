//! The queue under loom: every interleaving of a few threads (up to a bound of preemptions). A lost wake-up would be a
//! deadlock, which loom reports.
//!
//! The queue is compiled a second time here, on loom's lock and condition variable, so that no build flag is needed.

#[allow(
    dead_code,
    reason = "the whole queue is compiled; these tests use a part"
)]
#[allow(clippy::duplicate_mod, reason = "the second time on loom's primitives")]
#[path = "queue.rs"]
mod queue;

/// loom's primitives in the shape of `pool::sync`.
mod sync {
    pub use loom::sync::MutexGuard;

    pub struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Mutex<T> {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    pub struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub fn new() -> Condvar {
            Condvar(loom::sync::Condvar::new())
        }

        pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(guard).unwrap()
        }

        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

use loom::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use queue::{Bounds, JobQueue, Lane};
use std::sync::Arc;

const PREEMPTIONS: usize = 2;

/// Runs `jobs` through a queue with this many workers in all interleavings; each is handed out once, and writes at the
/// same time never are more than `writes_max`.
fn check(threads: usize, jobs: &'static [Lane], writes_max: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(move || {
        let queue = Arc::new(JobQueue::new(Bounds {
            threads,
            max_queue: jobs.len(),
        }));
        let (taken, writing) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                let (queue, taken, writing) = (queue.clone(), taken.clone(), writing.clone());
                loom::thread::spawn(move || {
                    let mut finished = None;
                    while let Some((lane, job, _)) = queue.next(finished) {
                        let bit = 1usize << job;
                        assert_eq!(taken.fetch_or(bit, SeqCst) & bit, 0, "handed out twice");
                        if lane == Lane::Write {
                            assert!(writing.fetch_add(1, SeqCst) < writes_max);
                            writing.fetch_sub(1, SeqCst);
                        }
                        finished = Some(lane);
                    }
                })
            })
            .collect();
        for (job, lane) in jobs.iter().enumerate() {
            assert!(queue.push(*lane, job).is_ok());
        }
        queue.close();
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(taken.load(SeqCst), (1 << jobs.len()) - 1, "one was lost");
    });
}

#[test]
fn every_job_is_handed_out_once_and_no_wake_up_is_lost() {
    check(2, &[Lane::Read, Lane::Read, Lane::Read], 0);
}

#[test]
fn two_workers_never_write_at_the_same_time() {
    check(2, &[Lane::Write, Lane::Read, Lane::Write], 1);
}

#[test]
fn one_worker_does_all_lanes() {
    check(1, &[Lane::Write, Lane::Read], 1);
    check(1, &[Lane::Shared, Lane::Write], 1);
}

#[test]
fn reads_for_many_are_handed_out_once_too() {
    check(2, &[Lane::Shared, Lane::Read, Lane::Shared], 0);
}

#[test]
fn the_end_of_a_hold_wakes_the_workers() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(|| {
        let queue = Arc::new(JobQueue::new(Bounds {
            threads: 1,
            max_queue: 1,
        }));
        queue.hold(true);
        let worker = {
            let queue = queue.clone();
            loom::thread::spawn(move || queue.next(None).map(|(_, job, _)| job))
        };
        assert!(queue.push(Lane::Read, 7).is_ok());
        queue.hold(false);
        assert_eq!(worker.join().unwrap(), Some(7));
    });
}
