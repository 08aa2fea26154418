//! A cache of the worker: its store, once it is open, its fills and its counters.
//!
//! Not here: which caches there are (`registry`), and keeping them in order (`cache_manager`).

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cache::store::{DeviceSettings, StoreSettings};
use cache::{Admission, Key, KnownKey};
use cache::{Fills, Store};
use disk::{Disk, DiskHealth, Overflow, Pool, WriteState};
use logs::Level;
use parking_lot::Mutex;
use runtime::{Kind, Loop, spawn};
use tokio::sync::Notify;
use wire::Wheel;

use crate::caching::caches::counters::CacheCounters;
use crate::caching::caches::disk_errors::DiskErrors;
use crate::caching::caches::placing;
use crate::caching::hedge_budget::HedgeBudget;
use crate::caching::write_backpressure::WriteBackpressure;
use crate::settings::cache_path::Zone;

/// Maximum time, from the start of its opening, that requests wait for a cache; then they bypass it until it is open.
const OPENING_PATIENCE: Duration = Duration::from_secs(5);

/// A cache that is open, or is being opened.
#[derive(Debug)]
pub struct Cache {
    /// Its first declaration.
    pub zone: Zone,
    /// Its last declaration, of which it has what a reload may change. Held while the store gets that.
    latest: Mutex<Zone>,
    /// The fetches in progress.
    pub fills: Fills,
    /// Its counters.
    pub counters: CacheCounters,
    /// Limits of concurrent writes.
    pub backpressure: WriteBackpressure,
    /// Whether a response is stored only if its key was asked for before; and the keys that were.
    is_second_hit: AtomicBool,
    admission: OnceLock<Admission>,
    /// The health of its disk.
    pub disk: Arc<DiskHealth>,
    /// Its device, if it has one: opened by the master.
    device: Option<Arc<OwnedFd>>,
    /// How many reads may be raced by the origin.
    pub(crate) hedges: HedgeBudget,
    /// The pool for its disk: its own, where its cache has several disks, else that of the first location that used it.
    pool: OnceLock<Pool>,
    /// What its directory adds to the hash of a key (`placing`).
    pub(crate) seed: u64,
    /// The errors of its disk.
    disk_errors: DiskErrors,
    /// Held by what changes the directory without a request.
    pub(crate) upkeep: tokio::sync::Mutex<()>,
    store: OnceLock<Store>,
    is_open: Notify,
    is_taken: AtomicBool,
    is_given_up: AtomicBool,
    since: Instant,
}

impl Cache {
    pub(crate) fn new(zone: &Zone, disk: &Disk, device: Option<Arc<OwnedFd>>) -> Self {
        let health = DiskHealth::new(Path::new(OsStr::from_bytes(&zone.directory)));
        if let Some(device) = &device {
            health.set_device(Arc::clone(device));
        }
        let own = own_pool(zone, disk).map(|pool| pool.for_disk(&health));
        Self {
            zone: zone.clone(),
            latest: Mutex::new(zone.clone()),
            fills: Fills::default(),
            counters: CacheCounters::default(),
            backpressure: WriteBackpressure::default(),
            is_second_hit: AtomicBool::new(zone.is_second_hit),
            admission: OnceLock::new(),
            disk: health,
            device,
            hedges: HedgeBudget::default(),
            pool: own.map_or_else(OnceLock::new, OnceLock::from),
            seed: placing::seed(&zone.directory),
            disk_errors: DiskErrors::default(),
            upkeep: tokio::sync::Mutex::default(),
            store: OnceLock::new(),
            is_open: Notify::new(),
            is_taken: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
            since: Instant::now(),
        }
    }

    /// Counts an error of its disk, and logs it at most once a minute. `what` is the operation that failed.
    pub fn tell(&self, what: &str, error: &cache::Error) {
        // That is told when it changes.
        if !matches!(
            error,
            cache::Error::Disk(disk::Error::Overflow(Overflow::DiskOut))
        ) {
            self.disk_errors.tell(&self.zone.directory, what, error);
        }
    }

    /// Counts a response whose disk failed in its middle, and logs it at most once a minute. `rest`: what becomes of its
    /// rest.
    pub(crate) fn tell_taken_over(&self, rest: Result<(), &str>, why: &str) {
        self.counters.take_over(rest.is_ok());
        let (level, what) = match rest {
            Ok(()) => (
                Level::Warn,
                "the origin gives the rest of an answer".to_owned(),
            ),
            Err(refusal) => (
                Level::Error,
                format!("the origin cannot give the rest of an answer ({refusal})"),
            ),
        };
        self.disk_errors
            .say(level, &self.zone.directory, &what, why);
    }

    /// Counts a response that is passed on and not stored because the disk cannot take it; logs that at most once a
    /// minute.
    pub fn shed(&self, why: &str) {
        self.counters.pass();
        let what = "an answer is passed on and not stored";
        self.disk_errors
            .say(Level::Warn, &self.zone.directory, what, why);
    }

    /// Whether a response to a request for this key may be stored, as far as earlier requests decide that. From now on,
    /// the key was asked for, unless it `is_stored` already.
    #[must_use]
    pub(crate) fn admits(&self, key: &Key, is_stored: impl FnOnce() -> bool) -> bool {
        let keys = || Admission::new(self.zone.keys_max());
        !self.is_second_hit.load(Relaxed)
            || is_stored()
            || self.admission.get_or_init(keys).admits(key)
    }

    /// Bytes of memory that this takes.
    #[must_use]
    pub(crate) fn admission_memory(&self) -> usize {
        self.admission.get().map_or(0, Admission::memory)
    }

    /// Number of its disk's errors since the start.
    #[must_use]
    pub fn disk_errors(&self) -> u64 {
        self.disk_errors.count()
    }

    /// Why nothing new is to be written to its disk, as far as the disk's state says; None: it may be.
    #[must_use]
    pub(crate) fn write_refusal(&self) -> Option<&'static str> {
        if self.disk.is_out() {
            return Some("its disk is out");
        }
        match self.disk.writing() {
            WriteState::Allowed => None,
            WriteState::Full => Some("its disk is full"),
            WriteState::ReadOnly => Some("its disk is read-only"),
            WriteState::Stalled => Some("writes to its disk make no progress"),
        }
    }

    /// The pool of its disk alone, where its cache has several.
    #[must_use]
    pub(crate) fn own_pool(&self) -> Option<&Pool> {
        self.pool.get().filter(|_| self.zone.disks > 1)
    }

    /// The pool of the first location that used the cache, for its disk.
    #[must_use]
    pub(crate) fn kept_pool(&self, pool: &Pool) -> &Pool {
        self.pool.get_or_init(|| pool.for_disk(&self.disk))
    }

    /// Records a key that has no file ([`Store::note`]). The deletion that this causes runs in the background.
    pub fn note(self: &Arc<Self>, loop_: &Rc<Loop>, known: &KnownKey) {
        let deletion = self
            .store()
            .and_then(|store| store.note(&loop_.disk, known));
        let Some(deletion) = deletion else { return };
        let (cache, errand) = (Arc::clone(self), loop_.begin_errand());
        drop(spawn(Kind::Module("fill"), async move {
            let _errand = errand;
            if let Err(error) = deletion.await {
                cache.tell("what gave way cannot be deleted", &error);
            }
        }));
    }

    /// Its store, if it is open and was not given up.
    #[must_use]
    pub fn store(&self) -> Option<&Store> {
        self.store.get().filter(|_| !self.is_given_up())
    }

    /// Its store, also after it was given up: for what began before that.
    #[must_use]
    pub(crate) fn former_store(&self) -> Option<&Store> {
        self.store.get()
    }

    /// Whether it was left to another process.
    #[must_use]
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Relaxed)
    }

    /// Leaves it to another process: requests from now on are answered as if it always belonged to that.
    pub(crate) fn set_given_up(&self) {
        self.is_given_up.store(true, Relaxed);
        self.set_taken(true);
    }

    /// Its store; waits a short time while it is being opened. None: this request has no cache.
    pub async fn opened(&self, wheel: &Rc<Wheel>) -> Option<&Store> {
        loop {
            let opened = self.is_open.notified();
            if let Some(store) = self.store() {
                return Some(store);
            }
            if self.is_taken() {
                return None;
            }
            if self.disk.is_out() {
                return None;
            }
            let left = OPENING_PATIENCE.checked_sub(self.since.elapsed())?;
            if wheel.timeout(left, opened).await.is_err() {
                return None;
            }
        }
    }

    /// Whether it belongs to another process for now.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.is_taken.load(Relaxed)
    }

    /// Sets whether it belongs to another process.
    pub(crate) fn set_taken(&self, is_taken: bool) {
        self.is_taken.store(is_taken, Relaxed);
        self.is_open.notify_waiters();
    }

    /// Sets its store, once it is open.
    pub(crate) fn set_store(&self, store: Store) {
        let latest = self.latest.lock();
        limit(&store, &latest);
        let _ = self.store.set(store);
        drop(latest);
        // Opening takes long by its nature.
        self.disk.watch();
        self.is_open.notify_waiters();
    }

    /// Whether it can have the settings of a later configuration.
    ///
    /// # Errors
    /// nginx's sentence where the levels differ.
    pub(crate) fn may_become(&self, zone: &Zone) -> Result<(), String> {
        if zone.levels != self.zone.levels {
            let name = String::from_utf8_lossy(&zone.name);
            return Err(format!("cache \"{name}\" had previously different levels"));
        }
        if zone.store != self.zone.store {
            let name = String::from_utf8_lossy(&zone.name);
            return Err(format!(
                "cache \"{name}\" had previously another \"store\", which takes a restart to change"
            ));
        }
        if zone.device != self.zone.device {
            let name = String::from_utf8_lossy(&zone.name);
            return Err(format!(
                "cache \"{name}\" had previously another device, which takes a restart to change"
            ));
        }
        Ok(())
    }

    /// Takes over what a reload may change.
    pub(crate) fn adjust(&self, zone: &Zone) {
        self.is_second_hit.store(zone.is_second_hit, Relaxed);
        let mut latest = self.latest.lock();
        latest.clone_from(zone);
        // One that is being opened gets it at its end.
        if let Some(store) = self.store() {
            limit(store, zone);
        }
    }
}

fn limit(store: &Store, zone: &Zone) {
    store.set_files_bytes(zone.files_bytes);
    store.set_limits(zone.max_bytes, zone.min_free_bytes, zone.inactive);
    store.set_zone_bytes(zone.zone_bytes);
}

/// The parameters of a store's opening.
#[must_use]
pub fn store_settings(cache: &Cache, disk: &Disk) -> StoreSettings {
    let zone = &cache.zone;
    if let Some(own) = cache.own_pool() {
        return settings_with(cache, own.clone());
    }
    let pool = zone.pool.as_ref().and_then(|name| disk.pool(name));
    let pool = pool.unwrap_or_else(|| disk.default_pool());
    settings_with(cache, pool.for_disk(&cache.disk))
}

/// What the names of pools of single disks begin with.
pub const OWN_POOL: &str = "cache ";
/// Maximum of threads of such a pool.
const OWN_THREADS_MAX: usize = 32;

/// The pool of one of several disks: a disk that hangs takes no thread from the others.
fn own_pool(zone: &Zone, disk: &Disk) -> Option<Pool> {
    if zone.disks < 2 {
        return None;
    }
    let like = zone.pool.as_ref().and_then(|name| disk.pool(name));
    let like = like.unwrap_or_else(|| disk.default_pool());
    let name = format!("{OWN_POOL}{}", zone.directory.escape_ascii());
    let threads = like.threads().min(OWN_THREADS_MAX);
    Some(disk.define_pool(&name, threads, like.max_queue()))
}

fn settings_with(cache: &Cache, pool: Pool) -> StoreSettings {
    let zone = &cache.zone;
    let named = zone.device.as_ref().zip(cache.device.as_ref());
    StoreSettings {
        directory: zone.directory.to_vec(),
        levels: zone.levels,
        zone_bytes: zone.zone_bytes,
        max_bytes: zone.max_bytes,
        min_free_bytes: zone.min_free_bytes,
        inactive: zone.inactive,
        kind: zone.store,
        device: named.map(|(path, descriptor)| DeviceSettings {
            path: path.to_vec(),
            descriptor: Arc::clone(descriptor),
            files_bytes: zone.files_bytes,
        }),
        pool,
    }
}
