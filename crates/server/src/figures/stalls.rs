//! Polls that kept a loop for longer than `stall_threshold`: the last ones, and a line in the log for some of them.
//!
//! Invariants: at most [`STALLS_MAX`] are kept, in the order of their numbers; a line is written at most once a second; the lock, for
//! which a loop may have to wait, is held for moving pointers only.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

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
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    /// How many there were.
    count: u64,
    last: VecDeque<Arc<Stall>>,
    /// The second in which a line was written last, and the number of the stall that it told of.
    told_s: u64,
    told: u64,
}

impl Stalls {
    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.noted.lock().count
    }

    /// Those that are kept, the oldest first.
    #[must_use]
    pub fn last(&self) -> Vec<Arc<Stall>> {
        self.noted.lock().last.iter().cloned().collect()
    }

    /// Takes note of one; its number is given here.
    pub fn note(&self, mut stall: Stall) {
        let second = wire::clock::monotonic_ms() / 1000 + 1;
        let (stall, untold) = {
            let noted = &mut *self.noted.lock();
            noted.count += 1;
            stall.number = noted.count;
            let stall = Arc::new(stall);
            if noted.last.len() == STALLS_MAX {
                noted.last.pop_front();
            }
            noted.last.push_back(Arc::clone(&stall));
            (stall, noted.tell_of(second))
        };
        if let Some(untold) = untold {
            tell(&stall, untold);
        }
    }
}

impl Noted {
    /// Whether a line is due in this second: how many stalls there were since the last one, without this.
    fn tell_of(&mut self, second: u64) -> Option<u64> {
        if self.told_s == second {
            return None;
        }
        self.told_s = second;
        let before = std::mem::replace(&mut self.told, self.count);
        Some(self.count - before - 1)
    }
}

fn tell(stall: &Stall, untold: u64) {
    let more = match untold {
        0 => String::new(),
        count => format!("; {count} more since the last such line"),
    };
    let text = stall.sentence();
    error_log(Level::Warn, format_args!("{text}{more}"));
}

impl Stall {
    /// What the log says of it; of a task that is at work on no request, only what it is.
    fn sentence(&self) -> String {
        let mut text = format!(
            "loop {} was kept for {}.{:03} ms by {}",
            self.loop_index,
            self.ns / 1_000_000,
            self.ns / 1000 % 1000,
            self.task
        );
        // A String takes all that is written.
        if self.connection > 0 {
            let _ = write!(text, " *{}", self.connection);
        }
        for part in [self.phase, self.operation] {
            if !part.is_empty() {
                let _ = write!(text, ", {part}");
            }
        }
        if !self.request.is_empty() {
            let _ = write!(text, ", request: \"{}\"", self.request);
        }
        text
    }
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
        let kept = stalls.last();
        assert_eq!(kept.len(), STALLS_MAX);
        assert_eq!((kept[0].number, kept[0].ns), (6, 5));
        assert_eq!(stalls.count(), STALLS_MAX as u64 + 5);
    }

    #[test]
    fn a_line_says_what_is_known_and_no_more() {
        let mut known = stall(12_345_678);
        known.request = "GET / HTTP/1.1".to_owned();
        assert_eq!(
            known.sentence(),
            "loop 0 was kept for 12.345 ms by connection *1, content, request: \"GET / HTTP/1.1\""
        );
        let task = Stall {
            task: "accept",
            connection: 0,
            phase: "",
            ..stall(1_000_000)
        };
        assert_eq!(task.sentence(), "loop 0 was kept for 1.000 ms by accept");
    }

    #[test]
    fn a_line_is_due_once_a_second_and_says_how_many_there_were() {
        let mut noted = Noted {
            count: 1,
            ..Noted::default()
        };
        assert_eq!(noted.tell_of(7), Some(0));
        noted.count = 4;
        assert_eq!(noted.tell_of(7), None);
        noted.count = 5;
        assert_eq!(noted.tell_of(8), Some(3));
    }
}
