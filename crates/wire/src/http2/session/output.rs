//! The output buffer of a connection. Invariant: whole frames behind one another; the part that was sent is cut off.

use disk::memory::level::level;
use disk::memory::{self, MemoryLevel};

/// Bytes of unsent output from which on no DATA is taken.
pub const OUTPUT_MAX: usize = 128 * 1024;
/// The same where the memory's budget is tight.
const OUTPUT_TIGHT: usize = 64 * 1024;
/// The same while memory is scarce.
const OUTPUT_MIN: usize = 16 * 1024;

/// Bytes of unsent output from which on no DATA is taken now: the client that takes none of them holds that memory.
fn output_max() -> usize {
    if level() >= MemoryLevel::Windows {
        return OUTPUT_MIN;
    }
    match memory::is_tight(memory::budget()) {
        true => OUTPUT_TIGHT,
        false => OUTPUT_MAX,
    }
}

#[derive(Debug)]
pub(super) struct Output {
    bytes: Vec<u8>,
    /// Bytes of unsent output from which on this connection takes no DATA, if that is less than others take.
    data_max: usize,
    /// Number of bytes at the start that were sent.
    start: usize,
    /// The end of the last control frame in answer to the peer; 0: it was sent.
    answers_end: usize,
}

impl Default for Output {
    fn default() -> Self {
        Output {
            bytes: Vec::new(),
            data_max: usize::MAX,
            start: 0,
            answers_end: 0,
        }
    }
}

impl Output {
    /// Takes no DATA from `bytes` of unsent output on.
    pub(super) fn limit(&mut self, bytes: usize) {
        self.data_max = bytes.max(OUTPUT_MIN);
    }

    /// The buffer, to append frames to.
    pub(super) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub(super) fn unsent(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Number of bytes of DATA that may be appended.
    pub(super) fn room(&self) -> usize {
        let max = output_max().min(self.data_max);
        max.saturating_sub(self.bytes.len() - self.start)
    }

    pub(super) fn mark_answer(&mut self) {
        self.answers_end = self.bytes.len();
    }

    /// Cuts off what was sent; returns whether all answers were.
    pub(super) fn sent(&mut self, bytes: usize) -> bool {
        self.start = (self.start + bytes).min(self.bytes.len());
        let is_read = self.start >= self.answers_end;
        if is_read {
            self.answers_end = 0;
        }
        if self.start == self.bytes.len() {
            self.bytes.clear();
            // Capacity that a connection in use keeps.
            self.bytes.shrink_to(2 * output_max());
            self.start = 0;
        } else if self.start >= output_max() {
            self.bytes.drain(..self.start);
            self.answers_end = self.answers_end.saturating_sub(self.start);
            self.start = 0;
        }
        is_read
    }

    /// Bytes of memory.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub(super) fn release(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_cut_off() {
        let mut output = Output::default();
        output.bytes().extend([1; 10]);
        output.mark_answer();
        output.bytes().extend(vec![2; OUTPUT_MAX + 10]);
        assert_eq!(output.room(), 0);
        assert!(!output.sent(9));
        assert!(output.sent(1), "the answer is read");
        assert_eq!(output.unsent().len(), OUTPUT_MAX + 10);
        output.sent(OUTPUT_MAX);
        assert_eq!((output.unsent().len(), output.bytes.len()), (10, 10));
        assert_eq!(output.room(), OUTPUT_MAX - 10);
        output.sent(100);
        output.release();
        assert_eq!(output.bytes.capacity(), 0);
        output.limit(OUTPUT_MIN + 1);
        assert_eq!(output.room(), OUTPUT_MIN + 1);
        output.limit(0);
        assert_eq!(output.room(), OUTPUT_MIN);
        output.limit(usize::MAX);
        assert_eq!(output.room(), OUTPUT_MAX);
    }
}
