//! Open files and errors that may be out of date for a while.
//!
//! Only for callers that ask for it; without it this crate keeps files exactly (see `open_files`). One per loop and
//! group of callers. Invariant: at most `max` entries; none older than `valid` is used.

use crate::files::error::Error;
use crate::files::open_file::OpenFile;
use hashbrown::HashMap;
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The settings of such a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFileCacheSettings {
    /// Entries at most; the least recently used one makes room.
    pub max: usize,
    /// An entry that was not used for this long is removed.
    pub inactive: Duration,
    /// How long an entry is used without a check.
    pub valid: Duration,
    /// A file with fewer uses (while its entry lives) does not stay open.
    pub min_uses: u32,
    /// Are errors kept too?
    pub errors: bool,
}

/// Inactive entries that one look-up removes at most.
const EXPIRE_MAX: usize = 2;

/// One loop's cache of one location.
#[derive(Debug)]
pub struct OpenFileCache {
    settings: OpenFileCacheSettings,
    table: RefCell<CacheTable>,
}

#[derive(Debug, Default)]
struct CacheTable {
    entries: HashMap<Rc<[u8]>, CacheEntry>,
    /// Paths by last use; the key is a counter, so unique.
    order: BTreeMap<u64, Rc<[u8]>>,
    clock: u64,
}

#[derive(Debug)]
struct CacheEntry {
    /// None: the file has had too few uses to stay open.
    outcome: Option<Result<Rc<OpenFile>, (&'static str, Errno)>>,
    checked: Instant,
    used: Instant,
    uses: u32,
    tick: u64,
}

impl OpenFileCache {
    /// An empty cache.
    #[must_use]
    pub fn new(settings: OpenFileCacheSettings) -> OpenFileCache {
        OpenFileCache {
            settings,
            table: RefCell::default(),
        }
    }

    /// The cached result for a path, which may be out of date.
    pub(crate) fn look_up(&self, path: &[u8]) -> Option<Result<Rc<OpenFile>, Error>> {
        let mut table = self.table.borrow_mut();
        let now = Instant::now();
        table.expire(now, self.settings.inactive);
        let table = &mut *table;
        let (path, _) = table.entries.get_key_value(path)?;
        let path = path.clone();
        let entry = table.entries.get_mut(&path)?;
        table.order.remove(&entry.tick);
        table.clock += 1;
        (entry.used, entry.tick) = (now, table.clock);
        entry.uses = entry.uses.saturating_add(1);
        table.order.insert(entry.tick, path);
        if now - entry.checked >= self.settings.valid {
            return None;
        }
        match entry.outcome.as_ref()? {
            Ok(file) => Some(Ok(file.clone())),
            Err((call, errno)) => Some(Err(Error::system(call, *errno))),
        }
    }

    /// Stores the result of an open.
    pub(crate) fn keep(&self, path: &[u8], found: &Result<Rc<OpenFile>, Error>) {
        let outcome = match found {
            Ok(file) => Ok(file.clone()),
            Err(Error::System { call, errno }) if self.settings.errors => Err((*call, *errno)),
            Err(_) => return self.table.borrow_mut().remove(path),
        };
        let mut table = self.table.borrow_mut();
        let uses = table.entries.get(path).map_or(1, |entry| entry.uses);
        let stays = outcome.is_err() || uses >= self.settings.min_uses;
        table.remove(path);
        while table.entries.len() >= self.settings.max {
            let Some((_, oldest)) = table.order.pop_first() else {
                return;
            };
            table.entries.remove(&oldest);
        }
        let now = Instant::now();
        table.clock += 1;
        let (tick, path) = (table.clock, Rc::<[u8]>::from(path));
        table.order.insert(tick, path.clone());
        table.entries.insert(
            path,
            CacheEntry {
                outcome: stays.then_some(outcome),
                checked: now,
                used: now,
                uses,
                tick,
            },
        );
    }
}

impl CacheTable {
    fn remove(&mut self, path: &[u8]) {
        if let Some(entry) = self.entries.remove(path) {
            self.order.remove(&entry.tick);
        }
    }

    fn expire(&mut self, now: Instant, inactive: Duration) {
        for _ in 0..EXPIRE_MAX {
            let Some((tick, path)) = self.order.first_key_value() else {
                return;
            };
            if self
                .entries
                .get(path)
                .is_none_or(|entry| now - entry.used < inactive)
            {
                return;
            }
            let (tick, path) = (*tick, path.clone());
            self.order.remove(&tick);
            self.entries.remove(&path);
        }
    }
}
