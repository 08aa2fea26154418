//! The origin that takes an upgrade (RFC 9110, section 7.8) and sends back what comes, sometimes not to the end.

use std::io::{self, ErrorKind};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Of a connection.
const LIFE: Duration = Duration::from_secs(30);
const HEAD_MAX: usize = 1 << 16;
const HEAD: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n";

/// Until the peer has ended, or enough was sent.
pub async fn serve(mut stream: TcpStream) {
    let _ = timeout(LIFE, echo(&mut stream)).await;
}

async fn echo(stream: &mut TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; fastrand::usize(1..30_000)];
    let mut came = Vec::new();
    let end = loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 || came.len() > HEAD_MAX {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        came.extend_from_slice(&buffer[..count]);
        if let Some(at) = came.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
    };
    // What came ahead of the answer goes with it or behind it.
    if fastrand::bool() {
        stream.write_all(&[HEAD, &came[end..]].concat()).await?;
    } else {
        stream.write_all(HEAD).await?;
        stream.write_all(&came[end..]).await?;
    }
    let mut left = if fastrand::u8(..3) == 0 {
        fastrand::usize(..1 << 20)
    } else {
        usize::MAX
    };
    while left > 0 {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        if fastrand::u8(..20) == 0 {
            sleep(Duration::from_millis(fastrand::u64(..20))).await;
        }
        stream.write_all(&buffer[..count]).await?;
        left = left.saturating_sub(count);
    }
    Ok(())
}
