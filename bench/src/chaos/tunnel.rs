//! Upgraded connections: what was sent comes back, in order.

use crate::asked::{difference, part};
use crate::connect::{NEVER, connect};
use crate::findings;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// The location that is asked for; its server ends a third of the connections early.
const HEAD: &str =
    "GET /tunnel/ HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
const HEAD_MAX: usize = 1 << 14;

/// One connection.
pub async fn run(address: SocketAddr) {
    let Ok(stream) = connect(address, false).await else {
        return;
    };
    let size = fastrand::u64(1..1 << fastrand::u32(1..21));
    match timeout(NEVER, converse(stream, size, fastrand::u64(..1000))).await {
        Err(_) => findings::wrong(format!("tunnel: no end of {size} bytes")),
        Ok(Ok(())) => findings::count("tunnel whole"),
        Ok(Err(error)) => findings::count(format!("tunnel: {error}")),
    }
}

async fn converse(stream: impl AsyncRead + AsyncWrite, size: u64, seed: u64) -> io::Result<()> {
    let (mut from, mut to) = tokio::io::split(stream);
    // Some of it right behind the head.
    let first = fastrand::u64(..size.min(3000) + 1);
    let count = usize::try_from(first).map_err(io::Error::other)?;
    let send = async {
        let begin = if count > 0 { part(seed, 0, count) } else { &[] };
        to.write_all(&[HEAD.as_bytes(), begin].concat()).await?;
        let mut at = first;
        while at < size {
            let most = usize::try_from(size - at).map_or(40_000, |left| left.min(40_000));
            let piece = part(seed, at, fastrand::usize(1..=most));
            to.write_all(piece).await?;
            at += piece.len() as u64;
            if fastrand::u8(..30) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        // The other direction goes on.
        io::Result::Ok(())
    };
    let receive = async {
        head(&mut from).await?;
        let (mut at, mut buffer) = (0, vec![0; fastrand::usize(1..20_000)]);
        while at < size {
            let count = from.read(&mut buffer).await?;
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if let Some(place) = difference(seed, at, &buffer[..count]) {
                findings::wrong(format!("tunnel: another byte at {place} of {size}"));
                return Err(ErrorKind::InvalidData.into());
            }
            at += count as u64;
        }
        if at > size {
            findings::wrong(format!("tunnel: {at} bytes of {size}"));
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
