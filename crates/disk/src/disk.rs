//! [`Disk`]: the part of the layer that all loops of a process share: mounts, pools, and what the kernel permits.

use crate::files::copier::Copier;
use crate::files::mount::{self, Filesystem, Mounts};
use crate::memory::limits::{self, Groups};
use crate::memory::{self, BUFFERS_SHARE};
use crate::metrics::counters::{LoopCounters, OPERATIONS, OperationCount};
use crate::pool::{self, Hold, Pool, PoolCounters, PoolKind};
use crate::refusals::is_cachestat_refused;
use crate::residency::pagemap::{PageMap, Way};
use crate::residency::window::Windows;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags};
use rustix::process::{Resource, getrlimit};
use std::ffi::OsStr;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Pools that one process may have.
pub const POOLS_MAX: usize = 256;

/// KiB of all buffers for evicted windows of a process, at most.
const BUFFERS_KIB: usize = 64 << 10;
/// The same, at least, however little memory there is.
const BUFFERS_KIB_MIN: usize = 1 << 10;
/// How often the file of a debug switch is looked for.
const HOLD_LOOK: Duration = Duration::from_millis(10);
/// How often the thread that follows the mounts checks that the [`Disk`] still exists.
const MOUNTS_WAIT: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};
/// How often that thread lets mounts go that were not used since: after twice this time at most.
const IDLE_MOUNTS_EVERY: Duration = Duration::from_secs(300);

/// How the files of a root or cache directory will be served; its text is the line for the log.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The directory.
    pub path: Box<[u8]>,
    /// Its file system; None if it could not be opened.
    pub filesystem: Option<Filesystem>,
    /// This process's user may not enter it: every request for a file in it is forbidden.
    pub is_forbidden: bool,
    pagemap: Option<Way>,
    cachestat: bool,
    openat2: bool,
}

impl Probe {
    /// How the page map is asked, where that is not the usual way.
    fn asked_by(&self) -> &'static str {
        match self.pagemap {
            Some(Way::Entries) => {
                " (asked for page by page: PAGEMAP_SCAN, Linux 6.7, is not there or not permitted)"
            }
            Some(Way::Scan) | None => "",
        }
    }
}

/// The line for the log where the kernel makes huge pages for memfds.
const NO_COPIES: &str = "bodies of small files are copied to each client, not sent by the page: the kernel makes \
    huge pages for memfds (/sys/kernel/mm/transparent_hugepage/shmem_enabled), of which no part can be given back while \
    it is being sent";
/// The text for an ordinary local file system.
const LOCAL: &str = "what is in memory is sent at once, what is not is read by the pool of threads";

impl fmt::Display for Probe {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "\"{}\": ", self.path.escape_ascii())?;
        match self.filesystem {
            _ if self.is_forbidden => write!(
                formatter,
                "the user that serves (uid {}) may not enter it, so that all of it is forbidden: another user is needed, or the \
                 right to enter it and the directories above (chmod o+x)",
                rustix::process::geteuid().as_raw()
            ),
            None => write!(
                formatter,
                "it cannot be opened; until it can, all of it goes through the pool of threads"
            ),
            Some(_) if !self.openat2 => write!(
                formatter,
                "the pool of threads opens each file that is not kept open: openat2(2) with RESOLVE_CACHED, Linux 5.12, is not there or not permitted"
            ),
            Some(Filesystem::Memory) => {
                write!(formatter, "in memory, nothing of it waits for a disk")
            }
            Some(Filesystem::Native | Filesystem::Xfs) if self.pagemap.is_some() => {
                write!(formatter, "{LOCAL}{}", self.asked_by())
            }
            Some(Filesystem::Native | Filesystem::Xfs) if self.cachestat => write!(
                formatter,
                "{LOCAL} (asked for by cachestat, and by reads that do not wait)"
            ),
            Some(Filesystem::Native | Filesystem::Xfs) => write!(
                formatter,
                "{LOCAL} (asked for by reads that do not wait: cachestat(2) is not there or not permitted)"
            ),
            Some(Filesystem::Overlay) if self.pagemap.is_some() => {
                write!(
                    formatter,
                    "overlay of a container; {LOCAL}{}",
                    self.asked_by()
                )
            }
            Some(Filesystem::Overlay) => write!(
                formatter,
                "overlay of a container that does not tell what is in memory, so the pool of threads reads all files"
            ),
            Some(Filesystem::Foreign) => write!(
                formatter,
                "a network or FUSE file system, which may wait at any call: all of it goes through the pool of threads"
            ),
        }
    }
}

/// Descriptors that must be opened before privileges are dropped.
#[derive(Debug, Default)]
pub struct PreparedDisk {
    pub(crate) pagemap: Option<OwnedFd>,
}

/// The disk layer of a process.
#[derive(Debug)]
pub struct Disk {
    pub(crate) mounts: Mounts,
    /// `openat2` with `RESOLVE_CACHED` is permitted.
    pub(crate) has_openat2: bool,
    pub(crate) windows: Arc<Windows>,
    /// KiB of buffers for windows that were evicted before a slow socket took them, of all pools together.
    buffers_kib: usize,
    pools: Mutex<Vec<Pool>>,
    /// How many descriptors the process may have, for good: while it is configured anew it may have more.
    pub(crate) descriptors: usize,
    /// How often descriptors have run out.
    scarcity: AtomicU32,
    /// The counters of each loop, also of those that have ended.
    counters: Mutex<Vec<Arc<LoopCounters>>>,
    /// Writes copies of small bodies; None: its thread could not be started.
    pub(crate) copier: Option<Copier>,
}

impl Disk {
    /// Opens files that an unprivileged process may not open. Call it in the process that will serve, **after** fork
    /// and exec (a pagemap belongs to one address space) and **before** setuid. A process that was executed as its
    /// final user may call it at any time.
    #[must_use]
    pub fn prepare() -> PreparedDisk {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        #[expect(clippy::disallowed_methods, reason = "procfs, before any loop runs")]
        let pagemap = rustix::fs::open("/proc/self/pagemap", flags, Mode::empty()).ok();
        PreparedDisk { pagemap }
    }

    /// The disk layer, with the descriptors of [`Disk::prepare`]. Reads the table of mounts, follows it in a thread of
    /// its own, and tries what the kernel permits. Once per process, before its loops run.
    #[must_use]
    pub fn new(prepared: PreparedDisk) -> Arc<Disk> {
        Self::with(prepared, mount::openat2_works())
    }

    /// The same, where it is known whether loops open files by openat2(2).
    pub(crate) fn with(prepared: PreparedDisk, has_openat2: bool) -> Arc<Disk> {
        let mounts = Mounts::default();
        mounts.refresh();
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let disk = Arc::new(Disk {
            mounts,
            descriptors: usize::try_from(descriptors).unwrap_or(usize::MAX),
            has_openat2,
            windows: Windows::new(prepared.pagemap),
            buffers_kib: buffers_kib(),
            pools: Mutex::new(Vec::new()),
            scarcity: AtomicU32::new(0),
            counters: Mutex::default(),
            copier: Copier::start(),
        });
        disk.follow_mounts();
        disk
    }

    /// The pool of this name, made or replaced with these bounds: threads, and jobs that wait. A pool whose
    /// bounds do not change stays.
    #[must_use]
    pub fn define_pool(&self, name: &str, threads: usize, max_queue: usize) -> Pool {
        let mut pools = self.pools.lock();
        if let Some(known) = pools.iter().find(|pool| &**pool.name() == name)
            && (known.threads(), known.max_queue()) == (threads, max_queue)
        {
            return known.clone();
        }
        if let Some(former) = pools.iter_mut().find(|pool| &**pool.name() == name) {
            let pool = former.remade(threads, max_queue);
            let former = std::mem::replace(former, pool.clone());
            drop(pools);
            drop(former);
            return pool;
        }
        let pool = Pool::new(name, threads, max_queue);
        if pools.len() < POOLS_MAX {
            pools.push(pool.clone());
        }
        pool
    }

    /// Forgets the pools for which `keep` returns false. Their users go on with them; a pool's threads end with its
    /// last user.
    pub fn keep_pools(&self, keep: impl Fn(&str) -> bool) {
        let mut pools = self.pools.lock();
        let forgotten: Vec<Pool> = pools.extract_if(.., |pool| !keep(pool.name())).collect();
        drop(pools);
        drop(forgotten);
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

    /// Any pool whose jobs may wait, for work that belongs to none; None before the first is defined.
    pub(crate) fn any_pool(&self) -> Option<Pool> {
        let pools = self.pools.lock();
        let mut pools = pools.iter().filter(|pool| pool.kind() == PoolKind::Disk);
        pools.next().cloned()
    }

    /// A pool's share, in KiB, of the buffers for evicted windows: one whose disk hangs takes none of another's. Judged by
    /// the pools that there are when it is first asked for.
    pub(crate) fn buffers_of<'a>(&self, pool: &'a Pool) -> &'a Semaphore {
        pool.buffers(|| {
            let pools = self.pools.lock();
            let disks = pools.iter().filter(|pool| pool.kind() == PoolKind::Disk);
            (self.buffers_kib / disks.count().max(1)).max(BUFFERS_KIB_MIN)
        })
    }

    /// The pool `default`: as defined, else with 32 threads and 65536 places in its queue.
    #[must_use]
    pub fn default_pool(&self) -> Pool {
        let known = self.pool(b"default");
        known.unwrap_or_else(|| {
            self.define_pool("default", pool::DEFAULT_THREADS, pool::DEFAULT_MAX_QUEUE)
        })
    }

    pub(crate) fn scarcity(&self) -> u32 {
        self.scarcity.load(Relaxed)
    }

    /// Records for all loops that descriptors ran out.
    pub(crate) fn tell_scarcity(&self) -> u32 {
        self.scarcity.fetch_add(1, Relaxed) + 1
    }

    /// Finds out how the file system of an absolute path (a root, a cache directory) behaves, for the log at start. A
    /// mount on the allowlist answers inline from then on. **Waits**: before the loops run, or in a pool.
    #[must_use]
    pub fn probe(&self, path: &[u8]) -> Probe {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        #[expect(
            clippy::disallowed_methods,
            reason = "before any loop runs, or in a pool"
        )]
        let dir = rustix::fs::open(OsStr::from_bytes(path), flags, Mode::empty());
        let access = rustix::fs::accessat(
            rustix::fs::CWD,
            OsStr::from_bytes(path),
            Access::EXEC_OK,
            AtFlags::EACCESS,
        );
        // An `alias` may name a file, for which the permission to enter does not matter.
        let stat = dir
            .as_ref()
            .ok()
            .and_then(|dir| rustix::fs::fstat(dir).ok());
        let is_file = stat.is_some_and(|stat| !FileType::from_raw_mode(stat.st_mode).is_dir());
        let mount = dir.ok().and_then(|dir| self.mounts.learn(dir.as_fd()));
        let filesystem = mount.and_then(|mount| mount.filesystem());
        Probe {
            path: path.into(),
            filesystem,
            is_forbidden: !is_file && access == Err(rustix::io::Errno::ACCESS),
            pagemap: self.windows.pagemap.as_ref().map(PageMap::way),
            cachestat: !is_cachestat_refused(),
            openat2: self.has_openat2,
        }
    }

    /// Freezes all pools of a kind, those defined meanwhile included, as long as this file exists (stall tests of the
    /// whole program). Starts a thread that looks every 10 ms; for a debug switch, never for production.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn hold_while_exists(
        self: &Arc<Self>,
        path: PathBuf,
        kind: PoolKind,
    ) -> std::io::Result<()> {
        let disk = Arc::downgrade(self);
        let watch = move || {
            let mut held = Vec::new();
            while let Some(disk) = disk.upgrade() {
                #[expect(clippy::disallowed_methods, reason = "a thread of its own")]
                let is_wanted = path.exists();
                if !is_wanted {
                    held.clear();
                } else if held.len() != disk.pools_of(kind).len() {
                    held = disk.hold_pools(kind);
                }
                drop(disk);
                #[expect(clippy::disallowed_methods, reason = "a thread of its own")]
                std::thread::sleep(HOLD_LOOK);
            }
        };
        let thread = std::thread::Builder::new().name("disk hold".to_owned());
        thread.spawn(watch).map(drop)
    }

    /// Follows changes of the mounts in a thread of its own (poll(2) on /proc/self/mountinfo), until the [`Disk`] is
    /// dropped.
    fn follow_mounts(self: &Arc<Self>) {
        let disk = Arc::downgrade(self);
        let follow = move || {
            #[expect(clippy::disallowed_methods, reason = "a thread of its own")]
            let Ok(table) = std::fs::File::open("/proc/self/mountinfo") else {
                return;
            };
            let mut looked = Instant::now();
            loop {
                let mut wait = [PollFd::new(&table, PollFlags::PRI | PollFlags::ERR)];
                let changed = poll(&mut wait, Some(&MOUNTS_WAIT));
                let Some(disk) = disk.upgrade() else { return };
                if changed.is_ok_and(|count| count > 0) {
                    disk.mounts.refresh();
                }
                if looked.elapsed() >= IDLE_MOUNTS_EVERY {
                    looked = Instant::now();
                    disk.mounts.let_idle_go();
                }
                close_left(disk.mounts.take_left());
            }
        };
        let _ = std::thread::Builder::new()
            .name("disk mounts".to_owned())
            .spawn(follow);
    }

    /// Bytes of address space in the mappings that prove residency, at most [`crate::MAPPED_MAX`].
    #[must_use]
    pub fn mapped(&self) -> usize {
        self.windows.mappings.mapped()
    }

    /// The system calls that the kernel permits, as one line for the log.
    #[must_use]
    pub fn abilities(&self) -> String {
        let cached = if self.has_openat2 { "yes" } else { "no" };
        let pagemap = match self.windows.pagemap.as_ref().map(PageMap::way) {
            Some(Way::Scan) => "PAGEMAP_SCAN",
            Some(Way::Entries) => "by its entries",
            None => "no",
        };
        format!("openat2(RESOLVE_CACHED): {cached}, page map: {pagemap}")
    }

    /// Why small files have no copies, as one line for the log. None: they have, or [`crate::refusals`] tells.
    #[must_use]
    pub fn lack_of_copies(&self) -> Option<&'static str> {
        let has_huge_pages = self.copier.as_ref().is_some_and(Copier::has_huge_pages);
        has_huge_pages.then_some(NO_COPIES)
    }

    /// Counters for a new loop: those of a loop that has ended, if there is one.
    pub(crate) fn begin_counters(&self) -> Arc<LoopCounters> {
        let mut all = self.counters.lock();
        let is_free = |counters: &mut Arc<LoopCounters>| Arc::get_mut(counters).is_some();
        if let Some(index) = all.iter_mut().position(is_free) {
            return Arc::clone(&all[index]);
        }
        let counters = Arc::<LoopCounters>::default();
        all.push(Arc::clone(&counters));
        counters
    }

    /// The sums over all loops, in the order of [`OPERATIONS`].
    #[must_use]
    pub fn counts(&self) -> [OperationCount; OPERATIONS.len()] {
        let mut sums = [OperationCount::default(); OPERATIONS.len()];
        for counters in self.counters.lock().iter() {
            for (sum, count) in sums.iter_mut().zip(counters.get()) {
                sum.add(count);
            }
        }
        sums
    }

    /// The counters of every pool.
    #[must_use]
    pub fn pool_counters(&self) -> Vec<PoolCounters> {
        self.pools.lock().iter().map(Pool::counters).collect()
    }

    /// Freezes all pools of a kind until the result is dropped (stall tests).
    #[must_use = "the pools thaw when this is dropped"]
    pub fn hold_pools(&self, kind: PoolKind) -> Vec<Hold> {
        self.pools_of(kind).iter().map(Pool::hold).collect()
    }

    fn pools_of(&self, kind: PoolKind) -> Vec<Pool> {
        let pools = self.pools.lock();
        let pools = pools.iter().filter(|pool| pool.kind() == kind);
        pools.cloned().collect()
    }
}

/// Closes directories of mounts in a thread of their own: the close of the last one unmounts a lazily unmounted file
/// system, and whoever does that waits for its disk.
fn close_left(dirs: Vec<OwnedFd>) {
    if !dirs.is_empty() {
        // Without a thread they are closed here, in the one that follows the mounts.
        let thread = std::thread::Builder::new().name("disk unmounts".to_owned());
        let _ = thread.spawn(move || drop(dirs));
    }
}

/// KiB of buffers: an eighth of the memory budget, between [`BUFFERS_KIB_MIN`] and [`BUFFERS_KIB`].
fn buffers_kib() -> usize {
    let limit = limits::least(&Groups::of(Path::new("/proc"))).bytes;
    let share = (memory::of_limit(limit) / BUFFERS_SHARE) >> 10;
    usize::try_from(share)
        .unwrap_or(usize::MAX)
        .clamp(BUFFERS_KIB_MIN, BUFFERS_KIB)
}
