//! Raw requests made by classes: what is wrong, at every place where it can stand, and what only looks wrong. Each class says what
//! RFC 9110 or 9112 demands, and where nginx does otherwise. A strict server stands behind: whatever reaches it is one well-formed
//! request with the body that was meant, or nothing.
//!
//! `FREEWHEEL_TEST_BINARY=/path/to/nginx` runs the same classes through nginx, to see that what is said of it is true.

mod bodies;
mod lines;

use std::net::Shutdown;
use std::time::Duration;

use blackbox::{Answer, Origin, Received, Server, is_nginx, statuses_of, text_of};

/// Behind what must be refused: whoever answers it, or passes it on, has taken a body for a request.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: h.test\r\nConnection: close\r\n\r\n";
/// Behind what is to be understood: the next request.
const NEXT: &str = "GET /next HTTP/1.1\r\nHost: h.test\r\nConnection: close\r\n\r\n";
/// So many bytes go at once, in the second round.
const PIECE: usize = 5;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    /// One answer of 400, 413, 501 or 505 and the end of the connection; the server behind sees nothing of it.
    Refused,
    /// It reaches the server behind with this body, and so does the next one.
    Passed(&'static str),
    /// One of the two, as in nginx: what the RFC leaves open.
    Open,
}

use Verdict::{Open, Passed, Refused};

struct Class {
    /// What it is about, and where that is said.
    name: &'static str,
    verdict: Verdict,
    /// nginx's verdict.
    nginx: Verdict,
    /// In Latin-1: each char is a byte.
    requests: Vec<String>,
}

fn class(name: &'static str, verdict: Verdict, requests: Vec<String>) -> Class {
    Class {
        name,
        verdict,
        nginx: verdict,
        requests,
    }
}

impl Class {
    fn nginx(mut self, verdict: Verdict) -> Class {
        self.nginx = verdict;
        self
    }
}

/// A request with these lines (each without its end) and this body.
fn post(lines: &str, body: &str) -> String {
    format!("POST /c HTTP/1.1\r\nHost: h.test\r\n{lines}\r\n\r\n{body}")
}

/// A request with `abc` as its body, whose length is said by these lines.
fn of_length(lines: &str) -> String {
    post(lines, "abc")
}

/// A request with `abc` in chunks, whose coding is said by these lines.
fn of_coding(lines: &str) -> String {
    post(lines, "3\r\nabc\r\n0\r\n\r\n")
}

fn chunked(body: &str) -> String {
    post("Transfer-Encoding: chunked", body)
}

fn each<T: AsRef<str>>(
    items: impl IntoIterator<Item = T>,
    request: impl Fn(&str) -> String,
) -> Vec<String> {
    items
        .into_iter()
        .map(|item| request(item.as_ref()))
        .collect()
}

/// `around` before `text`, behind it, on both sides.
fn around(around: &[&str], text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for blank in around {
        found.push(format!("{blank}{text}"));
        found.push(format!("{text}{blank}"));
        found.push(format!("{blank}{text}{blank}"));
    }
    found
}

/// `text` with `inserted` at every byte.
fn at_each_place(text: &str, inserted: &str) -> Vec<(usize, String)> {
    (0..=text.len())
        .map(|at| (at, format!("{}{inserted}{}", &text[..at], &text[at..])))
        .collect()
}

/// A request that was not answered in this time waits for more of it.
const NO_ANSWER: Duration = Duration::from_millis(30);

/// What is no blank (RFC 9110, 5.6.3), and is taken for one by some.
const NO_BLANKS: &str = "\0|\x08|\x0b|\x0c|\r|\x1c|\x1f|\x7f|\u{85}|\u{a0}|\u{ff}|\u{2}";
const BLANKS: [&str; 3] = [" ", "   ", "                                        "];
const TABS: [&str; 3] = ["\t", " \t", "\t \t"];

/// The items of a list with `|` between.
fn list(items: &str) -> Vec<&str> {
    items.split('|').collect()
}

fn bytes_of(latin: &str) -> Vec<u8> {
    latin
        .chars()
        .map(|byte| u8::try_from(byte).expect("requests are written in Latin-1"))
        .collect()
}

struct Bench {
    server: Server,
    origin: Origin,
}

impl Bench {
    fn start() -> Bench {
        let origin = Origin::start(|request| Answer::ok(request.target()));
        let server = Server::start(&format!(
            "client_header_timeout 5s; client_body_timeout 5s; lingering_time 1s; lingering_timeout 300ms;
             server {{ listen 127.0.0.1:%PORT%;
                location / {{ proxy_pass http://{0}; }}
                location /now/ {{ proxy_request_buffering off; proxy_pass http://{0}/; }} }}",
            origin.address()
        ));
        Bench { server, origin }
    }

    /// Statuses and text of all answers.
    fn ask(&self, bytes: &[u8], piece: usize, ends: bool) -> (Vec<u16>, String) {
        let mut connection = self.server.connect();
        for piece in bytes.chunks(piece) {
            connection.send(piece);
        }
        if ends {
            // A client that has gone is not answered: so not before there is an answer, or none to be expected.
            let stream = connection.stream();
            let before = stream.read_timeout().expect("a socket has one");
            stream.set_read_timeout(Some(NO_ANSWER)).expect("not zero");
            let _ = stream.peek(&mut [0]);
            stream.set_read_timeout(before).expect("as it was");
            let _ = stream.shutdown(Shutdown::Write);
        }
        let text = text_of(&connection.rest());
        (statuses_of(&text), text)
    }

    /// What is wrong with what became of `request`; nothing where it is as it should be.
    fn fault(&self, request: &str, verdict: Verdict, piece: usize) -> Option<String> {
        let is_refused = |bench: &Bench| {
            let bytes = bytes_of(&format!("{request}{SMUGGLED}"));
            let (statuses, text) = bench.ask(&bytes, piece, true);
            let passed = bench.origin.take();
            let is_refusal = |status: &u16| matches!(status, 400 | 413 | 501 | 505);
            if !passed.is_empty() {
                Some(format!("passed on: {passed:?}"))
            } else if statuses.len() > 1 || !statuses.iter().all(is_refusal) {
                Some(format!("answered: {text:?}"))
            } else if text.starts_with("HTTP/") && !text.contains("Connection: close\r\n") {
                Some(format!("not closed: {text:?}"))
            } else {
                None
            }
        };
        let is_passed = |bench: &Bench, body: Option<&str>| {
            let bytes = bytes_of(&format!("{request}{NEXT}"));
            let (statuses, text) = bench.ask(&bytes, piece, false);
            let passed = bench.origin.take();
            if statuses != [200, 200] || passed.len() != 2 {
                return Some(format!("{statuses:?} {text:?}, passed on: {passed:?}"));
            }
            if body.is_some_and(|body| passed[0].body != bytes_of(body)) {
                return Some(format!("another body: {:?}", passed[0]));
            }
            let is_clean = passed.iter().all(is_clean);
            (!is_clean || passed[1].target() != "/next").then(|| format!("unclean: {passed:?}"))
        };
        match verdict {
            Refused => is_refused(self),
            Passed(body) => is_passed(self, Some(body)),
            Open => is_refused(self).and_then(|_| is_passed(self, None)),
        }
    }

    /// As [`Bench::run`], and once more where a body is passed on as it comes.
    fn run_both(&self, mut classes: Vec<Class>) {
        self.run(&classes);
        for request in classes.iter_mut().flat_map(|class| &mut class.requests) {
            *request = request.replacen("/c ", "/now/c ", 1);
        }
        self.run(&classes);
    }

    fn run(&self, classes: &[Class]) {
        let mut faults = Vec::new();
        for class in classes {
            let verdict = if is_nginx() {
                class.nginx
            } else {
                class.verdict
            };
            for request in &class.requests {
                for piece in [usize::MAX, PIECE] {
                    if let Some(fault) = self.fault(request, verdict, piece) {
                        let shown = bytes_of(request).escape_ascii().to_string();
                        faults.push(format!(
                            "{}: {shown}\n    {verdict:?}, but {fault}",
                            class.name
                        ));
                        break;
                    }
                }
            }
        }
        assert!(
            faults.is_empty(),
            "{}\n{} faults",
            faults.join("\n"),
            faults.len()
        );
    }
}

/// One reading alone: whole lines, names that are tokens, one Host, one thing that says where the body ends.
fn is_clean(request: &Received) -> bool {
    let Some(head) = request.head.strip_suffix("\r\n\r\n") else {
        return false;
    };
    let is_token = |name: &str| {
        let is_one = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        !name.is_empty() && name.chars().all(is_one)
    };
    let mut names: Vec<String> = Vec::new();
    for (number, line) in head.split("\r\n").enumerate() {
        if line.contains(['\r', '\n', '\0']) {
            return false;
        }
        match line.split_once(':') {
            _ if number == 0 => {}
            Some((name, _)) if is_token(name) => names.push(name.to_ascii_lowercase()),
            _ => return false,
        }
    }
    let count = |wanted: &str| names.iter().filter(|name| *name == wanted).count();
    let words: Vec<&str> = request.line().split(' ').collect();
    words.len() == 3
        && words[2] == "HTTP/1.1"
        && count("host") == 1
        && count("content-length") + count("transfer-encoding") <= 1
}
