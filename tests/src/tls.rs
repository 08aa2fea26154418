//! Certificates that are made for a test, and a client that speaks TLS. It takes every certificate of a server.

#[path = "../../crates/tls/tests/peer/any_certificate.rs"]
mod any_certificate;
#[path = "../../crates/tls/tests/peer/stapled.rs"]
mod stapled;

use crate::client::PATIENCE;
use crate::reply::{Reply, split_reply};
use crate::site::Site;
use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use stapled::Stapled;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;

/// A self-signed certificate and its key, as PEM.
pub struct Certificate {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

impl Certificate {
    /// Of this name, with a key on P-256.
    ///
    /// # Panics
    /// The name is none.
    pub fn of(name: &str) -> Certificate {
        Self::between(name, (1975, 4096))
    }

    /// The same, valid from the first day of a year to that of another one.
    ///
    /// # Panics
    /// The name is none.
    pub fn between(name: &str, (first, last): (i32, i32)) -> Certificate {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(first, 1, 1);
        params.not_after = date_time_ymd(last, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        Certificate {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    /// Writes `NAME.crt` and `NAME.key` beside `nginx.conf`.
    pub fn write(&self, site: &Site, name: &str) {
        site.secret(&format!("{name}.crt"), &self.certificate);
        site.secret(&format!("{name}.key"), &self.key);
    }

    fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).expect("it was made here")
    }
}

/// A client; its sessions are kept from connection to connection.
pub struct TlsClient(Arc<ClientConfig>, Arc<Stapled>);

/// What a client has seen of a server.
#[derive(Debug)]
pub struct Seen {
    /// The answer.
    pub reply: Reply,
    /// The certificate that the server showed.
    pub certificate: Vec<u8>,
    /// The OCSP response that came with it in the last full handshake of the client; empty: none.
    pub stapled: Vec<u8>,
}

impl TlsClient {
    /// A client, perhaps with a certificate of its own.
    ///
    /// # Panics
    /// The certificate is none.
    pub fn new(own: Option<&Certificate>) -> TlsClient {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let stapled = Arc::<Stapled>::default();
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the versions are there")
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&stapled) as Arc<_>);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).expect("a key");
                let chain = vec![own.der()];
                builder
                    .with_client_auth_cert(chain, key)
                    .expect("they belong together")
            }
        };
        TlsClient(Arc::new(config), stapled)
    }

    /// A client that offers this protocol above TLS alone.
    #[must_use]
    pub fn with_protocol(protocol: &[u8]) -> TlsClient {
        TlsClient::new(None).speaking(protocol)
    }

    /// The same client, which offers this protocol above TLS alone.
    #[must_use]
    pub fn speaking(mut self, protocol: &[u8]) -> TlsClient {
        Arc::make_mut(&mut self.0).alpn_protocols = vec![protocol.to_vec()];
        self
    }

    /// The same client, which may send early data where it takes up a session.
    #[must_use]
    pub fn with_early_data(mut self) -> TlsClient {
        Arc::make_mut(&mut self.0).enable_early_data = true;
        self
    }

    /// Asks for `/PATH` at the host `name`, on a connection of its own whose handshake names that host.
    ///
    /// # Errors
    /// The handshake or the connection failed.
    pub fn get(&self, port: u16, name: &str, path: &str) -> Result<Seen, String> {
        self.get_of(port, name, name, path)
    }

    /// The same; the handshake names another host than the request.
    ///
    /// # Errors
    /// The handshake or the connection failed.
    pub fn get_of(&self, port: u16, name: &str, host: &str, path: &str) -> Result<Seen, String> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let mut stream = self.connect(port, name)?;
        let sent = stream.write_all(request.as_bytes());
        sent.map_err(|error| error.to_string())?;
        let mut bytes = Vec::new();
        let read = stream.read_to_end(&mut bytes);
        read.map_err(|error| error.to_string())?;
        let reply = split_reply(&bytes, false, true).ok_or("no answer")?.0;
        let shown = stream.conn.peer_certificates().and_then(<[_]>::first);
        Ok(Seen {
            reply,
            certificate: shown.map(|der| der.to_vec()).unwrap_or_default(),
            stapled: self.1.last(),
        })
    }

    /// A connection, whose handshake begins with the first byte.
    ///
    /// # Errors
    /// The name is none.
    pub fn connect(
        &self,
        port: u16,
        name: &str,
    ) -> Result<StreamOwned<ClientConnection, TcpStream>, String> {
        let name = ServerName::try_from(name.to_owned()).map_err(|error| error.to_string())?;
        let session = ClientConnection::new(Arc::clone(&self.0), name);
        let session = session.map_err(|error| error.to_string())?;
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
        socket
            .set_read_timeout(Some(PATIENCE))
            .expect("a time that is not 0");
        Ok(StreamOwned::new(session, socket))
    }
}

impl Seen {
    /// Whether the server showed this certificate.
    #[must_use]
    pub fn is_shown(&self, certificate: &Certificate) -> bool {
        self.certificate == certificate.der().as_ref()
    }
}
