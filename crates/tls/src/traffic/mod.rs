//! A connection after its handshake: contents out of records and into records, in the caller's buffers.
//!
//! What is kept of a connection is two keys and, in TLS 1.3, what the next keys are made of: rustls' own connection and
//! its buffers are gone. The same form is what a kernel would be given (kTLS). Not here: sockets, handshakes.
//! Invariants: nothing is encrypted that was not given; an end without close_notify is told apart; work that a peer
//! asks for without sending anything is bounded.

mod early;
pub(crate) mod record;
mod sizes;

pub use early::Traffic;
pub(crate) use early::Unfinished;
pub use record::{HEADER_BYTES, OVERHEAD_BYTES_MAX, PLAIN_BYTES_MAX, SEALED_BYTES_MAX};
pub use sizes::{GROWN_BYTES, SMALL_BYTES, Sizes};

use crate::failure::{self, Cause, Failure};
use record::{Broken, Content, RecordKey};
use rustls::ConnectionTrafficSecrets;

/// Maximum of records without contents, and of key updates, in a row; of key updates, also of what is opened at once.
pub const EMPTY_RECORDS_MAX: u32 = 32;
/// Maximum of warnings of a connection.
pub const WARNINGS_MAX: u32 = 8;
/// Maximum of records under one key of TLS 1.3; then it is updated (RFC 8446, 5.5).
pub const RECORDS_PER_KEY_MAX: u64 = 1 << 24;
/// Maximum size of a message behind the handshake: a session ticket that a server sends.
const MESSAGE_BYTES_MAX: usize = 65_536;

const READ: &str = "SSL_read() failed";
const WRITE: &str = "SSL_write() failed";
const CLOSE_NOTIFY: u8 = 0;
const USER_CANCELED: u8 = 90;
const NO_RENEGOTIATION: u8 = 100;
const WARNING: u8 = 1;
const FATAL: u8 = 2;
const HELLO_REQUEST: u8 = 0;
const CLIENT_HELLO: u8 = 1;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// A connection's two directions after its handshake.
pub(crate) struct Established {
    sealing: RecordKey,
    opening: RecordKey,
    /// Only in TLS 1.3.
    keys: Option<Box<dyn Keys>>,
    sizes: Sizes,
    /// The beginning of a message whose end has not come.
    message: Vec<u8>,
    empty_records: u32,
    /// Key updates of what is being opened.
    updates: u32,
    /// Whether the peer has not got the last answer to a key update: it answers all that come meanwhile.
    has_answered: bool,
    warnings: u32,
    sent: Closing,
    received: Closing,
    /// Why nothing is opened any more, and the alert that the peer is told: once all that came before has been given out.
    failure: Option<Box<Failure>>,
    alert: Option<u8>,
}

/// Whether a direction has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    Open,
    Closed,
}

/// What gives the next keys of TLS 1.3.
pub(crate) trait Keys: Send {
    /// The next key to seal with.
    fn sealing(&mut self) -> Option<(u64, ConnectionTrafficSecrets)>;
    /// The next key to open with.
    fn opening(&mut self) -> Option<(u64, ConnectionTrafficSecrets)>;
    /// A session ticket that came; whether it may come at all.
    fn ticket(&mut self, message: &[u8]) -> bool;
}

/// What came out of a caller's buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Bytes of records that were taken from the front of the buffer.
    pub consumed: usize,
    /// Contents that stand at the front of the buffer now, at most `consumed`.
    pub plain: usize,
    /// Whether the peer has said that nothing follows.
    pub is_closed: bool,
}

impl Established {
    pub(crate) fn new(
        sealing: RecordKey,
        opening: RecordKey,
        keys: Option<Box<dyn Keys>>,
        sizes: Sizes,
    ) -> Self {
        Self {
            sealing,
            opening,
            keys,
            sizes,
            message: Vec::new(),
            empty_records: 0,
            updates: 0,
            has_answered: false,
            warnings: 0,
            sent: Closing::Open,
            received: Closing::Open,
            failure: None,
            alert: None,
        }
    }

    /// Opens the whole records at the front of `buffer`, in place: contents are moved to its front. What has to be
    /// sent at once (a new key, an alert) is appended to `replies`. What stands behind `consumed` is still sealed.
    ///
    /// # Errors
    /// The connection is of no more use; the alert is in `replies`. Contents that came before are given out first: until
    /// then there is the failure to ask for ([`Established::has_failure`]).
    pub(crate) fn open(
        &mut self,
        buffer: &mut [u8],
        replies: &mut Vec<u8>,
    ) -> Result<Opened, Failure> {
        if let Some(failure) = self.failure.clone() {
            return Err(self.end(*failure, replies));
        }
        let mut opened = Opened::default();
        self.updates = 0;
        let outcome = self.open_records(buffer, &mut opened, replies);
        self.has_answered = false;
        let Err(failure) = outcome else {
            opened.is_closed = self.received == Closing::Closed;
            return Ok(opened);
        };
        self.failure = Some(Box::new(failure.clone()));
        match opened.plain {
            0 => Err(self.end(failure, replies)),
            _ => Ok(opened),
        }
    }

    /// Whether [`Established::open`] has only a failure to give.
    pub(crate) fn has_failure(&self) -> bool {
        self.failure.is_some()
    }

    /// Says that answers to what was opened are still unsent: what is opened next needs no other answer to key updates
    /// (RFC 8446, 4.6.3).
    pub(crate) fn hold_answers(&mut self) {
        self.has_answered = true;
    }

    fn open_records(
        &mut self,
        buffer: &mut [u8],
        opened: &mut Opened,
        replies: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        while self.received == Closing::Open {
            let rest = &mut buffer[opened.consumed..];
            let whole = record::whole(rest).map_err(|broken| self.broken(broken))?;
            let Some(length) = whole else {
                break;
            };
            let record = &mut rest[..length];
            let result = self.opening.open(record);
            let (content, plain) = result.map_err(|broken| self.broken(broken))?;
            let begin = opened.consumed;
            opened.consumed += length;
            let plain = begin + plain.start..begin + plain.end;
            if content == Content::Data {
                self.count(plain.len())?;
                buffer.copy_within(plain.clone(), opened.plain);
                opened.plain += plain.len();
            } else {
                self.other(content, &buffer[plain], replies)?;
            }
        }
        Ok(())
    }

    /// Counts records without contents.
    fn count(&mut self, length: usize) -> Result<(), Failure> {
        self.empty_records = if length > 0 {
            0
        } else {
            self.empty_records + 1
        };
        if self.empty_records > EMPTY_RECORDS_MAX {
            return Err(self.fail(10, Cause::Flood, failure::EMPTY_RECORDS));
        }
        Ok(())
    }

    fn other(
        &mut self,
        content: Content,
        plain: &[u8],
        replies: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        match content {
            Content::Alert => self.alert(plain),
            Content::Handshake => self.messages(plain, replies),
            Content::ChangeCipherSpec | Content::Data => Err(self.unexpected()),
        }
    }

    fn alert(&mut self, plain: &[u8]) -> Result<(), Failure> {
        let &[level, alert] = plain else {
            return Err(self.unexpected());
        };
        match (level, alert) {
            (_, CLOSE_NOTIFY) => self.received = Closing::Closed,
            (WARNING, alert) if self.keys.is_none() || alert == USER_CANCELED => {
                self.warnings += 1;
                if self.warnings > WARNINGS_MAX {
                    return Err(self.fail(10, Cause::Flood, failure::TOO_MANY_ALERTS));
                }
            }
            (_, alert) => {
                self.received = Closing::Closed;
                return Err(Failure::alert(READ, alert));
            }
        }
        Ok(())
    }

    /// Messages of the handshake protocol behind a handshake.
    fn messages(&mut self, plain: &[u8], replies: &mut Vec<u8>) -> Result<(), Failure> {
        self.message.extend_from_slice(plain);
        while let &[kind, a, b, c, ref rest @ ..] = &self.message[..] {
            let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            if length > MESSAGE_BYTES_MAX {
                return Err(self.unexpected());
            }
            let Some(body) = rest.get(..length) else {
                break;
            };
            let (body, is_last) = (body.to_vec(), rest.len() == length);
            self.message.drain(..4 + length);
            self.message(kind, &body, is_last, replies)?;
        }
        if self.message.is_empty() {
            self.message = Vec::new();
        }
        Ok(())
    }

    fn message(
        &mut self,
        kind: u8,
        body: &[u8],
        is_last: bool,
        replies: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let Some(keys) = &mut self.keys else {
            return match kind {
                HELLO_REQUEST | CLIENT_HELLO => self.refuse_renegotiation(replies),
                _ => Err(self.unexpected()),
            };
        };
        match (kind, body) {
            (NEW_SESSION_TICKET, body) if keys.ticket(body) => self.count(0),
            // A key's last record holds nothing behind its update (RFC 8446, 5.1).
            (KEY_UPDATE, &[request @ 0..=1]) if is_last => self.update(request == 1, replies),
            _ => Err(self.unexpected()),
        }
    }

    fn refuse_renegotiation(&mut self, replies: &mut Vec<u8>) -> Result<(), Failure> {
        self.warnings += 1;
        if self.warnings > WARNINGS_MAX {
            return Err(self.fail(10, Cause::Flood, failure::TOO_MANY_ALERTS));
        }
        self.send_alert(WARNING, NO_RENEGOTIATION, replies);
        Ok(())
    }

    /// Takes the peer's next key, and sends our own where it asks for that.
    fn update(&mut self, is_asked: bool, replies: &mut Vec<u8>) -> Result<(), Failure> {
        self.empty_records += 1;
        self.updates += 1;
        if self.empty_records.max(self.updates) > EMPTY_RECORDS_MAX {
            return Err(self.fail(10, Cause::Flood, failure::TOO_MANY_KEY_UPDATES));
        }
        let next = self.keys.as_mut().and_then(|keys| keys.opening());
        let next = next.and_then(|(sequence, secrets)| RecordKey::new(sequence, &secrets, true));
        self.opening = next.ok_or_else(|| self.unexpected())?;
        if is_asked && self.sent == Closing::Open && !self.has_answered {
            self.change_key(replies)?;
            self.has_answered = true;
        }
        Ok(())
    }

    /// Sends a key update, and seals with the next key from then on.
    fn change_key(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        let exhausted = || Failure::new(WRITE, Cause::Library, failure::BAD_RECORD);
        let update = [KEY_UPDATE, 0, 0, 1, 0];
        let sealed = self.sealing.seal(Content::Handshake, &[&update], out);
        sealed.map_err(|_| exhausted())?;
        let next = self.keys.as_mut().and_then(|keys| keys.sealing());
        let next = next.and_then(|(sequence, secrets)| RecordKey::new(sequence, &secrets, true));
        self.sealing = next.ok_or_else(exhausted)?;
        Ok(())
    }

    /// Seals all of `parts`, one behind the other, into records appended to `out`; room for them is best reserved
    /// ([`Established::sealed_bytes`]).
    ///
    /// # Errors
    /// The connection is of no more use.
    pub(crate) fn seal(&mut self, parts: &[&[u8]], out: &mut Vec<u8>) -> Result<(), Failure> {
        if self.sent == Closing::Closed {
            return Err(Failure::new(
                WRITE,
                Cause::Library,
                (207, "protocol is shutdown"),
            ));
        }
        let mut parts = sizes::Parts::new(parts);
        let mut gathered = Vec::new();
        while let Some(length) = parts.gather(self.sizes.next(), &mut gathered) {
            if self.keys.is_some() && self.sealing.sequence() >= RECORDS_PER_KEY_MAX {
                self.change_key(out)?;
            }
            let sealed = self.sealing.seal(Content::Data, &gathered, out);
            sealed.map_err(|_| Failure::new(WRITE, Cause::Library, failure::BAD_RECORD))?;
            self.sizes.sent(length);
        }
        Ok(())
    }

    /// At most this many bytes come out for `plain` bytes.
    pub(crate) fn sealed_bytes(&self, plain: usize) -> usize {
        let records = plain / self.sizes.smallest() + 1;
        plain + records * OVERHEAD_BYTES_MAX
    }

    /// Says that nothing was sent for a while: growing records begin small again.
    pub(crate) fn rest(&mut self) {
        self.sizes.rest();
    }

    /// Says to the peer that nothing follows; once.
    pub(crate) fn close(&mut self, out: &mut Vec<u8>) {
        if self.sent == Closing::Open {
            self.send_alert(WARNING, CLOSE_NOTIFY, out);
            self.sent = Closing::Closed;
        }
    }

    /// What the end of the connection means: nothing where the peer has said that nothing follows, else its data may
    /// be cut off.
    ///
    /// # Errors
    /// The peer did not say it.
    pub(crate) fn ended(&self) -> Result<(), Failure> {
        match self.received {
            Closing::Closed => Ok(()),
            Closing::Open => Err(Failure::new(READ, Cause::Closed, failure::UNEXPECTED_EOF)),
        }
    }

    fn unexpected(&mut self) -> Failure {
        self.fail(10, Cause::Malformed, failure::UNEXPECTED_MESSAGE)
    }

    fn broken(&mut self, broken: Broken) -> Failure {
        let (alert, reason) = match broken {
            Broken::Tag | Broken::Exhausted => (20, failure::BAD_RECORD),
            Broken::Length => (22, failure::BAD_LENGTH),
            Broken::Type => (10, failure::BAD_TYPE),
        };
        self.fail(alert, Cause::Malformed, reason)
    }

    fn fail(&mut self, alert: u8, cause: Cause, reason: (u32, &'static str)) -> Failure {
        self.alert = Some(alert);
        self.received = Closing::Closed;
        Failure::new(READ, cause, reason)
    }

    /// Gives a failure out: the peer is told of its own, and nothing else is sent.
    fn end(&mut self, failure: Failure, replies: &mut Vec<u8>) -> Failure {
        if let Some(alert) = self.alert.take()
            && self.sent == Closing::Open
        {
            self.send_alert(FATAL, alert, replies);
        }
        (self.sent, self.received) = (Closing::Closed, Closing::Closed);
        failure
    }

    /// An alert that cannot be sealed is not sent: the connection ends all the same.
    fn send_alert(&mut self, level: u8, alert: u8, out: &mut Vec<u8>) {
        let _ = self.sealing.seal(Content::Alert, &[&[level, alert]], out);
    }
}
