//! Requests that were answered in whole before their own end, or that were malformed.
//!
//! A server resets such a stream, since it does not want the rest (RFC 9113, 8.1 and 8.1.1). It does so a while after the answer, and
//! only if the end has not come by then: curl (7.88) drops an answer that it reads together with the reset. Until then the
//! streams are closed: they take no place, and what comes of them is dropped.

use super::Session;
use crate::http2::{ErrorCode, frame};

/// A closed stream that is to be reset, unless its end comes.
#[derive(Debug)]
pub(super) struct Unended {
    id: u32,
    code: ErrorCode,
    /// Whether it was one at the last [`Session::age_unended`].
    is_old: bool,
}

/// Maximum number of such streams; more are reset at once.
const UNENDED_MAX: usize = 64;

impl Session {
    /// Notes that a stream is to be reset with this code, unless its end comes.
    pub(super) fn note_unended(&mut self, id: u32, code: ErrorCode) {
        if self.unended.len() == UNENDED_MAX {
            let all = &mut self.unended;
            all.iter_mut().for_each(|unended| unended.is_old = true);
            self.age_unended();
        }
        self.unended.push(Unended {
            id,
            code,
            is_old: false,
        });
    }

    /// Notes the end of a stream that is closed; whether it was one of these.
    pub(super) fn take_unended(&mut self, id: u32) -> bool {
        let place = self.unended.iter().position(|unended| unended.id == id);
        place.is_some_and(|place| self.unended.swap_remove(place).id == id)
    }

    /// Whether there are such streams that were not reset yet.
    pub fn has_unended(&self) -> bool {
        !self.unended.is_empty()
    }

    /// Resets the streams that were such ones at the last call, too: each waits for the time between two calls, at least.
    pub fn age_unended(&mut self) {
        let output = &mut self.output;
        self.unended.retain_mut(|unended| {
            if unended.is_old {
                frame::write_reset(output.bytes(), unended.id, unended.code);
            }
            !std::mem::replace(&mut unended.is_old, true)
        });
    }
}
