//! Acknowledges what has come of a message before the rest is waited for.
//!
//! A peer under Nagle's algorithm (RFC 9293, 3.7.4) that writes a message in pieces, its head and then its body for
//! example, holds back a small piece until the one before is acknowledged. The kernel holds back that acknowledgement for
//! 40 ms and more, since something may be sent that could carry it (RFC 9293, 3.8.6.3). Nothing is while a message is
//! incomplete, so that each such message would take as long.
//!
//! Not here: who waits, and for what. Invariant: what came is acknowledged once, and nothing that came as a whole.

use crate::stream::Stream;

/// How much of what came on a connection was acknowledged by a call.
#[derive(Debug, Default)]
pub(crate) struct Acknowledgement {
    /// Bytes received until then.
    received: u64,
}

impl Acknowledgement {
    /// Acknowledges what came since the last call. `received`: the number of bytes so far; where it is less than before, it
    /// counts anew.
    #[inline]
    pub(crate) fn send(&mut self, stream: &Stream, received: u64) {
        if std::mem::replace(&mut self.received, received) != received {
            // If it fails, the peer waits.
            let _ = stream.acknowledge();
        }
    }
}
