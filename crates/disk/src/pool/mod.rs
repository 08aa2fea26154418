//! Named, bounded pools of threads: the only place where anything waits for a disk.
//!
//! A pool takes jobs in four lanes (see [`Lane`]), refuses them when its queue is full ([`Overflow`]: the caller
//! decides what that means), and counts them. CPU work above a threshold uses pools, too.
//!
//! Not here: the jobs' work. Invariant: an accepted job is run, or, if it is a read and its caller stopped waiting,
//! dropped on a thread of the pool. Threads are never joined (one may hang on a dead disk).

mod arrivals;
mod batch_queue;
mod job;
mod loan;
mod mailbox;
mod queue;
mod sync;

#[cfg(test)]
#[expect(
    unreachable_pub,
    reason = "loom's stand-ins for `sync`, and `queue` once more"
)]
mod loom_tests;
#[cfg(test)]
mod tests;

pub use batch_queue::{BatchLimits, BatchQueue};
pub use job::Pending;
pub use loan::Loan;
pub(crate) use mailbox::{Mailbox, deliver, together};
pub use queue::Lane;

use crate::health::disk_health::DiskHealth;
use crate::health::disk_health::JobTicket;
use crate::metrics::{Histogram, Number, Times};
pub(crate) use job::{PoolJob, RunJob};
use parking_lot::Mutex;
use queue::{Bounds, JobQueue, Pushed};
use rustix::process::{getpid, getpriority_process, setpriority_process};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Threads of a pool without `threads=`.
pub const DEFAULT_THREADS: usize = 32;
/// Jobs that may wait in a pool without `max_queue=`.
pub const DEFAULT_MAX_QUEUE: usize = 65536;
/// Threads of a pool, at most.
pub const THREADS_MAX: usize = 4096;

thread_local! {
    static ON_POOL_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Is this a thread of a pool, which may wait?
pub(crate) fn on_pool_thread() -> bool {
    ON_POOL_THREAD.try_with(Cell::get).unwrap_or(false)
}

/// A pool takes no job: its queue is full, or the disk is out. Its text is a line for a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Overflow {
    /// The queue is full.
    #[error("thread pool \"{pool}\" queue overflow: {waiting} tasks waiting")]
    Queue {
        /// The pool's name.
        pool: Arc<str>,
        /// Jobs that wait in the lane.
        waiting: usize,
    },
    /// The pool was made [for a disk](Pool::for_disk), which is out.
    #[error("the disk is out: nothing is asked of it")]
    DiskOut,
}

/// A pool of threads. Cheap to clone; the threads end when the last clone and the last job are gone.
#[derive(Clone)]
pub struct Pool {
    handle: Arc<PoolHandle>,
    /// The disk that its jobs are for, if that is watched.
    disk: Option<Arc<DiskHealth>>,
}

/// What the jobs of a pool need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolKind {
    /// A disk, which may hang.
    Disk,
    /// Processor time only ([`Pool::give_way`]).
    Cpu,
}

/// The jobs of a pool that [gives way](Pool::give_way), by how long one takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuJobs {
    /// Less than a millisecond, with a client that waits for it: a step of a handshake.
    Short,
    /// Milliseconds and more: compression, passwords.
    Long,
}

/// Closes the queue when the last [`Pool`] goes (workers and jobs hold only [`PoolShared`]).
struct PoolHandle(Arc<PoolShared>);

pub(crate) struct PoolShared {
    name: Arc<str>,
    bounds: Bounds,
    queue: JobQueue<Arc<dyn RunJob>>,
    started: AtomicUsize,
    /// Threads lent to it ([`Loan`]).
    lent: Mutex<usize>,
    /// Threads beyond the bound: those, as far as they may be.
    spare: AtomicUsize,
    /// Jobs that would hang in those, too, with their lanes: at most as many as may wait.
    aside: Mutex<Vec<(Lane, Arc<dyn RunJob>)>>,
    gives_way: OnceLock<CpuJobs>,
    /// KiB of buffers for evicted windows, see [`Pool::buffers`].
    buffers: OnceLock<Semaphore>,
    metrics: Arc<PoolMetrics>,
}

/// The metrics of a pool; a new pool of the same name goes on with them.
#[derive(Debug, Default)]
struct PoolMetrics {
    rejected: Number,
    waiting: Histogram,
    running: Histogram,
}

/// The counters of a pool, for metrics.
#[derive(Clone, Debug)]
pub struct PoolCounters {
    /// The pool's name.
    pub name: Arc<str>,
    /// Threads it may have.
    pub threads: usize,
    /// Threads it has started so far.
    pub started: usize,
    /// Jobs being run now.
    pub running: usize,
    /// Reads waiting now.
    pub reads_waiting: usize,
    /// Writes waiting now.
    pub writes_waiting: usize,
    /// Files and other values waiting now to be closed or dropped.
    pub releases_waiting: usize,
    /// Jobs finished since start.
    pub completed: u64,
    /// Jobs refused since start.
    pub rejected: u64,
    /// How long jobs waited in the queue.
    pub waiting: Times,
    /// How long jobs ran.
    pub ran: Times,
}

/// Freezes a pool while it lives: no job is handed out (for stall tests). Jobs that are running go on.
#[must_use = "the pool thaws when this is dropped"]
pub struct Hold(Arc<PoolShared>);

impl Pool {
    /// A pool of `threads` threads (clamped to 1 to [`THREADS_MAX`]), with up to `max_queue` jobs waiting in each lane
    /// (0: a job is accepted only if a thread is free for it). No thread is started before the first job.
    #[must_use]
    pub fn new(name: &str, threads: usize, max_queue: usize) -> Pool {
        let bounds = Bounds {
            threads: threads.clamp(1, THREADS_MAX),
            max_queue,
        };
        Pool::with(name, bounds, Arc::default())
    }

    /// A pool with other bounds that goes on with the metrics of this one.
    #[must_use]
    pub(crate) fn remade(&self, threads: usize, max_queue: usize) -> Pool {
        let bounds = Bounds {
            threads: threads.clamp(1, THREADS_MAX),
            max_queue,
        };
        Pool::with(self.name(), bounds, Arc::clone(&self.shared().metrics))
    }

    fn with(name: &str, bounds: Bounds, metrics: Arc<PoolMetrics>) -> Pool {
        let handle = Arc::new(PoolHandle(Arc::new(PoolShared {
            name: name.into(),
            bounds,
            queue: JobQueue::new(bounds),
            started: AtomicUsize::new(0),
            lent: Mutex::new(0),
            spare: AtomicUsize::new(0),
            aside: Mutex::default(),
            gives_way: OnceLock::new(),
            buffers: OnceLock::new(),
            metrics,
        })));
        Pool { handle, disk: None }
    }

    /// The same pool, with its jobs counted and timed for a disk, and refused while that is out.
    #[must_use]
    pub fn for_disk(&self, disk: &Arc<DiskHealth>) -> Pool {
        Pool {
            handle: Arc::clone(&self.handle),
            disk: Some(Arc::clone(disk)),
        }
    }

    /// The same pool for the disk that `other` is for, if it is for one itself or not.
    #[must_use]
    pub(crate) fn for_disk_of(&self, other: &Pool) -> Pool {
        Pool {
            handle: Arc::clone(&self.handle),
            disk: other.disk.clone().or_else(|| self.disk.clone()),
        }
    }

    /// Whether it is a handle on the same pool; for a disk or not.
    #[must_use]
    pub fn is_same(&self, other: &Pool) -> bool {
        Arc::ptr_eq(&self.handle, &other.handle)
    }

    /// The disk that it was made for.
    pub(crate) fn disk_health(&self) -> Option<&Arc<DiskHealth>> {
        self.disk.as_ref()
    }

    /// Whether it was made for a disk.
    pub(crate) fn is_for_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// Whether it was made for a disk that is out.
    pub(crate) fn is_disk_out(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.is_out())
    }

    fn ticket(&self, lane: Lane) -> Result<Option<JobTicket>, Overflow> {
        let Some(disk) = &self.disk else {
            return Ok(None);
        };
        let ticket = disk.ticket(lane == Lane::Write);
        ticket.map(Some).ok_or(Overflow::DiskOut)
    }

    /// The name in `thread_pool NAME`.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.shared().name
    }

    /// The maximal number of threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.shared().bounds.threads
    }

    /// Whether a job that comes now need not wait for one that runs.
    pub(crate) fn has_spare_thread(&self) -> bool {
        self.shared().queue.running() < self.shared().threads()
    }

    /// The maximal number of waiting jobs in each lane.
    #[must_use]
    pub fn max_queue(&self) -> usize {
        self.shared().bounds.max_queue
    }

    /// Makes its threads nicer than the loops, from their next job on: for a pool whose jobs need CPU time and never
    /// wait. The first call says for which jobs.
    pub fn give_way(&self, jobs: CpuJobs) {
        self.shared().gives_way.get_or_init(|| jobs);
    }

    /// What its jobs need.
    pub(crate) fn kind(&self) -> PoolKind {
        match self.shared().gives_way.get() {
            Some(_) => PoolKind::Cpu,
            None => PoolKind::Disk,
        }
    }

    /// Hands a job to the pool. The returned future gives its result; dropping it abandons the job.
    ///
    /// # Errors
    /// [`Overflow`] if the lane is full; the job is then dropped by the caller's thread.
    pub(crate) fn submit<F, T>(&self, lane: Lane, work: F) -> Result<Pending<F, T>, Overflow>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let job = Arc::new(PoolJob::new(lane, Instant::now(), work).with(self.ticket(lane)?));
        self.shared().push(lane, job.clone())?;
        Ok(Pending::new(job, self))
    }

    /// Runs a job in the pool and waits for its result.
    ///
    /// # Errors
    /// [`Overflow`] if the lane is full.
    pub async fn run<F, T>(&self, lane: Lane, work: F) -> Result<T, Overflow>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        Ok(self.submit(lane, work)?.await)
    }

    /// Hands over a job without a result; it is run in any case.
    ///
    /// # Errors
    /// [`Overflow`] if the lane is full; the job is then dropped by the caller's thread.
    pub fn spawn<F>(&self, lane: Lane, work: F) -> Result<(), Overflow>
    where
        F: FnOnce() + Send + 'static,
    {
        let job = PoolJob::detached(lane, work).with(self.ticket(lane)?);
        self.shared().push(lane, Arc::new(job))
    }

    /// Drops a value on a thread of the pool (the last `close` of a file may wait for its disk). Never refused, and
    /// counted as a write of its disk: a thread that hangs in it is one that hangs there.
    pub fn release<T: Send + 'static>(&self, value: T) {
        self.shared().release(value, self.disk.as_ref());
    }

    /// KiB of buffers that its readers may have for evicted windows; `kib` says how many when it is first called.
    pub(crate) fn buffers(&self, kib: impl FnOnce() -> usize) -> &Semaphore {
        let semaphore = || Semaphore::new(kib());
        self.shared().buffers.get_or_init(semaphore)
    }

    /// Freezes the pool until the result is dropped.
    pub fn hold(&self) -> Hold {
        self.shared().queue.hold(true);
        Hold(self.shared().clone())
    }

    /// The number of writes that wait. When it is large, fills of caches should be shed.
    #[must_use]
    pub fn writes_waiting(&self) -> usize {
        let [_, writes, _] = self.shared().queue.waiting();
        writes
    }

    /// The pool's counters.
    #[must_use]
    pub fn counters(&self) -> PoolCounters {
        let shared = self.shared();
        let [reads_waiting, writes_waiting, releases_waiting] = shared.queue.waiting();
        let ran = shared.metrics.running.times();
        PoolCounters {
            name: shared.name.clone(),
            threads: shared.bounds.threads,
            started: shared.started.load(Relaxed),
            running: shared.queue.running(),
            reads_waiting,
            writes_waiting,
            releases_waiting,
            completed: ran.count(),
            rejected: shared.metrics.rejected.get(),
            waiting: shared.metrics.waiting.times(),
            ran,
        }
    }

    fn shared(&self) -> &Arc<PoolShared> {
        &self.handle.0
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Pool")
            .field("name", self.name())
            .field("threads", &self.threads())
            .finish()
    }
}

impl Drop for PoolHandle {
    fn drop(&mut self) {
        self.0.queue.close();
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.queue.hold(false);
    }
}

impl PoolShared {
    fn push(self: &Arc<Self>, lane: Lane, job: Arc<dyn RunJob>) -> Result<(), Overflow> {
        let first = self.started.load(Relaxed) == 0;
        if first {
            self.start_if_needed(&Pushed::NoneIdle);
        }
        if self.started.load(Relaxed) == 0 {
            self.metrics.rejected.add_shared(1);
            return Err(Overflow::Queue {
                pool: self.name.clone(),
                waiting: 0,
            });
        }
        match self.queue.push(lane, job) {
            Ok(pushed) => {
                if !first {
                    self.start_if_needed(&pushed);
                }
                Ok(())
            }
            Err((_, waiting)) => {
                self.metrics.rejected.add_shared(1);
                Err(Overflow::Queue {
                    pool: self.name.clone(),
                    waiting,
                })
            }
        }
    }

    pub(crate) fn release<T: Send + 'static>(
        self: &Arc<Self>,
        value: T,
        disk: Option<&Arc<DiskHealth>>,
    ) {
        let ticket = disk.map(DiskHealth::ticket_of_release);
        let job = PoolJob::detached(Lane::Release, move || drop(value)).with(ticket);
        // A job that is handed back (too many wait) is dropped here, and the caller waits for that.
        if let Ok(pushed) = self.queue.push_release(Arc::new(job)) {
            self.start_if_needed(&pushed);
        }
    }

    /// Starts a thread if one is needed and allowed. The first is started by the first job, each further one when work
    /// is left and no worker sleeps. If a thread cannot be started (EAGAIN), the next job tries again; a pool without
    /// any thread refuses jobs.
    fn start_if_needed(self: &Arc<Self>, pushed: &Pushed) {
        if *pushed == Pushed::Fine {
            return;
        }
        let threads = self.threads();
        let more = |started| (started < threads).then_some(started + 1);
        let Ok(number) = self.started.fetch_update(Relaxed, Relaxed, more) else {
            return;
        };
        let shared = self.clone();
        let thread = std::thread::Builder::new().name(format!("{} {number}", self.name));
        if thread.spawn(move || shared.work()).is_err() {
            self.started.fetch_sub(1, Relaxed);
        }
    }

    /// The main function of a worker.
    fn work(self: Arc<Self>) {
        ON_POOL_THREAD.set(true);
        take_slices(SLICE_NS);
        let (mut finished, mut is_nicer) = (None, false);
        while let Some((lane, job, more)) = self.queue.next(finished) {
            self.start_if_needed(&more);
            finished = Some(lane);
            let Some(job) = self.set_aside(lane, job) else {
                continue;
            };
            if !is_nicer && let Some(&jobs) = self.gives_way.get() {
                is_nicer = true;
                become_nicer(jobs);
            }
            let begun = Instant::now();
            let metrics = &self.metrics;
            metrics.waiting.record_shared(nanos(begun - job.queued()));
            job.run(begun);
            drop(job);
            metrics.running.record_shared(nanos(begun.elapsed()));
            if self.is_beyond() {
                self.queue.leave(lane);
                return;
            }
        }
        self.started.fetch_sub(1, Relaxed);
    }

    /// Changes one of its loans.
    fn lend(self: &Arc<Self>, before: usize, now: usize) {
        let mut lent = self.lent.lock();
        *lent = *lent - before + now;
        let spare = (*lent).min(self.bounds.threads);
        self.spare.store(spare, Relaxed);
        self.queue.set_spare(spare);
        drop(lent);
        let aside = std::mem::take(&mut *self.aside.lock());
        for (lane, job) in aside.into_iter().rev() {
            self.queue.put_back(lane, job);
        }
        if self.queue.has_work() {
            self.start_if_needed(&Pushed::NoneIdle);
        }
    }

    /// Sets a job aside, until the next change of a loan, where as many threads hang at its disk as the pool has of its
    /// own: it waited for that disk before, and would take one that is lent for others.
    fn set_aside(&self, lane: Lane, job: Arc<dyn RunJob>) -> Option<Arc<dyn RunJob>> {
        if self.spare.load(Relaxed) == 0 || !job.would_hang(self.bounds.threads) {
            return Some(job);
        }
        let mut aside = self.aside.lock();
        // Without a loan nothing would bring it back.
        let is_lent = self.spare.load(Relaxed) > 0;
        if !is_lent || aside.len() >= self.bounds.max_queue.saturating_mul(2) {
            return Some(job);
        }
        aside.push((lane, job));
        None
    }

    /// Threads that it may have now.
    fn threads(&self) -> usize {
        self.bounds.threads + self.spare.load(Relaxed)
    }

    /// Whether this thread is one too many, and so ends (it no longer counts then).
    fn is_beyond(&self) -> bool {
        let most = self.threads();
        let less = |started| (started > most).then(|| started - 1);
        self.started.load(Relaxed) > most
            && self.started.fetch_update(Relaxed, Relaxed, less).is_ok()
    }
}

/// The slice of a pool's thread on a processor, but for those of short jobs, in nanoseconds: longer than that of other
/// threads (usually 3 ms; the kernel accepts up to 100 ms).
const SLICE_NS: u64 = 10_000_000;

/// Gives this thread slices of this length. With longer ones than a loop's, the loop runs first: a thread that wakes with
/// a shorter slice preempts at once (EEVDF, Linux 6.12), and pool threads that wake at the same time, when a disk has
/// answered, do not run before a loop one after the other. The thread's share of a processor does not change: with a tenth
/// of it (a nicer thread), it waited long for other work on that processor each time a disk had answered. If the kernel
/// refuses, nothing changes.
fn take_slices(nanos: u64) {
    if let Ok(own) = sys::SchedAttributes::of(0)
        && own.is_ordinary()
    {
        let _ = own.set_slice(nanos);
    }
}

/// How much nicer than the process's first thread the threads of a pool are that gives way (setpriority(2)): they get a
/// tenth of a processor that a loop needs, too, and all of it while no loop has work.
const NICER: i32 = 10;
/// The same where the jobs are short: a quarter of the processor. The scheduler's deadline is the slice divided by the
/// weight: with the nice value and slice of long jobs, a step of 0.3 ms waited up to 16 ms behind threads of other pools.
const NICER_SHORT: i32 = 5;
/// The slice of their threads, in nanoseconds: for this weight a deadline behind a loop's and ahead of that of threads
/// which wait for disks. With one of 4 ms, fresh connections beside other pools took a third longer (p99).
const SLICE_SHORT_NS: u64 = 1_000_000;
/// The highest nice value.
const NICEST: i32 = 19;

/// Makes this thread nicer, for the rest of its life, since only root may undo it. If the kernel refuses, nothing
/// changes.
fn become_nicer(jobs: CpuJobs) {
    let (nicer, slice) = match jobs {
        CpuJobs::Short => (NICER_SHORT, SLICE_SHORT_NS),
        CpuJobs::Long => (NICER, SLICE_NS),
    };
    if let Ok(first) = getpriority_process(Some(getpid())) {
        let _ = setpriority_process(None, (first + nicer).min(NICEST));
    }
    take_slices(slice);
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
