//! TLS of one `server` block.

use std::sync::Arc;

use tls::configure;

/// TLS of one `server` block.
#[derive(Debug)]
pub struct ServerTls {
    /// What its handshakes use; `None`: it has no certificate, so those of the default server of the address are used.
    pub handshakes: Option<Arc<configure::Server>>,
    /// `ssl_reject_handshake`.
    pub rejects: bool,
}
