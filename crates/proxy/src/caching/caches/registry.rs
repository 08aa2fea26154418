//! The caches of a worker, by directory: opened once, kept over reloads.
//!
//! Not here: keeping them in order (`cache_manager`). Invariant: a process opens a directory once; a cache lives as
//! long as a configuration names it.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use disk::Disk;
use parking_lot::Mutex;

use crate::caching::caches::cache_manager::CacheManager;
use crate::caching::caches::open_cache::Cache;
use crate::settings::cache_path::{Zone, Zones};
use httpcore::settings::{Location, Settings};

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

/// The cache of this name: one for each of its disks.
#[must_use]
pub fn find<'a>(settings: &'a Settings, name: &[u8]) -> Option<&'a [Arc<Cache>]> {
    let zones = settings.made::<Zones>();
    let first = zones.named(name)?;
    Caches::of(settings).get(first..first + zones.all()[first].disks)
}

slots::slotted!(config::made::LOCATION: LocationCache);

/// The cache of a location that names it without variables, found on first use.
#[derive(Debug)]
struct LocationCache(Option<Box<[Arc<Cache>]>>);

/// The cache of this name, which is the location's for every request.
#[must_use]
pub(crate) fn find_for<'a>(
    settings: &Settings,
    location: &'a Location,
    name: &[u8],
) -> Option<&'a [Arc<Cache>]> {
    let found = || LocationCache(find(settings, name).map(Box::from));
    location.made.get_or_init(found).0.as_deref()
}

/// The device of a cache that has one.
fn device_of(
    zone: &Zone,
    devices: &[(PathBuf, Arc<OwnedFd>)],
) -> Result<Option<Arc<OwnedFd>>, String> {
    let Some(path) = &zone.device else {
        return Ok(None);
    };
    let is_it = |(name, _): &&(PathBuf, _)| name.as_os_str().as_bytes() == &path[..];
    match devices.iter().find(is_it) {
        Some((_, device)) => Ok(Some(Arc::clone(device))),
        None => Err(format!("\"{}\" was not opened", path.escape_ascii())),
    }
}

/// The caches of a worker.
#[derive(Debug)]
pub struct Registry {
    disk: Arc<Disk>,
    manager: OnceLock<CacheManager>,
    caches: Mutex<Vec<Weak<Cache>>>,
}

impl Registry {
    /// No caches yet.
    #[must_use]
    pub fn new(disk: Arc<Disk>) -> Self {
        Self {
            disk,
            manager: OnceLock::new(),
            caches: Mutex::default(),
        }
    }

    /// Gives a configuration its caches: those that are open already, and new ones, whose opening begins now. To be
    /// called once its pools are defined. `devices`: those that its caches name, opened by the master.
    ///
    /// # Errors
    /// Levels of a cache that were changed; a device that was not opened; the cache manager's thread cannot be started.
    pub fn equip(
        &self,
        settings: &Settings,
        devices: &[(PathBuf, Arc<OwnedFd>)],
    ) -> Result<(), String> {
        let mut known = self.caches.lock();
        known.retain(|cache| cache.strong_count() > 0);
        let mut all = Vec::new();
        for zone in settings.made::<Zones>().all() {
            let mut open = known.iter().filter_map(Weak::upgrade);
            let open = open.find(|cache| cache.zone.directory == zone.directory);
            all.push(match open {
                Some(cache) => cache.may_become(zone).map(|()| cache)?,
                None => {
                    let cache = Arc::new(Cache::new(zone, &self.disk, device_of(zone, devices)?));
                    known.push(Arc::downgrade(&cache));
                    self.manager()?.keep(&cache);
                    cache
                }
            });
        }
        // A second call brings the same.
        let _ = settings.made::<Caches>().0.set(all);
        Ok(())
    }

    /// Gives the caches the limits of a configuration that is served now. To be called behind [`Registry::equip`].
    pub fn settle(&self, settings: &Settings) {
        let caches = settings.made::<Caches>().0.get();
        let zones = settings.made::<Zones>().all();
        for (cache, zone) in caches.into_iter().flatten().zip(zones) {
            cache.adjust(zone);
        }
    }

    fn manager(&self) -> Result<&CacheManager, String> {
        if let Some(manager) = self.manager.get() {
            return Ok(manager);
        }
        let manager = CacheManager::start(&self.disk)
            .map_err(|error| format!("the caches' thread cannot be started ({error})"))?;
        Ok(self.manager.get_or_init(|| manager))
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

    /// Leaves the directories to another process, which waits for them: at once, but for fills that end soon. Does not
    /// wait itself.
    pub fn give_up(&self) {
        if let Some(manager) = self.manager.get() {
            manager.give_up(self.all());
        }
    }

    /// Compacts every cache's journal, after the last write; waits at most this long (a disk may hang).
    pub fn close(&self, patience: Duration) {
        if let Some(manager) = self.manager.get() {
            manager.close(self.all(), patience);
        }
    }
}
