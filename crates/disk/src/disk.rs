//! What all loops of a process share: mounts, pools, and what the kernel permits.

use crate::mount::{self, Mounts};
use crate::pool::{self, Hold, Pool, PoolCounters};
use crate::send::BUFFERS_KIB;
use crate::window::Windows;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Pools that one process may have.
pub const POOLS_MAX: usize = 256;

/// What must be had before privileges are dropped.
#[derive(Debug, Default)]
pub struct Prepared {
    pub(crate) pagemap: Option<OwnedFd>,
}

/// The disk layer of a process.
#[derive(Debug)]
pub struct Disk {
    pub(crate) mounts: Mounts,
    pub(crate) abilities: Abilities,
    pub(crate) windows: Windows,
    /// KiB of buffers for windows that were evicted before a slow socket took them.
    pub(crate) buffers: Semaphore,
    pools: Mutex<Vec<Pool>>,
}

/// What the kernel (or a seccomp filter) lets this process do.
#[derive(Debug)]
pub(crate) struct Abilities {
    /// `openat2` with `RESOLVE_CACHED`.
    pub openat2: bool,
    /// /proc/self/pagemap, if `PAGEMAP_SCAN` works on it.
    pub pagemap: Option<OwnedFd>,
}

impl Disk {
    /// Opens what a process without privileges may not open. Call it in the process that will serve, **after** fork and
    /// exec (the pagemap is that of one address space) and **before** setuid. A process that was executed with its
    /// final user may call it at any time.
    #[must_use]
    pub fn prepare() -> Prepared {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        #[expect(clippy::disallowed_methods, reason = "procfs, before any loop runs")]
        let pagemap = rustix::fs::open("/proc/self/pagemap", flags, Mode::empty()).ok();
        Prepared { pagemap }
    }

    /// The disk layer, with what [`Disk::prepare`] got. Reads the table of mounts and tries what the kernel permits
    /// (once per process, before its loops run).
    #[must_use]
    pub fn new(prepared: Prepared) -> Arc<Disk> {
        let mounts = Mounts::default();
        mounts.refresh();
        let abilities = Abilities {
            openat2: mount::openat2_works(),
            pagemap: prepared.pagemap.filter(pagemap_works),
        };
        Arc::new(Disk {
            mounts,
            abilities,
            windows: Windows::new(),
            buffers: Semaphore::new(BUFFERS_KIB),
            pools: Mutex::new(Vec::new()),
        })
    }

    /// The pool of this name, made or made anew with these bounds (`thread_pool NAME threads= max_queue=`). A pool whose
    /// bounds stay the same stays, through reloads too.
    #[must_use]
    pub fn define_pool(&self, name: &str, threads: usize, max_queue: usize) -> Pool {
        let mut pools = self.pools.lock();
        if let Some(known) = pools.iter().find(|pool| &**pool.name() == name)
            && (known.threads(), known.max_queue()) == (threads, max_queue)
        {
            return known.clone();
        }
        pools.retain(|pool| &**pool.name() != name);
        let pool = Pool::new(name, threads, max_queue);
        if pools.len() < POOLS_MAX {
            pools.push(pool.clone());
        }
        pool
    }

    /// The pool of this name, if it is defined.
    #[must_use]
    pub fn pool(&self, name: &[u8]) -> Option<Pool> {
        self.pools
            .lock()
            .iter()
            .find(|pool| pool.name().as_bytes() == name)
            .cloned()
    }

    /// The pool `default` with nginx's bounds, unless it is defined otherwise.
    #[must_use]
    pub fn default_pool(&self) -> Pool {
        let known = self.pool(b"default");
        known.unwrap_or_else(|| {
            self.define_pool("default", pool::DEFAULT_THREADS, pool::DEFAULT_MAX_QUEUE)
        })
    }

    /// Bytes of address space in mappings (proof 2), at most [`crate::MAPPED_MAX`].
    #[must_use]
    pub fn mapped(&self) -> usize {
        self.windows.mapped()
    }

    /// What the kernel lets this process do, as one line for the log.
    #[must_use]
    pub fn abilities(&self) -> String {
        let yes = |able| if able { "yes" } else { "no" };
        let (cached, scan) = (self.abilities.openat2, self.abilities.pagemap.is_some());
        format!(
            "openat2(RESOLVE_CACHED): {}, PAGEMAP_SCAN: {}",
            yes(cached),
            yes(scan)
        )
    }

    /// What every pool has done.
    #[must_use]
    pub fn pool_counters(&self) -> Vec<PoolCounters> {
        self.pools.lock().iter().map(Pool::counters).collect()
    }

    /// Freezes all pools until the result is dropped (stall tests).
    #[must_use = "the pools thaw when this is dropped"]
    pub fn hold_pools(&self) -> Vec<Hold> {
        self.pools.lock().iter().map(Pool::hold).collect()
    }
}

/// Does PAGEMAP_SCAN (Linux 6.7) work on this descriptor, which must be this process's own? Tried on a page in memory.
fn pagemap_works(pagemap: &OwnedFd) -> bool {
    let page = sys::page_size();
    let try_it = || -> std::io::Result<bool> {
        let memory = rustix::fs::memfd_create("freewheel", rustix::fs::MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&memory, 2 * page as u64)?;
        let mapping = sys::Mapping::new(memory.as_fd(), 0, 2 * page)?;
        let absent = !sys::all_present(pagemap.as_fd(), &mapping, 0, 2 * page)?;
        mapping.populate(0, page)?;
        let present = sys::all_present(pagemap.as_fd(), &mapping, 0, page)?;
        Ok(absent && present)
    };
    try_it().unwrap_or(false)
}
