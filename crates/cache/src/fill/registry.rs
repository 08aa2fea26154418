//! The fills that are running, by key.

use super::{Fill, FillKey, Filler};
use crate::key::Key;
use crate::purge::tags_of;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicU64, Ordering::Relaxed};

/// The fills of a cache, shared by all loops. Looked at on misses only.
#[derive(Clone, Debug, Default)]
pub struct Fills(Arc<FillRegistry>);

#[derive(Debug, Default)]
pub(super) struct FillRegistry {
    running: Mutex<HashMap<[u8; 16], Fill>>,
    /// Fills whose body is complete and whose entry is not in the index yet.
    complete: AtomicIsize,
    begun: AtomicU64,
    forgotten: AtomicU64,
}

/// The order in which fills began, relative to other fills and to forgets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BeginStamp {
    /// Number of fills that began before.
    begun: u64,
    /// Number of forgets before.
    forgotten: u64,
}

/// The part that a miss takes in a fill.
#[derive(Debug)]
pub enum Role {
    /// Ask the origin, for all followers.
    Fill(Filler),
    /// Follow the fill that is running, with [`Fill::follow`].
    Follow(Fill),
}

impl Fills {
    /// Joins the fill of a key, or begins one with a window of `window_bytes`: also where the first bytes of the running
    /// one are gone, because it is not stored any more.
    #[must_use]
    pub fn join(&self, key: FillKey, window_bytes: usize) -> Role {
        match self.0.running.lock().entry(key.key.0) {
            Entry::Occupied(running) if running.get().has_all() => {
                Role::Follow(running.get().clone())
            }
            Entry::Occupied(mut running) => {
                let filler = self.filler(key, window_bytes, false);
                running.insert(filler.fill.clone());
                Role::Fill(filler)
            }
            Entry::Vacant(vacant) => {
                let filler = self.filler(key, window_bytes, false);
                vacant.insert(filler.fill.clone());
                Role::Fill(filler)
            }
        }
    }

    /// Begins a fill although one is running (`proxy_cache_lock_age`): later requests follow the new one.
    pub fn take_over(&self, key: FillKey, window_bytes: usize) -> Filler {
        let filler = self.filler(key, window_bytes, false);
        let mut running = self.0.running.lock();
        running.insert(filler.fill.key().0, filler.fill.clone());
        drop(running);
        filler
    }

    /// Begins a fill that no request joins before its body is complete (`proxy_cache_lock off`).
    pub fn alone(&self, key: FillKey, window_bytes: usize) -> Filler {
        self.filler(key, window_bytes, true)
    }

    /// The fill of a key, if one is running.
    #[must_use]
    pub fn running(&self, key: &Key) -> Option<Fill> {
        self.0.running.lock().get(&key.0).cloned()
    }

    /// Closes the fills of a key, in all its variants, to new followers; the present ones go on. For a purge: a response
    /// that was requested before it is not for requests that come after.
    pub fn forget_key(&self, main: &Key) {
        self.forget(|fill| fill.0.key.main == *main);
    }

    /// As [`Fills::forget_key`], for the keys whose text begins with `prefix`.
    pub fn forget_prefix(&self, prefix: &[u8]) {
        self.forget(|fill| fill.0.key.text.starts_with(prefix));
    }

    /// As [`Fills::forget_key`], for responses with one of these tags (in any case), and for those whose head has not
    /// arrived.
    pub fn forget_tags(&self, tags: &[Vec<u8>]) {
        let mut sorted: Vec<_> = tags.iter().map(|tag| tag.to_ascii_lowercase()).collect();
        sorted.sort_unstable();
        let is_named = |tag: &[u8]| {
            let lower = || tag.iter().map(u8::to_ascii_lowercase);
            let found = sorted.binary_search_by(|known| known.iter().copied().cmp(lower()));
            found.is_ok()
        };
        self.forget(|fill| match &fill.0.state.lock().head {
            None => true,
            Some(head) => head
                .iter()
                .any(|(name, value, _)| tags_of(name, value).any(is_named)),
        });
    }

    fn forget(&self, is_covered: impl Fn(&Fill) -> bool) {
        self.0.forgotten.fetch_add(1, Relaxed);
        let mut running = self.0.running.lock();
        running.retain(|_, fill| !is_covered(fill));
    }

    /// Is there a fill whose body is complete, and whose entry is not in the index yet? Then an entry found in the
    /// index may not be the newest. Takes no lock.
    #[must_use]
    pub fn has_complete(&self) -> bool {
        self.0.complete.load(Relaxed) > 0
    }

    /// Fills begun so far.
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.0.begun.load(Relaxed)
    }

    /// Running fills that requests can join.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.running.lock().len()
    }

    /// Is there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn filler(&self, key: FillKey, window_bytes: usize, is_alone: bool) -> Filler {
        let number = BeginStamp {
            begun: self.0.begun.fetch_add(1, Relaxed),
            forgotten: self.0.forgotten.load(Relaxed),
        };
        let registry = Arc::downgrade(&self.0);
        Filler::new(key, window_bytes, registry, number, is_alone)
    }
}

impl FillRegistry {
    pub(crate) fn count_complete(&self, more: isize) {
        if more != 0 {
            self.complete.fetch_add(more, Relaxed);
        }
    }

    /// Lists a fill that was alone, unless a newer complete one is listed. (If any fill was forgotten since this one
    /// began, it may have been this one: it is not listed.)
    pub(super) fn list(&self, fill: &Fill) {
        let mut running = self.running.lock();
        if fill.0.number.forgotten != self.forgotten.load(Relaxed) {
            return;
        }
        let is_newer =
            |other: &Fill| other.is_complete() && other.0.number.begun > fill.0.number.begun;
        if !running.get(&fill.key().0).is_some_and(is_newer) {
            running.insert(fill.key().0, fill.clone());
        }
    }

    /// Removes a fill from the list; a fill that replaced it stays.
    pub(super) fn remove(&self, fill: &Fill) {
        let key = fill.key().0;
        let mut running = self.running.lock();
        if running.get(&key).is_some_and(|running| running.is(fill)) {
            running.remove(&key);
        }
    }
}
