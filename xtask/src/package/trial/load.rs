//! Requests without a pause, which count what is lost.
//!
//! A request is lost when its connection is refused, or when its answer is cut or wrong. A kept connection that the server closes
//! between two requests loses nothing: the request is sent again on another one, as any client does.

use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Clients at a time.
const CLIENTS: usize = 8;
/// The pause of each between two requests.
const PAUSE: Duration = Duration::from_millis(8);
/// Requests over one connection.
const REUSES: usize = 20;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum size of an answer, in bytes.
const ANSWER_MAX: usize = 1 << 20;

/// Clients at work.
pub struct Load {
    is_over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Result<usize, String>>>,
}

impl Load {
    /// Starts them in the network of a process.
    pub fn start(process: i32) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let clients = (0..CLIENTS)
            .map(|_| {
                let is_over = Arc::clone(&is_over);
                std::thread::spawn(move || client(process, &is_over))
            })
            .collect();
        Self { is_over, clients }
    }

    /// Ends them: the number of requests that were answered, or what was lost first.
    pub fn end(self) -> Result<usize, String> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut answered = 0;
        for client in self.clients {
            answered += client.join().map_err(|_| "a client panicked")??;
        }
        match answered {
            0 => Err("no request was answered".to_owned()),
            answered => Ok(answered),
        }
    }
}

fn client(process: i32, is_over: &AtomicBool) -> Result<usize, String> {
    enter(process)?;
    let expected = ask(&mut connect(80)?, false)?.ok_or("the first answer is missing")?;
    let mut kept: Option<TcpStream> = None;
    let mut answered = 0;
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(PAUSE);
        let is_last = answered % REUSES == REUSES - 1;
        if let Some(mut stream) = kept.take() {
            match ask(&mut stream, is_last).map_err(|error| lost(answered, &error))? {
                Some(answer) => {
                    compare(answered, &answer, &expected)?;
                    answered += 1;
                    kept =
                        (!is_last && !answer.0.contains("\r\nConnection: close")).then_some(stream);
                    continue;
                }
                // Closed between two requests.
                None => continue,
            }
        }
        let mut stream = connect(80).map_err(|error| lost(answered, &error))?;
        let answer = ask(&mut stream, is_last)
            .and_then(|answer| answer.ok_or_else(|| "closed without an answer".to_owned()))
            .map_err(|error| lost(answered, &error))?;
        compare(answered, &answer, &expected)?;
        answered += 1;
        kept = (!is_last && !answer.0.contains("\r\nConnection: close")).then_some(stream);
    }
    Ok(answered)
}

fn lost(answered: usize, error: &str) -> String {
    format!("lost after {answered} requests of this client: {error}")
}

fn compare(answered: usize, answer: &Answer, expected: &Answer) -> Result<(), String> {
    match answer.1 == expected.1 && answer.0.starts_with("HTTP/1.1 200 ") {
        true => Ok(()),
        false => Err(lost(answered, &format!("a wrong answer: {}", answer.0))),
    }
}

/// The body of the answer to `GET /` in the network of a process.
pub fn get(process: i32, port: u16) -> Result<String, String> {
    let asked = std::thread::spawn(move || {
        enter(process)?;
        ask(&mut connect(port)?, true)
    });
    let answer = asked.join().map_err(|_| "the client panicked")??;
    answer
        .map(|answer| answer.1)
        .ok_or_else(|| "closed without an answer".to_owned())
}

/// Lets this thread use the network of a process.
fn enter(process: i32) -> Result<(), String> {
    let network =
        File::open(format!("/proc/{process}/ns/net")).map_err(|error| error.to_string())?;
    setns(network, CloneFlags::CLONE_NEWNET).map_err(|error| format!("setns: {error}"))
}

fn connect(port: u16) -> Result<TcpStream, String> {
    let stream =
        TcpStream::connect(("127.0.0.1", port)).map_err(|error| format!("connect: {error}"))?;
    stream
        .set_read_timeout(Some(PATIENCE))
        .map_err(|error| error.to_string())?;
    Ok(stream)
}

/// A head and a body.
type Answer = (String, String);

/// Asks once. None: the connection was closed, and not one byte of an answer came.
fn ask(stream: &mut TcpStream, is_last: bool) -> Result<Option<Answer>, String> {
    let last = if is_last { "Connection: close\r\n" } else { "" };
    let head = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{last}\r\n");
    if stream.write_all(head.as_bytes()).is_err() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let mut part = [0; 16384];
    loop {
        match stream.read(&mut part) {
            Ok(0) if bytes.is_empty() => return Ok(None),
            Ok(0) => return Err(format!("cut after {} bytes", bytes.len())),
            Ok(count) => bytes.extend_from_slice(&part[..count]),
            Err(error)
                if bytes.is_empty() && error.kind() == std::io::ErrorKind::ConnectionReset =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error.to_string()),
        }
        if let Some(answer) = whole(&String::from_utf8_lossy(&bytes)) {
            return Ok(Some(answer));
        }
        if bytes.len() > ANSWER_MAX {
            return Err("an answer without end".to_owned());
        }
    }
}

/// The answer, once all of it has come. Ours have a length.
fn whole(text: &str) -> Option<Answer> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "))?;
    (length.trim().parse() == Ok(body.len())).then(|| (head.to_owned(), body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_with_its_last_byte() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
        assert_eq!(whole(text).unwrap().1, "ab");
        assert!(whole(&text[..text.len() - 1]).is_none());
        assert!(whole("HTTP/1.1 200 OK\r\n").is_none());
    }
}
