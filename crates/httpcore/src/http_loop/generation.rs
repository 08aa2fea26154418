//! One configuration as a loop sees it.
//!
//! Not here: its settings ([`crate::settings`]). Invariant: it never leaves its loop; it is freed with the last request
//! that began with it.

use std::cell::OnceCell;
use std::sync::Arc;

use disk::OpenFileCache;

use crate::route::LocationId;
use crate::settings::Settings;
use crate::status_zone::ZoneFigures;

/// One configuration as a loop sees it. A loop swaps its `Rc` of it on reload; a request keeps the one that it began
/// with.
#[derive(Debug)]
pub struct Generation {
    /// Number of the configuration: this master counts them from 1.
    pub number: u64,
    /// The configuration.
    pub settings: Arc<Settings>,
    /// This loop's counters of each `status_zone`, once it was used.
    zones: Vec<OnceCell<Arc<ZoneFigures>>>,
    /// This loop's caches of `open_file_cache`, each made on first use.
    stale_files: Vec<OnceCell<OpenFileCache>>,
}

impl Generation {
    /// A configuration for one loop.
    #[must_use]
    pub fn new(number: u64, settings: Arc<Settings>) -> Self {
        let mut stale_files = Vec::new();
        stale_files.resize_with(settings.stale_files, OnceCell::new);
        let mut zones = Vec::new();
        zones.resize_with(settings.status_zones.len(), OnceCell::new);
        Self {
            zones,
            number,
            settings,
            stale_files,
        }
    }

    /// This loop's counters of a zone.
    pub fn zone(&self, zone: usize, find: impl FnOnce() -> Arc<ZoneFigures>) -> &Arc<ZoneFigures> {
        self.zones[zone].get_or_init(find)
    }

    /// The location's `open_file_cache`, unless it is off.
    #[must_use]
    pub fn stale_files(&self, location: LocationId) -> Option<&OpenFileCache> {
        let location = self.settings.location(location);
        let place = &self.stale_files[location.stale_files?];
        if place.get().is_none() {
            let settings = location.settings.files.stale()?;
            return Some(place.get_or_init(|| OpenFileCache::new(settings)));
        }
        place.get()
    }
}
