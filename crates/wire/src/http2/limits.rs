//! What a peer may do how often: a counter for each attack that HTTP/2 servers have met.
//!
//! Not here: the limits of header blocks (`hpack::BlockLimits`) and of live streams. Times come in as milliseconds of
//! any clock that does not go back. Invariant: each counter has a named maximum and a reason of its own.

use super::Reason;

/// Length in milliseconds of the period over which resets and glitches are counted.
pub const PERIOD_MS: u64 = 10_000;
/// Maximum number of streams in a period that are reset before they are answered, by the peer (CVE-2023-44487) or for
/// faults of its frames (CVE-2025-8671).
pub const RESETS_MAX: u32 = 100;
/// Number of these that a stream counts as which is reset for what no client that keeps to the protocol sends: each costs
/// a request and its reset, and nothing that is of use makes up for it (nginx ends the connection at the first). Streams
/// that a server's faults end are not counted.
pub const RESETS_PER_FAULT: u32 = 5;
/// Maximum number of malformed requests in a period, each of which is answered (400). With more, a connection takes no more
/// requests, and goes on with those that it has: they may be of other clients than these, whose proxy is the peer.
pub const MALFORMED_MAX: u32 = 100;
/// Maximum number of frames in a period that are valid and of no use: PRIORITY, SETTINGS, empty DATA, answers to
/// nothing, frames on closed streams. Of a server, only those that are on no stream.
pub const GLITCHES_MAX: u32 = 100;
/// Minimum of the maximum number of refused streams in a connection's life (nginx).
pub const REFUSED_MIN: u32 = 100;
/// Maximum memory of the heads of a connection's live streams, in heads of the size that one may have: 128 of them would be
/// held by a client that takes no response (CVE-2026-49975).
pub const HEADS_MAX: usize = 32;
/// The same while memory is scarce.
pub const HEADS_MIN: usize = 4;
/// Maximum number of bytes by which the head or the trailers of a response may be above their limit before the connection
/// ends, which other requests share: as far as that they are decoded and dropped, and end their own request alone.
pub const DROPPED_BLOCK_MAX: usize = 1 << 20;
/// Maximum number of CONTINUATION frames of a header block.
pub const CONTINUATIONS_MAX: u32 = 64;
/// Maximum number of WINDOW_UPDATE frames beside those that were earned.
pub const UPDATES_BASE: u64 = 100;
/// Number of WINDOW_UPDATE frames earned by each DATA frame sent, and by each stream (Firefox widens every new one).
pub const UPDATES_EARNED: u64 = 10;
/// Maximum number of control frames in answer to the peer that it has not read.
pub const ANSWERS_MAX: u32 = 1000;
/// Number of bytes allowed for each byte of payload (nginx).
pub const FLOOD_FACTOR: u64 = 8;
/// Number of payload bytes that every connection has in advance (nginx).
pub const FLOOD_BASE: u64 = 1 << 20;
/// Maximum number of requests of a connection that are opened in one turn of the loop; the rest of the input waits.
pub const REQUESTS_PER_TURN_MAX: u32 = 32;
/// Number of bytes of a request's head in memory that count as one more request of a turn: to read and to answer it takes
/// longer, too.
pub const REQUEST_HEAD_BYTES: u32 = 2048;

/// A count that starts anew with each period.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Periodic {
    count: u32,
    since_ms: u64,
}

impl Periodic {
    fn add(&mut self, now_ms: u64, count: u32, max: u32, reason: Reason) -> Result<(), Reason> {
        match self.note(now_ms, count) > max {
            true => Err(reason),
            false => Ok(()),
        }
    }

    /// Counts; returns the number in this period.
    pub(crate) fn note(&mut self, now_ms: u64, count: u32) -> u32 {
        if self.is_over(now_ms) {
            *self = Periodic {
                count: 0,
                since_ms: now_ms,
            };
        }
        self.count += count;
        self.count
    }

    fn is_over(self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.since_ms) >= PERIOD_MS
    }
}

/// The counters of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    resets: Periodic,
    malformed: Periodic,
    glitches: Periodic,
    refused: u32,
    opened_in_read: u32,
    updates: u64,
    /// Number of DATA frames sent, and of streams opened.
    earning: u64,
    answers: u32,
    bytes: u64,
    payload: u64,
}

/// A result whose error ends the connection.
pub type Counted = Result<(), Reason>;

#[expect(clippy::missing_errors_doc, reason = "each: more than its limit")]
impl Counters {
    /// A stream was reset by the peer before it was answered.
    pub fn reset(&mut self, now_ms: u64) -> Counted {
        let resets = &mut self.resets;
        resets.add(now_ms, 1, RESETS_MAX, Reason::TooManyResets)
    }

    /// A stream was reset for frames against the protocol.
    pub fn fault(&mut self, now_ms: u64) -> Counted {
        let (resets, count) = (&mut self.resets, RESETS_PER_FAULT);
        resets.add(now_ms, count, RESETS_MAX, Reason::TooManyResets)
    }

    /// A request was malformed.
    pub fn malformed(&mut self, now_ms: u64) {
        self.malformed.note(now_ms, 1);
    }

    /// Number of malformed requests in this period.
    pub fn malformed_count(&self, now_ms: u64) -> u32 {
        match self.malformed.is_over(now_ms) {
            true => 0,
            false => self.malformed.count,
        }
    }

    /// A frame of no use.
    pub fn glitch(&mut self, now_ms: u64) -> Counted {
        let glitches = &mut self.glitches;
        glitches.add(now_ms, 1, GLITCHES_MAX, Reason::TooManyGlitches)
    }

    /// A stream was refused; `streams_max` may live at once.
    pub fn refuse(&mut self, streams_max: u32) -> Counted {
        self.refused += 1;
        match self.refused > streams_max.max(REFUSED_MIN) {
            true => Err(Reason::TooManyRefused),
            false => Ok(()),
        }
    }

    /// Bytes were read from the socket.
    pub fn begin_read(&mut self) {
        self.opened_in_read = 0;
    }

    /// A stream is about to be opened: whether it may be, among all that arrived in one read (nginx: twice the limit).
    pub fn opens(&mut self, streams_max: u32) -> bool {
        self.opened_in_read += 1;
        self.opened_in_read <= streams_max.saturating_mul(2)
    }

    /// A stream was opened, by either side.
    pub fn opened(&mut self) {
        self.earning += 1;
    }

    /// A WINDOW_UPDATE was received.
    pub fn update(&mut self) -> Counted {
        self.updates += 1;
        match self.updates > UPDATES_BASE + UPDATES_EARNED * self.earning {
            true => Err(Reason::TooManyUpdates),
            false => Ok(()),
        }
    }

    /// A DATA frame with `len` bytes was written.
    pub fn sent_data(&mut self, len: usize) {
        self.earning += 1;
        self.payload += len as u64;
    }

    /// A control frame was written in answer to the peer.
    pub fn answer(&mut self) -> Counted {
        self.answers += 1;
        match self.answers > ANSWERS_MAX {
            true => Err(Reason::TooManyAnswers),
            false => Ok(()),
        }
    }

    /// The peer has read all answers.
    pub fn answers_are_read(&mut self) {
        self.answers = 0;
    }

    /// Bytes of heads or bodies were received or sent.
    pub fn payload(&mut self, len: usize) {
        self.payload += len as u64;
    }

    /// Bytes of frames were received or sent; nginx's formula, which covers what no other counter does.
    pub fn bytes(&mut self, len: usize) -> Counted {
        self.bytes += len as u64;
        match self.bytes / FLOOD_FACTOR > self.payload + FLOOD_BASE {
            true => Err(Reason::Flood),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often `count` succeeds.
    fn times(mut count: impl FnMut() -> Counted) -> (u64, Reason) {
        let mut times = 0;
        loop {
            match count() {
                Ok(()) => times += 1,
                Err(reason) => return (times, reason),
            }
        }
    }

    #[test]
    fn each_counter_ends_at_its_limit() {
        let mut counters = Counters::default();
        let (resets, reason) = times(|| counters.reset(5));
        assert_eq!((resets, reason), (100, Reason::TooManyResets));
        assert!(counters.reset(5 + PERIOD_MS - 6).is_err());
        assert!(counters.reset(PERIOD_MS).is_ok(), "a new period");
        assert_eq!(times(|| counters.fault(PERIOD_MS)).0, 19, "of what is left");
        let (glitches, reason) = times(|| counters.glitch(1));
        assert_eq!((glitches, reason), (100, Reason::TooManyGlitches));
        assert_eq!(times(|| counters.refuse(3)).0, 100);
        let mut other = Counters::default();
        assert_eq!(times(|| other.refuse(128)).0, 128);
        assert_eq!(times(|| other.answer()).0, 1000);
        other.answers_are_read();
        assert!(other.answer().is_ok());
        assert_eq!(times(|| other.update()), (100, Reason::TooManyUpdates));
        other.sent_data(10);
        assert_eq!(times(|| other.update()).0, 9);
        other.opened();
        assert_eq!(times(|| other.update()).0, 9);
        let opened = (0..10).filter(|_| other.opens(3)).count();
        assert_eq!(opened, 6);
        other.begin_read();
        assert!(other.opens(3));
    }

    #[test]
    fn a_flood_is_bytes_without_payload() {
        let mut counters = Counters::default();
        assert!(counters.bytes(8 << 20).is_ok());
        assert_eq!(counters.bytes(8), Err(Reason::Flood));
        counters.payload(1);
        assert!(counters.bytes(0).is_ok());
    }
}
