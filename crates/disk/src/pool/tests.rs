//! The promises of pools, tried in one process.

use super::*;
use std::sync::mpsc;
use tokio::runtime::{Builder, LocalRuntime};

fn runtime() -> LocalRuntime {
    Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .unwrap()
}

#[test]
fn a_job_runs_on_a_thread_of_the_pool_and_its_result_comes_back() {
    runtime().block_on(async {
        tokio::task::spawn_local(deliver());
        let pool = Pool::new("p", 2, 10);
        let name = pool
            .run(Lane::Read, || {
                std::thread::current().name().map(str::to_owned)
            })
            .await
            .unwrap();
        assert!(name.unwrap().starts_with("p "));
        assert!(!on_pool_thread());
        let sum: u64 = {
            let jobs: Vec<_> = (0..1000u64)
                .map(|n| pool.submit(Lane::Read, move || n))
                .collect();
            let mut sum = 0;
            for job in jobs {
                match job {
                    Ok(job) => sum += job.await,
                    Err(overflow) => assert!(overflow.to_string().contains("\"p\"")),
                }
            }
            sum
        };
        assert!(sum > 0);
    });
}

#[test]
fn a_full_queue_says_how_many_wait_in_nginxs_words() {
    let pool = Pool::new("small", 1, 2);
    let hold = pool.hold();
    let first = pool.submit(Lane::Read, || 1).unwrap();
    let _second = pool.submit(Lane::Read, || 2).unwrap();
    let overflow = pool.submit(Lane::Read, || 3).map(|_| ()).unwrap_err();
    assert_eq!(
        overflow.to_string(),
        "thread pool \"small\" queue overflow: 2 tasks waiting"
    );
    // The other lane has its own bound.
    let write = pool.submit(Lane::Write, || 4).unwrap();
    assert_eq!(pool.counters().rejected, 1);
    drop(hold);
    runtime().block_on(async {
        assert_eq!(first.await, 1);
        assert_eq!(write.await, 4);
    });
}

#[test]
fn max_queue_0_takes_as_many_jobs_as_threads_are_free() {
    let pool = Pool::new("none", 2, 0);
    let (send, wait) = mpsc::channel::<()>();
    let wait = Arc::new(Mutex::new(wait));
    let block = || {
        let wait = wait.clone();
        move || {
            let _ = wait.lock().recv();
        }
    };
    let one = pool.submit(Lane::Read, block()).unwrap();
    let two = pool.submit(Lane::Read, block()).unwrap();
    assert!(pool.submit(Lane::Read, || ()).is_err());
    drop(send);
    runtime().block_on(async {
        one.await;
        two.await;
        // The thread counts as busy until it asks for its next job.
        while pool.submit(Lane::Read, || ()).is_err() {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn writes_leave_one_thread_to_reads() {
    let pool = Pool::new("lanes", 3, 100);
    let (send, wait) = mpsc::channel::<()>();
    let wait = Arc::new(Mutex::new(wait));
    for _ in 0..10 {
        let wait = wait.clone();
        pool.spawn(Lane::Write, move || {
            let _ = wait.lock().recv();
        })
        .unwrap();
    }
    runtime().block_on(async {
        assert_eq!(pool.run(Lane::Read, || 7).await, Ok(7));
        assert!(pool.writes_waiting() >= 8);
        drop(send);
    });
}

/// A value whose drop says that it has begun, and hangs until the sender of what it waits for goes.
struct Hangs(mpsc::Sender<()>, Arc<Mutex<mpsc::Receiver<()>>>);

impl Drop for Hangs {
    fn drop(&mut self) {
        self.0.send(()).unwrap();
        let _ = self.1.lock().recv();
    }
}

/// A pool that has no more threads for writes and releases: all that they may have hang, until the sender goes.
fn with_hanging_writes(name: &str, threads: usize) -> (Pool, mpsc::Sender<()>) {
    let pool = Pool::new(name, threads, 100);
    let (send, wait) = mpsc::channel::<()>();
    let wait = Arc::new(Mutex::new(wait));
    let (begin, begun) = mpsc::channel();
    for number in 1..threads {
        let hangs = Hangs(begin.clone(), Arc::clone(&wait));
        match number {
            1 => pool.release(hangs),
            _ => pool.spawn(Lane::Write, move || drop(hangs)).unwrap(),
        }
        begun.recv().unwrap();
    }
    (pool, send)
}

#[test]
fn threads_in_place_of_hanging_ones_take_writes() {
    let (pool, _hang) = with_hanging_writes("lent", 4);
    let (done, is_done) = mpsc::channel();
    let released = Tell(done.clone());
    pool.spawn(Lane::Write, move || done.send(true).unwrap())
        .unwrap();
    pool.release(released);
    let counters = pool.counters();
    assert_eq!((counters.writes_waiting, counters.releases_waiting), (1, 1));
    let mut loan = Loan::default();
    loan.set(&pool, 3);
    assert_eq!(is_done.recv(), Ok(true));
    assert_eq!(is_done.recv(), Ok(true));
}

#[test]
fn a_file_is_closed_while_as_many_writes_hang_as_may() {
    let pool = Pool::new("closes", 4, 100);
    let (_hang, wait) = mpsc::channel::<()>();
    let wait = Arc::new(Mutex::new(wait));
    let (begin, begun) = mpsc::channel();
    for _ in 0..3 {
        let hangs = Hangs(begin.clone(), Arc::clone(&wait));
        pool.spawn(Lane::Write, move || drop(hangs)).unwrap();
    }
    begun.recv().unwrap();
    begun.recv().unwrap();
    let (done, is_done) = mpsc::channel();
    pool.release(Tell(done));
    assert_eq!(is_done.recv(), Ok(true));
    assert_eq!(pool.writes_waiting(), 1);
    assert!(
        begun.try_recv().is_err(),
        "the last thread is left to reads"
    );
}

#[test]
fn releases_that_hang_are_counted_by_their_disk() {
    let directory = tempfile::tempdir().unwrap();
    let health = DiskHealth::new(directory.path());
    let pool = Pool::new("counts", 4, 100).for_disk(&health);
    let (hang, wait) = mpsc::channel::<()>();
    let (begin, begun) = mpsc::channel();
    pool.release(Hangs(begin, Arc::new(Mutex::new(wait))));
    begun.recv().unwrap();
    assert_eq!(health.counts().writes_waiting, 1);
    drop(hang);
    while health.counts().writes_waiting > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn what_one_disk_gives_back_another_keeps() {
    let (pool, _hang) = with_hanging_writes("loans", 3);
    let (mut one, mut two) = (Loan::default(), Loan::default());
    one.set(&pool, 1);
    two.set(&pool, 1);
    one.give_back();
    let (done, is_done) = mpsc::channel();
    pool.spawn(Lane::Write, move || done.send(()).unwrap())
        .unwrap();
    assert_eq!(is_done.recv(), Ok(()));
    // As many again as the pool has, at most.
    two.set(&pool, 9);
    assert_eq!(pool.shared().threads(), 6);
    drop(two);
    assert_eq!(pool.shared().threads(), 3);
}

#[test]
fn with_one_thread_reads_go_first_and_writes_have_their_turn() {
    let pool = Pool::new("one", 1, 100);
    let (send, order) = mpsc::channel();
    let hold = pool.hold();
    for _ in 0..20 {
        for (lane, letter) in [(Lane::Write, 'w'), (Lane::Read, 'r')] {
            let send = send.clone();
            pool.spawn(lane, move || send.send(letter).unwrap())
                .unwrap();
        }
    }
    drop((hold, send));
    let order: String = order.iter().collect();
    let (mixed, rest) = order.split_at(order.rfind('r').unwrap() + 1);
    assert_eq!(mixed.matches('w').count(), 2, "{order}");
    assert_eq!(rest.len(), 18);
}

#[test]
fn shared_reads_go_first_but_single_ones_get_their_turn() {
    let pool = Pool::new("shared", 1, 100);
    let (send, order) = mpsc::channel();
    let hold = pool.hold();
    for _ in 0..20 {
        for (lane, letter) in [(Lane::Read, 'r'), (Lane::Shared, 's')] {
            let send = send.clone();
            pool.spawn(lane, move || send.send(letter).unwrap())
                .unwrap();
        }
    }
    assert_eq!(pool.counters().reads_waiting, 40);
    drop((hold, send));
    let order: String = order.iter().collect();
    let (mixed, rest) = order.split_at(order.rfind('s').unwrap() + 1);
    let single = mixed.matches('r').count();
    assert!((5..=7).contains(&single), "{order}");
    assert_eq!(rest.len(), 20 - single);
}

#[test]
fn releases_keep_pace_with_reads() {
    struct Say(mpsc::Sender<char>);
    impl Drop for Say {
        fn drop(&mut self) {
            let _ = self.0.send('c');
        }
    }
    let pool = Pool::new("pace", 1, 1000);
    let (send, order) = mpsc::channel();
    let hold = pool.hold();
    for _ in 0..1000 {
        // Each read leaves a file to be closed.
        let (read, own) = (send.clone(), pool.clone());
        let job = move || {
            read.send('r').unwrap();
            own.release(Say(read));
        };
        pool.spawn(Lane::Read, job).unwrap();
    }
    drop((hold, send));
    let (mut open, mut most) = (0usize, 0);
    for letter in order {
        match letter {
            'r' => open += 1,
            _ => open -= 1,
        }
        most = most.max(open);
    }
    assert_eq!(open, 0);
    assert!(most <= 66, "{most} were open at once");
}

/// Says, when dropped, whether that happened on a thread of a pool.
struct Tell(mpsc::Sender<bool>);

impl Drop for Tell {
    fn drop(&mut self) {
        let _ = self.0.send(on_pool_thread());
    }
}

#[test]
fn an_abandoned_job_is_dropped_in_the_pool() {
    let pool = Pool::new("drops", 1, 100);
    let (send, dropped) = mpsc::channel();
    // Not begun: the work itself is dropped, unrun.
    let hold = pool.hold();
    let tell = Tell(send.clone());
    let (ran, was_run) = mpsc::channel();
    drop(pool.submit(Lane::Read, move || {
        let _tell = tell;
        ran.send(()).unwrap();
    }));
    drop(hold);
    assert!(dropped.recv().unwrap());
    assert!(was_run.recv().is_err());
    // Done, but the result was not taken.
    let tell = Tell(send.clone());
    let done = pool.submit(Lane::Read, move || tell).unwrap();
    while pool.counters().completed < 2 {
        std::thread::yield_now();
    }
    drop(done);
    assert!(dropped.recv().unwrap());
    // A write is run nevertheless.
    let hold = pool.hold();
    let tell = Tell(send);
    drop(pool.submit(Lane::Write, move || tell));
    drop(hold);
    assert!(dropped.recv().unwrap());
}

#[test]
fn a_panic_resumes_in_the_waiting_task_and_the_thread_lives() {
    let pool = Pool::new("panics", 1, 100);
    runtime().block_on(async {
        let job = pool.submit(Lane::Read, || panic!("boom")).unwrap();
        let outcome: Result<(), _> = tokio::task::spawn_local(job).await;
        assert!(outcome.unwrap_err().is_panic());
        assert_eq!(pool.run(Lane::Read, || 1).await, Ok(1));
    });
}

#[test]
fn jobs_of_a_runtime_that_ended_do_not_stop_the_pool() {
    let pool = Pool::new("ends", 1, 100);
    let hold = pool.hold();
    runtime().block_on(async {
        tokio::task::spawn_local(deliver());
        let pending = pool.submit(Lane::Read, || 1).unwrap();
        tokio::task::spawn_local(pending);
        tokio::task::yield_now().await;
    });
    drop(hold);
    runtime().block_on(async { assert_eq!(pool.run(Lane::Read, || 2).await, Ok(2)) });
}

/// The nice value and the slice of this thread.
fn priority() -> (i32, u64) {
    let slice = sys::SchedAttributes::of(0).unwrap().nanos();
    (getpriority_process(None).unwrap(), slice)
}

/// What the kernel tells of a slice that was set: nothing before Linux 6.12, where it tells nothing of this thread's either.
fn told(nanos: u64) -> u64 {
    if priority().1 == 0 { 0 } else { nanos }
}

#[test]
fn threads_of_a_pool_have_the_weight_of_others_and_longer_turns() {
    let own = priority();
    let turns = told(SLICE_NS);
    let pool = Pool::new("turns", 2, 10);
    runtime().block_on(async {
        for _ in 0..10 {
            let found = pool.run(Lane::Read, priority).await;
            assert_eq!(found, Ok((own.0, turns)));
        }
    });
    assert_eq!(priority(), own);
}

#[test]
fn threads_of_a_pool_that_gives_way_are_nicer_those_of_short_jobs_less() {
    let own = priority();
    let kinds = [
        (CpuJobs::Short, NICER_SHORT, SLICE_SHORT_NS),
        (CpuJobs::Long, NICER, SLICE_NS),
    ];
    for (jobs, nicer, slice) in kinds {
        let (before, after) = (told(SLICE_NS), told(slice));
        let pool = Pool::new("nicer", 1, 10);
        runtime().block_on(async {
            let found = pool.run(Lane::Read, priority).await;
            assert_eq!(found, Ok((own.0, before)));
            pool.give_way(jobs);
            let found = pool.run(Lane::Read, priority).await;
            assert_eq!(found, Ok(((own.0 + nicer).min(NICEST), after)));
        });
    }
    assert_eq!(priority(), own);
}
