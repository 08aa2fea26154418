//! Open files and errors that may be out of date for a while.
//!
//! Only for callers that ask for it; without it this crate keeps files exactly (see `open_files`). One per loop and
//! group of callers. Invariants: at most `max` entries; none older than `valid` is used; the bodies that a loop's caches
//! keep beside the table of open files take no more than that table's may.

use crate::files::error::Error;
use crate::files::open_file::OpenFile;
use crate::keeping::open_files::body_bytes_max;
use crate::memory::{Charge, Holder, charge};
use hashbrown::HashMap;
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
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

thread_local! {
    /// Bytes of all [`KeptBody`] of this loop.
    static KEPT: Cell<usize> = const { Cell::new(0) };
}

/// The memory of a body that is kept here only: its file is not in the table of open files.
#[derive(Debug)]
struct KeptBody {
    bytes: usize,
    _charge: Charge,
}

impl KeptBody {
    /// None: there is no room for a body of this length.
    fn of(len: usize) -> Option<Self> {
        let kept = KEPT.get() + len;
        (kept <= body_bytes_max()).then(|| {
            KEPT.set(kept);
            let _charge = charge(Holder::Bodies, len);
            Self {
                bytes: len,
                _charge,
            }
        })
    }
}

impl Drop for KeptBody {
    fn drop(&mut self) {
        KEPT.set(KEPT.get() - self.bytes);
    }
}

/// What is kept of a file: without its body where that is in no account and has no room.
fn to_keep(file: &Rc<OpenFile>) -> (Rc<OpenFile>, Option<KeptBody>) {
    let is_counted = file.place.get().is_some();
    let body = file.body().filter(|_| !is_counted);
    let Some(body) = body else {
        return (Rc::clone(file), None);
    };
    match KeptBody::of(body.len()) {
        Some(kept) => (Rc::clone(file), Some(kept)),
        None => (Rc::new(file.grown(file.meta().len)), None),
    }
}

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
    _body: Option<KeptBody>,
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
        let error = match found {
            Ok(_) => None,
            Err(Error::System { call, errno }) if self.settings.errors => Some((*call, *errno)),
            Err(_) => return self.table.borrow_mut().remove(path),
        };
        let mut table = self.table.borrow_mut();
        let uses = table.entries.get(path).map_or(1, |entry| entry.uses);
        let stays = error.is_some() || uses >= self.settings.min_uses;
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
        let (outcome, body) = match (found, error) {
            (_, Some(error)) => (Some(Err(error)), None),
            (Ok(file), None) if stays => {
                let (file, body) = to_keep(file);
                (Some(Ok(file)), body)
            }
            _ => (None, None),
        };
        table.entries.insert(
            path,
            CacheEntry {
                outcome,
                _body: body,
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

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may wait for a disk")]
mod tests {
    use super::*;
    use crate::Access;
    use crate::tests::{block_on, local};
    use bytes::Bytes;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn bodies_that_the_table_of_open_files_has_not_are_kept_as_far_as_there_is_room() {
        block_on(async {
            let (local, pool) = local();
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a");
            std::fs::write(&path, [7; 100]).unwrap();
            let path = path.as_os_str().as_bytes();
            let file = local.open(path, &Access::new(&pool)).await.unwrap();
            local.0.files.borrow_mut().shrink(0);
            file.set_body(&Bytes::from_static(&[7; 100]));
            let cache = OpenFileCache::new(OpenFileCacheSettings {
                max: 10,
                inactive: Duration::from_secs(60),
                valid: Duration::from_secs(60),
                min_uses: 1,
                errors: false,
            });
            let body = |cache: &OpenFileCache| cache.look_up(path).unwrap().unwrap().body();
            cache.keep(path, &Ok(Rc::clone(&file)));
            assert_eq!(
                (body(&cache).map(|body| body.len()), KEPT.get()),
                (Some(100), 100)
            );
            let all = KeptBody::of(body_bytes_max() - 100).unwrap();
            cache.keep(b"/another", &Ok(Rc::clone(&file)));
            let other = cache.look_up(b"/another").unwrap().unwrap();
            assert!(other.body().is_none() && file.body().is_some());
            drop((all, cache));
            assert_eq!(KEPT.get(), 0);
        });
    }

    #[test]
    fn what_the_table_of_open_files_lets_go_of_has_no_body() {
        block_on(async {
            let (local, pool) = local();
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a");
            std::fs::write(&path, [7; 100]).unwrap();
            // A file that has just been changed is not kept.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let path = path.as_os_str().as_bytes();
            let file = local.open(path, &Access::new(&pool)).await.unwrap();
            file.set_body(&Bytes::from_static(&[7; 100]));
            assert!(file.place.get().is_some());
            local.0.files.borrow_mut().shrink(0);
            assert!(file.body().is_none() && file.place.get().is_none());
        });
    }
}
