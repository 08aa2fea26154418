//! The cost of a hop: an empty job that another thread runs and a loop awaits, alone (its latency) and as one of
//! several in flight (as in a loaded server). Our pool beside tokio's, a channel, and a queue under a lock, with the
//! same number of threads.

use crate::clock::Clock;
use crate::{THREADS, group};
use criterion::Criterion;
use disk::{Lane, Pool};
use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tokio::runtime::LocalRuntime;
use tokio::sync::oneshot;

/// Names, and jobs that are on their way at once.
const CASES: [(&str, u64); 2] = [("a job alone", 1), ("one of 32 jobs", 32)];

type Job = Box<dyn FnOnce() + Send>;

/// Measures all of them.
pub fn measure(criterion: &mut Criterion, runtime: &LocalRuntime, pool: &Pool, clock: Clock) {
    let pool = pool.clone();
    let ours = async move || {
        let job = pool.run(Lane::Read, || black_box(1));
        job.await.expect("there is room")
    };
    let tokios = async || {
        let job = tokio::task::spawn_blocking(|| black_box(1));
        job.await.expect("it does not panic")
    };
    let channel = channel();
    let channels = async move || told(|job| channel.send(job).expect("threads wait")).await;
    let queue = Queue::start();
    let of_queue = Arc::clone(&queue);
    let queues = async move || told(|job| of_queue.push(job)).await;
    let (ours, tokios) = (Arc::new(ours), Arc::new(tokios));
    let (channels, queues) = (Arc::new(channels), Arc::new(queues));
    for (what, at_once) in CASES {
        let run = Run {
            runtime,
            clock,
            at_once,
        };
        group(
            criterion,
            clock,
            what,
            &mut [
                ("freewheel", &mut |n| run.takes(n, &ours)),
                ("tokio spawn_blocking", &mut |n| run.takes(n, &tokios)),
                ("crossbeam-channel", &mut |n| run.takes(n, &channels)),
                ("Mutex and Condvar", &mut |n| run.takes(n, &queues)),
            ],
        );
    }
    queue.end();
}

/// How jobs are asked for.
struct Run<'a> {
    runtime: &'a LocalRuntime,
    clock: Clock,
    at_once: u64,
}

impl Run<'_> {
    /// How long so many jobs take, each task having one on its way.
    fn takes(&self, count: u64, hop: &Arc<impl AsyncFn() -> i32 + 'static>) -> Duration {
        let each = count.div_ceil(self.at_once);
        let took = self.runtime.block_on(async {
            let begun = self.clock.now();
            let tasks: Vec<_> = (0..self.at_once)
                .map(|_| {
                    let hop = Arc::clone(hop);
                    tokio::task::spawn_local(async move {
                        for _ in 0..each {
                            black_box(hop().await);
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("it does not panic");
            }
            self.clock.now() - begun
        });
        took.mul_f64(count as f64 / (each * self.at_once) as f64)
    }
}

/// A job that tells its result over a oneshot.
async fn told(send: impl FnOnce(Job)) -> i32 {
    let (tell, told) = oneshot::channel();
    send(Box::new(move || {
        let _ = tell.send(black_box(1));
    }));
    told.await.expect("the job is run")
}

fn channel() -> crossbeam_channel::Sender<Job> {
    let (sender, receiver) = crossbeam_channel::bounded::<Job>(disk::pool::DEFAULT_MAX_QUEUE);
    for _ in 0..THREADS {
        let receiver = receiver.clone();
        // Ends with the sender.
        std::thread::spawn(move || receiver.iter().for_each(|job| job()));
    }
    sender
}

/// The plainest queue there is: jobs, and whether there will be more.
struct Queue {
    jobs: Mutex<(VecDeque<Job>, bool)>,
    changed: Condvar,
}

impl Queue {
    fn start() -> Arc<Self> {
        let queue = Arc::new(Self {
            jobs: Mutex::new((VecDeque::new(), true)),
            changed: Condvar::new(),
        });
        for _ in 0..THREADS {
            let queue = Arc::clone(&queue);
            std::thread::spawn(move || {
                while let Some(job) = queue.next() {
                    job();
                }
            });
        }
        queue
    }

    fn push(&self, job: Job) {
        let mut jobs = self.jobs.lock().expect("no job panics");
        jobs.0.push_back(job);
        drop(jobs);
        self.changed.notify_one();
    }

    fn next(&self) -> Option<Job> {
        let mut jobs = self.jobs.lock().expect("no job panics");
        loop {
            if let Some(job) = jobs.0.pop_front() {
                return Some(job);
            }
            if !jobs.1 {
                return None;
            }
            jobs = self.changed.wait(jobs).expect("no job panics");
        }
    }

    fn end(&self) {
        self.jobs.lock().expect("no job panics").1 = false;
        self.changed.notify_all();
    }
}
