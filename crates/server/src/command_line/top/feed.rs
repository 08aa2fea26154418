//! The dashboard's stream over plain HTTP: requested with HTTP/1.0, so that it comes without chunked encoding.
//!
//! Invariant: no line is longer than [`LINE_BYTES_MAX`], whatever the server sends.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use message::base64;
use serde_json::Value;

/// Interval between two attempts to reach a server that has gone.
const AGAIN: Duration = Duration::from_secs(1);
/// Maximum time that the server may be silent: several samples.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum bytes of a line.
const LINE_BYTES_MAX: u64 = 8 << 20;
/// Maximum number of addresses of a name that are tried.
const ADDRESSES_MAX: usize = 8;
/// Maximum number of lines of a response header.
const HEAD_LINES_MAX: usize = 100;

/// News from a dashboard.
#[derive(Debug)]
pub(super) enum FeedEvent {
    /// An event of its stream.
    Told(Told),
    /// The stream has ended, for this reason.
    Gone(String),
}

/// An event of the stream.
#[derive(Debug)]
pub(super) struct Told {
    /// Its name.
    pub name: String,
    /// Its data.
    pub data: Value,
}

/// Opens the stream of a dashboard.
///
/// # Errors
/// A sentence that names the URL and the reason.
pub(super) fn open(url: &str) -> Result<BufReader<TcpStream>, String> {
    let shown = without_password(url);
    let failed = |why: &dyn std::fmt::Display| format!("{shown}: {why}");
    let Parts {
        user,
        authority,
        path,
    } = parts(url).map_err(|why| failed(&why))?;
    let address = if authority
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok())
    {
        authority.to_owned()
    } else {
        format!("{authority}:80")
    };
    let stream = connect(&address).map_err(|error| failed(&error))?;
    let timeouts = stream.set_read_timeout(Some(PATIENCE));
    timeouts.map_err(|error| failed(&error))?;
    let authorization = user.map_or_else(String::new, |user| {
        let user = base64::encode(user.as_bytes());
        format!("Authorization: Basic {user}\r\n")
    });
    let request = format!(
        "GET {path}?stream HTTP/1.0\r\nHost: {authority}\r\nAccept: text/event-stream\r\n{authorization}\r\n"
    );
    (&stream)
        .write_all(request.as_bytes())
        .map_err(|error| failed(&error))?;
    let mut stream = BufReader::new(stream);
    let status = line(&mut stream)
        .map_err(|error| failed(&why(&error)))?
        .unwrap_or_default();
    let mut is_stream = false;
    for _ in 0..HEAD_LINES_MAX {
        let line = line(&mut stream)
            .map_err(|error| failed(&why(&error)))?
            .unwrap_or_default();
        if line.is_empty() {
            break;
        }
        is_stream |= line.eq_ignore_ascii_case("content-type: text/event-stream");
    }
    let code = status.split(' ').nth(1).unwrap_or_default();
    match (code, is_stream) {
        ("200", true) => Ok(stream),
        ("200", false) => Err(failed(&"there is no dashboard")),
        ("401", _) => Err(failed(
            &"it asks for a user and a password (http://USER:PASSWORD@HOST/PATH)",
        )),
        ("503", _) => Err(failed(&"too many dashboards are open (503)")),
        ("", _) => Err(failed(&"this is no HTTP server")),
        // Digits alone are let through to the terminal.
        (code, _) => Err(failed(&format!(
            "the server answers {}",
            code.escape_default()
        ))),
    }
}

/// Connects to the first address of a name that answers.
#[expect(clippy::disallowed_types, reason = "no loop runs here")]
fn connect(address: &str) -> std::io::Result<TcpStream> {
    use std::net::ToSocketAddrs;

    let mut last = std::io::Error::from(ErrorKind::AddrNotAvailable);
    for one in address.to_socket_addrs()?.take(ADDRESSES_MAX) {
        match TcpStream::connect_timeout(&one, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The text for an error.
fn why(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("it has said nothing for {} s", PATIENCE.as_secs())
        }
        _ => error.to_string(),
    }
}

/// The parts of a URL.
#[derive(Debug, PartialEq)]
struct Parts<'a> {
    /// `USER:PASSWORD`.
    user: Option<&'a str>,
    /// `HOST[:PORT]`.
    authority: &'a str,
    path: &'a str,
}

fn parts(url: &str) -> Result<Parts<'_>, &'static str> {
    let rest = match url.split_once("://") {
        Some(("http", rest)) => rest,
        Some(_) => return Err("a URL begins with http://"),
        None => url,
    };
    if rest.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return Err("a URL has no spaces");
    }
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let (user, authority) = match authority.rsplit_once('@') {
        Some((user, authority)) => (Some(user), authority),
        None => (None, authority),
    };
    match authority {
        "" => Err("a URL names a host"),
        _ => Ok(Parts {
            user,
            authority,
            path: if path.is_empty() { "/" } else { path },
        }),
    }
}

/// A URL without its password, which may be shown.
pub(super) fn without_password(url: &str) -> String {
    match parts(url) {
        Ok(Parts {
            user: Some(user), ..
        }) => url.replacen(&format!("{user}@"), "", 1),
        _ => url.to_owned(),
    }
}

/// Reads a stream, and the next one when it has ended (a reload ends it), until the receiver is gone.
pub(super) fn follow(mut stream: BufReader<TcpStream>, url: &str, news: &SyncSender<FeedEvent>) {
    loop {
        let mut why = match read(&mut stream, news) {
            Ok(()) => "the stream has ended".to_owned(),
            Err(error) => why(&error),
        };
        stream = loop {
            if news.send(FeedEvent::Gone(why)).is_err() {
                return;
            }
            #[expect(clippy::disallowed_methods, reason = "a thread without a loop")]
            std::thread::sleep(AGAIN);
            match open(url) {
                Ok(stream) => break stream,
                // The URL stands above it.
                Err(sentence) => {
                    let url = without_password(url);
                    why = sentence.replacen(&format!("{url}: "), "", 1);
                }
            }
        };
    }
}

/// Reads events until the stream ends or the receiver is gone.
fn read(mut stream: impl BufRead, news: &SyncSender<FeedEvent>) -> std::io::Result<()> {
    let mut name = String::new();
    while let Some(line) = line(&mut stream)? {
        if let Some(given) = line.strip_prefix("event: ") {
            name = given.to_owned();
        } else if let Some(data) = line.strip_prefix("data: ") {
            let Ok(data) = serde_json::from_str(data) else {
                continue;
            };
            let told = Told {
                name: std::mem::take(&mut name),
                data,
            };
            if news.send(FeedEvent::Told(told)).is_err() {
                break;
            }
        }
    }
    Ok(())
}

/// The next line without its end; `None` at the end of the stream.
fn line(stream: &mut impl BufRead) -> std::io::Result<Option<String>> {
    let mut bytes = Vec::new();
    let count = stream.take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes)?;
    if count as u64 == LINE_BYTES_MAX {
        return Err(std::io::Error::new(
            ErrorKind::InvalidData,
            "a line is too long",
        ));
    }
    let text = String::from_utf8_lossy(&bytes);
    Ok((count > 0).then(|| text.trim_end().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let of = |user, authority, path| {
            Ok(Parts {
                user,
                authority,
                path,
            })
        };
        assert_eq!(parts("http://a:81/x?y"), of(None, "a:81", "/x"));
        assert_eq!(parts("127.0.0.1:9"), of(None, "127.0.0.1:9", "/"));
        assert_eq!(parts("[::1]:9/x@y"), of(None, "[::1]:9", "/x@y"));
        let url = "http://me:p@ss@a/x";
        assert_eq!(parts(url), of(Some("me:p@ss"), "a", "/x"));
        assert_eq!(without_password(url), "http://a/x");
        assert!(parts("https://a/").is_err() && parts("http:///x").is_err());
        assert!(parts("http://a/\r\nx").is_err());
    }

    #[test]
    fn events_are_read() {
        let text = "retry: 1000\nevent: begin\ndata: {}\n\nevent: sample\ndata: {\"v\":[1]}\n\n";
        let (news, coming) = std::sync::mpsc::sync_channel(4);
        read(text.as_bytes(), &news).unwrap();
        let told = || match coming.recv() {
            Ok(FeedEvent::Told(told)) => told,
            other => panic!("{other:?}"),
        };
        assert_eq!(told().name, "begin");
        assert_eq!(told().data["v"][0], 1);
    }

    #[test]
    fn what_cannot_be_reached_is_named() {
        let sentence = open("http://127.0.0.1:1/x").unwrap_err();
        assert!(sentence.starts_with("http://127.0.0.1:1/x: "), "{sentence}");
    }
}
