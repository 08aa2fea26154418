//! A server's handshake.

use crate::certificates::Certificates;
use crate::configure::{Server, is_chacha};
use crate::failure::{Cause, Failure};
use crate::handshake::facts::Facts;
use crate::handshake::machine::{Machine, Progress};
use crate::hello::{self, BUFFER_BYTES_MAX, Hello};
use crate::sessions::KeptSessions;
use crate::sessions::cache::noting_sessions;
use crate::traffic::{Established, Sizes, Traffic, Unfinished};
use crate::verify::signature::noting_scheme;
use aws_lc_rs::digest;
use rustls::server::{ServerConfig, UnbufferedServerConnection};
use rustls::{ProtocolVersion, SignatureScheme};
use std::sync::Arc;

/// A plain alert of level fatal, in the record that a client of any version reads.
const ALERT: [u8; 6] = [21, 3, 1, 0, 2, 2];
const PROTOCOL_VERSION: u8 = 70;
const DECODE_ERROR: u8 = 50;
const UNEXPECTED_MESSAGE: u8 = 10;
const RECORD_OVERFLOW: u8 = 22;
const INTERNAL_ERROR: u8 = 80;
const UNRECOGNISED_NAME: u8 = 112;
/// Versions (RFC 8446, 4.2.1).
const TLS12: u16 = 0x0303;
const TLS13: u16 = 0x0304;
const INTERNAL: (u32, &str) = (68, "internal error");

/// Where a ServerHello that begins a flight has its random bytes and its session id.
const RANDOM_AT: usize = 11;
const SESSION_ID_AT: usize = RANDOM_AT + 32;
/// The random bytes of a ServerHello that only asks for another key share (RFC 8446, 4.1.3).
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// A server's handshake, at one of its states.
pub enum Handshake {
    /// Bytes of the client are needed.
    NeedsInput(NeedsInput),
    /// The client is known: a server has to be chosen.
    Accepted(Accepted),
    /// It is over.
    Complete(Box<Complete>),
}

/// Waits for bytes.
pub struct NeedsInput(Stage);

enum Stage {
    Hello(Vec<u8>),
    Negotiating(Box<Negotiating>),
}

/// What is known once a server is chosen.
struct Negotiating {
    machine: Machine<UnbufferedServerConnection>,
    hello: Hello,
    certificates: Arc<Certificates>,
    sizes: Sizes,
    /// Whether the client is asked for a certificate.
    asks_client: bool,
    session_id: Vec<u8>,
    client_scheme: Option<u16>,
    /// Where the client is asked for a certificate.
    kept: KeptSessions,
}

/// Knows what the client offers. What it offered can be taken out and kept.
pub struct Accepted {
    hello: Hello,
    incoming: Vec<u8>,
}

/// A finished handshake, or one that is over but for the client's Finished ([`NeedsInput::answer_early`]).
pub struct Complete {
    /// The connection's two directions.
    pub traffic: Traffic,
    /// What was negotiated.
    pub facts: Facts,
    /// What the client offered.
    pub hello: Hello,
    /// Records that have come already, still sealed.
    pub rest: Vec<u8>,
    /// What the client sent before the handshake was over, at most
    /// [`EARLY_DATA_BYTES_MAX`](crate::configure::EARLY_DATA_BYTES_MAX).
    pub early: Vec<u8>,
    /// Its sessions in a cache, where the client is asked for a certificate: to be forgotten if it is refused.
    pub kept: KeptSessions,
}

impl Default for NeedsInput {
    fn default() -> Self {
        Self(Stage::Hello(Vec::new()))
    }
}

impl NeedsInput {
    /// Takes bytes of the client. Costs a copy; [`NeedsInput::step`] does the work.
    pub fn receive(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Stage::Hello(incoming) => incoming.extend_from_slice(bytes),
            Stage::Negotiating(negotiating) => negotiating.machine.receive(bytes),
        }
    }

    /// Whether the next step asks for a key exchange or a signature. It does not before a server is chosen, nor where
    /// no more than the client's Finished is waited for (TLS 1.3, or an old session): that takes some 20 µs. Nor does it
    /// before a record is whole, however slowly it comes.
    #[must_use]
    pub fn is_work(&self) -> bool {
        match &self.0 {
            Stage::Hello(_) => false,
            Stage::Negotiating(negotiating) => {
                !negotiating.waits_for_finished() && negotiating.machine.has_record()
            }
        }
    }

    /// Ends the wait where the client has sent early data, so that a request in it is answered at once: the client's
    /// Finished is one of the records that [`Traffic`] opens. Not where the client is asked for a certificate.
    ///
    /// # Errors
    /// There is none, or it may not be answered; the handshake goes on.
    pub fn answer_early(self) -> Result<Box<Complete>, Self> {
        match self.0 {
            Stage::Negotiating(negotiating) if negotiating.may_answer_early() => {
                Ok(Box::new(negotiating.into_early()))
            }
            stage => Err(Self(stage)),
        }
    }

    /// Works on what has come; appends what is to be sent to `outgoing`, also where it fails.
    ///
    /// # Errors
    /// The handshake failed.
    pub fn step(self, outgoing: &mut Vec<u8>) -> Result<Handshake, Failure> {
        match self.0 {
            Stage::Hello(incoming) => accept(incoming, outgoing),
            Stage::Negotiating(negotiating) => negotiating.step(outgoing),
        }
    }
}

fn accept(incoming: Vec<u8>, outgoing: &mut Vec<u8>) -> Result<Handshake, Failure> {
    match hello::read(&incoming) {
        Ok(hello::Progress::Incomplete) if incoming.len() > BUFFER_BYTES_MAX => {
            Err(refuse(hello::Fault::TooLong, outgoing))
        }
        Ok(hello::Progress::Incomplete) => {
            Ok(Handshake::NeedsInput(NeedsInput(Stage::Hello(incoming))))
        }
        Ok(hello::Progress::Whole(hello)) => Ok(Handshake::Accepted(Accepted {
            hello: *hello,
            incoming,
        })),
        Err(fault) => Err(refuse(fault, outgoing)),
    }
}

fn refuse(fault: hello::Fault, outgoing: &mut Vec<u8>) -> Failure {
    let alert = match fault {
        hello::Fault::HttpRequest | hello::Fault::ProxyRequest => None,
        hello::Fault::NotTls => Some(PROTOCOL_VERSION),
        hello::Fault::Unexpected => Some(UNEXPECTED_MESSAGE),
        hello::Fault::RecordTooLong => Some(RECORD_OVERFLOW),
        hello::Fault::TooLong | hello::Fault::Malformed => Some(DECODE_ERROR),
    };
    if let Some(alert) = alert {
        send_alert(alert, outgoing);
    }
    Failure::hello(fault)
}

fn send_alert(alert: u8, outgoing: &mut Vec<u8>) {
    outgoing.extend_from_slice(&ALERT);
    outgoing.push(alert);
}

impl Accepted {
    /// What the client offers.
    #[must_use]
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Goes on with a server: the costliest step, with key exchange and signature. `certificates` stand in the place
    /// of the server's own where their names come with the connection.
    ///
    /// # Errors
    /// The handshake failed.
    pub fn choose(
        self,
        server: &Server,
        certificates: Option<Arc<Certificates>>,
        outgoing: &mut Vec<u8>,
    ) -> Result<Handshake, Failure> {
        // rustls would miss other things first.
        if !self
            .hello
            .versions
            .iter()
            .any(|version| matches!(*version, TLS12 | TLS13))
        {
            send_alert(PROTOCOL_VERSION, outgoing);
            return Err(Failure::too_old());
        }
        let mut config = Arc::clone(match &server.chacha_first {
            Some(config) if self.hello.ciphers.first().copied().is_some_and(is_chacha) => config,
            _ => &server.config,
        });
        if let Some(certificates) = &certificates {
            let mut own = ServerConfig::clone(&config);
            own.cert_resolver = Arc::clone(certificates) as Arc<_>;
            config = Arc::new(own);
        }
        let Ok(connection) = UnbufferedServerConnection::new(config) else {
            send_alert(INTERNAL_ERROR, outgoing);
            let call = "SSL_new() failed";
            return Err(Failure::new(call, Cause::Library, INTERNAL));
        };
        let negotiating = Negotiating {
            machine: Machine::new(connection, self.incoming),
            hello: self.hello,
            certificates: certificates.unwrap_or_else(|| Arc::clone(&server.certificates)),
            sizes: server.sizes,
            asks_client: server.trust().is_some(),
            session_id: Vec::new(),
            client_scheme: None,
            kept: KeptSessions::default(),
        };
        Box::new(negotiating).step(outgoing)
    }

    /// Refuses the client, as `ssl_reject_handshake` asks.
    #[must_use]
    pub fn reject(self, outgoing: &mut Vec<u8>) -> Failure {
        send_alert(UNRECOGNISED_NAME, outgoing);
        Failure::rejected()
    }

    /// Refuses the client because its certificate could not be read.
    #[must_use]
    pub fn fail(self, outgoing: &mut Vec<u8>) -> Failure {
        send_alert(INTERNAL_ERROR, outgoing);
        Failure::certificate()
    }
}

impl Negotiating {
    fn step(mut self: Box<Self>, outgoing: &mut Vec<u8>) -> Result<Handshake, Failure> {
        let begin = outgoing.len();
        let machine = &mut self.machine;
        let (progress, scheme) = noting_scheme(|| match self.asks_client {
            true => noting_sessions(&mut self.kept, || machine.step(outgoing)),
            false => machine.step(outgoing),
        });
        let progress = progress?;
        self.client_scheme = self.client_scheme.or(scheme);
        if self.session_id.is_empty() {
            self.session_id = session_id(&outgoing[begin..]);
        }
        match progress {
            Progress::NeedsInput => Ok(Handshake::NeedsInput(NeedsInput(Stage::Negotiating(self)))),
            Progress::Complete => self.finish(),
        }
    }

    /// Whether all that is to come is the client's Finished: a ServerHello has been sent, not only a request for another
    /// key share, and of TLS 1.2 one that takes up an old session.
    fn waits_for_finished(&self) -> bool {
        let has_keys = self.machine.is_tls13() || self.machine.is_resumed();
        has_keys && !self.session_id.is_empty() && !self.asks_client
    }

    fn facts(&mut self) -> Facts {
        let mut facts = Facts::of(self.machine.connection());
        facts.server_name.clone_from(&self.hello.server_name);
        facts.signature_scheme = self.signature_scheme(&facts).map(u16::from);
        facts.client_signature_scheme = self.client_scheme;
        facts.session_id = std::mem::take(&mut self.session_id);
        facts
    }

    fn may_answer_early(&self) -> bool {
        self.machine.has_early() && !self.asks_client
    }

    fn into_early(mut self) -> Complete {
        let facts = self.facts();
        let (early, rest) = (self.machine.take_early(), self.machine.take_unshown());
        let unfinished = UnfinishedServer {
            machine: Some(self.machine),
            sizes: self.sizes,
        };
        Complete {
            traffic: Traffic::early(Box::new(unfinished)),
            facts,
            hello: self.hello,
            rest,
            early,
            kept: self.kept,
        }
    }

    fn finish(mut self) -> Result<Handshake, Failure> {
        let facts = self.facts();
        let ended = self.machine.finish(self.sizes)?;
        Ok(Handshake::Complete(Box::new(Complete {
            traffic: ended.traffic.into(),
            facts,
            hello: self.hello,
            rest: ended.rest,
            early: ended.early,
            kept: self.kept,
        })))
    }

    /// The scheme that we have signed with: chosen again, as nobody tells.
    fn signature_scheme(&self, facts: &Facts) -> Option<SignatureScheme> {
        if facts.is_resumed {
            return None;
        }
        let is_tls13 = facts.version == u16::from(ProtocolVersion::TLSv1_3);
        let name = facts.cipher_name();
        let fits = |scheme: &SignatureScheme| {
            let id = u16::from(*scheme);
            let is_ecdsa = id & 0xff == 3 || matches!(id, 0x807 | 0x808);
            if is_tls13 {
                id & 0xff != 1 && id >> 8 != 2
            } else {
                name.contains("ECDSA") == is_ecdsa
            }
        };
        let offered = self.hello.signature_schemes.iter();
        let offered: Vec<_> = offered
            .map(|id| SignatureScheme::from(*id))
            .filter(fits)
            .collect();
        let pair = self.certificates.choose(&offered)?;
        pair.key
            .choose_scheme(&offered)
            .map(|signer| signer.scheme())
    }
}

/// What waits for the client's Finished while early data is answered.
struct UnfinishedServer {
    /// `None` behind the Finished.
    machine: Option<Machine<UnbufferedServerConnection>>,
    sizes: Sizes,
}

impl Unfinished for UnfinishedServer {
    fn receive(
        &mut self,
        record: &[u8],
        early: &mut Vec<u8>,
        replies: &mut Vec<u8>,
    ) -> Result<Option<Established>, Failure> {
        let Some(machine) = &mut self.machine else {
            return Ok(None);
        };
        machine.receive(record);
        let progress = machine.step(replies)?;
        early.append(&mut machine.take_early());
        let over = match progress {
            Progress::NeedsInput => None,
            Progress::Complete => self.machine.take(),
        };
        let ended = over.map(|machine| machine.finish(self.sizes));
        Ok(ended.transpose()?.map(|ended| ended.traffic))
    }

    fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
        let broken = || Failure::new("SSL_write_early_data() failed", Cause::Library, INTERNAL);
        let machine = self.machine.as_mut().ok_or_else(broken)?;
        machine.seal_early(plain, out)
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        if let Some(machine) = &mut self.machine {
            machine.close_early(out);
        }
    }
}

/// The session id in a flight that begins with a ServerHello. Where it has none, one is made of its random bytes.
fn session_id(flight: &[u8]) -> Vec<u8> {
    let is_hello = flight.first() == Some(&22) && flight.get(5) == Some(&2);
    let length = flight.get(SESSION_ID_AT).copied().map_or(0, usize::from);
    let id = flight
        .get(SESSION_ID_AT + 1..)
        .and_then(|rest| rest.get(..length));
    let random = flight.get(RANDOM_AT..SESSION_ID_AT).unwrap_or_default();
    match (is_hello && random != RETRY, id) {
        (true, Some([])) => digest::digest(&digest::SHA256, random).as_ref().to_vec(),
        (true, Some(id)) => id.to_vec(),
        _ => Vec::new(),
    }
}
