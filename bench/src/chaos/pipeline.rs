//! Several requests in one write (RFC 9112, section 9.3.2), in clear: heads and bodies are read by what stands here, since `hyper` sends none.

use crate::asked::{Asked, How, SIZES, difference};
use crate::connect::{NEVER, connect};
use crate::{files, findings};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Requests of one write.
const REQUESTS_MAX: usize = 40;
/// Sizes of files up to a megabyte.
const SIZES_USED: usize = SIZES.len() - 2;
const LOCATIONS: [&str; 4] = ["/st/", "/stdio/", "/stchunk/", "/stnosf/"];

/// One connection with its requests.
pub async fn run(address: SocketAddr) {
    let asked: Vec<(String, Asked)> = (0..fastrand::usize(1..=REQUESTS_MAX))
        .map(|_| {
            let size = SIZES[fastrand::usize(..SIZES_USED)];
            let asked = Asked {
                how: How::Whole,
                size,
                seed: fastrand::u64(..files::SEEDS),
            };
            let location = LOCATIONS[fastrand::usize(..LOCATIONS.len())];
            (format!("{location}{}", asked.path()), asked)
        })
        .collect();
    let request =
        |(path, _): &(String, Asked)| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let text: String = asked.iter().map(request).collect();
    let Ok(stream) = connect(address, fastrand::u8(..10) == 0).await else {
        return;
    };
    let mut stream = BufReader::new(stream);
    let exchange = async {
        stream.get_mut().write_all(text.as_bytes()).await?;
        for one in &asked {
            take(&mut stream, one).await?;
        }
        io::Result::Ok(())
    };
    let is_patient = fastrand::u8(..4) > 0;
    let patience = if is_patient {
        NEVER
    } else {
        Duration::from_millis(fastrand::u64(..100))
    };
    match timeout(patience, exchange).await {
        Err(_) if is_patient => {
            findings::wrong(format!("pipelined: no end of {} requests", asked.len()))
        }
        Ok(Err(error)) => findings::count(format!("pipelined: {error}")),
        _ => {}
    }
}

/// One answer. A server may end the connection at any of them (`keepalive_requests`, a reload).
async fn take(
    stream: &mut BufReader<TcpStream>,
    (path, asked): &(String, Asked),
) -> io::Result<()> {
    let (mut length, mut line, mut is_first) = (None, String::new(), true);
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if is_first && !line.starts_with("HTTP/1.1 200 ") {
            findings::wrong(format!("pipelined: {line:?} for {path}"));
            return Err(ErrorKind::InvalidData.into());
        }
        is_first = false;
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok();
        }
        if line == "\r\n" {
            break;
        }
    }
    if length != Some(asked.size) {
        findings::wrong(format!("pipelined: a length of {length:?} for {path}"));
        return Err(ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; usize::try_from(asked.size).map_err(io::Error::other)?];
    stream.read_exact(&mut body).await?;
    if let Some(at) = difference(asked.seed, 0, &body) {
        findings::wrong(format!("pipelined: another byte at {at} of {path}"));
        return Err(ErrorKind::InvalidData.into());
    }
    findings::count("pipelined whole");
    Ok(())
}
