//! One question to an OCSP responder over HTTP, on the resolver's thread: a GET of HTTP/1.0, as nginx sends it.
//!
//! Not here: what the answer is worth. Invariants: an answer has at most [`HEAD_BYTES_MAX`] and
//! [`RESPONSE_BYTES_MAX`] bytes; a question ends within [`FETCH_TIME_MAX`] of its turn.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use logs::append_os_error;
use message::ResponseFraming;
use parking_lot::Mutex;
use tls::ocsp::RESPONSE_BYTES_MAX;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};
use wire::http1::response_parser::{ParsedResponse, ResponseParser};

use super::{NameServers, Responder};
use crate::resolver::Query;

/// Maximum number of responders that are talked to at a time about clients' certificates.
pub const FETCHES_MAX: usize = 64;
/// The same about our own. Each has one question at a time, which waits for its turn.
pub const STAPLE_FETCHES_MAX: usize = 16;
/// Maximum number of questions about clients' certificates that wait for their turn; one more fails at once.
pub const FETCHES_WAITING_MAX: usize = 1024;
/// Minimum number of responders that share the turns: each has at most one part of them.
const RESPONDERS_MIN: usize = 4;
/// Maximum number of questions about clients' certificates to one responder that are asked or wait for their turn.
pub const RESPONDER_WAITING_MAX: usize = FETCHES_WAITING_MAX / 2;
/// Maximum time of a question from its turn on, for all addresses of its responder together: nginx's for staples.
pub const FETCH_TIME_MAX: Duration = Duration::from_secs(60);
/// Maximum number of addresses of a responder that are tried.
const ADDRESSES_MAX: usize = 8;
/// Maximum size of the head of an answer in bytes.
const HEAD_BYTES_MAX: usize = 8 * 1024;

/// Questions of a kind.
struct Questions {
    turns: Semaphore,
    /// Maximum number of questions that one responder is asked at a time.
    responder_turns: usize,
    open: Mutex<Open>,
}

/// Questions that are asked or wait for their turn.
struct Open {
    total: usize,
    /// By the responder.
    to: BTreeMap<String, OpenTo>,
}

/// The same of one responder.
struct OpenTo {
    turns: Arc<Semaphore>,
    count: usize,
}

static OF_CLIENTS: Questions = Questions::new(FETCHES_MAX);
static OF_STAPLES: Questions = Questions::new(STAPLE_FETCHES_MAX);

impl Questions {
    const fn new(turns: usize) -> Self {
        Self {
            turns: Semaphore::const_new(turns),
            responder_turns: turns / RESPONDERS_MIN,
            open: Mutex::new(Open {
                total: 0,
                to: BTreeMap::new(),
            }),
        }
    }

    /// Takes a place, unless there are so many of them or so many of this responder.
    fn place(&'static self, responder: &Responder, (all, own): (usize, usize)) -> Option<Place> {
        let responder = responder.host();
        let mut open = self.open.lock();
        let count = open.to.get(responder).map_or(0, |to| to.count);
        if open.total >= all || count >= own {
            return None;
        }
        open.total += 1;
        let to = open
            .to
            .entry(responder.to_owned())
            .or_insert_with(|| OpenTo {
                turns: Arc::new(Semaphore::new(self.responder_turns)),
                count: 0,
            });
        to.count += 1;
        Some(Place {
            questions: self,
            responder: responder.to_owned(),
            responder_turns: Arc::clone(&to.turns),
        })
    }
}

/// Questions that are asked or wait for their turn.
pub(super) fn open() -> usize {
    let kinds = [&OF_CLIENTS, &OF_STAPLES];
    kinds.iter().map(|kind| kind.open.lock().total).sum()
}

/// A place among the questions, which is given back when this is dropped.
pub(super) struct Place {
    questions: &'static Questions,
    responder: String,
    responder_turns: Arc<Semaphore>,
}

/// A turn, which ends when this is dropped.
pub(super) struct Turn {
    _of_responder: Option<OwnedSemaphorePermit>,
    _of_all: Option<SemaphorePermit<'static>>,
}

impl Place {
    /// Takes one for a staple, each of which has one at a time.
    pub(super) fn of_staple(responder: &Responder) -> Place {
        let place = OF_STAPLES.place(responder, (usize::MAX, usize::MAX));
        place.expect("without a bound there is one")
    }

    /// Takes one for a client's certificate.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn of_client(responder: &Responder) -> Result<Place, Failure> {
        let all = FETCHES_MAX + FETCHES_WAITING_MAX;
        let place = OF_CLIENTS.place(responder, (all, RESPONDER_WAITING_MAX));
        place.ok_or_else(|| Failure::new("too many certificate status requests").of(responder))
    }

    /// Waits for the turn, first among the questions to the same responder: one that swallows them holds up no other.
    pub(super) async fn turn(&self) -> Turn {
        // They are never closed.
        let of_responder = Arc::clone(&self.responder_turns).acquire_owned().await;
        let of_all = self.questions.turns.acquire().await;
        Turn {
            _of_responder: of_responder.ok(),
            _of_all: of_all.ok(),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.questions.open.lock();
        open.total -= 1;
        if let Some(to) = open.to.get_mut(&self.responder) {
            to.count -= 1;
            if to.count == 0 {
                open.to.remove(&self.responder);
            }
        }
    }
}

/// Why there is no answer; `Display` is nginx's line.
#[derive(Debug)]
pub(super) struct Failure {
    sentence: String,
    responder: Option<String>,
    peer: Option<SocketAddr>,
}

impl Failure {
    pub(super) fn new(sentence: impl Into<String>) -> Self {
        Self {
            sentence: sentence.into(),
            responder: None,
            peer: None,
        }
    }

    /// The same with the responder that it is about.
    pub(super) fn of(mut self, responder: &Responder) -> Self {
        self.responder = Some(responder.host().to_owned());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} while requesting certificate status", self.sentence)?;
        if let Some(responder) = &self.responder {
            write!(f, ", responder: {responder}")?;
        }
        if let Some(peer) = &self.peer {
            write!(f, ", peer: {peer}")?;
        }
        Ok(())
    }
}

/// Asks a responder, one address after the other. The bytes of its answer.
///
/// # Errors
/// The last address's failure.
pub(super) async fn fetch(
    responder: &Responder,
    servers: &NameServers,
    request: &[u8],
) -> Result<Vec<u8>, Failure> {
    let deadline = Instant::now() + FETCH_TIME_MAX;
    let addresses = addresses(responder, servers).await?;
    let target = responder.target(request);
    let text = format!(
        "GET {target} HTTP/1.0\r\nHost: {}\r\n\r\n",
        responder.host()
    );
    let mut failure = Failure::new("no live addresses");
    for (number, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - number).unwrap_or(1);
        let outcome = timeout_at(Instant::now() + share, exchange(*address, &text)).await;
        let sentence = match outcome {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(sentence)) => sentence,
            Err(_) => "OCSP responder timed out (110: Connection timed out)".to_owned(),
        };
        failure = Failure::new(sentence);
        failure.peer = Some(*address);
    }
    Err(failure.of(responder))
}

/// The addresses of a responder: those that name servers give, else those known.
async fn addresses(
    responder: &Responder,
    NameServers(servers): &NameServers,
) -> Result<Vec<SocketAddr>, Failure> {
    let fail = |sentence: String| Failure::new(sentence).of(responder);
    let mut addresses = match (responder.name(), servers) {
        (Some((name, port)), Some((resolver, timeout))) => {
            let found = resolver.find(Query::host(name), *timeout).await;
            let found = found.map_err(|why| fail(format!("{name} could not be resolved {why}")))?;
            let targets = found.targets.iter();
            targets
                .map(|target| SocketAddr::new(target.ip, port))
                .collect()
        }
        (Some((name, _)), None) if responder.known().is_empty() => {
            return Err(fail(format!("no resolver defined to resolve {name}")));
        }
        _ => responder.known().to_vec(),
    };
    addresses.truncate(ADDRESSES_MAX);
    Ok(addresses)
}

/// Sends a request and reads the answer's body; else nginx's sentence.
async fn exchange(address: SocketAddr, request: &str) -> Result<Vec<u8>, String> {
    let told = |call: &str, error: &io::Error| {
        let mut text = format!("{call} failed").into_bytes();
        append_os_error(&mut text, error);
        String::from_utf8_lossy(&text).into_owned()
    };
    let stream = TcpStream::connect(address).await;
    let mut stream = stream.map_err(|error| told("connect()", &error))?;
    let sent = stream.write_all(request.as_bytes()).await;
    sent.map_err(|error| told("send()", &error))?;
    let mut received = Vec::new();
    let mut head = Head::Partial(ResponseParser::new(HEAD_BYTES_MAX));
    loop {
        if let Some(body) = head.take(&mut received)? {
            return Ok(body);
        }
        let read = stream.read_buf(&mut received).await;
        match read.map_err(|error| told("recv()", &error))? {
            0 => return head.end(received),
            _ if received.len() > HEAD_BYTES_MAX + RESPONSE_BYTES_MAX => {
                return Err("OCSP responder sent too long response".to_owned());
            }
            _ => {}
        }
    }
}

/// What is known of an answer that is being received.
enum Head {
    Partial(ResponseParser),
    /// The rest is the body; its length, where that is announced.
    Whole(Option<u64>),
}

impl Head {
    /// Looks at what came; the body, once it is whole.
    fn take(&mut self, received: &mut Vec<u8>) -> Result<Option<Vec<u8>>, String> {
        if let Self::Partial(parser) = self {
            let invalid = || "OCSP responder sent invalid response".to_owned();
            let (head, length) = match parser.advance(received) {
                ParsedResponse::Partial => return Ok(None),
                ParsedResponse::Complete(head, length) => (head, length),
                ParsedResponse::NotHttp | ParsedResponse::Refused(_) => return Err(invalid()),
            };
            if head.status != 200 {
                let status = head.status;
                return Err(format!("OCSP responder sent response with status {status}"));
            }
            if let Some(kind) = head.get_all(b"content-type").next()
                && !kind.eq_ignore_ascii_case(b"application/ocsp-response")
            {
                let kind = String::from_utf8_lossy(kind);
                return Err(format!(
                    "OCSP responder sent invalid \"Content-Type\" header: \"{kind}\""
                ));
            }
            let announced = match head.framing {
                ResponseFraming::UntilClose => None,
                ResponseFraming::Length(length) => Some(length),
                ResponseFraming::Chunked => return Err(invalid()),
            };
            received.drain(..length);
            *self = Self::Whole(announced);
        }
        Ok(match self {
            Self::Whole(Some(length)) if received.len() as u64 >= *length => {
                received.truncate(usize::try_from(*length).unwrap_or(usize::MAX));
                Some(std::mem::take(received))
            }
            _ => None,
        })
    }

    /// The body that ends where the connection does.
    fn end(self, received: Vec<u8>) -> Result<Vec<u8>, String> {
        match self {
            Self::Whole(None) if !received.is_empty() => Ok(received),
            _ => Err("OCSP responder prematurely closed connection".to_owned()),
        }
    }
}
