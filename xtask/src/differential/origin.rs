//! The scripted servers behind a case's proxies: they answer what the case says, or with the very request that came.
//!
//! Not here: what a case says. Invariant: an origin ends with the value that started it, and what came to it is told by then.

use super::case::Answer;
use super::gateway::Speech;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Longer than any case waits.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often, and how quickly, it is tried to listen.
const TRIES_MAX: usize = 100;
const TICK: Duration = Duration::from_millis(20);
/// Header lines and bytes of a request that an origin takes.
const LINES_MAX: usize = 1000;
pub const BODY_MAX: u64 = 8 << 20;

/// A listening origin.
pub struct Origin {
    port: u16,
    state: Arc<State>,
    thread: Option<std::thread::JoinHandle<()>>,
}

struct State {
    speech: Speech,
    scripts: Mutex<Vec<Script>>,
    came: Mutex<Vec<Vec<u8>>>,
    is_over: AtomicBool,
}

/// The answers to targets with one beginning.
struct Script {
    prefix: String,
    answers: Vec<Answer>,
    next: usize,
}

impl Origin {
    /// Starts to listen on a port of the loopback address.
    pub fn start(port: u16, speech: Speech, answers: &[&Answer]) -> Result<Self, String> {
        let listener = listen(port).map_err(|error| format!("origin on port {port}: {error}"))?;
        let mut scripts: Vec<Script> = Vec::new();
        for answer in answers {
            let one = Answer::clone(answer);
            match scripts
                .iter_mut()
                .find(|known| known.prefix == answer.prefix)
            {
                Some(script) => script.answers.push(one),
                None => scripts.push(Script {
                    prefix: answer.prefix.clone(),
                    answers: vec![one],
                    next: 0,
                }),
            }
        }
        let state = Arc::new(State {
            speech,
            scripts: Mutex::new(scripts),
            came: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        let thread = std::thread::spawn(move || accept(&listener, &shared));
        Ok(Self {
            port,
            state,
            thread: Some(thread),
        })
    }

    /// What came, sorted: the order of requests that are made at the same time is nobody's promise.
    pub fn came(&self) -> Vec<Vec<u8>> {
        let mut came = locked(&self.state.came).clone();
        came.sort();
        came
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        // Wakes the thread, which looks.
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Listens. For a moment a process that is just being started holds what its parent had open: the listener of the case before.
fn listen(port: u16) -> std::io::Result<TcpListener> {
    let mut tries = 0;
    loop {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Err(_) if tries < TRIES_MAX => tries += 1,
            outcome => return outcome,
        }
        std::thread::sleep(TICK);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &TcpListener, state: &Arc<State>) {
    for stream in listener.incoming() {
        if state.is_over.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let state = Arc::clone(state);
        std::thread::spawn(move || drop(serve(&stream, &state)));
    }
}

/// Answers the requests of one connection until one answer closes it.
fn serve(stream: &TcpStream, state: &State) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    if state.speech != Speech::Http {
        return serve_gateway(&mut reader, stream, state);
    }
    loop {
        let Some(request) = read(&mut reader)? else {
            return Ok(());
        };
        locked(&state.came).push(request.clone());
        let (delay, bytes) = answer(&request, state);
        std::thread::sleep(delay);
        (&mut &*stream).write_all(&bytes)?;
        if !keeps(&bytes) {
            return Ok(());
        }
    }
}

/// The same in what a gateway is asked in. Where no answer fits, the request is sent back.
fn serve_gateway(
    reader: &mut impl Read,
    mut stream: &TcpStream,
    state: &State,
) -> std::io::Result<()> {
    while let Some(call) = state.speech.read(reader)? {
        let request = call.told();
        locked(&state.came).push(request.clone());
        let is_head = call.param("REQUEST_METHOD") == "HEAD";
        let (delay, bytes) = match scripted(call.param("REQUEST_URI"), state) {
            Some(answer) => (answer.delay, gateway_s(&answer, is_head, state.speech)),
            None => {
                let echo = [b"Content-Type: text/plain\r\n\r\n", &request[..]].concat();
                (Duration::ZERO, state.speech.packed(&echo))
            }
        };
        std::thread::sleep(delay);
        stream.write_all(&bytes)?;
        if !call.keeps {
            return Ok(());
        }
    }
    Ok(())
}

fn gateway_s(answer: &Answer, is_head: bool, speech: Speech) -> Vec<u8> {
    let length = if is_head {
        answer.head
    } else {
        answer.bytes.len()
    };
    match answer.is_raw {
        true => answer.bytes.clone(),
        false => speech.packed(&answer.bytes[..length]),
    }
}

/// Is the connection left open after this answer? Only where it says so.
fn keeps(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer).to_ascii_lowercase();
    text.split("\r\n\r\n")
        .next()
        .is_some_and(|head| head.contains("\r\nconnection: keep-alive"))
}

fn answer(request: &[u8], state: &State) -> (Duration, Vec<u8>) {
    let line = request
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let is_head = line.starts_with("HEAD ");
    let target = line.split(' ').nth(1).unwrap_or_default();
    match scripted(target, state) {
        Some(answer) => {
            let length = if is_head {
                answer.head
            } else {
                answer.bytes.len()
            };
            (answer.delay, answer.bytes[..length].to_vec())
        }
        None => {
            let head = format!(
                "HTTP/1.1 200 OK\r\nServer: origin\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                request.len()
            );
            let body: &[u8] = if is_head { b"" } else { request };
            (Duration::ZERO, [head.as_bytes(), body].concat())
        }
    }
}

/// The next answer to this target.
fn scripted(target: &str, state: &State) -> Option<Answer> {
    let mut scripts = locked(&state.scripts);
    let fitting = scripts
        .iter_mut()
        .filter(|script| target.starts_with(&script.prefix));
    let script = fitting.max_by_key(|script| script.prefix.len())?;
    let at = script.next.min(script.answers.len() - 1);
    script.next += 1;
    Some(script.answers[at].clone())
}

/// One request: its head as it came, and its body without the chunks' frames.
fn read(reader: &mut impl BufRead) -> std::io::Result<Option<Vec<u8>>> {
    let mut request = Vec::new();
    let mut length = 0;
    let mut is_chunked = false;
    for _ in 0..LINES_MAX {
        let mut line = Vec::new();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        request.extend_from_slice(&line);
        let text = String::from_utf8_lossy(&line).trim().to_ascii_lowercase();
        if text.is_empty() {
            break;
        }
        if let Some(value) = text.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        is_chunked |= text.starts_with("transfer-encoding:") && text.contains("chunked");
    }
    if is_chunked {
        chunks(reader, &mut request)?;
    } else {
        reader
            .take(length.min(BODY_MAX))
            .read_to_end(&mut request)?;
    }
    Ok(Some(request))
}

fn chunks(reader: &mut impl BufRead, request: &mut Vec<u8>) -> std::io::Result<()> {
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(size, 16).unwrap_or(0).min(BODY_MAX);
        reader.take(size).read_to_end(request)?;
        let mut end = String::new();
        reader.read_line(&mut end)?;
        if size == 0 {
            return Ok(());
        }
    }
}
