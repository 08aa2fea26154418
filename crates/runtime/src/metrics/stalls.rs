//! Polls that kept a loop for longer than `stall_threshold`: the last ones, and a log line for some of them. Polls that
//! took that long only because the kernel gave the loop's processor to other threads are counted apart: no request is
//! to blame for them.
//!
//! Invariants: at most [`STALLS_MAX`] are kept, in the order of their numbers; a line is written at most once a second,
//! and once a minute for the kernel's delays; the lock, for which a loop may have to wait, is held for moving pointers
//! only.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use disk::metrics::Number;
use logs::process_log::{Level, error_log};
use parking_lot::Mutex;

use super::page::Page;
use crate::families;

families! {
    /// The families of these metrics.
    pub FAMILIES;
    STALLS Counter "freewheel_stalls" "" [] "Polls that kept a loop longer than stall_threshold; status_json describes the latest.";
    PROCESSOR_WAITS Counter "freewheel_processor_waits" "" [] "Polls that exceeded stall_threshold only because their loop was ready and had no processor.";
}

/// Maximum number of stalls that are kept.
pub const STALLS_MAX: usize = 64;

/// A poll that took too long, and the task it belongs to.
#[derive(Debug, Clone)]
pub struct Stall {
    /// Serial number, from 1.
    pub number: u64,
    /// Time of its end, in milliseconds since 1970.
    pub at_ms: u64,
    /// The loop that it kept.
    pub loop_index: usize,
    /// Duration in nanoseconds, including the time that its calls waited.
    pub ns: u64,
    /// Time that the loop waited for a processor meanwhile, in nanoseconds; not in `ns`.
    pub unserved_ns: u64,
    /// The kind of task.
    pub task: &'static str,
    /// nginx's number of the connection; 0 without one.
    pub connection: u64,
    /// The request line, as far as it is kept; empty between two requests, or without a connection.
    pub request: String,
    /// The phase that the request had reached.
    pub phase: &'static str,
    /// The disk layer's last completed operation in that time; empty without one.
    pub operation: &'static str,
}

/// Minimum duration of a poll that is examined, in nanoseconds, and the minimum interval between two questions to the
/// kernel about the loop's time.
const LOOK_NS: u64 = 1_000_000;

/// The stalls of a worker.
#[derive(Debug, Default)]
pub struct Stalls {
    threshold_ns: Number,
    look_ns: Number,
    noted: Mutex<Noted>,
    /// Polls that were over the threshold only because their loop waited for a processor.
    processor_waits: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Noted {
    /// The number of stalls, and the limit of one log line a second.
    told: Told,
    last: VecDeque<Arc<Stall>>,
}

/// A rate limit for log lines of a frequent event.
#[derive(Debug, Default)]
struct Told {
    /// Number of occurrences.
    count: u64,
    /// The span of time of the last line, and the count that it reported.
    span: u64,
    of: u64,
}

impl Stalls {
    /// Sets `stall_threshold`, in nanoseconds; 0: nothing is recorded.
    pub fn configure(&self, threshold_ns: u64) {
        let look_ns = match threshold_ns {
            0 => u64::MAX,
            some => some.min(LOOK_NS),
        };
        self.threshold_ns.set(threshold_ns);
        self.look_ns.set(look_ns);
    }

    /// `stall_threshold`, in nanoseconds; 0: nothing is recorded.
    #[must_use]
    pub fn threshold_ns(&self) -> u64 {
        self.threshold_ns.get()
    }

    /// Minimum duration of a poll that is examined, in nanoseconds.
    #[must_use]
    pub fn look_ns(&self) -> u64 {
        self.look_ns.get()
    }

    /// Number of stalls so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.noted.lock().told.count
    }

    /// Number of polls that were over the threshold only because their loop waited for a processor.
    #[must_use]
    pub fn processor_waits(&self) -> u64 {
        self.processor_waits.lock().count
    }

    /// Shows the numbers.
    pub fn show(&self, page: &mut Page) {
        page.whole(&STALLS, &[], self.count());
        page.whole(&PROCESSOR_WAITS, &[], self.processor_waits());
    }

    /// The stalls that are kept, the oldest first.
    #[must_use]
    pub fn last(&self) -> Vec<Arc<Stall>> {
        self.noted.lock().last.iter().cloned().collect()
    }

    /// Records a poll that was over the threshold only because its loop waited for a processor for `ns`.
    pub fn note_processor_wait(&self, loop_index: usize, ns: u64) {
        let minute = wire::loop_clock::monotonic_ms() / 60_000 + 1;
        let untold = self.processor_waits.lock().another(minute);
        if let Some(untold) = untold {
            error_log(
                Level::Notice,
                format_args!(
                    "loop {loop_index} had work and waited {} ms for a processor: the kernel ran other threads or programs there{}",
                    milliseconds(ns),
                    more(untold)
                ),
            );
        }
    }

    /// Records a stall, and gives it its number.
    pub fn note(&self, mut stall: Stall) {
        let second = wire::loop_clock::monotonic_ms() / 1000 + 1;
        let (stall, untold) = {
            let noted = &mut *self.noted.lock();
            let untold = noted.told.another(second);
            stall.number = noted.told.count;
            let stall = Arc::new(stall);
            if noted.last.len() == STALLS_MAX {
                noted.last.pop_front();
            }
            noted.last.push_back(Arc::clone(&stall));
            (stall, untold)
        };
        if let Some(untold) = untold {
            tell(&stall, untold);
        }
    }
}

impl Told {
    /// Counts an occurrence in this span. `Some` if a line is due: the number of occurrences since the last line,
    /// without this one.
    fn another(&mut self, span: u64) -> Option<u64> {
        self.count += 1;
        if self.span == span {
            return None;
        }
        self.span = span;
        let before = std::mem::replace(&mut self.of, self.count);
        Some(self.count - before - 1)
    }
}

fn tell(stall: &Stall, untold: u64) {
    let (text, more) = (stall.sentence(), more(untold));
    error_log(Level::Warn, format_args!("{text}{more}"));
}

impl Stall {
    /// The text of its log line; for a task without a request, only the kind of task.
    fn sentence(&self) -> String {
        let unserved = match self.unserved_ns {
            0..LOOK_NS => String::new(),
            ns => format!(" (and {} ms without a processor)", milliseconds(ns)),
        };
        let mut text = format!(
            "loop {} was kept for {} ms{unserved} by {}",
            self.loop_index,
            milliseconds(self.ns),
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

fn more(untold: u64) -> String {
    match untold {
        0 => String::new(),
        count => format!("; {count} more since the last such line"),
    }
}

fn milliseconds(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000_000, ns / 1000 % 1000)
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
            unserved_ns: 0,
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
        let shared = Stall {
            unserved_ns: 2 * LOOK_NS,
            ..task
        };
        let with = "loop 0 was kept for 1.000 ms (and 2.000 ms without a processor) by accept";
        assert_eq!(shared.sentence(), with);
    }

    #[test]
    fn a_line_is_due_once_a_span_and_says_how_many_there_were() {
        let mut told = Told::default();
        assert_eq!(told.another(7), Some(0));
        assert_eq!((told.another(7), told.another(7)), (None, None));
        assert_eq!(told.another(8), Some(2));
        assert_eq!(told.count, 4);
    }

    #[test]
    fn what_the_kernel_did_is_counted_apart() {
        let stalls = Stalls::default();
        stalls.note_processor_wait(0, 20_000_000);
        assert_eq!((stalls.count(), stalls.processor_waits()), (0, 1));
    }

    #[test]
    fn polls_are_looked_at_from_the_threshold_on_at_the_latest() {
        let stalls = Stalls::default();
        let looked_at = |threshold_ns| {
            stalls.configure(threshold_ns);
            stalls.look_ns()
        };
        assert_eq!(looked_at(10_000_000), LOOK_NS);
        assert_eq!(looked_at(LOOK_NS / 2), LOOK_NS / 2);
        assert_eq!(looked_at(0), u64::MAX);
    }
}
