//! The state that the connections of one loop share: timeouts, buffers, the date.
//!
//! Not here: the content of the buffers ([`crate::connection`]). Invariant: no borrow of a buffer outlives the next
//! `await`.

use std::cell::RefCell;
use std::rc::Rc;

use message::{Date, date};

use crate::loop_clock;
use crate::read_buffers::{ReadBuffers, SCRATCH};
use crate::timers::Wheel;

/// The state that the connections of one loop share.
pub struct Loop {
    /// The loop's timeouts.
    pub wheel: Rc<Wheel>,
    pub(crate) scratch: RefCell<Box<[u8]>>,
    pub(crate) read_buffers: ReadBuffers,
    pub(crate) out: RefCell<Vec<u8>>,
    date: RefCell<Date>,
}

impl Loop {
    /// Creates the state. Spawn [`Wheel::run`] of its wheel on the same runtime.
    pub fn new() -> Rc<Loop> {
        Rc::new(Loop {
            wheel: Wheel::new(),
            scratch: RefCell::new(vec![0; SCRATCH].into()),
            read_buffers: ReadBuffers::default(),
            out: RefCell::new(Vec::new()),
            date: RefCell::new(Date::new(loop_clock::unix_seconds())),
        })
    }

    /// Frees unused buffers, because memory is scarce.
    pub fn give_back(&self) {
        self.read_buffers.give_back();
        if let Ok(mut out) = self.out.try_borrow_mut() {
            out.shrink_to(SCRATCH);
        }
    }

    /// The current text of the `Date` header.
    pub fn date(&self) -> [u8; date::DATE_LEN] {
        *self.date.borrow_mut().at(loop_clock::unix_seconds())
    }

    /// Lends the scratch buffer for a read by the caller (a small body after its head), which must end before the next
    /// `await`. `read` must not call into this crate.
    pub fn with_scratch<T>(&self, read: impl FnOnce(&mut [u8]) -> T) -> T {
        read(&mut self.scratch.borrow_mut())
    }
}
