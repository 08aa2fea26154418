//! The origin that answers in no order: resets, silence, half a head, bytes by chance.

use crate::fickle::reset_at_end;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// The longest that it keeps quiet.
const SILENCE: Duration = Duration::from_millis(2500);

/// What it may say; bytes by chance where it is empty.
const SAID: [&[u8]; 6] = [
    b"garbage garbage\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Le",
    b"HTTP/1.1 503 no\r\nContent-Length: 100000\r\n\r\nabc",
    b"HTTP/1.1 504 x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\nzz\r\n",
    // SETTINGS, and its acknowledgement.
    b"\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x04\x01\x00\x00\x00\x00\x00",
    b"",
];

/// Answers once.
pub async fn serve(mut stream: TcpStream) {
    match fastrand::u8(..8) {
        0 => return reset_at_end(&stream),
        1 => return,
        _ => {}
    }
    let mut request = [0; 4096];
    let _ = timeout(SILENCE, stream.read(&mut request)).await;
    match fastrand::usize(..8) {
        6 => reset_at_end(&stream),
        7 => sleep(SILENCE).await,
        which => {
            let chance: Vec<u8> = (0..3000).map(|_| fastrand::u8(..)).collect();
            let said = if SAID[which].is_empty() {
                &chance
            } else {
                SAID[which]
            };
            let _ = stream.write_all(said).await;
            sleep(Duration::from_millis(50)).await;
        }
    }
}
