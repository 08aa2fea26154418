//! Tunnels: what was sent comes back, in order. Over HTTP/1 by an upgrade (RFC 9110, section 7.8), over HTTP/2 by an extended CONNECT (RFC 8441).

use crate::asked::{difference, part};
use crate::connect::{Addresses, Connection, NEVER, Speech, connect};
use crate::findings;
use hyper_util::rt::TokioIo;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// The location that is asked for; its server ends a third of the connections early.
const PATH: &str = "/tunnel/";
const HEAD: &str =
    "GET /tunnel/ HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
const HEAD_MAX: usize = 1 << 14;

/// One connection, or stream.
pub async fn run(addresses: &Addresses) {
    let speech = Speech::any();
    let size = fastrand::u64(1..1 << fastrand::u32(1..21));
    let seed = fastrand::u64(..1000);
    let exchange = async {
        if speech.is_http2() {
            extend(addresses, speech, size, seed).await
        } else {
            upgrade(addresses[0], size, seed).await
        }
    };
    let name = if speech.is_http2() {
        "tunnel over HTTP/2"
    } else {
        "tunnel"
    };
    match timeout(NEVER, exchange).await {
        Err(_) => findings::wrong(format!("{name}: no end of {size} bytes")),
        Ok(Ok(())) => findings::count(format!("{name}: whole")),
        Ok(Err(error)) if error.kind() == ErrorKind::InvalidData => {
            findings::wrong(format!("{name}, {size} bytes: {error}"));
        }
        Ok(Err(error)) => findings::count(format!("{name}: {error}")),
    }
}

/// Over HTTP/1, in clear, with some of it right behind the head.
async fn upgrade(address: SocketAddr, size: u64, seed: u64) -> io::Result<()> {
    let (mut from, mut to) = tokio::io::split(connect(address, false).await?);
    let first = fastrand::u64(..size.min(1 << fastrand::u32(2..17)) + 1);
    let count = usize::try_from(first).map_err(io::Error::other)?;
    let begin = if count > 0 { part(seed, 0, count) } else { &[] };
    to.write_all(&[HEAD.as_bytes(), begin].concat()).await?;
    head(&mut from).await?;
    converse(from, to, first..size, seed).await
}

async fn extend(addresses: &Addresses, speech: Speech, size: u64, seed: u64) -> io::Result<()> {
    let mut connection = Connection::open_as(addresses, speech, false).await?;
    let tunnel = connection.tunnel(PATH).await.map_err(io::Error::other)?;
    let (from, to) = tokio::io::split(TokioIo::new(tunnel));
    converse(from, to, 0..size, seed).await
}

/// Sends what is left, and reads all.
async fn converse(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    left: std::ops::Range<u64>,
    seed: u64,
) -> io::Result<()> {
    let size = left.end;
    let send = async {
        let mut at = left.start;
        while at < size {
            let most = usize::try_from(size - at).map_or(40_000, |left| left.min(40_000));
            let piece = part(seed, at, fastrand::usize(1..=most));
            to.write_all(piece).await?;
            to.flush().await?;
            at += piece.len() as u64;
            if fastrand::u8(..30) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        // The other direction goes on.
        io::Result::Ok(())
    };
    let receive = async {
        let (mut at, mut buffer) = (0, vec![0; fastrand::usize(1..20_000)]);
        while at < size {
            let count = from.read(&mut buffer).await?;
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if let Some(place) = difference(seed, at, &buffer[..count]) {
                let words = format!("another byte at {place}");
                return Err(io::Error::new(ErrorKind::InvalidData, words));
            }
            at += count as u64;
        }
        if at > size {
            let words = format!("{at} bytes came");
            return Err(io::Error::new(ErrorKind::InvalidData, words));
        }
        Ok(())
    };
    // A server that ends early shows in what it sends.
    let (_, received) = tokio::join!(send, receive);
    received
}

/// Byte for byte: what follows is not the head's.
async fn head(from: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_MAX {
        head.push(from.read_u8().await?);
    }
    if head.starts_with(b"HTTP/1.1 101 ") {
        return Ok(());
    }
    let line = String::from_utf8_lossy(&head);
    let line = line.lines().next().unwrap_or_default().to_owned();
    Err(io::Error::other(line))
}
