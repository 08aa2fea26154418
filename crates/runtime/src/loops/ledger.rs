//! The list of the loops of a worker, and what else their metrics are counted in.
//!
//! Invariant: the lock is held for copying or finding pointers only; no loop waits for a reader of metrics.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use slots::{SharedTable, Slotted};

use super::LoopHandle;
use crate::metrics::stalls::Stalls;
use crate::timing::LoopFigures;
use crate::timing::counters::{Counters, PerLoop};

/// Maximum number of types that a worker keeps a value of in [`Ledger::parts`].
const PARTS_MAX: usize = 8;

/// The family of these types: `slotted!(PARTS: …)`.
pub static PARTS: slots::Family = slots::Family::new();

/// The list of the loops of a worker.
#[derive(Debug, Default)]
pub struct Ledger {
    loops: Mutex<Vec<Entry>>,
    /// Polls that took too long.
    pub stalls: Arc<Stalls>,
    /// What a worker counts once for all of its loops, by type.
    parts: SharedTable<PARTS_MAX>,
}

/// A loop that runs, or has run.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) figures: Arc<LoopFigures>,
    /// The part of the loop that other threads see, while it runs.
    handle: Weak<LoopHandle>,
}

impl Entry {
    pub(super) fn is_alive(&self) -> bool {
        self.handle.strong_count() > 0
    }

    pub(super) fn connections(&self) -> u64 {
        let handle = self.handle.upgrade();
        handle.map_or(0, |handle| u64::from(handle.clients()))
    }
}

impl Ledger {
    /// The figures of a new loop: those of the last loop of this number, if that has ended.
    #[must_use]
    pub fn begin_loop(&self, index: usize) -> Arc<LoopFigures> {
        let mut loops = self.loops.lock();
        // With no other holder: the thread that wrote them is gone, and no reader adds them up.
        let free = loops
            .iter_mut()
            .filter(|entry| entry.figures.index == index)
            .find_map(|entry| {
                Arc::get_mut(&mut entry.figures)
                    .is_some()
                    .then_some(&*entry)
            });
        if let Some(entry) = free {
            return Arc::clone(&entry.figures);
        }
        let stalls = Arc::clone(&self.stalls);
        let figures = Arc::new(LoopFigures::new(index, loops.len(), stalls));
        loops.push(Entry {
            figures: Arc::clone(&figures),
            handle: Weak::new(),
        });
        figures
    }

    /// The loop with these figures runs.
    pub fn run_loop(&self, figures: &Arc<LoopFigures>, handle: &Arc<LoopHandle>) {
        let mut loops = self.loops.lock();
        let entry = loops
            .iter_mut()
            .find(|entry| Arc::ptr_eq(&entry.figures, figures));
        if let Some(entry) = entry {
            entry.handle = Arc::downgrade(handle);
        }
    }

    /// Memory is scarce: tells each loop to give up what it can do without.
    pub fn tell_loops_to_shed(&self) {
        let loops = self.loops.lock().clone();
        for handle in loops.iter().filter_map(|entry| entry.handle.upgrade()) {
            handle.tell_to_shed();
        }
    }

    /// All loops that run or have run. A copy: adding up takes long, and a loop may begin meanwhile.
    pub(super) fn entries(&self) -> Vec<Entry> {
        self.loops.lock().clone()
    }

    /// Looks at all of them, under the lock.
    pub(super) fn each(&self, mut look: impl FnMut(&Entry)) {
        self.loops.lock().iter().for_each(&mut look);
    }

    /// What all loops have counted of a kind.
    #[must_use]
    pub fn counters<T: Counters>(&self) -> PerLoop<T> {
        PerLoop::of(self.entries().into_iter().map(|entry| entry.figures))
    }

    /// The worker's value of a type, made at the first use.
    pub fn part<T: Slotted + Default + Send + Sync>(&self) -> &T {
        self.parts.get_or_init(T::default)
    }

    /// The same, for a holder that outlives the borrow.
    #[must_use]
    pub fn share_part<T: Slotted + Default + Send + Sync>(&self) -> Arc<T> {
        self.parts.share_or_init(T::default)
    }
}
