//! Thread pools for work that needs the processor and no disk: one for compression and passwords, one for handshakes of
//! TLS, so that neither waits for the other. Each has as many threads as there are cores.
//!
//! They are pools of the disk layer, named [`POOL`] and [`HANDSHAKE_POOL`], so metrics show them and `thread_pool` can
//! change their bounds. Their threads are nicer than the loops. Invariants: when a pool is full, the next job waits for its
//! turn; however many clients shake hands, handshakes with servers have places of their own, and come first.

use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;

use disk::pool::{Lane, Overflow};
use disk::{CpuJobs, Disk, Pool};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// The name of the pool for compression and passwords.
pub const POOL: &str = "cpu";
/// The name of the pool for handshakes.
pub const HANDSHAKE_POOL: &str = "handshakes";
/// The names of these pools.
pub const POOLS: [&str; 2] = [POOL, HANDSHAKE_POOL];
/// Maximum number of jobs in the queue of a pool; more wait in front of it, in order.
const QUEUE_MAX: usize = 1024;
/// One in this many of the places in which jobs wait is for those that come first.
const FIRST_PLACES: usize = 4;

static CPU: CpuPool = CpuPool::new(POOL, CpuJobs::Long);
static HANDSHAKES: CpuPool = CpuPool::new(HANDSHAKE_POOL, CpuJobs::Short);

/// Threads of a pool when the configuration gives no number. Determining it reads files (`/sys/fs/cgroup/…`): see
/// [`learn_cores`].
static CORES: LazyLock<usize> = LazyLock::new(|| available_parallelism().map_or(1, usize::from));

/// One of these pools.
struct CpuPool {
    name: &'static str,
    jobs: CpuJobs,
    threads: Mutex<Option<Arc<Threads>>>,
}

/// The threads of a pool, and the turns of the jobs that wait for a place in it.
struct Threads {
    pool: Pool,
    turns: Arc<Semaphore>,
    /// Those of the jobs that come first.
    first_turns: Arc<Semaphore>,
}

/// The number of cores.
pub fn cores() -> usize {
    *CORES
}

/// Determines the number of cores. Called where settings are built, since a loop must not wait for files.
pub fn learn_cores() {
    LazyLock::force(&CORES);
}

/// Gives the pools that are there and that no configuration declares any more their own bounds again.
pub fn restore(disk: &Disk, is_declared: impl Fn(&str) -> bool) {
    for name in POOLS {
        let is_there = disk.pool(name.as_bytes()).is_some();
        if is_there && !is_declared(name) {
            drop(disk.define_pool(name, cores(), QUEUE_MAX));
        }
    }
}

/// Runs a job in the pool for compression and passwords when it is its turn.
///
/// # Errors
/// More cancelled jobs than the queue holds have not been taken out of it yet.
pub async fn run<T: Send + 'static>(
    disk: Arc<Disk>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Overflow> {
    CPU.run(disk, Lane::Read, work).await
}

/// Drops a value in the pool for compression and passwords: to free megabytes takes the kernel milliseconds.
pub fn release<T: Send + 'static>(disk: &Disk, value: T) {
    CPU.threads(disk).pool.release(value);
}

/// Runs a step of a client's handshake in the pool for those when it is its turn.
///
/// # Errors
/// As [`run`].
pub async fn run_handshake<T: Send + 'static>(
    disk: Arc<Disk>,
    step: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Overflow> {
    HANDSHAKES.run(disk, Lane::Read, step).await
}

/// The same of a handshake with a server, which a request waits for: it comes before those of clients.
///
/// # Errors
/// As [`run`].
pub async fn run_peer_handshake<T: Send + 'static>(
    disk: Arc<Disk>,
    step: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Overflow> {
    HANDSHAKES.run(disk, Lane::Shared, step).await
}

impl CpuPool {
    const fn new(name: &'static str, jobs: CpuJobs) -> Self {
        Self {
            name,
            jobs,
            threads: Mutex::new(None),
        }
    }

    /// The pool as it is defined now.
    fn threads(&self, disk: &Disk) -> Arc<Threads> {
        let mut known = self.threads.lock();
        let bounds = |pool: &Pool| (pool.threads(), pool.max_queue());
        let declared = disk.pool(self.name.as_bytes());
        if let Some(threads) = &*known
            && declared
                .as_ref()
                .is_none_or(|pool| bounds(pool) == bounds(&threads.pool))
        {
            return Arc::clone(threads);
        }
        let pool = declared.unwrap_or_else(|| disk.define_pool(self.name, *CORES, QUEUE_MAX));
        pool.give_way(self.jobs);
        // Cancelled jobs stay in the queue, empty, until a thread takes them out: half of the queue is for those.
        let waiting = (pool.max_queue() / 2).min(Semaphore::MAX_PERMITS / 2);
        let first = waiting / FIRST_PLACES;
        // Fewer than there are threads would leave some of those idle.
        let first = if first < pool.threads() { 0 } else { first };
        let turns = Arc::new(Semaphore::new(pool.threads() + waiting - first));
        let first_turns = match first {
            0 => Arc::clone(&turns),
            _ => Arc::new(Semaphore::new(first)),
        };
        let threads = Arc::new(Threads {
            pool,
            turns,
            first_turns,
        });
        *known = Some(Arc::clone(&threads));
        threads
    }

    async fn run<T: Send + 'static>(
        &self,
        disk: Arc<Disk>,
        lane: Lane,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Overflow> {
        let threads = self.threads(&disk);
        let turns = match lane {
            Lane::Shared => &threads.first_turns,
            Lane::Read | Lane::Write | Lane::Release => &threads.turns,
        };
        // It is never closed.
        let turn = Arc::clone(turns).acquire_owned().await.ok();
        let work = move || {
            let done = work();
            drop(turn);
            done
        };
        threads.pool.run(lane, work).await
    }
}
