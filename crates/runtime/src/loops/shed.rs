//! What a loop gives up when memory is scarce: in small steps, with a yield to other tasks between them.
//!
//! Not here: when. Invariant: everything that is given up can be had again; no request depends on
//! it.

use std::rc::Rc;

use disk::memory::MemoryLevel;
use disk::memory::level::level;

use super::Loop;
use crate::timing::yield_turn;

/// Bodies, files and connections that are let go of before the others get their turn: 5 µs each.
const STEP: usize = 16;

/// Lets go of what the level says, as long as that holds.
pub(super) async fn run(loop_: Rc<Loop>) {
    if level() >= MemoryLevel::Buffers {
        loop_.free_spare_memory();
        loop_.wire.give_back();
    }
    while level() > MemoryLevel::None && loop_.disk.shed(STEP) {
        yield_turn::others_first().await;
    }
    while level() >= MemoryLevel::Accept && loop_.idle.close_unused(STEP) > 0 {
        yield_turn::others_first().await;
    }
}
