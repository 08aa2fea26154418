//! Raw answers of servers behind, made by classes, as `raw_requests` makes requests: what is no answer is 502, what breaks off or is
//! broken never looks like a whole answer, and nothing that stands behind an answer is taken for another one. Each class says what RFC
//! 9110 or 9112 demands, and where nginx does otherwise.
//!
//! `FREEWHEEL_TEST_BINARY=/path/to/nginx` runs the same classes through nginx, to see that what is said of it is true.

mod bodies;
mod lines;

use std::io::ErrorKind;
use std::io::Read as _;

use blackbox::{Answer, Origin, Reply, Server, is_nginx, split_reply};

/// What becomes of an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    /// 502.
    Refused,
    /// 502, or an answer that the client sees to be cut: never a whole one.
    Cut,
    /// This status and body.
    Passed(u16, &'static str),
    /// Not looked at: what nginx alone does.
    Any,
}

use Verdict::{Any, Cut, Passed, Refused};

struct Class {
    /// What it is about, and where that is said.
    name: &'static str,
    verdict: Verdict,
    /// nginx's verdict.
    nginx: Verdict,
    /// In Latin-1: each char is a byte.
    answers: Vec<String>,
}

fn class(name: &'static str, verdict: Verdict, answers: Vec<String>) -> Class {
    Class {
        name,
        verdict,
        nginx: verdict,
        answers,
    }
}

impl Class {
    fn nginx(mut self, verdict: Verdict) -> Class {
        self.nginx = verdict;
        self
    }
}

/// Ways through the server: each is a location, and what the client says of itself.
const WAYS: [(&str, &str, &str); 7] = [
    ("/plain", "1.1", ""),
    ("/plain", "1.0", ""),
    ("/now", "1.1", ""),
    ("/cached", "1.1", ""),
    ("/cached", "1.0", ""),
    ("/coded", "1.1", "Accept-Encoding: gzip\r\n"),
    ("/kept", "1.1", ""),
];

fn bytes_of(latin: &str) -> Vec<u8> {
    latin
        .chars()
        .map(|byte| u8::try_from(byte).expect("answers are written in Latin-1"))
        .collect()
}

/// Heads are compared as text.
fn in_ascii(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes
        .iter_mut()
        .filter(|byte| !byte.is_ascii())
        .for_each(|byte| *byte = b'?');
    bytes
}

/// An answer with these lines (each without its end) and this body.
fn answer(lines: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nX: y\r\n{lines}\r\n\r\n{body}")
}

fn each<T: AsRef<str>>(
    items: impl IntoIterator<Item = T>,
    answer: impl Fn(&str) -> String,
) -> Vec<String> {
    items
        .into_iter()
        .map(|item| answer(item.as_ref()))
        .collect()
}

/// The items of a list with `|` between.
fn list(items: &str) -> Vec<&str> {
    items.split('|').collect()
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

/// What is no blank (RFC 9110, 5.6.3), and is taken for one by some.
const NO_BLANKS: &str = "\0|\x08|\x0b|\x0c|\x1c|\x1f|\x7f|\u{85}|\u{a0}|\u{ff}|\u{2}";
const BLANKS: [&str; 5] = [" ", "   ", "\t", " \t ", "                    "];

struct Bench {
    server: Server,
    origin: Origin,
    answer: std::sync::Arc<std::sync::Mutex<Vec<u8>>>,
}

impl Bench {
    fn start() -> Bench {
        let said = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let told = std::sync::Arc::clone(&said);
        let origin = Origin::start(move |request| match request.target() {
            "/fine" => Answer::ok("fine"),
            target if target.starts_with("/kept") => {
                Answer::Keep(told.lock().expect("no panic").clone())
            }
            _ => Answer::Close(told.lock().expect("no panic").clone()),
        });
        let server = Server::start(&format!(
            "proxy_cache_path cache keys_zone=c:1m; proxy_next_upstream off; gzip_types *; gzip_min_length 1; gzip_http_version 1.0;
             proxy_read_timeout 300ms; lingering_time 1s; lingering_timeout 300ms;
             upstream up {{ server {}; keepalive 4; }}
             server {{ listen 127.0.0.1:%PORT%; location / {{ proxy_pass http://up; }} location /now {{ proxy_buffering off; proxy_pass http://up; }}
                location /cached {{ proxy_cache c; proxy_cache_valid any 1h; proxy_ignore_headers Cache-Control Expires; proxy_pass http://up; }}
                location /coded {{ gzip on; proxy_pass http://up; }} location = /fine {{ proxy_next_upstream error; proxy_pass http://up; }} }}",
            origin.address()
        ));
        Bench {
            server,
            origin,
            answer: said,
        }
    }

    /// All bytes up to the end of the connection, and the next answer's if the connection goes on; and whether it was reset.
    fn ask(&self, target: &str, version: &str, lines: &str) -> (Vec<u8>, bool) {
        let mut connection = self.server.connect();
        let keep = if version == "1.0" {
            ""
        } else {
            "\r\nGET /fine HTTP/1.1\r\nHost: h.test\r\nConnection: close\r\n"
        };
        let request = format!("GET {target} HTTP/{version}\r\nHost: h.test\r\n{lines}{keep}\r\n");
        connection.send(request);
        let mut bytes = Vec::new();
        match connection.stream().read_to_end(&mut bytes) {
            Ok(_) => (in_ascii(bytes), false),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => (in_ascii(bytes), true),
            Err(error) => panic!(
                "no answer ({error}) to {target}; so far {:?}",
                bytes.escape_ascii().to_string()
            ),
        }
    }

    /// What is wrong with what became of `answer` on this way; nothing where it is as it should be.
    fn fault(&self, verdict: Verdict, way: (&str, &str, &str), number: usize) -> Option<String> {
        if verdict == Any {
            return None;
        }
        let (location, version, lines) = way;
        let target = format!("{location}/{number}");
        let (bytes, is_reset) = self.ask(&target, version, lines);
        let shown = || bytes.escape_ascii().to_string();
        let found = split_reply(&bytes, false, !is_reset);
        let word = if found.is_none() { "cut" } else { "whole" };
        let fault = match (verdict, found) {
            (Refused, Some((reply, _))) if reply.status == 502 => None,
            (Cut, None) => None,
            (Cut, Some((reply, _))) if reply.status == 502 => None,
            (Passed(status, body), Some((reply, used))) if reply.status == status => {
                self.wrong(body, &reply, &bytes[used..], version, lines)
            }
            (_, _) => Some(format!("{word} {}", shown())),
        };
        if bytes.windows(6).any(|part| part == b"poison") {
            return Some(format!("poison: {}", shown()));
        }
        let is_fine = self.server.get("/fine").text() == "fine";
        let asked = self.origin.take();
        let connections = asked
            .iter()
            .filter(|request| request.target() == target)
            .count();
        fault.or_else(|| {
            (!is_fine || connections == 0).then(|| "what follows is not fine".to_owned())
        })
    }

    /// What is wrong with an answer that is to be passed on, and with what came behind it.
    fn wrong(
        &self,
        body: &str,
        reply: &Reply,
        behind: &[u8],
        version: &str,
        lines: &str,
    ) -> Option<String> {
        if lines.is_empty() && reply.body != bytes_of(body) {
            return Some(format!("another body: {reply:?}"));
        }
        let follows = version == "1.0"
            || reply.header("connection") == Some("close")
            || split_reply(behind, false, true).is_some_and(|(next, _)| next.text() == "fine");
        (!follows).then(|| format!("the next answer: {}", behind.escape_ascii()))
    }

    /// Runs the classes. What is wrong with the answers is in the error log, up to `crit`; that is meant.
    fn run(&self, classes: &[Class]) {
        let mut faults = Vec::new();
        let mut number = 0;
        for class in classes {
            let verdict = if is_nginx() {
                class.nginx
            } else {
                class.verdict
            };
            for (nth, answer) in class.answers.iter().enumerate() {
                *self.answer.lock().expect("no test panics in it") = bytes_of(answer);
                // What is cut on a connection that is kept is told from one that is slow by a timeout alone.
                let is_slow =
                    |way: &&(&str, &str, &str)| way.0 == "/kept" && !matches!(verdict, Passed(..));
                // The first of a class goes all ways, each other one two of them.
                let ways = WAYS.iter().filter(|way| !is_slow(way));
                for (at, way) in ways.enumerate() {
                    if nth > 0 && (at + nth) % 3 != 0 {
                        continue;
                    }
                    number += 1;
                    if let Some(fault) = self.fault(verdict, *way, number) {
                        let shown = bytes_of(answer).escape_ascii().to_string();
                        faults.push(format!(
                            "{}: {shown}\n    {way:?}: {verdict:?}, but {fault}",
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
