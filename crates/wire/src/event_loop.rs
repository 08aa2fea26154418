//! What the connections of one loop share: the timeouts, the buffers, the date.
//!
//! Not here: what goes through the buffers ([`crate::connection`]). Invariant: a borrow of a buffer ends before the next `await`.

use std::cell::RefCell;
use std::rc::Rc;

use message::{Date, date};

use crate::clock;
use crate::lending::Lender;
use crate::timers::Wheel;

/// Bytes of the scratch buffer that all connections of a loop read into.
pub const SCRATCH: usize = 128 * 1024;

/// What the connections of one loop share.
pub struct Loop {
    /// The loop's timeouts.
    pub wheel: Rc<Wheel>,
    pub(crate) scratch: RefCell<Box<[u8]>>,
    pub(crate) lender: Lender,
    pub(crate) out: RefCell<Vec<u8>>,
    date: RefCell<Date>,
}

impl Loop {
    /// Spawn `loop_.wheel.clone().run()` on the same runtime.
    pub fn new() -> Rc<Loop> {
        Rc::new(Loop {
            wheel: Wheel::new(),
            scratch: RefCell::new(vec![0; SCRATCH].into()),
            lender: Lender::default(),
            out: RefCell::new(Vec::new()),
            date: RefCell::new(Date::new(clock::unix_seconds())),
        })
    }

    /// Frees buffers that nobody uses: memory is scarce.
    pub fn give_back(&self) {
        self.lender.give_back();
        if let Ok(mut out) = self.out.try_borrow_mut() {
            out.shrink_to(SCRATCH);
        }
    }

    /// The text of `Date` for now.
    pub fn date(&self) -> [u8; date::DATE_LEN] {
        *self.date.borrow_mut().at(clock::unix_seconds())
    }

    /// The scratch buffer, for a read of the caller's own that is done before the next `await` (a small body behind its
    /// head). Nothing of this crate may be called meanwhile.
    pub fn with_scratch<T>(&self, read: impl FnOnce(&mut [u8]) -> T) -> T {
        read(&mut self.scratch.borrow_mut())
    }
}
