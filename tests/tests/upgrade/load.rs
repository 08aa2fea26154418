//! Clients that keep asking while programs change, and count what became of each request.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use blackbox::tls::TlsClient;
use blackbox::{Answer, Origin, Received, Site};

/// Names in each of the places `/s` (files), `/p` (proxied) and `/c` (cached).
pub(crate) const NAMES: usize = 60;
/// Clients of HTTP/1 without TLS.
const PLAIN: usize = 4;
/// Time between two requests of one: all together 1000 a second.
const PACE: Duration = Duration::from_millis(4);
/// Requests on one connection.
const REUSES: usize = 25;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What became of the requests.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) answered: AtomicUsize,
    /// Requests on a kept connection that the server had closed, which were sent again (RFC 9112, 9.3.1).
    pub(crate) again: AtomicUsize,
    pub(crate) http2: AtomicUsize,
    pub(crate) tls: AtomicUsize,
    pub(crate) lost: Mutex<Vec<String>>,
    pub(crate) wrong: Mutex<Vec<String>>,
}

/// Running clients.
pub(crate) struct Load {
    pub(crate) counts: Arc<Counts>,
    is_over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

/// The bytes at a path.
pub(crate) fn content(path: &str) -> Vec<u8> {
    let number: usize = path[3..].parse().unwrap();
    let length = if number.is_multiple_of(10) {
        300_000
    } else {
        1500 + number
    };
    let mut text = format!("{path} ").repeat(length / (path.len() + 1) + 1);
    text.truncate(length);
    text.into_bytes()
}

/// A server behind: answers every path with its content, storable for an hour.
pub(crate) fn origin() -> Origin {
    Origin::start(|asked: &Received| {
        Answer::with(
            "200 OK",
            "Cache-Control: max-age=3600\r\n",
            content(asked.target()),
        )
    })
}

/// How often cached paths were fetched more than once, in all.
pub(crate) fn refetched(origin: &Origin) -> usize {
    let mut times: HashMap<String, usize> = HashMap::new();
    for asked in origin.received() {
        if asked.target().starts_with("/c/") {
            *times.entry(asked.target().to_owned()).or_default() += 1;
        }
    }
    times.values().map(|times| times - 1).sum()
}

/// The path of a turn: one place after the other.
fn path(turn: usize) -> String {
    let place = ["s", "p", "c"][turn % 3];
    format!("/{place}/{}", turn / 3 % NAMES)
}

impl Load {
    /// Starts clients of a site: port 0 without TLS, port 1 with TLS and HTTP/2.
    pub(crate) fn start(site: &Site) -> Self {
        let (counts, is_over) = (
            Arc::new(Counts::default()),
            Arc::new(AtomicBool::new(false)),
        );
        let mut clients = Vec::new();
        for number in 0..PLAIN {
            let (counts, is_over, port) = (Arc::clone(&counts), Arc::clone(&is_over), site.port(0));
            clients.push(std::thread::spawn(move || {
                plain(number, port, &counts, &is_over)
            }));
        }
        let (counts1, over, port) = (Arc::clone(&counts), Arc::clone(&is_over), site.port(1));
        clients.push(std::thread::spawn(move || tls(port, &counts1, &over)));
        let (counts2, over, directory) =
            (Arc::clone(&counts), Arc::clone(&is_over), site.path("got"));
        std::fs::create_dir_all(&directory).unwrap();
        clients.push(std::thread::spawn(move || {
            http2(port, &directory, &counts2, &over)
        }));
        Self {
            counts,
            is_over,
            clients,
        }
    }

    /// Ends the clients; fails if one of them panicked.
    pub(crate) fn end(self) -> Arc<Counts> {
        self.is_over.store(true, Relaxed);
        for client in self.clients {
            client.join().unwrap();
        }
        self.counts
    }
}

impl Counts {
    fn take(&self, path: &str, outcome: Result<Vec<u8>, String>) {
        match outcome {
            Ok(body) if body == content(path) => drop(self.answered.fetch_add(1, Relaxed)),
            Ok(body) => self
                .wrong
                .lock()
                .unwrap()
                .push(format!("{path}: {} bytes", body.len())),
            Err(error) => self.lost.lock().unwrap().push(format!("{path}: {error}")),
        }
    }
}

fn plain(number: usize, port: u16, counts: &Counts, is_over: &AtomicBool) {
    let mut kept: Option<TcpStream> = None;
    let mut next = Instant::now();
    for turn in number * 7.. {
        if is_over.load(Relaxed) {
            return;
        }
        next = (next + PACE).max(Instant::now() - PACE * 50);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let path = path(turn);
        let is_last = turn % REUSES == 0;
        if let Some(mut stream) = kept.take() {
            match request(&mut stream, &path, is_last) {
                Err(Failed::Unanswered(_)) => drop(counts.again.fetch_add(1, Relaxed)),
                outcome => {
                    kept = keep(stream, &outcome, is_last);
                    counts.take(&path, outcome.map(|(body, _)| body).map_err(Failed::text));
                    continue;
                }
            }
        }
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(mut stream) => {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let outcome = request(&mut stream, &path, is_last);
                kept = keep(stream, &outcome, is_last);
                counts.take(&path, outcome.map(|(body, _)| body).map_err(Failed::text));
            }
            Err(error) => counts.take(&path, Err(format!("connect: {error}"))),
        }
    }
}

/// Why there is no answer.
enum Failed {
    /// Not one byte came: on a kept connection, the server had closed it.
    Unanswered(String),
    Cut(String),
}

impl Failed {
    fn text(self) -> String {
        match self {
            Self::Unanswered(text) | Self::Cut(text) => text,
        }
    }
}

type Answered = Result<(Vec<u8>, bool), Failed>;

fn keep(stream: TcpStream, outcome: &Answered, is_last: bool) -> Option<TcpStream> {
    let stays = matches!(outcome, Ok((_, true))) && !is_last;
    stays.then_some(stream)
}

/// Asks once: the body, and whether the connection stays open.
fn request(stream: &mut TcpStream, path: &str, is_last: bool) -> Answered {
    let last = if is_last { "Connection: close\r\n" } else { "" };
    let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{last}\r\n");
    let unanswered = |error: std::io::Error| Failed::Unanswered(error.to_string());
    stream.write_all(head.as_bytes()).map_err(unanswered)?;
    let mut bytes = Vec::new();
    let mut buffer = [0; 65536];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) if bytes.is_empty() => return Err(Failed::Unanswered("closed".to_owned())),
            Ok(0) => return Err(Failed::Cut(format!("cut after {} bytes", bytes.len()))),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if bytes.is_empty() => return Err(unanswered(error)),
            Err(error) => return Err(Failed::Cut(error.to_string())),
        }
        if let Some((reply, used)) = blackbox::split_reply(&bytes, false, false) {
            if reply.status != 200 || used != bytes.len() {
                return Err(Failed::Cut(format!("status {}", reply.status)));
            }
            let stays = reply.header("connection") != Some("close");
            return Ok((reply.body, stays));
        }
    }
}

fn tls(port: u16, counts: &Counts, is_over: &AtomicBool) {
    let client = TlsClient::new(None);
    for turn in 0.. {
        if is_over.load(Relaxed) {
            return;
        }
        std::thread::sleep(PACE * 2);
        let path = path(turn);
        let outcome =
            client
                .get(port, "localhost", &path)
                .and_then(|seen| match seen.reply.status {
                    200 => Ok(seen.reply.body),
                    status => Err(format!("status {status}")),
                });
        counts.tls.fetch_add(1, Relaxed);
        counts.take(&path, outcome.map_err(|error| format!("TLS: {error}")));
    }
}

/// curl, which keeps one connection of HTTP/2 over TLS for [`NAMES`] requests, and opens another after a GOAWAY.
fn http2(port: u16, directory: &Path, counts: &Counts, is_over: &AtomicBool) {
    for turn in 0.. {
        if is_over.load(Relaxed) {
            return;
        }
        let place = ["s", "p", "c"][turn % 3];
        let last = NAMES - 1;
        let output = Command::new("curl")
            .args(["-sk", "--http2", "--max-time", "10", "-o"])
            .arg(directory.join("#1"))
            .args([
                "-w",
                "%{url_effective} %{http_code} %{http_version} %{errormsg}\\n",
            ])
            .arg(format!("https://127.0.0.1:{port}/{place}/[0-{last}]"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text.lines().count(), NAMES, "{text}");
        for (number, line) in text.lines().enumerate() {
            let path = format!("/{place}/{number}");
            // Whole: nothing stands where curl's message would.
            let outcome = match line.ends_with(" 200 2 ") {
                true => std::fs::read(directory.join(number.to_string()))
                    .map_err(|error| error.to_string()),
                false => Err(format!("HTTP/2: {line}")),
            };
            counts.http2.fetch_add(1, Relaxed);
            counts.take(&path, outcome);
        }
    }
}
