//! A server behind the server under test: says what a test tells it to, and keeps what it was asked.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::client::PATIENCE;

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Received {
    /// The head, empty line included.
    pub head: String,
    /// The body, chunks joined.
    pub body: Vec<u8>,
    /// The connection that it came over, counted from 0.
    pub connection: usize,
}

impl Received {
    /// The request line.
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// The target of the request line.
    pub fn target(&self) -> &str {
        self.line().split(' ').nth(1).unwrap_or_default()
    }

    /// The first header of that name, without regard to case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

/// What an origin does with a request.
pub enum Answer {
    /// Sends this and waits for the next request.
    Keep(Vec<u8>),
    /// Sends this and closes.
    Close(Vec<u8>),
    /// Takes the connection over.
    Talk(Box<dyn FnOnce(TcpStream) + Send>),
}

impl Answer {
    /// A 200 with a length and this body.
    pub fn ok(body: impl AsRef<[u8]>) -> Answer {
        Answer::with("200 OK", "", body)
    }

    /// A status, header lines (each ending in CRLF), a length and this body.
    pub fn with(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Answer {
        let body = body.as_ref();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n",
            body.len()
        );
        Answer::Keep([head.as_bytes(), body].concat())
    }

    /// These bytes as they are.
    pub fn raw(bytes: impl AsRef<[u8]>) -> Answer {
        Answer::Keep(bytes.as_ref().to_vec())
    }
}

/// A server on a free port, with a thread for each connection. Ends with the test's process.
pub struct Origin {
    port: u16,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Origin {
    /// Starts one that answers by `answer`.
    pub fn start(answer: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Origin {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = listener.local_addr().expect("it listens").port();
        let received = Arc::new(Mutex::new(Vec::new()));
        let (answer, kept) = (Arc::new(answer), Arc::clone(&received));
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().flatten().enumerate() {
                let (answer, kept) = (Arc::clone(&answer), Arc::clone(&kept));
                std::thread::spawn(move || serve(stream, number, &*answer, &kept));
            }
        });
        Origin { port, received }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address, `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// What it was asked so far.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().expect("no test panics in it").clone()
    }

    /// What it was asked since this was called last.
    pub fn take(&self) -> Vec<Received> {
        std::mem::take(&mut *self.received.lock().expect("no test panics in it"))
    }

    /// What it was asked last.
    ///
    /// # Panics
    /// When it was asked nothing.
    pub fn last(&self) -> Received {
        self.received().pop().expect("it was asked something")
    }

    /// Waits until it was asked so often.
    ///
    /// # Panics
    /// After 10 s.
    pub fn wait(&self, times: usize) -> Vec<Received> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let received = self.received();
            if received.len() >= times {
                return received;
            }
            assert!(
                Instant::now() < deadline,
                "asked {} times only",
                received.len()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn serve(
    mut stream: TcpStream,
    connection: usize,
    answer: &(dyn Fn(&Received) -> Answer + Send + Sync),
    kept: &Mutex<Vec<Received>>,
) {
    let _ = stream.set_nodelay(true);
    let mut ahead = Vec::new();
    while let Some((head, body)) = read(&mut stream, &mut ahead) {
        let request = Received {
            head,
            body,
            connection,
        };
        kept.lock()
            .expect("no test panics in it")
            .push(request.clone());
        let (bytes, closes) = match answer(&request) {
            Answer::Keep(bytes) => (bytes, false),
            Answer::Close(bytes) => (bytes, true),
            Answer::Talk(talk) => return talk(stream),
        };
        if stream.write_all(&bytes).is_err() || closes {
            return;
        }
    }
}

/// The next request; `None` when the connection ends.
pub(crate) fn read(stream: &mut impl Read, ahead: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    let end = loop {
        if let Some(at) = ahead.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        more(stream, ahead)?;
    };
    let head = String::from_utf8_lossy(&ahead[..end]).into_owned();
    ahead.drain(..end);
    let value = |name: &str| {
        head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name)
                .then(|| value.trim().to_owned())
        })
    };
    if value("transfer-encoding").is_some() {
        return chunks(stream, ahead).map(|body| (head, body));
    }
    let length: usize = value("content-length").map_or(Some(0), |text| text.parse().ok())?;
    while ahead.len() < length {
        more(stream, ahead)?;
    }
    Some((head, ahead.drain(..length).collect()))
}

fn chunks(stream: &mut impl Read, ahead: &mut Vec<u8>) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = loop {
            if let Some(at) = ahead.windows(2).position(|window| window == b"\r\n") {
                break ahead.drain(..at + 2).collect::<Vec<u8>>();
            }
            more(stream, ahead)?;
        };
        let digits = std::str::from_utf8(&line[..line.len() - 2]).ok()?;
        let size = usize::from_str_radix(digits, 16).ok()?;
        while ahead.len() < size + 2 {
            more(stream, ahead)?;
        }
        body.extend(ahead.drain(..size));
        ahead.drain(..2);
        if size == 0 {
            return Some(body);
        }
    }
}

fn more(stream: &mut impl Read, ahead: &mut Vec<u8>) -> Option<()> {
    let mut buffer = [0; 65_536];
    let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
    ahead.extend_from_slice(&buffer[..count]);
    Some(())
}
