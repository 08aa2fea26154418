//! The metrics of the worker's memory, by owner.
//!
//! Invariant: memory without a known owner is `other`, so that the sum is what the kernel counts for the worker.

use disk::memory::accounts::{HOLDERS, HeldBytes, held};
use disk::memory::level::{LEVELS, level};
use disk::memory::{Holder, budget};
use runtime::families;
use runtime::metrics::Page;

use super::Memory;

families! {
    /// The families of these metrics.
    pub FAMILIES;
    MEMORY_HELD Gauge "freewheel_memory_held_bytes" "bytes" ["holder"] "Memory of the worker besides the page cache, by holder; other is the rest.";
    MEMORY_BUDGET Gauge "freewheel_memory_budget_bytes" "bytes" [] "Budget for that memory (memory_budget); beyond it copies and the like are given up, and requests are still served.";
    MEMORY_LIMIT Gauge "freewheel_memory_limit_bytes" "bytes" [] "The lowest limit of the worker's control groups, of the process and of the machine.";
    MEMORY_LEVEL Gauge "freewheel_memory_scarcity" "" [] "Scarcity of memory: 0 none; given up are: 1 copies, 2 idle buffers, 3 large windows of followers and high levels of compression, 4 open files, 5 storing of fetched responses, 6 accepting connections at full speed.";
    MEMORY_SCARCE Counter "freewheel_memory_scarce" "" ["step"] "How often each of these steps was entered.";
    MEMORY_KILLS Counter "freewheel_memory_kills" "" [] "Processes of the worker's control group that the kernel killed for lack of memory during the worker's life.";
}

/// Minimum bytes that a connection takes: one that waits for a request (`bench/memory`).
const CONNECTION_BYTES: u64 = 1536;

/// Numbers and sizes that only other metrics know.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct OtherCounts {
    /// Connections of clients.
    pub connections: u64,
    /// Bytes of caches' indexes.
    pub index_bytes: u64,
    /// Bytes of the worker's anonymous memory.
    pub anonymous_bytes: u64,
}

/// Shows them.
pub(crate) fn show(memory: &Memory, known: OtherCounts, page: &mut Page) {
    let mut held: HeldBytes = held();
    held[Holder::Connections as usize] += known.connections * CONNECTION_BYTES;
    held[Holder::Index as usize] += known.index_bytes;
    // Neither a file nor mapped: the kernel does not count it as the worker's.
    let copies = held[Holder::Copies as usize];
    let named: u64 = held.iter().sum();
    for (holder, bytes) in HOLDERS.iter().zip(held) {
        page.whole(&MEMORY_HELD, &[holder.name()], bytes);
    }
    let other = (known.anonymous_bytes + copies).saturating_sub(named);
    page.whole(&MEMORY_HELD, &["other"], other);
    if budget() < u64::MAX {
        page.whole(&MEMORY_BUDGET, &[], budget());
    }
    if let Some(limit) = memory.limit.lock().as_ref() {
        page.whole(&MEMORY_LIMIT, &[], limit.bytes);
    }
    page.whole(&MEMORY_LEVEL, &[], level() as u64);
    for (level, begun) in LEVELS.iter().zip(&memory.begun).skip(1) {
        page.whole(&MEMORY_SCARCE, &[level.name()], begun.get());
    }
    page.whole(&MEMORY_KILLS, &[], memory.kills.get());
}
