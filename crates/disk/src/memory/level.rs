//! The level of scarcity of memory, and what is given up at each: one number that one thread writes and all read.
//!
//! Invariant: a level includes all those before it.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// What is given up at a level, together with everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum MemoryLevel {
    /// Nothing.
    None,
    /// Copies of what is in the kernel's cache.
    Copies,
    /// Idle buffers and prepared responses.
    Buffers,
    /// Large windows of followers and high levels of compression: they become small.
    Windows,
    /// Files that are kept open.
    Files,
    /// Storing fetched responses: they pass through.
    Fills,
    /// Taking connections at any speed.
    Accept,
}

/// All levels, lowest first.
pub const LEVELS: [MemoryLevel; 7] = [
    MemoryLevel::None,
    MemoryLevel::Copies,
    MemoryLevel::Buffers,
    MemoryLevel::Windows,
    MemoryLevel::Files,
    MemoryLevel::Fills,
    MemoryLevel::Accept,
];

static LEVEL: AtomicU8 = AtomicU8::new(0);

/// The current level.
#[must_use]
pub fn level() -> MemoryLevel {
    LEVELS[usize::from(LEVEL.load(Relaxed)).min(LEVELS.len() - 1)]
}

/// Sets the level; returns the previous one.
pub fn set_level(level: MemoryLevel) -> MemoryLevel {
    let before = LEVEL.swap(level as u8, Relaxed);
    LEVELS[usize::from(before).min(LEVELS.len() - 1)]
}

impl MemoryLevel {
    /// Its name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            MemoryLevel::None => "none",
            MemoryLevel::Copies => "copies",
            MemoryLevel::Buffers => "buffers",
            MemoryLevel::Windows => "windows",
            MemoryLevel::Files => "files",
            MemoryLevel::Fills => "fills",
            MemoryLevel::Accept => "accept",
        }
    }

    /// The log's text for this level.
    #[must_use]
    pub fn says(self) -> &'static str {
        match self {
            MemoryLevel::None => "nothing is given up any more",
            MemoryLevel::Copies => "copies of small files are given up",
            MemoryLevel::Buffers => "idle buffers and prepared answers are given up",
            MemoryLevel::Windows => {
                "answers that are being fetched are held back closer to their readers"
            }
            MemoryLevel::Files => "files are not kept open",
            MemoryLevel::Fills => "answers pass through caches and are not stored",
            MemoryLevel::Accept => {
                "connections are taken slowly, and those that were not used for a while are closed"
            }
        }
    }
}

/// The free part of a limit, in thousandths, below which each level begins.
const FREE: [(u64, MemoryLevel); 6] = [
    (30, MemoryLevel::Accept),
    (60, MemoryLevel::Fills),
    (90, MemoryLevel::Files),
    (120, MemoryLevel::Windows),
    (160, MemoryLevel::Buffers),
    (220, MemoryLevel::Copies),
];
/// The same for the budget, without [`MemoryLevel::Accept`]: requests over the budget are served all the same.
const FREE_OF_BUDGET: [(u64, MemoryLevel); 5] = [
    (10, MemoryLevel::Fills),
    (40, MemoryLevel::Files),
    (70, MemoryLevel::Windows),
    (100, MemoryLevel::Buffers),
    (150, MemoryLevel::Copies),
];
/// Bytes of a limit at most, for judging its free part: a machine with a few hundred MiB left is not short of memory
/// because it has many GiB.
const JUDGED_MAX: u64 = 2 << 30;
/// Hysteresis in thousandths: this much more must be free before a level ends.
const SLACK: u64 = 40;

/// The level for a limit of which `taken` bytes cannot be reclaimed at once, while the level `now` holds.
#[must_use]
pub fn of_limit(limit: u64, taken: u64, now: MemoryLevel) -> MemoryLevel {
    of(&FREE, limit, taken, now)
}

/// The level for a budget of which `taken` bytes are taken, while the level `now` holds.
#[must_use]
pub fn of_budget(budget: u64, taken: u64, now: MemoryLevel) -> MemoryLevel {
    of(&FREE_OF_BUDGET, budget, taken, now)
}

fn of(steps: &[(u64, MemoryLevel)], limit: u64, taken: u64, now: MemoryLevel) -> MemoryLevel {
    let free = limit.saturating_sub(taken);
    // 128 bits, since a limit may be any number.
    let free = u128::from(free) * 1000 / u128::from(limit.clamp(1, JUDGED_MAX));
    let begins = |(below, level): &&(u64, MemoryLevel)| {
        let slack = if now >= *level { SLACK } else { 0 };
        free < u128::from(below + slack)
    };
    let found = steps.iter().find(begins);
    found.map_or(MemoryLevel::None, |(_, level)| *level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_begin_one_after_the_other_and_end_later() {
        let at = |taken, now| of_limit(1000, taken, now);
        assert_eq!(at(0, MemoryLevel::None), MemoryLevel::None);
        assert_eq!(at(779, MemoryLevel::None), MemoryLevel::None);
        assert_eq!(at(790, MemoryLevel::None), MemoryLevel::Copies);
        assert_eq!(
            at(760, MemoryLevel::Copies),
            MemoryLevel::Copies,
            "not at once"
        );
        assert_eq!(at(730, MemoryLevel::Copies), MemoryLevel::None);
        assert_eq!(at(850, MemoryLevel::Copies), MemoryLevel::Buffers);
        assert_eq!(at(935, MemoryLevel::Buffers), MemoryLevel::Files);
        assert_eq!(at(975, MemoryLevel::None), MemoryLevel::Accept);
        assert_eq!(at(5000, MemoryLevel::None), MemoryLevel::Accept);
        assert_eq!(
            of_limit(u64::MAX, 1 << 40, MemoryLevel::None),
            MemoryLevel::None
        );
        assert_eq!(of_limit(0, 0, MemoryLevel::None), MemoryLevel::Accept);
    }

    #[test]
    fn a_budget_refuses_no_connection() {
        assert_eq!(of_budget(1000, 5000, MemoryLevel::None), MemoryLevel::Fills);
        assert_eq!(
            of_budget(1000, 5000, MemoryLevel::Accept),
            MemoryLevel::Fills
        );
        assert_eq!(of_budget(1000, 700, MemoryLevel::None), MemoryLevel::None);
    }

    #[test]
    fn numbers_and_levels_agree() {
        for (number, level) in LEVELS.iter().enumerate() {
            assert_eq!(*level as usize, number);
        }
    }
}
