//! A client's connection: HTTP/1 or HTTP/2, in clear or over TLS, by the crate `hyper`.

#[path = "../../../crates/tls/tests/peer/any_certificate.rs"]
mod any_certificate;

use crate::fickle::reset_at_end;
use crate::findings;
use crate::uploads::Flow;
use http_body_util::Channel;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::ext::Protocol;
use hyper::header::HOST;
use hyper::http::request;
use hyper::upgrade::Upgraded;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// For a connection and its handshakes.
const PATIENCE: Duration = Duration::from_secs(10);
/// What has not ended by then never does; those that read slowly are not judged by it.
pub const NEVER: Duration = Duration::from_secs(25);
/// The server's name.
const NAME: &str = "localhost";
/// A receive buffer, in bytes, of clients that take little.
const SMALL: u32 = 4096;

/// What is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speech {
    /// HTTP/1.1.
    Http1,
    /// HTTP/1.1 over TLS.
    Http1Tls,
    /// HTTP/2 over TLS.
    Http2,
    /// HTTP/2 in clear.
    Http2Clear,
}

impl Speech {
    /// Any.
    pub fn any() -> Speech {
        [
            Speech::Http1,
            Speech::Http1Tls,
            Speech::Http2,
            Speech::Http2Clear,
        ][fastrand::usize(..4)]
    }

    /// Whether several requests may be open.
    pub fn is_http2(self) -> bool {
        matches!(self, Speech::Http2 | Speech::Http2Clear)
    }

    fn is_tls(self) -> bool {
        matches!(self, Speech::Http1Tls | Speech::Http2)
    }
}

/// The server's addresses: HTTP/1, TLS, HTTP/2 in clear.
pub type Addresses = [SocketAddr; 3];

/// A connection. It ends when the last of its senders is dropped.
pub struct Connection {
    /// What is spoken.
    pub speech: Speech,
    /// Whether its client takes little at a time.
    pub is_small: bool,
    sender: Sender,
}

enum Sender {
    Http1(http1::SendRequest<Flow>),
    Http2(http2::SendRequest<Flow>),
}

impl Connection {
    /// Opens one, with anything that clients do with their sockets.
    pub async fn open(addresses: &Addresses) -> io::Result<Connection> {
        Connection::open_as(addresses, Speech::any(), fastrand::u8(..10) == 0).await
    }

    /// The same, and that is spoken. `is_small`: the client takes little at a time.
    pub async fn open_as(
        addresses: &Addresses,
        speech: Speech,
        is_small: bool,
    ) -> io::Result<Connection> {
        let address = match speech {
            Speech::Http1 => addresses[0],
            Speech::Http1Tls | Speech::Http2 => addresses[1],
            Speech::Http2Clear => addresses[2],
        };
        let open = async {
            let stream = connect(address, is_small).await?;
            if !speech.is_tls() {
                return shake(speech, stream).await;
            }
            let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
            let tls = TlsConnector::from(Arc::new(config(speech)));
            shake(speech, tls.connect(name, stream).await?).await
        };
        let sender = timeout(PATIENCE, open).await??;
        Ok(Connection {
            speech,
            is_small,
            sender,
        })
    }

    /// The beginning of a request.
    pub fn request(&self, method: &str, path: &str) -> request::Builder {
        let head = Request::builder().method(method);
        if self.speech.is_http2() {
            head.uri(format!("http://{NAME}{path}"))
        } else {
            head.uri(path).header(HOST, NAME)
        }
    }

    /// Sends a request; the head of its answer.
    pub async fn send(&mut self, request: Request<Flow>) -> hyper::Result<Response<Incoming>> {
        match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::Http2(sender) => sender.send_request(request).await,
        }
    }

    /// A stream of bytes in both directions, by an extended CONNECT (RFC 8441).
    pub async fn tunnel(&mut self, path: &str) -> hyper::Result<Upgraded> {
        let (_, nothing) = Channel::new(1);
        let mut request = self
            .request("CONNECT", path)
            .body(nothing)
            .expect("the parts are right");
        let protocol = Protocol::from_static("x");
        request.extensions_mut().insert(protocol);
        let answer = self.send(request).await?;
        if answer.status() != 200 {
            findings::count(format!("tunnel over HTTP/2: status {}", answer.status()));
        }
        hyper::upgrade::on(answer).await
    }

    /// Another sender of the same connection, where several requests may be open.
    pub fn another(&self) -> Option<Connection> {
        match &self.sender {
            Sender::Http1(_) => None,
            Sender::Http2(sender) => Some(Connection {
                speech: self.speech,
                is_small: self.is_small,
                sender: Sender::Http2(sender.clone()),
            }),
        }
    }

    /// Whether it takes a further request, as far as is known.
    pub fn is_open(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => !sender.is_closed(),
            Sender::Http2(sender) => !sender.is_closed(),
        }
    }
}

/// A socket.
pub async fn connect(address: SocketAddr, is_small: bool) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    if is_small {
        socket.set_recv_buffer_size(SMALL)?;
    }
    let stream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    if fastrand::u8(..4) == 0 {
        reset_at_end(&stream);
    }
    Ok(stream)
}

async fn shake(
    speech: Speech,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> io::Result<Sender> {
    let stream = TokioIo::new(stream);
    if !speech.is_http2() {
        let (sender, connection) = http1::handshake(stream).await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        return Ok(Sender::Http1(sender));
    }
    let mut builder = http2::Builder::new(TokioExecutor::new());
    if fastrand::u8(..3) == 0 {
        builder.initial_stream_window_size(fastrand::u32(4096..70_000));
        builder.initial_connection_window_size(fastrand::u32(65_536..140_000));
    }
    let (sender, connection) = builder.handshake(stream).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    Ok(Sender::Http2(sender))
}

/// Without a look at certificates, which are made for the run.
fn config(speech: Speech) -> ClientConfig {
    let mut config = ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(any_certificate::Any))
        .with_no_client_auth();
    let name: &[u8] = if speech.is_http2() {
        b"h2"
    } else {
        b"http/1.1"
    };
    config.alpn_protocols = vec![name.to_vec()];
    config
}
