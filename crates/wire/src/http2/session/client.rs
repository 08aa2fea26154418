//! The client's role: opening streams, and what the server's GOAWAY leaves of them (RFC 9113, 5.1.2 and 6.8).

use super::headers::is_head;
use super::{Closed, Role, Session, StreamKey};
use crate::http2::priority::Priority;
use crate::http2::streams::Side;

/// Why no stream can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenRefused {
    /// As many streams live as the server or we allow: later.
    #[error("too many streams")]
    Full,
    /// The connection ends: on another one.
    #[error("the connection ends")]
    GoingAway,
}

impl Session {
    /// Number of streams that may be opened now.
    pub fn openable(&self) -> usize {
        if self.role == Role::Server || self.is_going() {
            return 0;
        }
        let max = self.config.streams_max.min(self.peer.streams_max);
        (max as usize).saturating_sub(self.streams.len())
    }

    /// Opens a stream with a request, whose fields `write` appends, pseudo-headers first; `is_end`: it has no body.
    ///
    /// # Errors
    /// No stream may be opened, now or any more.
    pub fn open(
        &mut self,
        method: &[u8],
        is_end: bool,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<StreamKey, OpenRefused> {
        if self.openable() == 0 {
            let max = self.config.streams_max.min(self.peer.streams_max);
            return Err(match self.streams.len() >= max as usize {
                true => OpenRefused::Full,
                false => OpenRefused::GoingAway,
            });
        }
        let mut stream = self.new_stream(self.next_own, Side::Head);
        stream.local = if is_end { Side::Ended } else { Side::Body };
        stream.is_head_request = is_head(method);
        let key = self.insert(stream, Priority::default());
        let key = key.ok_or(OpenRefused::Full)?;
        self.next_own += 2;
        self.head_frames(key.id(), is_end, write);
        Ok(key)
    }

    /// Closes a stream that the server's GOAWAY does not take.
    pub(super) fn abandoned(&mut self) -> Option<StreamKey> {
        let last = self.peer_goaway.filter(|_| self.role == Role::Client)?;
        let key = self.streams.keys().find(|key| key.id() > last)?;
        self.close(key, Closed::ByPeer);
        Some(key)
    }
}
