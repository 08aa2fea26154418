//! A client's handshake, with a server behind a proxy.
//!
//! Any certificate is taken; whoever asked for a verified one judges it behind the handshake and before the first byte
//! of a request ([`verify_server`]).

use crate::configure::Client;
use crate::failure::{Cause, Failure};
use crate::handshake::facts::Facts;
use crate::handshake::machine::{Machine, Progress};
use crate::traffic::{Sizes, Traffic};
use crate::verify::{Purpose, Reason, Trust};
use crate::x509::certificate::Certificate;
use crate::x509::host;
use crate::x509::time::Seconds;
use rustls::client::{
    ClientConfig, ClientSessionMemoryCache, ClientSessionStore, Resumption,
    UnbufferedClientConnection,
};
use rustls::pki_types::{IpAddr, Ipv4Addr, ServerName};
use std::sync::Arc;

/// Maximum of names that a peer's sessions are kept for.
pub const SESSION_NAMES_MAX: usize = 4;
/// Number of tickets that the library keeps of a name: its memory is told tickets, not names.
const TICKETS_OF_NAME: usize = 8;
const INTERNAL: (u32, &str) = (68, "internal error");

/// Sessions of one peer, which connections to it take up again (`proxy_ssl_session_reuse`).
#[derive(Clone, Debug)]
pub struct PeerSessions(Arc<dyn ClientSessionStore>);

impl Default for PeerSessions {
    fn default() -> Self {
        Self(Arc::new(ClientSessionMemoryCache::new(
            SESSION_NAMES_MAX * TICKETS_OF_NAME,
        )))
    }
}

/// Whether a server can be told this name. The library sends names of hosts alone (RFC 6066, 3); an address is never sent.
#[must_use]
pub fn can_be_sent(name: &str) -> bool {
    ServerName::try_from(name).is_ok()
}

/// A client's handshake, at one of its states.
pub enum Connecting {
    /// Bytes of the server are needed.
    NeedsInput(ClientNeedsInput),
    /// It is over.
    Complete(Box<Connected>),
}

/// Waits for bytes. The first step sends the ClientHello, and needs none.
pub struct ClientNeedsInput {
    machine: Box<Machine<UnbufferedClientConnection>>,
    sizes: Sizes,
}

/// A finished handshake.
pub struct Connected {
    /// The connection's two directions.
    pub traffic: Traffic,
    /// What was negotiated.
    pub facts: Facts,
    /// Records that have come already, still sealed.
    pub rest: Vec<u8>,
}

impl ClientNeedsInput {
    /// Begins a handshake. `name` is sent to the server where the configuration asks for that (`proxy_ssl_server_name`)
    /// and it is a host's name; sessions are those of the peer.
    ///
    /// # Errors
    /// The library fails.
    pub fn new(
        client: &Client,
        name: &str,
        sessions: Option<&PeerSessions>,
    ) -> Result<Self, Failure> {
        let unnamed = || ServerName::IpAddress(IpAddr::V4(Ipv4Addr::from([0, 0, 0, 0])));
        let name = ServerName::try_from(name.to_owned()).unwrap_or_else(|_| unnamed());
        let mut config = Arc::clone(&client.config);
        if let Some(PeerSessions(sessions)) = sessions {
            let mut own = ClientConfig::clone(&config);
            own.resumption = Resumption::store(Arc::clone(sessions));
            config = Arc::new(own);
        }
        let connection = UnbufferedClientConnection::new(config, name);
        let broken = |_| Failure::new("SSL_new() failed", Cause::Library, INTERNAL);
        Ok(Self {
            machine: Box::new(Machine::new(connection.map_err(broken)?, Vec::new())),
            sizes: client.sizes,
        })
    }

    /// Takes bytes of the server. Costs a copy; [`ClientNeedsInput::step`] does the work.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.machine.receive(bytes);
    }

    /// Works on what has come; appends what is to be sent to `outgoing`, also where it fails.
    ///
    /// # Errors
    /// The handshake failed.
    pub fn step(mut self, outgoing: &mut Vec<u8>) -> Result<Connecting, Failure> {
        if self.machine.step(outgoing)? == Progress::NeedsInput {
            return Ok(Connecting::NeedsInput(self));
        }
        let facts = Facts::of(self.machine.connection());
        let ended = self.machine.finish(self.sizes)?;
        Ok(Connecting::Complete(Box::new(Connected {
            traffic: ended.traffic.into(),
            facts,
            rest: ended.rest,
        })))
    }
}

/// Why a server's certificate is not accepted. `Display` is nginx's sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerFault {
    /// The chain.
    #[error("upstream SSL certificate verify error: ({number}:{reason})", number = reason.number())]
    Chain {
        /// The reason.
        reason: Reason,
    },
    /// The certificate is another host's.
    #[error("upstream SSL certificate does not match \"{0}\"")]
    Host(String),
}

/// Judges the certificates that a server showed: the chain, and whether it is for the host (`proxy_ssl_verify`).
///
/// # Errors
/// It is not accepted.
pub fn verify_server(
    trust: &Trust,
    facts: &Facts,
    host: &str,
    now: Seconds,
) -> Result<(), ServerFault> {
    let chain = &facts.certificates;
    trust
        .verify(chain, Purpose::Server, now)
        .map_err(|reason| ServerFault::Chain { reason })?;
    let leaf = chain.first().and_then(|der| Certificate::read(der));
    let is_hosts = leaf.is_some_and(|leaf| host::matches(&leaf, host.as_bytes()));
    is_hosts
        .then_some(())
        .ok_or_else(|| ServerFault::Host(host.to_owned()))
}
