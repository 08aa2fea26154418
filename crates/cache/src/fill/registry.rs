//! Which keys are being filled now.

use super::{Fill, Filler};
use crate::key::Key;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicU64, Ordering::Relaxed};

/// The fills of a cache, shared by all loops. Looked at on misses only.
#[derive(Clone, Debug, Default)]
pub struct Fills(Arc<Registry>);

#[derive(Debug, Default)]
pub(super) struct Registry {
    running: Mutex<HashMap<[u8; 16], Fill>>,
    /// Fills whose body is whole, and whose entry nobody finds yet.
    complete: AtomicIsize,
    begun: AtomicU64,
    forgotten: AtomicU64,
}

/// When a fill began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BeginStamp {
    /// So many had begun before.
    begun: u64,
    /// So often some had been forgotten.
    forgotten: u64,
}

/// What a miss has to do.
#[derive(Debug)]
pub enum Role {
    /// Ask the origin, for everybody.
    Fill(Filler),
    /// Somebody is asking: [`Fill::follow`].
    Follow(Fill),
}

impl Fills {
    /// Joins the fill of a key, or begins one with a window of so many bytes.
    #[must_use]
    pub fn join(&self, key: Key, window_bytes: usize) -> Role {
        match self.0.running.lock().entry(key.0) {
            Entry::Occupied(running) => Role::Follow(running.get().clone()),
            Entry::Vacant(vacant) => {
                let filler = self.filler(key, window_bytes, false);
                vacant.insert(filler.fill.clone());
                Role::Fill(filler)
            }
        }
    }

    /// Begins a fill though there is one (`proxy_cache_lock_age`): who comes from now on follows the new one.
    pub fn take_over(&self, key: Key, window_bytes: usize) -> Filler {
        let filler = self.filler(key, window_bytes, false);
        self.0.running.lock().insert(key.0, filler.fill.clone());
        filler
    }

    /// Begins a fill that nobody joins before its body is whole (`proxy_cache_lock off`).
    pub fn alone(&self, key: Key, window_bytes: usize) -> Filler {
        self.filler(key, window_bytes, true)
    }

    /// Is a key being filled?
    #[must_use]
    pub fn running(&self, key: &Key) -> Option<Fill> {
        self.0.running.lock().get(&key.0).cloned()
    }

    /// From now on, nobody joins the fill of this key; who follows it goes on. For a purge: what was asked for before it is not
    /// for those who come after.
    pub fn forget(&self, key: &Key) {
        self.0.forgotten.fetch_add(1, Relaxed);
        self.0.running.lock().remove(&key.0);
    }

    /// From now on, nobody joins any fill that runs now. For a purge of which it is not known which keys it covers.
    pub fn forget_all(&self) {
        self.0.forgotten.fetch_add(1, Relaxed);
        self.0.running.lock().clear();
    }

    /// Is there a fill whose body is whole, and whose entry nobody finds yet? Then what is found may not be the newest. Takes no
    /// lock.
    #[must_use]
    pub fn has_complete(&self) -> bool {
        self.0.complete.load(Relaxed) > 0
    }

    /// Fills that were begun so far.
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.0.begun.load(Relaxed)
    }

    /// Fills now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.running.lock().len()
    }

    /// No fill now?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn filler(&self, key: Key, window_bytes: usize, is_alone: bool) -> Filler {
        let number = BeginStamp {
            begun: self.0.begun.fetch_add(1, Relaxed),
            forgotten: self.0.forgotten.load(Relaxed),
        };
        let registry = Arc::downgrade(&self.0);
        Filler::new(key, window_bytes, registry, number, is_alone)
    }
}

impl Registry {
    pub fn count_complete(&self, more: isize) {
        if more != 0 {
            self.complete.fetch_add(more, Relaxed);
        }
    }

    /// Lets others join a fill that was alone, unless they have a newer one that is whole. (Where any was forgotten since it began, it
    /// might have been this one.)
    pub fn list(&self, fill: &Fill) {
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

    /// Forgets a fill; one that took its place stays.
    pub fn remove(&self, fill: &Fill) {
        let key = fill.key().0;
        let mut running = self.running.lock();
        if running.get(&key).is_some_and(|running| running.is(fill)) {
            running.remove(&key);
        }
    }
}
