//! Polls that kept a loop for longer than `stall_threshold`: the last ones, and a line in the log for some of them.
//!
//! Invariant: at most [`STALLS_MAX`] are kept, and a line is written at most once a second.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use disk::figures::Number;
use parking_lot::Mutex;

use crate::process::report::{Level, error_log};

/// Stalls that are kept.
pub const STALLS_MAX: usize = 64;

/// A poll that took too long, and whose it was.
#[derive(Debug, Clone)]
pub struct Stall {
    /// Counts them, from 1.
    pub number: u64,
    /// When it ended, in milliseconds since 1970.
    pub at_ms: u64,
    /// The loop that it kept.
    pub loop_index: usize,
    /// How long, in nanoseconds.
    pub ns: u64,
    /// What kind of task it was.
    pub task: &'static str,
    /// nginx's number of the connection; 0: none.
    pub connection: u64,
    /// The request line, as far as it is kept; empty: between two requests, or no connection.
    pub request: String,
    /// How far the request had come.
    pub phase: &'static str,
    /// What the disk layer answered last meanwhile; empty: nothing.
    pub operation: &'static str,
}

/// The stalls of a worker.
#[derive(Debug, Default)]
pub struct Stalls {
    /// `stall_threshold`, in nanoseconds; 0: none is noted.
    pub threshold_ns: Number,
    last: Mutex<VecDeque<Stall>>,
    count: AtomicU64,
    /// The second in which a line was written last, and the number of the stall that it told of.
    told_s: AtomicU64,
    told: AtomicU64,
}

impl Stalls {
    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Those that are kept, from this number on, the oldest first.
    #[must_use]
    pub fn since(&self, number: u64) -> Vec<Stall> {
        let last = self.last.lock();
        let wanted = last.iter().filter(|stall| stall.number >= number);
        wanted.cloned().collect()
    }

    /// Takes note of one; its number is given here.
    pub fn note(&self, mut stall: Stall) {
        stall.number = self.count.fetch_add(1, Relaxed) + 1;
        let second = wire::clock::monotonic_ms() / 1000 + 1;
        if self.told_s.swap(second, Relaxed) != second {
            let before = self.told.swap(stall.number, Relaxed);
            tell(&stall, stall.number - before - 1);
        }
        let mut last = self.last.lock();
        if last.len() == STALLS_MAX {
            last.pop_front();
        }
        last.push_back(stall);
    }
}

fn tell(stall: &Stall, untold: u64) {
    let whose = match stall.connection {
        0 => String::new(),
        number => format!(" *{number}"),
    };
    let operation = match stall.operation {
        "" => String::new(),
        operation => format!(", {operation}"),
    };
    let more = match untold {
        0 => String::new(),
        count => format!("; {count} more since the last such line"),
    };
    error_log(
        Level::Warn,
        format_args!(
            "loop {} was kept for {}.{:03} ms by {}{whose}, {}{operation}, request: \"{}\"{more}",
            stall.loop_index,
            stall.ns / 1_000_000,
            stall.ns / 1000 % 1000,
            stall.task,
            stall.phase,
            stall.request,
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stall(ns: u64) -> Stall {
        Stall {
            number: 0,
            at_ms: 0,
            loop_index: 0,
            ns,
            task: "connection",
            connection: 1,
            request: String::new(),
            phase: "content",
            operation: "",
        }
    }

    #[test]
    fn the_last_ones_are_kept_and_numbered() {
        let stalls = Stalls::default();
        (0..STALLS_MAX as u64 + 5).for_each(|ns| stalls.note(stall(ns)));
        let kept = stalls.since(0);
        assert_eq!(kept.len(), STALLS_MAX);
        assert_eq!((kept[0].number, kept[0].ns), (6, 5));
        assert_eq!(stalls.since(stalls.count()).len(), 1);
        assert_eq!(stalls.count(), STALLS_MAX as u64 + 5);
    }
}
