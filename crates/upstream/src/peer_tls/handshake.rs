//! The handshake on a new connection to a peer.
//!
//! A loop reads and writes; key exchange, signatures and certificates are worked on in the pool for handshakes.
//! Invariants: a handshake has a time limit; what an unfinished one holds is bounded by the crate `tls`.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use disk::pool::Overflow;
use logs::wall_clock::Moment;
use runtime::listen::Address;
use runtime::{Loop, cpu_pool};
use tls::Failure;
use tls::configure::Client;
use tls::handshake::{
    ClientNeedsInput, Connected, Connecting, PeerSessions, ServerFault, verify_server,
};
use wire::{Stream, TlsLayer, UpstreamConnection};

use super::TlsOrder;
use super::certificates::NoCertificate;

/// Number of bytes that are read at a time: most handshakes come in one piece.
const READ_BYTES: usize = 8 * 1024;

/// Why there is no TLS on a connection, in nginx's words.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// It took too long.
    #[error("upstream timed out (110: Connection timed out)")]
    Timeout,
    /// The handshake failed.
    #[error(transparent)]
    Handshake(#[from] Failure),
    /// The connection broke.
    #[error("peer closed connection in SSL handshake {}", wire::numbered(.0))]
    Broken(io::Error),
    /// The server's certificate is not accepted.
    #[error(transparent)]
    Server(#[from] ServerFault),
    /// The own certificate, whose name was made of variables, cannot be used.
    #[error(transparent)]
    Certificate(tls::Error),
    /// A pool's queue is full of jobs that nobody waits for any more.
    #[error(transparent)]
    Overflow(Overflow),
}

impl TlsError {
    /// Whether the peer is at fault; else this server is, and no other peer would help.
    #[must_use]
    pub fn is_of_peer(&self) -> bool {
        !matches!(self, Self::Certificate(_) | Self::Overflow(_))
    }
}

impl From<io::Error> for TlsError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// How a handshake came to its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeKind {
    /// They are new.
    Full,
    /// An old session was taken up.
    Resumed,
}

/// Puts TLS on a connection that was just opened, in at most `timeout`.
///
/// # Errors
/// The connection is of no use.
pub async fn handshake(
    connection: &mut UpstreamConnection,
    peer: &Address,
    order: &TlsOrder,
    timeout: Duration,
    loop_: &Rc<Loop>,
) -> Result<HandshakeKind, TlsError> {
    let mut timer = loop_.wire.wheel.timer();
    let run = run(connection.stream(), peer, order, loop_);
    let connected = timer.guard(timeout, run).await;
    let connected = connected.unwrap_or(Err(TlsError::Timeout))?;
    let layer = TlsLayer::new(connected.traffic, connected.rest, Vec::new());
    connection.begin_tls(layer);
    Ok(match connected.facts.is_resumed {
        true => HandshakeKind::Resumed,
        false => HandshakeKind::Full,
    })
}

async fn run(
    stream: &Stream,
    peer: &Address,
    order: &TlsOrder,
    loop_: &Rc<Loop>,
) -> Result<Box<Connected>, TlsError> {
    let client = client(order, loop_).await?;
    let now_ms = wire::loop_clock::monotonic_ms();
    let sessions = order.tls.sessions.as_ref();
    let sessions = sessions.map(|sessions| {
        let key = (peer.clone(), order.certificate.clone());
        sessions.of(key, now_ms)
    });
    let first = HelloStep {
        client,
        sessions,
        name: Arc::clone(&order.name),
    };
    let mut worked = work(order, loop_, move |outgoing| first.step(outgoing)).await?;
    // Ends since a peer that makes no progress sends nothing, and what it sends is bounded by the crate `tls`.
    loop {
        let sent = send(stream, &worked.outgoing).await;
        let mut waiting = match worked.outcome? {
            Connecting::Complete(connected) => {
                sent?;
                return Ok(connected);
            }
            Connecting::NeedsInput(waiting) => waiting,
        };
        // A server that refuses may have said why.
        let received = receive(stream, &mut waiting).await;
        received.map_err(|error| sent.err().map_or(error, TlsError::Broken))?;
        worked = work(order, loop_, move |outgoing| Ok(waiting.step(outgoing)?)).await?;
    }
}

/// What the handshake offers: the configured certificate, or one whose name came with the request.
async fn client(order: &TlsOrder, loop_: &Rc<Loop>) -> Result<Arc<Client>, TlsError> {
    let configured = &order.tls.client;
    let (Some(names), Some(certificates)) = (&order.certificate, &order.tls.certificates) else {
        return Ok(Arc::clone(configured));
    };
    let pair = certificates.pair(names, loop_).await;
    let pair = pair.map_err(|why| match why {
        NoCertificate::Faulty(error) => TlsError::Certificate(error),
        NoCertificate::Overflow(overflow) => TlsError::Overflow(overflow),
    })?;
    Ok(certificates.client(names, &pair, configured))
}

/// What a handshake begins with.
struct HelloStep {
    client: Arc<Client>,
    sessions: Option<PeerSessions>,
    name: Arc<str>,
}

impl HelloStep {
    fn step(self, outgoing: &mut Vec<u8>) -> Result<Connecting, TlsError> {
        let begun = ClientNeedsInput::new(&self.client, &self.name, self.sessions.as_ref())?;
        Ok(begun.step(outgoing)?)
    }
}

/// What is left of a step.
struct StepOutcome {
    outcome: Result<Connecting, TlsError>,
    outgoing: Vec<u8>,
}

/// Runs a step in the pool, and judges the server's certificate behind the last one.
async fn work(
    order: &TlsOrder,
    loop_: &Rc<Loop>,
    step: impl FnOnce(&mut Vec<u8>) -> Result<Connecting, TlsError> + Send + 'static,
) -> Result<StepOutcome, TlsError> {
    let order = order.clone();
    let work = move || {
        let mut outgoing = Vec::new();
        let outcome = step(&mut outgoing).and_then(|connecting| {
            judge(&connecting, &order)?;
            Ok(connecting)
        });
        StepOutcome { outcome, outgoing }
    };
    let worked = cpu_pool::run_handshake(Arc::clone(loop_.disk.disk()), work).await;
    worked.map_err(TlsError::Overflow)
}

/// Judges the server's certificate, also one that an old session brings back.
fn judge(connecting: &Connecting, order: &TlsOrder) -> Result<(), ServerFault> {
    let (Connecting::Complete(connected), Some(trust)) = (connecting, &order.tls.trust) else {
        return Ok(());
    };
    let now = Moment::now().second();
    verify_server(trust, &connected.facts, &order.name, now)
}

async fn send(stream: &Stream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll_fn(|cx| stream.poll_writable(cx)).await?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Takes what comes next, at least one byte.
async fn receive(stream: &Stream, waiting: &mut ClientNeedsInput) -> Result<(), TlsError> {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match stream.try_read(&mut buffer) {
            Ok(0) => return Err(Failure::closed().into()),
            Ok(count) => {
                waiting.receive(&buffer[..count]);
                return Ok(());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll_fn(|cx| stream.poll_readable(cx)).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
