//! A program behind the server under test that speaks FastCGI, uwsgi or SCGI: says what a test tells it to, and keeps what it was asked.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speech {
    /// FastCGI, with the records that a test gives as the answer.
    Fastcgi,
    /// uwsgi.
    Uwsgi,
    /// SCGI.
    Scgi,
}

/// A request as it came.
#[derive(Debug, Clone, Default)]
pub struct Call {
    /// Names and values. What came twice is here once.
    pub params: BTreeMap<String, String>,
    /// The body.
    pub body: Vec<u8>,
    /// The connection that it came over, counted from 0.
    pub connection: usize,
    /// Flags of FCGI_BEGIN_REQUEST; the modifiers of a uwsgi packet.
    pub flags: [u8; 2],
    /// Records that the body came in.
    pub records: usize,
}

impl Call {
    /// A parameter's value; empty: none.
    pub fn param(&self, name: &str) -> &str {
        self.params.get(name).map_or("", String::as_str)
    }
}

/// A record of FastCGI with this padding.
pub fn record(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len())
        .expect("a record has at most 65535 bytes")
        .to_be_bytes();
    let head = [1, kind, 0, 1, high, low, padding, 0];
    [&head[..], content, &vec![0; padding.into()]].concat()
}

/// FCGI_STDOUT.
pub fn stdout(text: impl AsRef<[u8]>) -> Vec<u8> {
    record(6, text.as_ref(), 0)
}

/// FCGI_STDERR.
pub fn stderr(text: impl AsRef<[u8]>) -> Vec<u8> {
    record(7, text.as_ref(), 0)
}

/// FCGI_END_REQUEST with this protocol status.
pub fn end(status: u8) -> Vec<u8> {
    record(3, &[0, 0, 0, 0, status, 0, 0, 0], 0)
}

/// A whole FastCGI answer, as programs send it.
pub fn answer(text: impl AsRef<[u8]>) -> Vec<u8> {
    let mut records = Vec::new();
    for piece in text.as_ref().chunks(8000) {
        records.extend(record(6, piece, (piece.len() % 8) as u8));
    }
    [records, stdout(""), end(0)].concat()
}

/// A program on a free port or a unix socket, with a thread for each connection. Ends with the test's process.
pub struct Gateway {
    port: u16,
    calls: Arc<Mutex<Vec<Call>>>,
}

type Answers = Arc<dyn Fn(&Call) -> Vec<u8> + Send + Sync>;

impl Gateway {
    /// Starts one that answers by `answer`.
    ///
    /// # Panics
    /// When no port is free.
    pub fn start(
        speech: Speech,
        answer: impl Fn(&Call) -> Vec<u8> + Send + Sync + 'static,
    ) -> Gateway {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = listener.local_addr().expect("it listens").port();
        let gateway = Gateway {
            port,
            calls: Arc::default(),
        };
        let incoming = move || listener.accept().ok().map(|(stream, _)| stream);
        gateway.listen(speech, Arc::new(answer), incoming);
        gateway
    }

    /// Starts a FastCGI one at a unix socket.
    ///
    /// # Panics
    /// When the socket cannot be made.
    pub fn start_at(
        path: &Path,
        answer: impl Fn(&Call) -> Vec<u8> + Send + Sync + 'static,
    ) -> Gateway {
        let listener = UnixListener::bind(path).expect("the socket can be made");
        // Whoever the worker is.
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(path, permissions).expect("it is ours");
        let gateway = Gateway {
            port: 0,
            calls: Arc::default(),
        };
        let incoming = move || listener.accept().ok().map(|(stream, _)| stream);
        gateway.listen(Speech::Fastcgi, Arc::new(answer), incoming);
        gateway
    }

    fn listen<S: Read + Write + Send + 'static>(
        &self,
        speech: Speech,
        answer: Answers,
        incoming: impl Fn() -> Option<S> + Send + 'static,
    ) {
        let calls = Arc::clone(&self.calls);
        std::thread::spawn(move || {
            for connection in 0.. {
                let Some(stream) = incoming() else { return };
                let (answer, calls) = (Arc::clone(&answer), Arc::clone(&calls));
                std::thread::spawn(move || serve(speech, stream, connection, &answer, &calls));
            }
        });
    }

    /// Its address, `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// What it was asked so far.
    ///
    /// # Panics
    /// When a thread of it has.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().expect("no test panics in it").clone()
    }

    /// What it was asked last.
    ///
    /// # Panics
    /// When it was asked nothing.
    pub fn last(&self) -> Call {
        self.calls().pop().expect("it was asked something")
    }
}

fn serve<S: Read + Write>(
    speech: Speech,
    mut stream: S,
    connection: usize,
    answer: &Answers,
    calls: &Mutex<Vec<Call>>,
) {
    loop {
        let call = match speech {
            Speech::Fastcgi => fastcgi(&mut stream),
            Speech::Uwsgi => uwsgi(&mut stream),
            Speech::Scgi => scgi(&mut stream),
        };
        let Some(call) = call else { return };
        let call = Call { connection, ..call };
        calls
            .lock()
            .expect("no test panics in it")
            .push(call.clone());
        let keeps = speech == Speech::Fastcgi && call.flags[0] & 1 == 1;
        if stream.write_all(&answer(&call)).is_err() || !keeps {
            return;
        }
    }
}

/// A request's records, up to the end of its body.
fn fastcgi(stream: &mut impl Read) -> Option<Call> {
    let mut call = Call::default();
    let mut params = Vec::new();
    loop {
        let head = take(stream, 8)?;
        let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
        let content = take(stream, length)?;
        take(stream, head[6].into())?;
        match (head[1], length) {
            (1, _) => call.flags[0] = content[2],
            (4, 0) => call.params = pairs(&params),
            (4, _) => params.extend(content),
            (5, 0) => return Some(call),
            (5, _) => {
                call.records += 1;
                call.body.extend(content);
            }
            _ => return None,
        }
    }
}

fn pairs(mut bytes: &[u8]) -> BTreeMap<String, String> {
    fn length(bytes: &mut &[u8]) -> usize {
        let short = bytes[0] < 128;
        let (head, rest) = bytes.split_at(if short { 1 } else { 4 });
        *bytes = rest;
        head.iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte))
            & 0x7fff_ffff
    }
    let mut pairs = BTreeMap::new();
    while !bytes.is_empty() {
        let (name, value) = (length(&mut bytes), length(&mut bytes));
        let (text, rest) = bytes.split_at(name + value);
        let (name, value) = text.split_at(name);
        pairs.insert(shown(name), shown(value));
        bytes = rest;
    }
    pairs
}

fn uwsgi(stream: &mut impl Read) -> Option<Call> {
    let head = take(stream, 4)?;
    let length = usize::from(u16::from_le_bytes([head[1], head[2]]));
    let vars = take(stream, length)?;
    let (mut params, mut rest) = (BTreeMap::new(), &vars[..]);
    let text = |rest: &mut &[u8]| {
        let length = usize::from(u16::from_le_bytes([rest[0], rest[1]]));
        let found = shown(&rest[2..2 + length]);
        *rest = &rest[2 + length..];
        found
    };
    while !rest.is_empty() {
        let name = text(&mut rest);
        params.insert(name, text(&mut rest));
    }
    with_body(stream, params, [head[0], head[3]])
}

fn scgi(stream: &mut impl Read) -> Option<Call> {
    let mut digits = String::new();
    loop {
        match take(stream, 1)?[0] {
            b':' => break,
            digit => digits.push(digit.into()),
        }
    }
    let vars = take(stream, digits.parse().ok()?)?;
    assert_eq!(take(stream, 1)?, b",");
    assert!(
        vars.starts_with(b"CONTENT_LENGTH\0"),
        "the length stands first"
    );
    let texts: Vec<String> = vars.split(|byte| *byte == 0).map(shown).collect();
    let pairs = texts.chunks_exact(2);
    let params = pairs
        .map(|pair| (pair[0].clone(), pair[1].clone()))
        .collect();
    with_body(stream, params, [0, 0])
}

fn with_body(
    stream: &mut impl Read,
    params: BTreeMap<String, String>,
    flags: [u8; 2],
) -> Option<Call> {
    let length = params.get("CONTENT_LENGTH").map_or("0", String::as_str);
    let body = take(stream, length.parse().unwrap_or(0))?;
    Some(Call {
        params,
        body,
        flags,
        ..Call::default()
    })
}

fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

fn take(stream: &mut impl Read, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).ok()?;
    Some(bytes)
}
