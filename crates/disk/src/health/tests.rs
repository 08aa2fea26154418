//! The states of a disk: pure, by samples; and a pool whose disk is out.
#![expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]

use super::disk_health::DiskHealth;
use super::machine::{
    DiskState, FAILING_QUIET, HealthMachine, PROBES_GOOD, ProbeEnd, STALL_MIN, Sample, TICK,
    Transition, WriteState,
};
use crate::pool::{Lane, Loan, Overflow, Pool};
use rustix::io::Errno;
use std::time::Duration;

fn sample() -> Sample {
    Sample {
        passed: TICK,
        ..Sample::default()
    }
}

fn quick(reads: u64) -> Sample {
    Sample {
        reads,
        calls: reads,
        reads_waiting: 1,
        have_reads_moved: true,
        ..sample()
    }
}

fn stuck() -> Sample {
    Sample {
        reads_waiting: 3,
        ..sample()
    }
}

/// Ticks until something changes, at most for this time.
fn until_change(
    machine: &mut HealthMachine,
    sample: &Sample,
    most: Duration,
) -> Option<(Duration, Transition)> {
    let mut passed = Duration::ZERO;
    while passed < most {
        passed += TICK;
        if let Some(change) = machine.tick(sample) {
            return Some((passed, change));
        }
    }
    None
}

/// Ticks, with this end for every probe, until something changes.
fn probed(machine: &mut HealthMachine, end: ProbeEnd, most: Duration) -> Option<(u32, Transition)> {
    let (mut passed, mut probes) = (Duration::ZERO, 0);
    while passed < most {
        passed += TICK;
        let mut sample = sample();
        if machine.wants_probe() {
            probes += 1;
            sample.probe = Some(end);
        }
        if let Some(change) = machine.tick(&sample) {
            return Some((probes, change));
        }
    }
    None
}

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn reads_that_make_no_progress_put_a_disk_out_and_it_comes_back_after_probes() {
    let mut machine = HealthMachine::default();
    // A quick disk, for which a second is long.
    let p99 = Some(Duration::from_millis(2));
    machine.tick(&Sample { p99, ..quick(100) });
    let (after, change) = until_change(&mut machine, &stuck(), MINUTE).unwrap();
    assert_eq!((after, change.state), (STALL_MIN, DiskState::Out));
    assert!(
        change.reason.contains("none of 3 reads"),
        "{}",
        change.reason
    );
    assert_eq!(probed(&mut machine, ProbeEnd::Hangs, MINUTE), None);
    assert_eq!(
        probed(&mut machine, ProbeEnd::Failed(Errno::IO), MINUTE),
        None
    );
    let good = ProbeEnd::Read(WriteState::Allowed);
    let (probes, change) = probed(&mut machine, good, MINUTE).unwrap();
    assert_eq!((probes, change.state), (PROBES_GOOD, DiskState::Well));
    // Again, soon: it has to answer for longer.
    until_change(&mut machine, &stuck(), MINUTE).unwrap();
    let (probes, _) = probed(&mut machine, good, MINUTE).unwrap();
    assert_eq!(probes, PROBES_GOOD * 2);
}

#[test]
fn what_this_process_lacks_is_no_answer_of_the_disk() {
    let mut machine = HealthMachine::default();
    until_change(&mut machine, &stuck(), MINUTE).unwrap();
    let good = ProbeEnd::Read(WriteState::Allowed);
    for end in [good, ProbeEnd::of(Errno::MFILE), good] {
        while !machine.wants_probe() {
            machine.tick(&sample());
        }
        let probe = Some(end);
        assert_eq!(machine.tick(&Sample { probe, ..sample() }), None);
    }
    // The third good one, and the pause before it is not longer.
    let (probes, change) = probed(&mut machine, good, MINUTE).unwrap();
    assert_eq!((probes, change.state), (1, DiskState::Well));
    assert_eq!(ProbeEnd::of(Errno::IO), ProbeEnd::Failed(Errno::IO));
}

#[test]
fn the_error_of_probes_is_told_once() {
    let directory = tempfile::tempdir().unwrap();
    let health = DiskHealth::new(&directory.path().join("missing"));
    let own = Pool::new("told", 1, 100).for_disk(&health);
    let (send, wait) = std::sync::mpsc::channel::<()>();
    let job = move || {
        let _ = wait.recv();
    };
    own.spawn(Lane::Read, job).unwrap();
    health.watch();
    let mut told = Vec::new();
    while health.counts().probes < 3 {
        health.tick();
        told.extend(health.probe_error().map(|error| error.kind()));
        std::thread::sleep(TICK);
    }
    assert_eq!(told, [std::io::ErrorKind::NotFound]);
    drop(send);
}

#[test]
fn a_disk_whose_old_reads_still_hang_does_not_come_back() {
    let mut machine = HealthMachine::default();
    until_change(&mut machine, &stuck(), MINUTE).unwrap();
    for _ in 0..600 {
        let probe = machine
            .wants_probe()
            .then_some(ProbeEnd::Read(WriteState::Allowed));
        assert_eq!(machine.tick(&Sample { probe, ..stuck() }), None);
    }
}

#[test]
fn errors_make_it_failing_and_their_end_makes_it_well() {
    let mut machine = HealthMachine::default();
    let failing = Sample {
        errors: 1,
        ..quick(100)
    };
    let (after, change) = until_change(&mut machine, &failing, MINUTE).unwrap();
    assert_eq!((after, change.state), (TICK * 3, DiskState::Failing));
    // One in a hundred does not put it out.
    assert_eq!(until_change(&mut machine, &failing, MINUTE), None);
    let (after, change) = until_change(&mut machine, &quick(100), MINUTE).unwrap();
    assert_eq!((after, change.state), (FAILING_QUIET, DiskState::Well));
}

#[test]
fn a_disk_that_fails_at_every_second_call_is_out_and_one_that_is_gone_at_once() {
    let mut machine = HealthMachine::default();
    let failing = Sample {
        errors: 5,
        ..quick(10)
    };
    until_change(&mut machine, &failing, MINUTE).unwrap();
    let (_, change) = until_change(&mut machine, &failing, MINUTE).unwrap();
    assert_eq!(change.state, DiskState::Out);
    let mut machine = HealthMachine::default();
    let gone = Sample {
        errors: 1,
        is_gone: true,
        ..quick(1)
    };
    let (after, change) = until_change(&mut machine, &gone, MINUTE).unwrap();
    assert_eq!((after, change.state), (TICK, DiskState::Out));
}

#[test]
fn it_is_slow_against_its_own_past_and_what_lasts_becomes_usual() {
    let mut machine = HealthMachine::default();
    for _ in 0..100 {
        let p99 = Some(Duration::from_millis(20));
        assert_eq!(machine.tick(&Sample { p99, ..quick(100) }), None);
    }
    let bound = machine.slow();
    assert!(bound > Duration::from_millis(150), "{bound:?}");
    let slow = Sample {
        slow_reads: 20,
        p99: Some(bound * 2),
        ..quick(100)
    };
    let (_, change) = until_change(&mut machine, &slow, MINUTE).unwrap();
    assert_eq!(change.state, DiskState::Slow);
    let (after, change) = until_change(&mut machine, &quick(100), MINUTE).unwrap();
    assert_eq!(change.state, DiskState::Well);
    assert!(after >= Duration::from_secs(9), "{after:?}");
    until_change(&mut machine, &slow, MINUTE).unwrap();
    let usual = machine.usual();
    let lasting = Sample {
        p99: Some(usual * 100),
        ..slow
    };
    for _ in 0..10_000 {
        machine.tick(&lasting);
    }
    assert!(machine.usual() > usual * 10, "{:?}", machine.usual());
}

#[test]
fn refused_writes_leave_reading_alone_until_a_probe_writes() {
    let mut machine = HealthMachine::default();
    for (refused, name) in [
        (WriteState::ReadOnly, "read-only"),
        (WriteState::Full, "full"),
    ] {
        let sample = Sample {
            refused: Some(refused),
            ..quick(10)
        };
        let change = machine.tick(&sample).unwrap();
        assert_eq!((change.state, change.writing), (DiskState::Well, refused));
        assert_eq!(change.writing.name(), name);
        assert_eq!(probed(&mut machine, ProbeEnd::Read(refused), MINUTE), None);
        let good = ProbeEnd::Read(WriteState::Allowed);
        let (_, change) = probed(&mut machine, good, MINUTE).unwrap();
        assert_eq!(change.writing, WriteState::Allowed);
    }
    let waiting = Sample {
        writes_waiting: 2,
        ..quick(10)
    };
    let (_, change) = until_change(&mut machine, &waiting, MINUTE).unwrap();
    assert_eq!(
        (change.state, change.writing),
        (DiskState::Well, WriteState::Stalled)
    );
}

#[test]
fn a_pool_for_a_disk_that_is_out_refuses_jobs_and_others_are_run() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join(".freewheel")).unwrap();
    let health = DiskHealth::new(directory.path());
    let pool = Pool::new("narrow", 2, 100);
    let own = pool.for_disk(&health);
    health.watch();
    let held = pool.hold();
    own.spawn(Lane::Read, || {}).unwrap();
    while !health.is_out() {
        health.tick();
        std::thread::sleep(TICK);
    }
    assert_eq!(own.spawn(Lane::Read, || {}), Err(Overflow::DiskOut));
    assert_eq!(health.counts().refused, 1);
    assert!(pool.spawn(Lane::Read, || {}).is_ok());
    drop(held);
    while health.is_out() {
        health.tick();
        std::thread::sleep(TICK);
    }
    assert!(own.spawn(Lane::Read, || {}).is_ok());
    let states: Vec<_> = health.history().iter().map(|change| change.state).collect();
    assert_eq!(states, [DiskState::Out, DiskState::Well]);
}

/// Jobs that hang until the sender goes, and then do this.
fn hang(
    pool: &Pool,
    lanes: &[Lane],
    then: impl Fn() + Clone + Send + 'static,
) -> std::sync::mpsc::Sender<()> {
    let (send, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Arc::new(parking_lot::Mutex::new(wait));
    for lane in lanes {
        let (wait, then) = (std::sync::Arc::clone(&wait), then.clone());
        let job = move || {
            let _ = wait.lock().recv();
            then();
        };
        pool.spawn(*lane, job).unwrap();
    }
    send
}

#[test]
fn the_threads_of_a_disk_that_is_out_hang() {
    let directory = tempfile::tempdir().unwrap();
    let health = DiskHealth::new(directory.path());
    let pool = Pool::new("hanging", 4, 100);
    let own = pool.for_disk(&health);
    health.watch();
    let send = hang(&own, &[Lane::Read, Lane::Read, Lane::Write], || {});
    assert_eq!(health.hanging(), 0, "they may come further");
    while !health.is_out() {
        health.tick();
        std::thread::sleep(TICK);
    }
    assert_eq!(health.hanging(), 3);
    drop(send);
}

#[test]
fn threads_that_are_lent_are_not_for_what_waited_for_the_same_disk() {
    let directory = tempfile::tempdir().unwrap();
    let health = DiskHealth::new(directory.path());
    let pool = Pool::new("aside", 2, 100);
    let own = pool.for_disk(&health);
    health.watch();
    let (done, is_done) = std::sync::mpsc::channel();
    let lanes = [Lane::Write, Lane::Read, Lane::Read, Lane::Write, Lane::Read];
    let own_done = done.clone();
    let send = hang(&own, &lanes, move || own_done.send("its own").unwrap());
    while !health.is_out() {
        health.tick();
        std::thread::sleep(TICK);
    }
    let mut loan = Loan::default();
    loan.set(&pool, health.hanging());
    for lane in [Lane::Write, Lane::Read] {
        let done = done.clone();
        pool.spawn(lane, move || done.send("another's").unwrap())
            .unwrap();
        assert_eq!(is_done.recv(), Ok("another's"));
    }
    assert_eq!(health.hanging(), 2);
    drop((send, done));
    assert_eq!([is_done.recv(), is_done.recv()], [Ok("its own"); 2]);
    loan.give_back();
    assert_eq!(is_done.iter().count(), 3);
}
