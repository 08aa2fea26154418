//! The disk layer of one loop: everything that needs no lock.

use crate::count::{Count, Counters, OPERATIONS};
use crate::disk::Disk;
use crate::pool;
use std::rc::Rc;
use std::sync::Arc;

/// One loop's handle on the disk layer; cheap to clone, bound to its thread.
#[derive(Clone, Debug)]
pub struct Local(pub(crate) Rc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub disk: Arc<Disk>,
    pub counters: Counters,
}

impl Local {
    /// Makes a loop's part and starts the task that collects what pools have finished. Call it inside the loop's
    /// `LocalRuntime` (or a `LocalSet`), once per loop.
    #[must_use]
    pub fn new(disk: &Arc<Disk>) -> Local {
        tokio::task::spawn_local(pool::deliver());
        Local(Rc::new(Inner {
            disk: disk.clone(),
            counters: Counters::default(),
        }))
    }

    /// What all loops share.
    #[must_use]
    pub fn disk(&self) -> &Arc<Disk> {
        &self.0.disk
    }

    /// This loop's numbers, in the order of [`OPERATIONS`].
    #[must_use]
    pub fn counts(&self) -> [Count; OPERATIONS.len()] {
        self.0.counters.get()
    }
}
