//! The worker's memory by owner, as figures.
//!
//! Invariant: memory without a known owner is `other`, so that the sum is what the kernel counts for the worker.

use disk::memory::accounts::{HOLDERS, Held, held};
use disk::memory::level::{LEVELS, level};
use disk::memory::{Holder, budget};

use super::Memory;
use crate::metrics::{Family, Page};

/// Minimum bytes that a connection takes: one that waits for a request (`bench/memory`).
const CONNECTION_BYTES: u64 = 1536;

/// Numbers and sizes that only the figures know.
#[derive(Debug, Default, Clone, Copy)]
pub struct Known {
    /// Connections of clients.
    pub connections: u64,
    /// Bytes of caches' indexes.
    pub index_bytes: u64,
    /// Bytes of the worker's anonymous memory.
    pub anonymous_bytes: u64,
}

/// All that there is to show.
pub fn add(page: &mut Page, memory: &Memory, known: Known) {
    let mut held: Held = held();
    held[Holder::Connections as usize] += known.connections * CONNECTION_BYTES;
    held[Holder::Index as usize] += known.index_bytes;
    // Neither a file nor mapped: the kernel does not count it as the worker's.
    let copies = held[Holder::Copies as usize];
    let named: u64 = held.iter().sum();
    for (holder, bytes) in HOLDERS.iter().zip(held) {
        page.whole(Family::MemoryHeld, &[holder.name()], bytes);
    }
    let other = (known.anonymous_bytes + copies).saturating_sub(named);
    page.whole(Family::MemoryHeld, &["other"], other);
    if budget() < u64::MAX {
        page.whole(Family::MemoryBudget, &[], budget());
    }
    if let Some(limit) = memory.limit.lock().as_ref() {
        page.whole(Family::MemoryLimit, &[], limit.bytes);
    }
    page.whole(Family::MemoryLevel, &[], level() as u64);
    for (level, begun) in LEVELS.iter().zip(&memory.begun).skip(1) {
        page.whole(Family::MemoryScarce, &[level.name()], begun.get());
    }
    page.whole(Family::MemoryKills, &[], memory.kills.get());
}
