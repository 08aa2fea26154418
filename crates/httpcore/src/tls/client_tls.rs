//! What the handshake of a client's connection has brought.

use std::cell::Cell;
use std::rc::Rc;

use tls::handshake::Facts;
use tls::hello::Hello;
use tls::sessions::KeptSessions;
use tls::verify::Verdict;

use super::ServerTls;
use crate::route::ServerId;

/// What a client's certificate is judged by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The digest of what is trusted; `None`: clients are asked for no certificate.
    trust: Option<[u8; 32]>,
    /// Whether responders are asked (`ssl_ocsp`).
    asks_status: bool,
}

impl Rules {
    /// Those of the server whose certificate a handshake shows.
    #[must_use]
    pub fn of(tls: &ServerTls) -> Self {
        let trust = tls.handshakes.as_ref().and_then(|it| it.trust());
        Self {
            trust: trust.map(|trust| *trust.digest()),
            asks_status: trust.is_some() && tls.statuses.is_some(),
        }
    }
}

/// What the handshake of a client's connection has brought.
#[derive(Debug)]
pub struct ClientTls {
    /// What was negotiated.
    pub facts: Facts,
    /// What the client offered.
    pub hello: Hello,
    /// What the client's certificate is worth. Made anew for each connection, also where an old session was taken up, and
    /// where a reload has brought other rules.
    pub verdict: Cell<Verdict>,
    /// What it was judged by, with the number of the configuration for which that was seen last.
    pub judged: Cell<(u64, Rules)>,
    /// The server of the name that the client asked for, else the default server; with the number of the configuration
    /// that it is of ([`crate::client::Client::default_server`]).
    pub server: Cell<(u64, ServerId)>,
    /// Whether the handshake is not over, since the client's Finished has not been read (`$ssl_early_data`).
    pub is_early: Rc<Cell<bool>>,
    /// Its sessions, which are forgotten where a request is refused because of the client's certificate.
    pub kept: KeptSessions,
}
