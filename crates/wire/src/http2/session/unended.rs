//! Requests that were answered in whole before their own end, or that were malformed.
//!
//! A server resets such a stream, since it does not want the rest (RFC 9113, 8.1 and 8.1.1). It does so a while after the answer, and
//! only if the end has not come by then: curl (7.88) drops an answer that it reads together with the reset. Until then the
//! streams are closed: they take no place, and what comes of them is dropped.

use super::Session;
use crate::http2::{ErrorCode, frame};

/// Maximum number of such streams; more are reset at once.
const UNENDED_MAX: usize = 64;

impl Session {
    /// Notes that a stream is to be reset with this code, unless its end comes.
    pub(super) fn note_unended(&mut self, id: u32, code: ErrorCode) {
        if self.unended.len() == UNENDED_MAX {
            self.reset_unended();
        }
        self.unended.push((id, code));
    }

    /// Notes the end of a stream that is closed; whether it was one of these.
    pub(super) fn take_unended(&mut self, id: u32) -> bool {
        let place = self.unended.iter().position(|unended| unended.0 == id);
        place.is_some_and(|place| self.unended.swap_remove(place).0 == id)
    }

    /// Whether there are such streams that were not reset yet.
    pub fn has_unended(&self) -> bool {
        !self.unended.is_empty()
    }

    /// Resets the streams of these requests.
    pub fn reset_unended(&mut self) {
        for (id, code) in self.unended.drain(..) {
            frame::write_reset(self.output.bytes(), id, code);
        }
    }
}
