//! One request and its answer.

use crate::Origin;
use bench::content::{self, Wanted};
use std::fmt::Write as _;
use std::io::{self, ErrorKind, IoSlice};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until};

/// Bytes handed to the kernel at once.
const PART: usize = 256 * 1024;
/// Parts of a body that is spread over time.
const STEPS: u32 = 20;

/// What counts of a request.
pub struct Request<'a> {
    path: &'a str,
    is_head: bool,
    tag: Option<&'a str>,
    is_last: bool,
}

impl<'a> Request<'a> {
    /// None: not GET or HEAD, or not HTTP/1.
    pub fn parse(head: &'a [u8]) -> Option<Request<'a>> {
        let mut lines = std::str::from_utf8(head).ok()?.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        let mut request = Request {
            path: target.split('?').next()?,
            is_head: method == "HEAD",
            tag: None,
            is_last: version == "HTTP/1.0",
        };
        for line in lines {
            let (name, value) = line.split_once(':')?;
            if name.eq_ignore_ascii_case("if-none-match") {
                request.tag = Some(value.trim());
            } else if name.eq_ignore_ascii_case("connection") {
                request.is_last = value.trim().eq_ignore_ascii_case("close");
            }
        }
        (request.is_head || method == "GET").then_some(request)
    }
}

/// 400, and the end.
pub async fn refuse(stream: &TcpStream) -> io::Result<()> {
    send(
        stream,
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"",
    )
    .await
}

/// Answers; whether the connection ends behind it.
pub async fn give(stream: &TcpStream, origin: &Origin, request: &Request<'_>) -> io::Result<bool> {
    if request.path.starts_with("/_") {
        let body = control(origin, request.path);
        let status = if body.is_some() {
            "200 OK"
        } else {
            "404 Not Found"
        };
        let body = body.unwrap_or_default();
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
        send(stream, head.as_bytes(), body.as_bytes()).await?;
        return Ok(request.is_last);
    }
    let wanted = Wanted::parse(request.path);
    let size = wanted.as_ref().map_or(0, |wanted| wanted.size);
    let worker = origin.workers.acquire().await.map_err(io::Error::other)?;
    let begun = Instant::now();
    let outcome = answer(stream, origin, request, wanted).await;
    origin.counts.borrow_mut().held(begun.elapsed(), size);
    drop(worker);
    outcome
}

async fn answer(
    stream: &TcpStream,
    origin: &Origin,
    request: &Request<'_>,
    wanted: Option<Wanted>,
) -> io::Result<bool> {
    let count = origin.counts.borrow_mut().request(request.path);
    let Some(wanted) = wanted else {
        send(
            stream,
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
            b"",
        )
        .await?;
        return Ok(request.is_last);
    };
    if !wanted.delay.is_zero() {
        sleep(wanted.delay).await;
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    let version = wanted.version(now);
    let tag = content::tag(version, wanted.size);
    if wanted.has_tag && request.tag == Some(&tag) {
        origin.counts.borrow_mut().not_modified();
        send(stream, head(&wanted, Some(&tag), true).as_bytes(), b"").await?;
        return Ok(request.is_last);
    }
    let head = head(&wanted, wanted.has_tag.then_some(tag.as_str()), false);
    if request.is_head {
        send(stream, head.as_bytes(), b"").await?;
        return Ok(request.is_last);
    }
    let is_cut = wanted.cut > 0 && count.is_multiple_of(wanted.cut);
    if is_cut {
        origin.counts.borrow_mut().cut();
    }
    let place = content::place(request.path, version);
    let size = if is_cut { wanted.size / 2 } else { wanted.size };
    body(stream, origin, &wanted, &head, place, size).await?;
    origin.counts.borrow_mut().body(size);
    if wanted.is_chunked && !is_cut {
        send(stream, b"0\r\n\r\n", b"").await?;
    }
    Ok(request.is_last || is_cut)
}

/// The answer to a path for the scripts.
fn control(origin: &Origin, path: &str) -> Option<String> {
    if path == "/_counts" {
        return Some(origin.counts.borrow().report().to_string());
    }
    if path == "/_reset" {
        origin.counts.take();
        return Some(String::new());
    }
    let counted = path.strip_prefix("/_count")?;
    Some(origin.counts.borrow().of(counted).to_string())
}

fn head(wanted: &Wanted, tag: Option<&str>, is_unchanged: bool) -> String {
    let mut head = String::with_capacity(160);
    head.push_str(if is_unchanged {
        "HTTP/1.1 304 Not Modified\r\n"
    } else {
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
    });
    if wanted.is_chunked && !is_unchanged {
        head.push_str("Transfer-Encoding: chunked\r\n");
    } else if !is_unchanged {
        let _ = write!(head, "Content-Length: {}\r\n", wanted.size);
    }
    if let Some(age) = wanted.age {
        let _ = write!(head, "Cache-Control: max-age={age}\r\n");
    }
    if let Some(tag) = tag {
        let _ = write!(head, "ETag: {tag}\r\n");
    }
    head.push_str("\r\n");
    head
}

/// Head and body, as large parts or spread over time.
async fn body(
    stream: &TcpStream,
    origin: &Origin,
    wanted: &Wanted,
    head: &str,
    place: usize,
    size: u64,
) -> io::Result<()> {
    let begun = Instant::now();
    let steps = if wanted.spread.is_zero() { 1 } else { STEPS };
    let part = (size / u64::from(steps)).clamp(1, PART as u64);
    let (mut at, mut before) = (0_u64, head.as_bytes().to_vec());
    while at < size || !before.is_empty() {
        let count = usize::try_from(if steps == 1 { PART as u64 } else { part }.min(size - at))
            .unwrap_or(PART);
        let bytes = origin.bytes.part(place, at, count);
        if wanted.is_chunked && count > 0 {
            before.extend_from_slice(format!("{count:x}\r\n").as_bytes());
        }
        send(stream, &before, bytes).await?;
        before.clear();
        if wanted.is_chunked && count > 0 {
            before.extend_from_slice(b"\r\n");
        }
        at += count as u64;
        if steps > 1 {
            sleep_until(begun + wanted.spread.mul_f64(at as f64 / size.max(1) as f64)).await;
        }
    }
    Ok(())
}

/// Both in one call where the socket takes them.
async fn send(stream: &TcpStream, mut first: &[u8], mut second: &[u8]) -> io::Result<()> {
    while !first.is_empty() || !second.is_empty() {
        let sent = match stream.try_write_vectored(&[IoSlice::new(first), IoSlice::new(second)]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(sent) => sent,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                stream.writable().await?;
                continue;
            }
            Err(error) => return Err(error),
        };
        let of_first = sent.min(first.len());
        first = &first[of_first..];
        second = &second[sent - of_first..];
    }
    Ok(())
}
