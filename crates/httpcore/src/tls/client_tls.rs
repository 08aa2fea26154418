//! What the handshake of a client's connection has brought.

use std::cell::Cell;

use tls::handshake::Facts;
use tls::hello::Hello;
use tls::verify::Verdict;

use crate::route::ServerId;

/// What the handshake of a client's connection has brought.
#[derive(Debug)]
pub struct ClientTls {
    /// What was negotiated.
    pub facts: Facts,
    /// What the client offered.
    pub hello: Hello,
    /// What the client's certificate is worth. Made anew for each connection, also where an old session was taken up.
    pub verdict: Verdict,
    /// The server of the name that the client asked for, else the default server; with the number of the configuration
    /// that it is of ([`crate::client::Client::default_server`]).
    pub server: Cell<(u64, ServerId)>,
    /// Whether the current request came before the handshake was over (`$ssl_early_data`).
    pub is_early: Cell<bool>,
}
