//! A connection's two directions: behind its handshake, or from early data on.
//!
//! A server answers early data before the client's Finished has come (RFC 8446, 2.3); until then the handshake opens and
//! seals. Not here: records behind it ([`Established`]). Invariant: records behind the Finished are opened only if that is
//! right.

use super::record;
use super::{Established, OVERHEAD_BYTES_MAX, Opened, PLAIN_BYTES_MAX, READ};
use crate::failure::{self, Cause, Failure};

/// A server's handshake that waits for the client's Finished alone.
pub(crate) trait Unfinished: Send {
    /// Takes one record: early data is appended to `early`, what is to be sent to `replies`. The Finished brings what opens
    /// and seals from then on.
    fn receive(
        &mut self,
        record: &[u8],
        early: &mut Vec<u8>,
        replies: &mut Vec<u8>,
    ) -> Result<Option<Established>, Failure>;

    /// Seals data, appended to `out`.
    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Failure>;

    /// Says that nothing follows.
    fn close(&mut self, out: &mut Vec<u8>);
}

/// A connection's two directions.
pub struct Traffic(Phase);

enum Phase {
    Early(Box<dyn Unfinished>),
    Established(Established),
}

impl From<Established> for Traffic {
    fn from(established: Established) -> Self {
        Self(Phase::Established(established))
    }
}

impl Traffic {
    pub(crate) fn early(handshake: Box<dyn Unfinished>) -> Self {
        Self(Phase::Early(handshake))
    }

    /// Whether the client's Finished has not come: what it has sent may be played again.
    #[must_use]
    pub fn is_early(&self) -> bool {
        matches!(self.0, Phase::Early(_))
    }

    /// Opens the whole records at the front of `buffer`, in place: contents are moved to its front. What has to be
    /// sent at once (a new key, an alert) is appended to `replies`. What stands behind `consumed` is still sealed.
    ///
    /// # Errors
    /// The connection is of no more use; the alert is in `replies`. Contents that came before are given out first: see
    /// [`Traffic::has_failure`].
    pub fn open(&mut self, buffer: &mut [u8], replies: &mut Vec<u8>) -> Result<Opened, Failure> {
        match &mut self.0 {
            Phase::Established(established) => established.open(buffer, replies),
            Phase::Early(_) => self.open_early(buffer, replies),
        }
    }

    /// Whether [`Traffic::open`] has only a failure to give, for which nothing need come.
    #[must_use]
    pub fn has_failure(&self) -> bool {
        match &self.0 {
            Phase::Established(established) => established.has_failure(),
            Phase::Early(_) => false,
        }
    }

    /// Says that answers to what was opened are still unsent: what is opened next needs no other answer to key updates
    /// (RFC 8446, 4.6.3).
    pub fn hold_answers(&mut self) {
        if let Phase::Established(established) = &mut self.0 {
            established.hold_answers();
        }
    }

    fn open_early(&mut self, buffer: &mut [u8], replies: &mut Vec<u8>) -> Result<Opened, Failure> {
        let mut opened = Opened::default();
        loop {
            let rest = &mut buffer[opened.consumed..];
            let handshake = match &mut self.0 {
                Phase::Early(handshake) => handshake,
                Phase::Established(established) => {
                    let behind = established.open(rest, replies)?;
                    let begin = opened.consumed;
                    buffer.copy_within(begin..begin + behind.plain, opened.plain);
                    opened.consumed += behind.consumed;
                    opened.plain += behind.plain;
                    opened.is_closed = behind.is_closed;
                    return Ok(opened);
                }
            };
            // What is no record is given, too: the handshake knows the alert.
            let length = match record::whole(rest) {
                Ok(None) => return Ok(opened),
                Ok(Some(length)) => length,
                Err(_) => rest.len(),
            };
            let mut early = Vec::new();
            let established = handshake.receive(&rest[..length], &mut early, replies)?;
            buffer[opened.plain..opened.plain + early.len()].copy_from_slice(&early);
            opened.consumed += length;
            opened.plain += early.len();
            if let Some(established) = established {
                self.0 = Phase::Established(established);
            }
        }
    }

    /// Seals all of `parts`, one behind the other, into records appended to `out`; room for them is best reserved
    /// ([`Traffic::sealed_bytes`]).
    ///
    /// # Errors
    /// The connection is of no more use.
    pub fn seal(&mut self, parts: &[&[u8]], out: &mut Vec<u8>) -> Result<(), Failure> {
        match &mut self.0 {
            Phase::Established(established) => established.seal(parts, out),
            Phase::Early(handshake) => {
                let mut parts = parts.iter().filter(|part| !part.is_empty());
                parts.try_for_each(|part| handshake.seal(part, out))
            }
        }
    }

    /// At most this many bytes come out for `plain` bytes in one part.
    #[must_use]
    pub fn sealed_bytes(&self, plain: usize) -> usize {
        match &self.0 {
            Phase::Established(established) => established.sealed_bytes(plain),
            Phase::Early(_) => plain + (plain / PLAIN_BYTES_MAX + 1) * OVERHEAD_BYTES_MAX,
        }
    }

    /// Says that nothing was sent for a while: growing records begin small again.
    pub fn rest(&mut self) {
        if let Phase::Established(established) = &mut self.0 {
            established.rest();
        }
    }

    /// Says to the peer that nothing follows; once.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        match &mut self.0 {
            Phase::Established(established) => established.close(out),
            Phase::Early(handshake) => handshake.close(out),
        }
    }

    /// What the end of the connection means: nothing where the peer has said that nothing follows, else its data may
    /// be cut off.
    ///
    /// # Errors
    /// The peer did not say it.
    pub fn ended(&self) -> Result<(), Failure> {
        match &self.0 {
            Phase::Established(established) => established.ended(),
            Phase::Early(_) => Err(Failure::new(READ, Cause::Closed, failure::UNEXPECTED_EOF)),
        }
    }
}
