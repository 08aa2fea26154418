//! The caches of a worker, by directory: opened once, kept over reloads.
//!
//! Not here: keeping them in order (`cache_manager`). Invariant: a process opens a directory once; a cache lives as
//! long as a configuration names it.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use cache::KnownKey;
use cache::store::StoreSettings;
use cache::{Fills, Store};
use disk::Disk;
use logs::Level;
use parking_lot::Mutex;
use runtime::{Kind, Loop, spawn};
use tokio::sync::Notify;

use super::cache_manager::Keeper;
use super::counters::Tally;
use super::disk_errors::Troubles;
use super::write_permits::Turns;
use super::zone::{Zone, Zones};
use httpcore::settings::Settings;

/// Maximum time, from the start of its opening, that requests wait for a cache; then they bypass it until it is open.
const OPENING_PATIENCE: Duration = Duration::from_secs(5);

slots::slotted!(config::made::WHOLE: Caches);

/// The caches of a configuration, in the order of its [`Zones`]; none before the [`Registry`] has given them.
#[derive(Debug, Default)]
pub struct Caches(OnceLock<Vec<Arc<Cache>>>);

impl Caches {
    /// The caches of a configuration.
    #[must_use]
    pub fn of(settings: &Settings) -> &[Arc<Cache>] {
        settings.made::<Self>().0.get().map_or(&[], |caches| caches)
    }
}

/// The cache of this name.
#[must_use]
pub fn find<'a>(settings: &'a Settings, name: &[u8]) -> Option<&'a Arc<Cache>> {
    Caches::of(settings).get(settings.made::<Zones>().named(name)?)
}

/// A cache that is open, or is being opened.
#[derive(Debug)]
pub struct Cache {
    /// Its first declaration. (The store knows the settings that a reload may change.)
    pub zone: Zone,
    /// The fetches in progress.
    pub fills: Fills,
    /// Its counters.
    pub tally: Tally,
    /// Limits of concurrent writes.
    pub turns: Turns,
    /// The errors of its disk.
    troubles: Troubles,
    store: OnceLock<Store>,
    is_open: Notify,
    is_taken: AtomicBool,
    since: Instant,
}

impl Cache {
    fn new(zone: &Zone) -> Self {
        Self {
            zone: zone.clone(),
            fills: Fills::default(),
            tally: Tally::default(),
            turns: Turns::default(),
            troubles: Troubles::default(),
            store: OnceLock::new(),
            is_open: Notify::new(),
            is_taken: AtomicBool::new(false),
            since: Instant::now(),
        }
    }

    /// Counts an error of its disk, and logs it at most once a minute. `what` is the operation that failed.
    pub fn tell(&self, what: &str, error: &cache::Error) {
        self.troubles.tell(&self.zone.directory, what, error);
    }

    /// Counts a response that is passed on and not stored because the disk cannot take it; logs that at most once a
    /// minute.
    pub fn shed(&self, why: &str) {
        self.tally.pass();
        let what = "an answer is passed on and not stored";
        self.troubles
            .say(Level::Warn, &self.zone.directory, what, why);
    }

    /// Number of its disk's errors since the start.
    #[must_use]
    pub fn troubles(&self) -> u64 {
        self.troubles.count()
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

    /// Its store, if it is open.
    #[must_use]
    pub fn store(&self) -> Option<&Store> {
        self.store.get()
    }

    /// Its store; waits a short time while it is being opened. None: this request has no cache.
    pub async fn opened(&self) -> Option<&Store> {
        loop {
            let opened = self.is_open.notified();
            if let Some(store) = self.store() {
                return Some(store);
            }
            if self.is_taken() {
                return None;
            }
            let left = OPENING_PATIENCE.checked_sub(self.since.elapsed())?;
            if tokio::time::timeout(left, opened).await.is_err() {
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
    pub(super) fn set_taken(&self, is_taken: bool) {
        self.is_taken.store(is_taken, Relaxed);
        self.is_open.notify_waiters();
    }

    /// Sets its store, once it is open.
    pub(super) fn set_store(&self, store: Store) {
        let _ = self.store.set(store);
        self.is_open.notify_waiters();
    }

    /// Takes over the settings of a later configuration.
    ///
    /// # Errors
    /// nginx's sentence where the levels differ.
    fn adjust(&self, zone: &Zone) -> Result<(), String> {
        if zone.levels != self.zone.levels {
            let name = String::from_utf8_lossy(&zone.name);
            return Err(format!("cache \"{name}\" had previously different levels"));
        }
        if let Some(store) = self.store() {
            store.set_limits(zone.max_bytes, zone.min_free_bytes, zone.inactive);
        }
        Ok(())
    }
}

/// The parameters of a store's opening.
#[must_use]
pub fn store_settings(zone: &Zone, disk: &Disk) -> StoreSettings {
    let pool = zone.pool.as_ref().and_then(|name| disk.pool(name));
    StoreSettings {
        directory: zone.directory.to_vec(),
        levels: zone.levels,
        zone_bytes: zone.zone_bytes,
        max_bytes: zone.max_bytes,
        min_free_bytes: zone.min_free_bytes,
        inactive: zone.inactive,
        pool: pool.unwrap_or_else(|| disk.default_pool()),
    }
}

/// The caches of a worker.
#[derive(Debug)]
pub struct Registry {
    disk: Arc<Disk>,
    keeper: OnceLock<Keeper>,
    caches: Mutex<Vec<Weak<Cache>>>,
}

impl Registry {
    /// No caches yet.
    #[must_use]
    pub fn new(disk: Arc<Disk>) -> Self {
        Self {
            disk,
            keeper: OnceLock::new(),
            caches: Mutex::default(),
        }
    }

    /// Gives a configuration its caches: those that are open already, and new ones, whose opening begins now. To be
    /// called once its pools are defined.
    ///
    /// # Errors
    /// Levels of a cache that were changed; the cache manager's thread cannot be started.
    pub fn equip(&self, settings: &Settings) -> Result<(), String> {
        let mut known = self.caches.lock();
        known.retain(|cache| cache.strong_count() > 0);
        let mut all = Vec::new();
        for zone in settings.made::<Zones>().all() {
            let mut open = known.iter().filter_map(Weak::upgrade);
            let open = open.find(|cache| cache.zone.directory == zone.directory);
            all.push(match open {
                Some(cache) => cache.adjust(zone).map(|()| cache)?,
                None => {
                    let cache = Arc::new(Cache::new(zone));
                    known.push(Arc::downgrade(&cache));
                    self.keeper()?.keep(&cache);
                    cache
                }
            });
        }
        // A second call brings the same.
        let _ = settings.made::<Caches>().0.set(all);
        Ok(())
    }

    fn keeper(&self) -> Result<&Keeper, String> {
        if let Some(keeper) = self.keeper.get() {
            return Ok(keeper);
        }
        let keeper = Keeper::start(&self.disk)
            .map_err(|error| format!("the caches' thread cannot be started ({error})"))?;
        Ok(self.keeper.get_or_init(|| keeper))
    }

    /// All caches.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Cache>> {
        self.caches
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }

    /// Compacts every cache's journal, after the last write; waits at most this long (a disk may hang).
    pub fn close(&self, patience: Duration) {
        if let Some(keeper) = self.keeper.get() {
            keeper.close(self.all(), patience);
        }
    }
}
