//! The bytes of a connection, in clear or over TLS. Sessions are never resumed, so that each handshake is a full one.

#[path = "../../../crates/tls/tests/peer/any_certificate.rs"]
mod any_certificate;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, OnceLock};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;

use crate::protocol;

/// The name that servers are asked for (SNI).
const NAME: &str = "localhost";

/// A connection.
pub enum Link {
    /// In clear.
    Clear(TcpStream),
    /// With TLS on it.
    Tls(Box<Tls>),
}

/// A connection with TLS on it.
pub struct Tls {
    stream: TcpStream,
    session: ClientConnection,
}

/// The socket as rustls wants it.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Link {
    /// Begins with a handshake where TLS is wanted.
    pub async fn new(stream: TcpStream) -> io::Result<Link> {
        if !protocol::get().is_tls {
            return Ok(Link::Clear(stream));
        }
        let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
        let session = ClientConnection::new(config(), name).map_err(io::Error::other)?;
        let mut tls = Tls { stream, session };
        while tls.session.is_handshaking() {
            tls.flush().await?;
            if tls.session.is_handshaking() && !tls.receive().await? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        tls.flush().await?;
        Ok(Link::Tls(Box::new(tls)))
    }

    /// The socket whose bytes are those of the answers.
    pub fn clear_socket(&self) -> Option<&TcpStream> {
        match self {
            Link::Clear(stream) => Some(stream),
            Link::Tls(_) => None,
        }
    }

    /// Sends all of it.
    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Link::Clear(stream) => stream.write_all(bytes).await,
            Link::Tls(tls) => {
                tls.session.writer().write_all(bytes)?;
                tls.flush().await
            }
        }
    }

    /// Reads what is there, or waits for something; 0: the end.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Link::Clear(stream) => loop {
                match stream.try_read(buffer) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        stream.readable().await?;
                    }
                    other => return other,
                }
            },
            Link::Tls(tls) => loop {
                match tls.session.reader().read(buffer) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        if !tls.receive().await? {
                            return Ok(0);
                        }
                    }
                    other => return other,
                }
            },
        }
    }

    /// Whether the server still holds the connection.
    pub fn is_open(&mut self) -> bool {
        match self {
            Link::Clear(stream) => is_waiting(&stream.try_read(&mut [0])),
            Link::Tls(tls) => {
                let read = tls.session.read_tls(&mut Socket(&tls.stream));
                let state = tls.session.process_new_packets();
                (is_waiting(&read) || matches!(read, Ok(count) if count > 0))
                    && state.is_ok_and(|state| !state.peer_has_closed())
            }
        }
    }
}

fn is_waiting(read: &io::Result<usize>) -> bool {
    matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

impl Tls {
    /// Takes records in; false: the end.
    async fn receive(&mut self) -> io::Result<bool> {
        loop {
            let stream = &self.stream;
            let session = &mut self.session;
            match stream.try_io(Interest::READABLE, || session.read_tls(&mut Socket(stream))) {
                Ok(0) => return Ok(false),
                Ok(_) => {
                    let state = session.process_new_packets().map_err(io::Error::other)?;
                    let is_over = state.peer_has_closed() && state.plaintext_bytes_to_read() == 0;
                    return Ok(!is_over);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => stream.readable().await?,
                Err(error) => return Err(error),
            }
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            let stream = &self.stream;
            let session = &mut self.session;
            match stream.try_io(Interest::WRITABLE, || {
                session.write_tls(&mut Socket(stream))
            }) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => stream.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Without a look at certificates, which are made for the run.
fn config() -> Arc<ClientConfig> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let make = || {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has the suites of both versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(any_certificate::Any))
            .with_no_client_auth();
        config.resumption = rustls::client::Resumption::disabled();
        if protocol::get().is_http2 {
            config.alpn_protocols = vec![b"h2".to_vec()];
        }
        Arc::new(config)
    };
    Arc::clone(CONFIG.get_or_init(make))
}
