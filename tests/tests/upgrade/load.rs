//! Clients that keep asking while programs change, and count what became of each request.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use blackbox::tls::TlsClient;
use blackbox::{Answer, Http2Client, Http2Reply, Origin, Received, Site};
use wire::http2::ErrorCode;

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
    /// Requests over HTTP/2 that a GOAWAY has refused, which were sent again (RFC 9113, 6.8), by the server that had the connection.
    pub(crate) refused: Mutex<HashMap<String, usize>>,
    pub(crate) tls: AtomicUsize,
    /// The server that is leaving, as its `Server` field begins; empty: none is.
    pub(crate) leaving: Mutex<&'static str>,
    pub(crate) lost: Mutex<Vec<Lost>>,
    pub(crate) wrong: Mutex<Vec<String>>,
}

/// A request without a whole answer.
#[derive(Debug, Clone)]
pub(crate) struct Lost {
    /// What answered before on the connection, by its `Server` field. Where nothing did: the server that was leaving then.
    pub(crate) server: String,
    #[expect(dead_code, reason = "shown by Debug")]
    what: String,
}

impl Lost {
    pub(crate) fn is_by_nginx(&self) -> bool {
        self.server.starts_with("nginx/")
    }
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
        let (counts3, over, port) = (Arc::clone(&counts), Arc::clone(&is_over), site.port(0));
        clients.push(std::thread::spawn(move || {
            prior_knowledge(port, &counts3, &over)
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
    /// Counts an outcome on a connection on which this server answered before.
    fn take(&self, server: &str, path: &str, outcome: Result<Vec<u8>, String>) {
        match outcome {
            Ok(body) if body == content(path) => drop(self.answered.fetch_add(1, Relaxed)),
            Ok(body) => self
                .wrong
                .lock()
                .unwrap()
                .push(format!("{path}: {} bytes", body.len())),
            Err(error) => {
                let leaving = *self.leaving.lock().unwrap();
                let server = if server.is_empty() { leaving } else { server };
                self.lost.lock().unwrap().push(Lost {
                    server: server.to_owned(),
                    what: format!("{path}: {error}"),
                });
            }
        }
    }
}

fn plain(number: usize, port: u16, counts: &Counts, is_over: &AtomicBool) {
    let mut kept: Option<Kept> = None;
    let mut next = Instant::now();
    for turn in number * 7.. {
        if is_over.load(Relaxed) {
            return;
        }
        next = (next + PACE).max(Instant::now() - PACE * 50);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let path = path(turn);
        let is_last = turn % REUSES == 0;
        if let Some(mut old) = kept.take() {
            match request(&mut old.stream, &path, is_last) {
                Err(Failed::Unanswered(_)) => drop(counts.again.fetch_add(1, Relaxed)),
                outcome => {
                    let server = std::mem::take(&mut old.server);
                    kept = keep(old.stream, &outcome, is_last);
                    counts.take(&server, &path, body_of(outcome));
                    continue;
                }
            }
        }
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(mut stream) => {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let outcome = request(&mut stream, &path, is_last);
                kept = keep(stream, &outcome, is_last);
                counts.take("", &path, body_of(outcome));
            }
            Err(error) => counts.take("", &path, Err(format!("connect: {error}"))),
        }
    }
}

/// A connection that stays open, and what answered on it.
struct Kept {
    stream: TcpStream,
    server: String,
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

type Answered = Result<blackbox::Reply, Failed>;

fn keep(stream: TcpStream, outcome: &Answered, is_last: bool) -> Option<Kept> {
    let reply = outcome.as_ref().ok().filter(|_| !is_last)?;
    let stays = reply.header("connection") != Some("close");
    let server = reply.header("server").unwrap_or_default().to_owned();
    stays.then_some(Kept { stream, server })
}

fn body_of(outcome: Answered) -> Result<Vec<u8>, String> {
    outcome.map(|reply| reply.body).map_err(Failed::text)
}

/// Asks once.
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
            return Ok(reply);
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
        let outcome = outcome.map_err(|error| format!("TLS: {error}"));
        counts.take("", &path, outcome);
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
        let mut curl = Command::new("curl")
            .args(["-sk", "--http2", "--max-time", "10", "-o"])
            .arg(directory.join("#1"))
            // Each line comes when its request has ended: the error output is not buffered.
            .args([
                "-w",
                "%{stderr}%{num_connects} %header{server} %{url_effective} %{http_code} %{http_version} %{errormsg}\\n",
            ])
            .arg(format!("https://127.0.0.1:{port}/{place}/[0-{last}]"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(curl.stderr.take().unwrap()).lines();
        let mut server = String::new();
        let mut count = 0;
        for (number, line) in lines.map(Result::unwrap).enumerate() {
            let path = format!("/{place}/{number}");
            let mut words = line.split(' ');
            let (connects, answered) = (words.next(), words.next().unwrap_or_default());
            if connects != Some("0") {
                server.clear();
            }
            // Whole: nothing stands where curl's message would.
            let outcome = match line.ends_with(" 200 2 ") {
                true => std::fs::read(directory.join(number.to_string()))
                    .map_err(|error| error.to_string()),
                false => Err(format!("HTTP/2: {line}")),
            };
            counts.http2.fetch_add(1, Relaxed);
            counts.take(&server, &path, outcome);
            server = answered.to_owned();
            count += 1;
        }
        curl.wait().unwrap();
        assert_eq!(count, NAMES, "curl's lines");
    }
}

/// Our own client of HTTP/2, without TLS: what a GOAWAY has refused is sent again, and only what the server has not told is lost.
fn prior_knowledge(port: u16, counts: &Counts, is_over: &AtomicBool) {
    let mut kept: Option<(Http2Client, String)> = None;
    for turn in 0.. {
        if is_over.load(Relaxed) {
            return;
        }
        std::thread::sleep(PACE * 2);
        let path = path(turn);
        if turn % REUSES == 0 {
            kept = None;
        }
        let mut outcome = None;
        if let Some((mut client, server)) =
            kept.take().filter(|(client, _)| client.goaway.is_none())
        {
            let reply = ask(&mut client, &path);
            if reply.reset == Some(ErrorCode::REFUSED_STREAM.0) {
                *counts.refused.lock().unwrap().entry(server).or_default() += 1;
            } else {
                outcome = Some((client, server, reply));
            }
        }
        let (client, server, reply) = match outcome {
            Some(all) => all,
            None => match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => {
                    let mut client = Http2Client::new(stream);
                    let reply = ask(&mut client, &path);
                    (client, String::new(), reply)
                }
                Err(error) => {
                    counts.take("", &path, Err(format!("connect: {error}")));
                    continue;
                }
            },
        };
        counts.http2.fetch_add(1, Relaxed);
        if reply.is_whole && reply.status == 200 {
            let server = reply.header("server").unwrap_or_default().to_owned();
            kept = Some((client, server));
            counts.take("", &path, Ok(reply.body));
        } else {
            let goaway = client.goaway;
            let (status, reset) = (reply.status, reply.reset);
            let text = format!("HTTP/2: status {status}, reset {reset:?}, GOAWAY {goaway:?}");
            counts.take(&server, &path, Err(text));
        }
    }
}

fn ask(client: &mut Http2Client, path: &str) -> Http2Reply {
    let stream = client.get(path);
    client.reply(stream)
}
