//! The level of scarcity of memory, and what is given up at each: one number that one thread writes and all read.
//!
//! Invariant: a level includes all those before it.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// What is given up at a level, together with everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Nothing.
    None,
    /// Copies of what is in the kernel's cache.
    Copies,
    /// Idle buffers and prepared responses.
    Buffers,
    /// Large windows of followers: they become small.
    Windows,
    /// Files that are kept open.
    Files,
    /// Storing fetched responses: they pass through.
    Fills,
    /// Taking connections at any speed.
    Accept,
}

/// All levels, lowest first.
pub const LEVELS: [Level; 7] = [
    Level::None,
    Level::Copies,
    Level::Buffers,
    Level::Windows,
    Level::Files,
    Level::Fills,
    Level::Accept,
];

static LEVEL: AtomicU8 = AtomicU8::new(0);

/// The current level.
#[must_use]
pub fn level() -> Level {
    LEVELS[usize::from(LEVEL.load(Relaxed)).min(LEVELS.len() - 1)]
}

/// Sets the level; returns the previous one.
pub fn set_level(level: Level) -> Level {
    let before = LEVEL.swap(level as u8, Relaxed);
    LEVELS[usize::from(before).min(LEVELS.len() - 1)]
}

impl Level {
    /// Its name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Level::None => "none",
            Level::Copies => "copies",
            Level::Buffers => "buffers",
            Level::Windows => "windows",
            Level::Files => "files",
            Level::Fills => "fills",
            Level::Accept => "accept",
        }
    }

    /// The log's text for this level.
    #[must_use]
    pub fn says(self) -> &'static str {
        match self {
            Level::None => "nothing is given up any more",
            Level::Copies => "copies of small files are given up",
            Level::Buffers => "idle buffers and prepared answers are given up",
            Level::Windows => {
                "answers that are being fetched are held back closer to their readers"
            }
            Level::Files => "files are not kept open",
            Level::Fills => "answers pass through caches and are not stored",
            Level::Accept => {
                "connections are taken slowly, and those that were not used for a while are closed"
            }
        }
    }
}

/// The free part of a limit, in thousandths, below which each level begins.
const FREE: [(u64, Level); 6] = [
    (30, Level::Accept),
    (60, Level::Fills),
    (90, Level::Files),
    (120, Level::Windows),
    (160, Level::Buffers),
    (220, Level::Copies),
];
/// The same for the budget, without [`Level::Accept`]: requests over the budget are served all the same.
const FREE_OF_BUDGET: [(u64, Level); 5] = [
    (10, Level::Fills),
    (40, Level::Files),
    (70, Level::Windows),
    (100, Level::Buffers),
    (150, Level::Copies),
];
/// Bytes of a limit at most, for judging its free part: a machine with a few hundred MiB left is not short of memory
/// because it has many GiB.
const JUDGED_MAX: u64 = 2 << 30;
/// Hysteresis in thousandths: this much more must be free before a level ends.
const SLACK: u64 = 40;

/// The level for a limit of which `taken` bytes cannot be reclaimed at once, while the level `now` holds.
#[must_use]
pub fn of_limit(limit: u64, taken: u64, now: Level) -> Level {
    of(&FREE, limit, taken, now)
}

/// The level for a budget of which `taken` bytes are taken, while the level `now` holds.
#[must_use]
pub fn of_budget(budget: u64, taken: u64, now: Level) -> Level {
    of(&FREE_OF_BUDGET, budget, taken, now)
}

fn of(steps: &[(u64, Level)], limit: u64, taken: u64, now: Level) -> Level {
    let free = limit.saturating_sub(taken);
    // 128 bits, since a limit may be any number.
    let free = u128::from(free) * 1000 / u128::from(limit.clamp(1, JUDGED_MAX));
    let begins = |(below, level): &&(u64, Level)| {
        let slack = if now >= *level { SLACK } else { 0 };
        free < u128::from(below + slack)
    };
    let found = steps.iter().find(begins);
    found.map_or(Level::None, |(_, level)| *level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_begin_one_after_the_other_and_end_later() {
        let at = |taken, now| of_limit(1000, taken, now);
        assert_eq!(at(0, Level::None), Level::None);
        assert_eq!(at(779, Level::None), Level::None);
        assert_eq!(at(790, Level::None), Level::Copies);
        assert_eq!(at(760, Level::Copies), Level::Copies, "not at once");
        assert_eq!(at(730, Level::Copies), Level::None);
        assert_eq!(at(850, Level::Copies), Level::Buffers);
        assert_eq!(at(935, Level::Buffers), Level::Files);
        assert_eq!(at(975, Level::None), Level::Accept);
        assert_eq!(at(5000, Level::None), Level::Accept);
        assert_eq!(of_limit(u64::MAX, 1 << 40, Level::None), Level::None);
        assert_eq!(of_limit(0, 0, Level::None), Level::Accept);
    }

    #[test]
    fn a_budget_refuses_no_connection() {
        assert_eq!(of_budget(1000, 5000, Level::None), Level::Fills);
        assert_eq!(of_budget(1000, 5000, Level::Accept), Level::Fills);
        assert_eq!(of_budget(1000, 700, Level::None), Level::None);
    }

    #[test]
    fn numbers_and_levels_agree() {
        for (number, level) in LEVELS.iter().enumerate() {
            assert_eq!(*level as usize, number);
        }
    }
}
