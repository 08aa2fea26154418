//! The thread pool for work that needs the processor and no disk (compression, passwords): as many threads as there
//! are cores.
//!
//! It is a pool of the disk layer, named [`POOL`], so metrics show it and `thread_pool` can change its bounds. Its
//! threads are nicer than the loops. Invariant: when the pool is full, the next job waits for its turn.

use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;

use disk::pool::{Lane, Overflow};
use disk::{Disk, Pool};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// The pool's name.
pub const POOL: &str = "cpu";
/// Maximum number of jobs in the pool's queue; more wait in front of it, in order.
const QUEUE_MAX: usize = 1024;

/// The pool, and the turns of the jobs that wait for a place in it.
struct Threads {
    pool: Pool,
    turns: Arc<Semaphore>,
}

/// Threads of the pool when the configuration gives no number. Determining it reads files (`/sys/fs/cgroup/…`): see
/// [`learn_cores`].
static CORES: LazyLock<usize> = LazyLock::new(|| available_parallelism().map_or(1, usize::from));
static THREADS: Mutex<Option<Arc<Threads>>> = Mutex::new(None);

/// The number of cores.
pub fn cores() -> usize {
    *CORES
}

/// Determines the number of cores. Called where settings are built, since a loop must not wait for files.
pub fn learn_cores() {
    LazyLock::force(&CORES);
}

/// The pool as it is defined now.
fn threads(disk: &Disk) -> Arc<Threads> {
    let mut known = THREADS.lock();
    let bounds = |pool: &Pool| (pool.threads(), pool.max_queue());
    let declared = disk.pool(POOL.as_bytes());
    if let Some(threads) = &*known
        && declared
            .as_ref()
            .is_none_or(|pool| bounds(pool) == bounds(&threads.pool))
    {
        return Arc::clone(threads);
    }
    let pool = declared.unwrap_or_else(|| disk.define_pool(POOL, *CORES, QUEUE_MAX));
    pool.give_way();
    // Cancelled jobs stay in the queue, empty, until a thread takes them out: half of the queue is for those.
    let places = pool.threads() + pool.max_queue() / 2;
    let turns = Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)));
    let threads = Arc::new(Threads { pool, turns });
    *known = Some(Arc::clone(&threads));
    threads
}

/// Runs a job in the pool when it is its turn.
///
/// # Errors
/// More cancelled jobs than the queue holds have not been taken out of it yet.
pub async fn run<T: Send + 'static>(
    disk: Arc<Disk>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Overflow> {
    let threads = threads(&disk);
    // It is never closed.
    let turn = Arc::clone(&threads.turns).acquire_owned().await.ok();
    let work = move || {
        let done = work();
        drop(turn);
        done
    };
    threads.pool.run(Lane::Read, work).await
}
