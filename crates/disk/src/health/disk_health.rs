//! [`DiskHealth`]: the counters of one disk, which the threads of pools write, and its state, which anyone reads.

use super::fault::{Fault, Faults};
use super::machine::{
    DiskState, HealthMachine, ProbeEnd, Sample, TICK, Transition, Trouble, WriteState,
};
use super::probe::Prober;
use crate::metrics::call_times::CallWatch;
use crate::metrics::counters::Operation;
use crate::metrics::{Histogram, Times};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

/// Changes of state that are remembered.
pub const HISTORY_MAX: usize = 16;

/// Minimum wait after which a read may be raced by another source.
pub const HEDGE_MIN: Duration = Duration::from_millis(25);
/// The same, at most, however slow the disk usually is.
const HEDGE_MAX: Duration = Duration::from_secs(1);
/// Time that a request waits for a disk, at least, before it is answered without it.
pub const READ_PATIENCE: Duration = Duration::from_secs(2);
/// The same, at most.
const READ_PATIENCE_MAX: Duration = Duration::from_secs(10);
/// Multiple of the usual p99 that this time is, between these bounds.
const PATIENCE_USUAL: u32 = 20;

/// A change of a disk's state.
#[derive(Clone, Debug)]
pub struct HealthChange {
    /// When.
    pub at: SystemTime,
    /// Its state since then.
    pub state: DiskState,
    /// Whether it may be written to since then.
    pub writing: WriteState,
    /// Why, for a log.
    pub reason: String,
}

/// Jobs of one kind that wait or run, and the steps that they have come further.
#[derive(Debug, Default)]
struct LaneWork {
    waiting: AtomicU64,
    running: AtomicU64,
    steps: AtomicU64,
}

/// Counts of one disk, for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct HealthCounts {
    /// Reads that wait or run now.
    pub reads_waiting: u64,
    /// Writes that wait or run now.
    pub writes_waiting: u64,
    /// Jobs refused because it was out.
    pub refused: u64,
    /// Calls that failed because of the disk.
    pub errors: u64,
    /// Probes begun.
    pub probes: u64,
    /// Probes that hang now.
    pub probes_hanging: u64,
    /// Changes of state.
    pub changes: u64,
}

/// The health of one disk; see the module.
#[derive(Debug)]
pub struct DiskHealth {
    directory: PathBuf,
    /// The device beside the directory.
    device: OnceLock<Arc<OwnedFd>>,
    state: AtomicU8,
    writing: AtomicU8,
    is_watched: AtomicBool,
    reads: LaneWork,
    writes: LaneWork,
    read_times: Histogram,
    calls: AtomicU64,
    errors: AtomicU64,
    gone: AtomicU64,
    /// [`WriteState`] of the last write that was refused; 0: none since the last tick.
    refusal: AtomicU8,
    slow_reads: AtomicU64,
    slow_ns: AtomicU64,
    usual_ns: AtomicU64,
    refused: AtomicU64,
    changes: AtomicU64,
    ticker: Mutex<Ticker>,
    history: Mutex<VecDeque<HealthChange>>,
    prober: Prober,
    /// See [`DiskHealth::probe_error`]; 0: none.
    probe_error: AtomicI32,
    fault: Arc<Faults>,
}

/// What a tick compares with.
#[derive(Debug)]
struct Ticker {
    machine: HealthMachine,
    at: Option<Instant>,
    times: Times,
    /// At the last sample of the p99.
    sampled: Times,
    calls: u64,
    errors: u64,
    gone: u64,
    slow_reads: u64,
    read_steps: u64,
    write_steps: u64,
    /// The end of the last probe.
    probed: Option<ProbeEnd>,
}

impl DiskHealth {
    /// That of the disk with this directory, in which probes have a file (`.freewheel/probe`). It counts from now on,
    /// and judges once it is [watched](DiskHealth::watch).
    #[must_use]
    pub fn new(directory: &Path) -> Arc<Self> {
        let machine = HealthMachine::default();
        Arc::new(Self {
            directory: directory.to_owned(),
            device: OnceLock::new(),
            state: AtomicU8::new(DiskState::Well as u8),
            writing: AtomicU8::new(WriteState::Allowed as u8),
            is_watched: AtomicBool::new(false),
            reads: LaneWork::default(),
            writes: LaneWork::default(),
            read_times: Histogram::default(),
            calls: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            gone: AtomicU64::new(0),
            refusal: AtomicU8::new(0),
            slow_reads: AtomicU64::new(0),
            slow_ns: AtomicU64::new(nanos(machine.slow())),
            usual_ns: AtomicU64::new(nanos(machine.usual())),
            refused: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            ticker: Mutex::new(Ticker {
                machine,
                at: None,
                times: Times::default(),
                sampled: Times::default(),
                calls: 0,
                errors: 0,
                gone: 0,
                slow_reads: 0,
                read_steps: 0,
                write_steps: 0,
                probed: None,
            }),
            history: Mutex::default(),
            prober: Prober::default(),
            probe_error: AtomicI32::new(0),
            fault: Faults::of(directory),
        })
    }

    /// Has probes ask this device, too, which was opened with O_DIRECT and has a page for them
    /// ([`PROBED_AT`](crate::health::PROBED_AT)).
    pub fn set_device(&self, device: Arc<OwnedFd>) {
        // A second one would be the same.
        let _ = self.device.set(device);
    }

    /// Begins to judge it (once what takes long by its nature, a start, is done).
    pub fn watch(&self) {
        self.is_watched.store(true, Relaxed);
    }

    /// Its state.
    #[must_use]
    pub fn state(&self) -> DiskState {
        DiskState::ALL[usize::from(self.state.load(Relaxed))]
    }

    /// Whether nothing is to be asked of it.
    #[must_use]
    pub fn is_out(&self) -> bool {
        self.state.load(Relaxed) == DiskState::Out as u8
    }

    /// Whether something new may be written to it.
    #[must_use]
    pub fn writing(&self) -> WriteState {
        WriteState::ALL[usize::from(self.writing.load(Relaxed))]
    }

    /// Whether something new may be written to it, and it is not out.
    #[must_use]
    pub fn may_write(&self) -> bool {
        !self.is_out() && self.writing() == WriteState::Allowed
    }

    /// The usual p99 of its reads, as far as it is known.
    #[must_use]
    pub fn usual(&self) -> Duration {
        Duration::from_nanos(self.usual_ns.load(Relaxed))
    }

    /// Time after which a read of it may be raced by another source.
    #[must_use]
    pub fn hedge_after(&self) -> Duration {
        self.usual().clamp(HEDGE_MIN, HEDGE_MAX)
    }

    /// Time after which a request that waits for it is answered without it.
    #[must_use]
    pub fn patience(&self) -> Duration {
        (self.usual() * PATIENCE_USUAL).clamp(READ_PATIENCE, READ_PATIENCE_MAX)
    }

    /// Durations of the reads in pools.
    #[must_use]
    pub fn read_times(&self) -> Times {
        self.read_times.times()
    }

    /// Its counts.
    #[must_use]
    pub fn counts(&self) -> HealthCounts {
        HealthCounts {
            reads_waiting: self.reads.waiting.load(Relaxed),
            writes_waiting: self.writes.waiting.load(Relaxed),
            refused: self.refused.load(Relaxed),
            errors: self.errors.load(Relaxed),
            probes: self.prober.begun(),
            probes_hanging: self.prober.hanging(),
            changes: self.changes.load(Relaxed),
        }
    }

    /// Threads of pools that hang: those that are busy with jobs of a kind that comes no further.
    #[must_use]
    pub fn hanging(&self) -> usize {
        let writes = || self.writes.running.load(Relaxed);
        let hanging = match (self.state(), self.writing()) {
            (DiskState::Out, _) => self.reads.running.load(Relaxed) + writes(),
            (_, WriteState::Stalled) => writes(),
            (_, _) => 0,
        };
        usize::try_from(hanging).unwrap_or(usize::MAX)
    }

    /// The latest changes, the oldest first; at most [`HISTORY_MAX`].
    #[must_use]
    pub fn history(&self) -> Vec<HealthChange> {
        self.history.lock().iter().cloned().collect()
    }

    /// Whether a fault is simulated ([`fault::set_file`](super::fault::set_file)): then nothing is read past it by the
    /// kernel's readahead.
    pub(crate) fn is_simulated(&self) -> bool {
        self.fault.get() != Fault::None
    }

    /// Looks at what has happened since the last call, and begins a probe where one is due. To be called every
    /// [`TICK`]. Returns the change that follows.
    pub fn tick(&self) -> Option<HealthChange> {
        let mut ticker = self.ticker.lock();
        let mut sample = self.sample(&mut ticker);
        if !self.is_watched.load(Relaxed) {
            return None;
        }
        sample.probe = self.prober.ended();
        self.note_probe(&mut ticker, sample.probe);
        let transition = ticker.machine.tick(&sample);
        let (usual, slow) = (ticker.machine.usual(), ticker.machine.slow());
        let wants_probe = ticker.machine.wants_probe();
        drop(ticker);
        self.usual_ns.store(nanos(usual), Relaxed);
        self.slow_ns.store(nanos(slow), Relaxed);
        if wants_probe {
            self.prober
                .begin(&self.directory, self.device.get(), &self.fault);
        }
        Some(self.change(transition?))
    }

    /// The error of the latest probe, where the one before had another end; once.
    pub fn probe_error(&self) -> Option<io::Error> {
        let raw = self.probe_error.swap(0, Relaxed);
        (raw != 0).then(|| io::Error::from_raw_os_error(raw))
    }

    fn note_probe(&self, ticker: &mut Ticker, end: Option<ProbeEnd>) {
        if end.is_none() || end == ticker.probed {
            return;
        }
        ticker.probed = end;
        let error = match end {
            Some(ProbeEnd::Failed(errno)) => errno.raw_os_error(),
            _ => 0,
        };
        self.probe_error.store(error, Relaxed);
    }

    fn change(&self, transition: Transition) -> HealthChange {
        let Transition {
            state,
            writing,
            reason,
        } = transition;
        self.state.store(state as u8, Relaxed);
        self.writing.store(writing as u8, Relaxed);
        self.changes.fetch_add(1, Relaxed);
        let change = HealthChange {
            at: SystemTime::now(),
            state,
            writing,
            reason,
        };
        let mut history = self.history.lock();
        if history.len() == HISTORY_MAX {
            history.pop_front();
        }
        history.push_back(change.clone());
        change
    }

    fn sample(&self, ticker: &mut Ticker) -> Sample {
        let now = Instant::now();
        // A process that did not run itself knows nothing of that time.
        let passed = ticker
            .at
            .map_or(Duration::ZERO, |at| now - at)
            .min(TICK * 2);
        ticker.at = Some(now);
        let news = |counter: &AtomicU64, before: &mut u64| {
            let now = counter.load(Relaxed);
            now - std::mem::replace(before, now)
        };
        let have_reads_moved = news(&self.reads.steps, &mut ticker.read_steps) > 0;
        let (reads, p99) = match have_reads_moved {
            true => self.reads_since(ticker),
            false => (0, None),
        };
        let refusal = WriteState::ALL[usize::from(self.refusal.swap(0, Relaxed))];
        Sample {
            passed,
            reads,
            p99,
            slow_reads: news(&self.slow_reads, &mut ticker.slow_reads),
            calls: news(&self.calls, &mut ticker.calls),
            errors: news(&self.errors, &mut ticker.errors),
            is_gone: news(&self.gone, &mut ticker.gone) > 0,
            refused: (refusal != WriteState::Allowed).then_some(refusal),
            reads_waiting: self.reads.waiting.load(Relaxed),
            writes_waiting: self.writes.waiting.load(Relaxed),
            have_reads_moved,
            have_writes_moved: news(&self.writes.steps, &mut ticker.write_steps) > 0,
            probe: None,
        }
    }

    /// The reads since the last tick, and the p99 of those since its last sample, where they are enough.
    fn reads_since(&self, ticker: &mut Ticker) -> (u64, Option<Duration>) {
        let times = self.read_times.times();
        let reads = times.since(&ticker.times).count();
        let since = times.since(&ticker.sampled);
        let is_due = ticker.machine.wants_sample(since.count());
        let p99 = is_due.then(|| {
            ticker.sampled = times.clone();
            Duration::from_nanos(since.quantile_ns(0.99))
        });
        ticker.times = times;
        (reads, p99)
    }

    fn lane(&self, is_write: bool) -> &LaneWork {
        match is_write {
            true => &self.writes,
            false => &self.reads,
        }
    }

    /// Counts a job that a pool is given; None: it is out, and the job is refused.
    pub(crate) fn ticket(self: &Arc<Self>, is_write: bool) -> Option<JobTicket> {
        if self.is_out() {
            self.refused.fetch_add(1, Relaxed);
            return None;
        }
        Some(self.counted(is_write))
    }

    /// Counts a job that is never refused: one that closes a file.
    pub(crate) fn ticket_of_release(self: &Arc<Self>) -> JobTicket {
        self.counted(true)
    }

    fn counted(self: &Arc<Self>, is_write: bool) -> JobTicket {
        self.lane(is_write).waiting.fetch_add(1, Relaxed);
        JobTicket {
            health: Arc::clone(self),
            is_write,
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A job that waits for a disk, or runs, while this lives.
#[derive(Debug)]
pub(crate) struct JobTicket {
    health: Arc<DiskHealth>,
    is_write: bool,
}

impl JobTicket {
    /// Whether so many threads hang in jobs of its kind.
    pub(crate) fn would_hang(&self, threads: usize) -> bool {
        let health = &self.health;
        health.hanging() >= threads && (self.is_write || health.is_out())
    }

    /// Runs the job's work on a thread of a pool.
    pub(crate) fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        /// Counts also a job that panics.
        struct Running<'a>(&'a LaneWork);
        impl Drop for Running<'_> {
            fn drop(&mut self) {
                self.0.running.fetch_sub(1, Relaxed);
                self.0.steps.fetch_add(1, Relaxed);
            }
        }
        let lane = self.health.lane(self.is_write);
        lane.running.fetch_add(1, Relaxed);
        let _running = Running(lane);
        let begun = Instant::now();
        self.health.fault.wait();
        let watch = JobWatch {
            health: Arc::clone(&self.health),
            is_write: self.is_write,
        };
        let done = crate::metrics::call_times::watched(Box::new(watch), work);
        if !self.is_write {
            let ns = nanos(begun.elapsed());
            self.health.read_times.record_shared(ns);
            if ns >= self.health.slow_ns.load(Relaxed) {
                self.health.slow_reads.fetch_add(1, Relaxed);
            }
        }
        done
    }
}

impl Drop for JobTicket {
    fn drop(&mut self) {
        let lane = self.health.lane(self.is_write);
        lane.waiting.fetch_sub(1, Relaxed);
    }
}

/// What looks at the calls of a job.
#[derive(Debug)]
struct JobWatch {
    health: Arc<DiskHealth>,
    is_write: bool,
}

impl CallWatch for JobWatch {
    fn before(&self, operation: Operation) -> Option<Errno> {
        self.health.fault.errno(operation)
    }

    fn step(&self) {
        let lane = self.health.lane(self.is_write);
        lane.steps.fetch_add(1, Relaxed);
    }

    fn done(&self, errno: Option<Errno>) {
        let health = &self.health;
        self.step();
        health.calls.fetch_add(1, Relaxed);
        match errno.and_then(Trouble::of) {
            None => {}
            Some(Trouble::Failed) => {
                health.errors.fetch_add(1, Relaxed);
            }
            Some(Trouble::Gone) => {
                health.errors.fetch_add(1, Relaxed);
                health.gone.fetch_add(1, Relaxed);
            }
            Some(Trouble::Full) => health.refusal.store(WriteState::Full as u8, Relaxed),
            Some(Trouble::ReadOnly) => health.refusal.store(WriteState::ReadOnly as u8, Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{Lane, Pool};
    use std::sync::mpsc::channel;

    #[test]
    fn where_writes_have_stalled_their_threads_hang_and_those_of_reads_do_not() {
        let directory = tempfile::tempdir().unwrap();
        let health = DiskHealth::new(directory.path());
        let own = Pool::new("stalled", 4, 100).for_disk(&health);
        let (begin, begun) = channel();
        let ends: Vec<_> = [Lane::Write, Lane::Write, Lane::Read]
            .into_iter()
            .map(|lane| {
                let ((end, wait), begin) = (channel::<()>(), begin.clone());
                let job = move || {
                    begin.send(()).unwrap();
                    let _ = wait.recv();
                };
                own.spawn(lane, job).unwrap();
                begun.recv().unwrap();
                end
            })
            .collect();
        health.change(Transition {
            state: DiskState::Well,
            writing: WriteState::Stalled,
            reason: String::new(),
        });
        assert_eq!(health.hanging(), 2);
        let would_hang = |is_write| health.ticket(is_write).unwrap().would_hang(2);
        assert!(would_hang(true) && !would_hang(false));
        drop(ends);
    }
}
