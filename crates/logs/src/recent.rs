//! The last lines of the error logs that report trouble, for the dashboard.
//!
//! Not here: writing them. Invariant: at most [`LINES_MAX`] lines of [`LINE_BYTES_MAX`] bytes; a line is kept only if a
//! log wants it, and only after the first reader has asked. The lock, for which a loop may have to wait, is held for
//! moving pointers only.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

use super::level::Level;

/// Lines that are kept.
pub const LINES_MAX: usize = 64;
/// Bytes of one that are kept.
pub const LINE_BYTES_MAX: usize = 600;

static IS_WANTED: AtomicBool = AtomicBool::new(false);
static LINES: Mutex<Kept> = Mutex::new(Kept {
    lines: VecDeque::new(),
    next: 0,
});

struct Kept {
    lines: VecDeque<Arc<Line>>,
    next: u64,
}

/// A line.
#[derive(Debug)]
pub struct Line {
    /// Counts the lines.
    pub number: u64,
    /// How grave it is.
    pub level: Level,
    /// It, without what cannot be shown.
    pub text: String,
}

/// Lines are to be kept from now on.
pub fn begin() {
    IS_WANTED.store(true, Relaxed);
}

/// Keeps a line, if it tells of trouble.
pub(super) fn keep(level: Level, line: &[u8]) {
    if level > Level::Warn || !IS_WANTED.load(Relaxed) {
        return;
    }
    let line = line.trim_ascii_end();
    let text = String::from_utf8_lossy(&line[..line.len().min(LINE_BYTES_MAX)]).into_owned();
    let kept = &mut *LINES.lock();
    if kept.lines.len() == LINES_MAX {
        kept.lines.pop_front();
    }
    let number = kept.next;
    kept.next += 1;
    kept.lines.push_back(Arc::new(Line {
        number,
        level,
        text,
    }));
}

/// The last lines, the oldest first.
#[must_use]
pub fn lines() -> Vec<Arc<Line>> {
    LINES.lock().lines.iter().cloned().collect()
}
