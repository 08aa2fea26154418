//! The handshake on a new connection to a peer.
//!
//! A loop reads and writes; key exchange, signatures and certificates are worked on in the pool for handshakes.
//! Invariants: a handshake has a time limit, and time in the pool is not the peer's; what an unfinished one holds is bounded
//! by the crate `tls`.

use std::future::{Future, poll_fn};
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
use wire::loop_clock::monotonic_ms;
use wire::{Stream, Timer, TlsLayer, UpstreamConnection};

use super::TlsOrder;
use super::certificates::NoCertificate;

/// Maximum time that a handshake's steps take in the pool, with the time they wait for their turns.
const POOL_TIME_MAX: Duration = Duration::from_secs(60);
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
    /// The pool for handshakes has so much to do that the steps took longer than a minute (`POOL_TIME_MAX`).
    #[error("no time for a handshake within {} s", POOL_TIME_MAX.as_secs())]
    Late,
}

impl TlsError {
    /// Whether the peer is at fault; else this server is, and no other peer would help.
    #[must_use]
    pub fn is_of_peer(&self) -> bool {
        !matches!(self, Self::Certificate(_) | Self::Overflow(_) | Self::Late)
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

/// Puts TLS on a connection that was just opened. The peer has at most `timeout` for it.
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
    let clocks = Clocks {
        timer: loop_.wire.wheel.timer(),
        of_peer: timeout,
        of_pool: POOL_TIME_MAX,
    };
    let connected = run(connection.stream(), peer, order, clocks, loop_).await?;
    let layer = TlsLayer::new(connected.traffic, connected.rest, Vec::new());
    connection.begin_tls(layer);
    Ok(match connected.facts.is_resumed {
        true => HandshakeKind::Resumed,
        false => HandshakeKind::Full,
    })
}

/// The time that is left.
struct Clocks {
    timer: Timer,
    /// For sending and receiving.
    of_peer: Duration,
    /// For work.
    of_pool: Duration,
}

impl Clocks {
    /// What the peer lets happen.
    async fn of_peer<T>(&mut self, future: impl Future<Output = T>) -> Result<T, TlsError> {
        let done = spend(&mut self.timer, &mut self.of_peer, future).await;
        done.ok_or(TlsError::Timeout)
    }

    /// What this server does.
    async fn of_pool<T>(
        &mut self,
        future: impl Future<Output = Result<T, TlsError>>,
    ) -> Result<T, TlsError> {
        let done = spend(&mut self.timer, &mut self.of_pool, future).await;
        done.unwrap_or(Err(TlsError::Late))
    }
}

/// The output of a future, if the time that is left is enough for it.
async fn spend<T>(
    timer: &mut Timer,
    left: &mut Duration,
    future: impl Future<Output = T>,
) -> Option<T> {
    let begun_ms = monotonic_ms();
    let output = timer.guard(*left, future).await.ok()?;
    let taken_ms = monotonic_ms().saturating_sub(begun_ms);
    *left = left.saturating_sub(Duration::from_millis(taken_ms));
    Some(output)
}

async fn run(
    stream: &Stream,
    peer: &Address,
    order: &TlsOrder,
    mut clocks: Clocks,
    loop_: &Rc<Loop>,
) -> Result<Box<Connected>, TlsError> {
    let client = clocks.of_pool(client(order, loop_)).await?;
    let now_ms = monotonic_ms();
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
    let step = work(order, loop_, move |outgoing| first.step(outgoing));
    let mut worked = clocks.of_pool(step).await?;
    // Ends since a peer that makes no progress sends nothing, and what it sends is bounded by the crate `tls`.
    loop {
        let sent = clocks.of_peer(send(stream, &worked.outgoing)).await?;
        let mut waiting = match worked.outcome? {
            Connecting::Complete(connected) => {
                sent?;
                return Ok(connected);
            }
            Connecting::NeedsInput(waiting) => waiting,
        };
        // A server that refuses may have said why.
        let received = clocks.of_peer(receive(stream, &mut waiting)).await?;
        received.map_err(|error| sent.err().map_or(error, TlsError::Broken))?;
        let step = work(order, loop_, move |outgoing| Ok(waiting.step(outgoing)?));
        worked = clocks.of_pool(step).await?;
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
    let worked = cpu_pool::run_peer_handshake(Arc::clone(loop_.disk.disk()), work).await;
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
