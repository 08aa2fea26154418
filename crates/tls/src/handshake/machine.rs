//! The part of a handshake that servers and clients share: records in, one at a time, until the last one.
//!
//! One record at a time, so that rustls never sees a record behind the handshake: that one is opened by `traffic`.

use crate::failure::{Cause, Failure};
use crate::handshake::rustls_connection::{Connection, Event};
use crate::traffic::record::{self, RecordKey};
use crate::traffic::{Established, Sizes};

/// Maximum of bytes that are kept of a peer in a handshake: a chain of certificates, in records.
pub const HANDSHAKE_BYTES_MAX: usize = 128 * 1024;
/// Maximum of calls for what an alert needs.
const ALERT_CALLS_MAX: usize = 8;
const MESSAGE_TOO_LONG: (u32, &str) = (152, "excessive message size");
const INTERNAL: (u32, &str) = (68, "internal error");

/// The alert that rustls sends where no certificate fits (access_denied), and the one of RFC 8446, 4.4.2.2 and OpenSSL
/// (handshake_failure).
const NO_CERTIFICATE: [u8; 4] = [0, 2, 2, 49];
const HANDSHAKE_FAILURE: u8 = 40;

/// A handshake under way.
pub(crate) struct Machine<C> {
    connection: C,
    incoming: Vec<u8>,
    /// How many bytes of `incoming` rustls has been shown.
    window: usize,
    early: Vec<u8>,
}

/// Whether it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    NeedsInput,
    Complete,
}

/// Changes the alert at the end, if it is rustls' for a client that no certificate fits. Nothing is sealed by then.
fn name_no_certificate(outgoing: &mut [u8]) {
    if outgoing.ends_with(&NO_CERTIFICATE)
        && let Some(alert) = outgoing.last_mut()
    {
        *alert = HANDSHAKE_FAILURE;
    }
}

/// A finished handshake.
pub(crate) struct Ended {
    pub(crate) traffic: Established,
    /// Records that came behind the handshake, still sealed.
    pub(crate) rest: Vec<u8>,
    /// What a client sent before the handshake was over.
    pub(crate) early: Vec<u8>,
}

impl<C: Connection> Machine<C> {
    pub(crate) fn new(connection: C, incoming: Vec<u8>) -> Self {
        Self {
            connection,
            incoming,
            window: 0,
            early: Vec::new(),
        }
    }

    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        self.incoming.extend_from_slice(bytes);
    }

    /// What the peer has sent before the handshake is over, as far as nobody took it.
    pub(crate) fn take_early(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.early)
    }

    /// Seals data of ours before the handshake is over.
    pub(crate) fn seal_early(
        &mut self,
        plain: &[u8],
        outgoing: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let sealed = self.connection.seal_early(plain, outgoing);
        sealed
            .ok_or_else(|| Failure::new("SSL_write_early_data() failed", Cause::Library, INTERNAL))
    }

    pub(crate) fn close_early(&mut self, outgoing: &mut Vec<u8>) {
        self.connection.close_early(outgoing);
    }

    /// Whether the peer has sent something that nobody took.
    pub(crate) fn has_early(&self) -> bool {
        !self.early.is_empty()
    }

    /// What rustls has not been shown: the beginning of a record.
    pub(crate) fn take_unshown(&mut self) -> Vec<u8> {
        self.incoming.split_off(self.window)
    }

    pub(crate) fn connection(&self) -> &C {
        &self.connection
    }

    /// Whether TLS 1.3 has been chosen.
    pub(crate) fn is_tls13(&self) -> bool {
        let version = self.connection.state().protocol_version();
        version == Some(rustls::ProtocolVersion::TLSv1_3)
    }

    /// Whether an old session is taken up.
    pub(crate) fn is_resumed(&self) -> bool {
        let kind = self.connection.state().handshake_kind();
        kind == Some(rustls::HandshakeKind::Resumed)
    }

    /// Works until more bytes are needed, or until the end.
    pub(crate) fn step(&mut self, outgoing: &mut Vec<u8>) -> Result<Progress, Failure> {
        loop {
            let shown = &mut self.incoming[..self.window];
            let (done, event) = self.connection.advance(shown, outgoing, &mut self.early);
            let done = done.min(self.window);
            self.incoming.drain(..done);
            self.window -= done;
            if self.incoming.is_empty() {
                // Nothing is kept for a peer that may never speak again.
                self.incoming = Vec::new();
            }
            match event {
                Event::Again => {}
                Event::Ready if !self.connection.state().is_handshaking() => {
                    return Ok(Progress::Complete);
                }
                Event::Closed => return Err(Failure::closed()),
                Event::Failed(error) => {
                    self.flush_alert(outgoing);
                    name_no_certificate(outgoing);
                    return Err(Failure::handshake(&error));
                }
                // Our own data may be sent before the peer's last word has come.
                Event::Ready | Event::Blocked if self.show_record() => {}
                Event::Ready | Event::Blocked if self.incoming.len() > HANDSHAKE_BYTES_MAX => {
                    let call = "SSL_do_handshake() failed";
                    return Err(Failure::new(call, Cause::Flood, MESSAGE_TOO_LONG));
                }
                Event::Ready | Event::Blocked => return Ok(Progress::NeedsInput),
            }
        }
    }

    /// Whether there is a whole record that the next step shows, or something that is none.
    pub(crate) fn has_record(&self) -> bool {
        record::whole(&self.incoming[self.window..]) != Ok(None)
    }

    /// Shows the next whole record; whether there is one. What is no record is shown, too: rustls knows the alert.
    fn show_record(&mut self) -> bool {
        let rest = &self.incoming[self.window..];
        match record::whole(rest) {
            Ok(Some(length)) => self.window += length,
            Ok(None) => return false,
            Err(_) => self.window = self.incoming.len(),
        }
        true
    }

    fn flush_alert(&mut self, outgoing: &mut Vec<u8>) {
        for _ in 0..ALERT_CALLS_MAX {
            let (_, event) = self.connection.advance(&mut [], outgoing, &mut self.early);
            if !matches!(event, Event::Again) {
                return;
            }
        }
    }

    /// The two directions of a finished handshake.
    pub(crate) fn finish(self, sizes: Sizes) -> Result<Ended, Failure> {
        let broken = || Failure::new("SSL_do_handshake() failed", Cause::Library, INTERNAL);
        let is_tls13 = self.is_tls13();
        let (secrets, keys) = self.connection.finish().map_err(|_| broken())?;
        let (number, secret) = &secrets.tx;
        let sealing = RecordKey::new(*number, secret, is_tls13).ok_or_else(broken)?;
        let (number, secret) = &secrets.rx;
        let opening = RecordKey::new(*number, secret, is_tls13).ok_or_else(broken)?;
        let traffic = Established::new(sealing, opening, is_tls13.then_some(keys), sizes);
        Ok(Ended {
            traffic,
            rest: self.incoming,
            early: self.early,
        })
    }
}
