//! What HTTP has on one loop: the configuration for what begins now, and ready responses.
//!
//! Not here: what a loop has for every protocol ([`Loop`]), connections. Invariant: it never leaves its loop's thread,
//! and holds no reference to the loop.

pub mod generation;
pub mod ready_files;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use runtime::Loop;

use crate::status_zone::Zones;

use generation::Generation;
use ready_files::ReadyFiles;

/// The state of HTTP on one loop.
#[derive(Debug)]
pub struct HttpLoop {
    generation: RefCell<Rc<Generation>>,
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

    /// Takes another configuration, for what begins from now on.
    pub fn configure(&self, generation: Generation) {
        *self.generation.borrow_mut() = Rc::new(generation);
    }
}
