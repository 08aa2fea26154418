//! What HTTP has on one loop: the configuration for what begins now, and ready responses.
//!
//! Not here: what a loop has for every protocol ([`Loop`]), connections. Invariant: it never leaves its loop's thread,
//! and holds no reference to the loop.

pub mod generation;
pub mod ready_files;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use runtime::Loop;

use crate::status_zone::Zones;

use generation::Generation;
use ready_files::ReadyFiles;

/// Maximum number of earlier configurations that are kept for the connections of addresses that reloads have removed.
const REMOVED_MAX: usize = 4;

/// How long one is kept: the default `keepalive_timeout`, and more than the default `client_header_timeout`.
pub const REMOVED_KEPT: Duration = Duration::from_secs(75);

/// The state of HTTP on one loop.
#[derive(Debug)]
pub struct HttpLoop {
    generation: RefCell<Rc<Generation>>,
    /// Earlier configurations, each the last one that had some address, the newest last.
    removed: RefCell<Vec<Rc<Generation>>>,
    /// Responses with small files that are ready to be sent.
    pub hot_files: ReadyFiles,
    /// Counters of requests, by `status_zone`: those of all loops.
    pub zones: Arc<Zones>,
    /// Handshakes of TLS that are worked on, or wait for that.
    pub handshakes: Cell<usize>,
}

impl HttpLoop {
    /// The state of a loop that has none yet.
    #[must_use]
    pub fn new(loop_: &Loop, generation: Generation, zones: Arc<Zones>) -> Rc<Self> {
        let http = Rc::new(Self {
            generation: Rc::new(generation).into(),
            removed: RefCell::default(),
            hot_files: ReadyFiles::default(),
            zones,
            handshakes: Cell::new(0),
        });
        let own = Rc::clone(&http);
        loop_.add_spare_memory(move |_| own.hot_files.clear());
        http
    }

    /// The configuration for what begins now. Cheap; keep it for the length of a request.
    #[must_use]
    pub fn generation(&self) -> Rc<Generation> {
        Rc::clone(&self.generation.borrow())
    }

    /// Takes another configuration, for what begins from now on. True: it lacks addresses of the one before, which is
    /// kept until [`HttpLoop::forget_removed`] for the connections that are left of them.
    pub fn configure(&self, generation: Generation) -> bool {
        let generation = Rc::new(generation);
        let before = self.generation.replace(Rc::clone(&generation));
        let listens = &generation.settings.listens;
        let mut entries = before.settings.listens.entries().iter();
        let has_removed = entries.any(|entry| listens.find(&entry.address).is_none());
        if has_removed {
            let mut removed = self.removed.borrow_mut();
            if removed.len() == REMOVED_MAX {
                removed.remove(0);
            }
            removed.push(before);
        }
        has_removed
    }

    /// Whether a reload removed addresses lately.
    #[inline]
    #[must_use]
    pub fn has_removed(&self) -> bool {
        !self.removed.borrow().is_empty()
    }

    /// The newest of the configurations that are kept for removed addresses for which this holds.
    pub fn removed(&self, is_it: impl Fn(&Generation) -> bool) -> Option<Rc<Generation>> {
        let removed = self.removed.borrow();
        removed.iter().rev().find(|it| is_it(it)).cloned()
    }

    /// Drops the kept configurations that are older than this one.
    pub fn forget_removed(&self, number: u64) {
        self.removed.borrow_mut().retain(|it| it.number >= number);
    }
}
