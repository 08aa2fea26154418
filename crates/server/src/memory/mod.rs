//! The worker's memory: its bounds, and what is given up when it is scarce.
//!
//! * [`directives`]: the directive `memory_budget`.
//! * [`watch`]: the thread that asks the kernel, sets the level, logs it, and tells the loops.
//! * [`alarms`]: the kernel's events that wake that thread.
//! * [`floor`]: the minimum of memory.
//! * [`heaps`]: the allocator's arenas, where there is little memory.
//! * [`score`]: the OOM killer's choice, where all of that is not enough.
//! * [`metrics`]: the memory by owner.
//!
//! Not here: the accounts and their bounds ([`disk::memory`]), and what a loop gives up ([`runtime::loops`]). Invariant: no loop waits for any of this; a loop gives
//! up little at a time, and no request is lost for it.

pub(crate) mod alarms;
pub(crate) mod directives;
pub(crate) mod floor;
pub(crate) mod heaps;
pub(crate) mod metrics;
pub(crate) mod score;
pub(crate) mod watch;

use std::time::{Duration, Instant};

use disk::memory::level::LEVELS;
use disk::metrics::Number;
use parking_lot::Mutex;
use slots::slotted;

use directives::MemoryBudget;
use disk::memory::limits::MemoryLimit;
use runtime::{Ledger, PARTS};

slotted!(PARTS: Memory);

/// The state that the thread shares with its readers.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// `memory_budget`.
    wish: Mutex<MemoryBudget>,
    /// The lowest bound.
    limit: Mutex<Option<MemoryLimit>>,
    /// Number of times that each level began.
    begun: [Number; LEVELS.len()],
    /// Processes of the control group that the kernel killed while this one watched.
    kills: Number,
    /// When a configuration began to be served whose making may have left something to be given back.
    configured: Mutex<Option<Instant>>,
}

/// The state of a worker's memory.
pub(crate) fn of(ledger: &Ledger) -> &Memory {
    ledger.part()
}

impl Memory {
    /// A configuration is served from now on; the thread applies it at its next look.
    pub(crate) fn configure(&self, budget: MemoryBudget, loops: usize) {
        *self.wish.lock() = budget;
        *self.configured.lock() = Some(Instant::now());
        self.settle();
        if let Some(limit) = self.limit.lock().as_ref() {
            floor::warn(limit, loops);
        }
    }

    /// Whether a configuration has been served for so long, once for each.
    fn has_settled(&self, time: Duration) -> bool {
        let configured = &mut *self.configured.lock();
        let is_due = configured.is_some_and(|at| at.elapsed() >= time);
        if is_due {
            *configured = None;
        }
        is_due
    }

    /// Applies the current budget.
    fn settle(&self) {
        let limit = self.limit.lock().as_ref().map(|limit| limit.bytes);
        let budget = match (*self.wish.lock(), limit) {
            (MemoryBudget::Bytes(bytes), _) => bytes,
            (MemoryBudget::Auto, Some(limit)) => disk::memory::of_limit(limit),
            (MemoryBudget::Auto, None) => u64::MAX,
        };
        disk::memory::set_budget(budget);
    }
}
