//! The origins: HTTP/1, HTTP/2 in clear and over TLS by the crate `hyper`; FastCGI, uwsgi, SCGI, an echo and one that answers in no order beside them.

use crate::answer::{self, Answer};
use crate::asked::{Asked, How, KIND};
use crate::fickle::Fickle;
use crate::uploads::{AHEAD, Arriving, FIELD, Flow, GivenUp};
use crate::{echo, fastcgi, findings, garbage, gateway};
use bytes::Bytes;
use http_body_util::channel::Sender;
use http_body_util::{BodyExt, Channel};
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, IF_NONE_MATCH, RANGE};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Streams of a connection at a time, and the window of each in bytes, over TLS: small, so that requests wait for them.
const STREAMS: u32 = 20;
const WINDOW: u32 = 20_000;

/// Serves until standard input ends.
pub async fn run(certificate: &str, key: &str) -> Result<(), String> {
    let failed = |error: io::Error| error.to_string();
    let tls = TlsAcceptor::from(Arc::new(config(certificate, key)?));
    let addresses = serde_json::json!({
        "http1": listen(|stream| async { http1(Fickle::new(stream)).await }).await.map_err(failed)?,
        "http2": listen(|stream| async { http2(Fickle::new(stream), false).await }).await.map_err(failed)?,
        "tls": listen(move |stream| { let tls = tls.clone(); async move { secured(stream, tls).await } }).await.map_err(failed)?,
        "fastcgi": listen(|stream| async { fastcgi::serve(Fickle::new(stream)).await }).await.map_err(failed)?,
        "uwsgi": listen(|stream| async { gateway::serve_uwsgi(Fickle::new(stream)).await }).await.map_err(failed)?,
        "scgi": listen(|stream| async { gateway::serve_scgi(Fickle::new(stream)).await }).await.map_err(failed)?,
        "garbage": listen(garbage::serve).await.map_err(failed)?,
        "echo": listen(echo::serve).await.map_err(failed)?,
    });
    println!("{addresses}");
    let mut rest = Vec::new();
    tokio::io::stdin()
        .read_to_end(&mut rest)
        .await
        .map_err(failed)?;
    println!("{}", findings::report());
    Ok(())
}

fn config(certificate: &str, key: &str) -> Result<ServerConfig, String> {
    let certificate = CertificateDer::from_pem_file(certificate).map_err(|e| e.to_string())?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|e| e.to_string())?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .map_err(|e| e.to_string())?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Serves each connection by a task of its own; the address.
async fn listen<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> io::Result<String>
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?.to_string();
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(serve(stream))),
                // Too many descriptors; one that ends gives one back.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    });
    Ok(address)
}

async fn http1(stream: impl AsyncRead + AsyncWrite + Unpin) {
    let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(reply));
    let _ = served.await;
}

async fn http2(stream: impl AsyncRead + AsyncWrite + Unpin, is_small: bool) {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    if is_small {
        builder.max_concurrent_streams(STREAMS);
        builder.initial_stream_window_size(WINDOW);
    }
    let served = builder.serve_connection(TokioIo::new(stream), service_fn(reply));
    let _ = served.await;
}

async fn secured(stream: TcpStream, tls: TlsAcceptor) {
    match tls.accept(Fickle::new(stream)).await {
        Ok(stream) if stream.get_ref().1.alpn_protocol() == Some(b"h2") => {
            http2(stream, true).await
        }
        Ok(stream) => http1(stream).await,
        Err(_) => {}
    }
}

/// An error breaks the connection or the stream off.
async fn reply(request: Request<Incoming>) -> Result<Response<Flow>, GivenUp> {
    let (parts, body) = request.into_parts();
    if parts.uri.path() == "/auth" {
        return allow();
    }
    let Some(asked) = Asked::parse(parts.uri.path()) else {
        return plain(404);
    };
    if asked.how != How::Early {
        take(
            body,
            &parts.headers,
            &format!("{:?} {}", parts.version, asked.path()),
        )
        .await?;
    }
    let field = |name| {
        parts
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    let request = answer::Request {
        range: field(RANGE),
        tag: field(IF_NONE_MATCH),
        kind: parts
            .headers
            .get(KIND)
            .and_then(|value| value.to_str().ok()),
        has_connections: parts.version < Version::HTTP_2,
    };
    let answer = answer::answer(&asked, &request).await.ok_or(GivenUp)?;
    let mut head = Response::builder().status(answer.status);
    for (name, value) in &answer.fields {
        head = head.header(*name, value);
    }
    if answer.has_length {
        head = head.header(CONTENT_LENGTH, answer.range.1 - answer.range.0);
    }
    let (sender, flow) = Channel::new(AHEAD);
    if parts.method != hyper::Method::HEAD && answer.status != 304 {
        tokio::spawn(send(sender, answer));
    }
    head.body(flow).map_err(|_| GivenUp)
}

/// To a question of `auth_request`: mostly yes.
fn allow() -> Result<Response<Flow>, GivenUp> {
    match fastrand::u8(..20) {
        0 => plain(403),
        1 => Err(GivenUp),
        _ => plain(204),
    }
}

fn plain(status: u16) -> Result<Response<Flow>, GivenUp> {
    let (_, flow) = Channel::new(1);
    let head = Response::builder().status(status);
    head.body(flow).map_err(|_| GivenUp)
}

/// Reads a request's body, and looks at it where the client has said what it is.
async fn take(mut body: Incoming, fields: &HeaderMap, words: &str) -> Result<(), GivenUp> {
    let field = |name: &str| fields.get(name).and_then(|value| value.to_str().ok());
    let place = format!("{words} {}", field("x-place").unwrap_or_default());
    let mut arriving = field(FIELD).and_then(|said| Arriving::new(said, &place));
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            findings::count("upload broken off");
            return Err(GivenUp);
        };
        if let (Some(arriving), Some(piece)) = (&mut arriving, frame.data_ref())
            && !arriving.take(piece)
        {
            return Err(GivenUp);
        }
    }
    if let Some(arriving) = arriving {
        arriving.end();
    }
    Ok(())
}

async fn send(mut sender: Sender<Bytes, GivenUp>, answer: Answer) {
    let mut at = answer.range.0;
    while let Some(piece) = answer.piece(at) {
        if sender.send_data(Bytes::from_static(piece)).await.is_err() {
            return;
        }
        at += piece.len() as u64;
        answer.rest().await;
    }
    if answer.cut.is_some() {
        Answer::linger().await;
        sender.abort(GivenUp);
    } else if answer.has_trailers {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-t", hyper::header::HeaderValue::from_static("end"));
        let _ = sender.send_trailers(trailers).await;
    }
}
