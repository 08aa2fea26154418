//! One attempt: an upstream request, and the one server that it is sent to.
//!
//! Not here: which server that is, and which one is asked next (`upstream_exchange`). Invariants: an attempt is recorded however
//! it ends; the body is sent as long as the server reads it, whatever the server says before the response's head.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use logs::Level;
use message::{Field, ResponseHead, Span};
use wire::answer::AnswerFault;
use wire::connect::ConnectError;
use wire::exchange::{AnswerHead, Exchange, ExchangeError, Flushed};

use crate::exchange::protocol;
use crate::settings::directives::ProxyAnswers;
use crate::settings::family::Family;
use crate::settings::header_set::SINGLE_LINES;
use crate::tls_metrics;
use crate::upstream_request::log_context::{READING_HEAD, SENDING};
use crate::upstream_request::request::{UpstreamRequest, shown};
use httpcore::request_body::{PieceError, Pieces};
use upstream::ConnectionKey;
use upstream::attempts::AttemptRecord;
use upstream::next_upstream::PeerFailure;
use upstream::peer_tls::{self, TlsError};
use upstream::{KeepalivePool, Peer, PeerOutcome, Turn, connect};
use wire::SharedConnection;

/// Maximum number of connections of HTTP/2 opened by others that a request waits for.
const OPENINGS_AWAITED_MAX: usize = 64;
/// Invariant of an attempt that waits for its response, for `expect`.
const IS_SENT: &str = "the request was sent";
pub(crate) const CONNECTING: &str = "connecting to upstream";
const HANDSHAKING: &str = "SSL handshaking to upstream";

/// An attempt in progress.
pub(crate) struct Attempt {
    pub upstream_request: Rc<UpstreamRequest>,
    /// The peer's name.
    pub name: Arc<str>,
    /// The properties of its connection.
    pub like: ConnectionKey,
    pub begun_ms: u64,
    pub is_kept: bool,
    pub is_sent: bool,
    /// Bytes of the interim heads.
    pub interim_bytes: u64,
    /// The connection, once there is one. Boxed: it is large, and handed on to the response's body.
    pub exchange: Option<Exchange>,
    /// The rest of the body, where the server answered before it had read all of it.
    pub rest: Option<Box<Pieces>>,
}

/// The reason why an attempt failed.
pub(crate) enum AttemptError {
    Connect(ConnectError),
    /// There is no TLS on the connection.
    Tls(TlsError),
    Exchange(ExchangeError, &'static str),
    /// The client's body cannot be read from its file.
    Body(PieceError),
}

impl From<ConnectError> for AttemptError {
    fn from(error: ConnectError) -> AttemptError {
        AttemptError::Connect(error)
    }
}

impl From<PieceError> for AttemptError {
    fn from(error: PieceError) -> AttemptError {
        AttemptError::Body(error)
    }
}

impl Attempt {
    pub(super) fn new(upstream_request: &Rc<UpstreamRequest>, peer: &Peer) -> Attempt {
        let name = Arc::clone(&peer.name);
        upstream_request.state.tries.borrow_mut().begin(name);
        Attempt {
            upstream_request: Rc::clone(upstream_request),
            name: Arc::clone(&peer.name),
            like: ConnectionKey {
                address: peer.address.clone(),
                options: upstream_request.options,
                protocol: upstream_request.passing.protocol(),
                tls: upstream_request.tls.clone(),
                owner: upstream_request.context.location,
            },
            begun_ms: wire::loop_clock::monotonic_ms(),
            is_kept: false,
            is_sent: false,
            interim_bytes: 0,
            exchange: None,
            rest: None,
        }
    }

    /// A kept connection that turns out to be dead takes no try; as in nginx it counts as a failure of the peer.
    pub(super) fn is_forgiven(&self, failure: PeerFailure) -> bool {
        self.is_kept && failure == PeerFailure::Error
    }

    /// Whether the server said that it did nothing with the request: it ends the connection in good order, or takes no
    /// more of them now. It then counts as not sent.
    pub(super) fn is_untouched(&mut self) -> bool {
        let is_untouched = self.exchange.as_ref().is_some_and(Exchange::may_repeat);
        self.is_sent &= !is_untouched;
        is_untouched
    }

    /// What its failure says of the server.
    pub(super) fn outcome(&self, failure: PeerFailure) -> PeerOutcome {
        let exchange = self.exchange.as_ref();
        match exchange.is_none_or(Exchange::counts_failure) {
            true => failure.outcome(),
            false => PeerOutcome::BrokenOff,
        }
    }

    pub(super) fn elapsed_ms(&self) -> u64 {
        wire::loop_clock::monotonic_ms().saturating_sub(self.begun_ms)
    }

    /// Connects, and sends the request.
    pub(super) async fn send(&mut self) -> Result<(), AttemptError> {
        let upstream_request = Rc::clone(&self.upstream_request);
        let exchange = match upstream_request.passing.is_http2() {
            // Boxed, as connecting is: most requests need no room for it.
            true => Box::pin(self.begin_on_shared()).await?,
            false => self.begin_on_own().await?,
        };
        self.rest = send_body(&upstream_request, self.exchange.insert(exchange)).await?;
        Ok(())
    }

    /// Begins the request on a connection that it has for itself.
    async fn begin_on_own(&mut self) -> Result<Exchange, AttemptError> {
        let connection = match self.kept() {
            Some(kept) => kept,
            // Boxed since it is rare where it matters.
            None => Box::pin(self.connect()).await?,
        };
        let buffer = self.note_connected();
        let upstream_request = &self.upstream_request;
        Ok(match upstream_request.family {
            Family::Proxy => connection.begin(
                upstream_request.head.clone(),
                upstream_request.framing,
                upstream_request.asked,
                buffer,
            ),
            _ => protocol::begin(upstream_request, &self.name, connection, buffer),
        })
    }

    /// Begins the request on a connection of HTTP/2.
    async fn begin_on_shared(&mut self) -> Result<Exchange, AttemptError> {
        let connection = self.shared().await?;
        let buffer = self.note_connected();
        let upstream_request = &self.upstream_request;
        let (asked, framing) = (upstream_request.asked, upstream_request.framing);
        Ok(connection.begin(asked, upstream_request.fields(), framing, buffer))
    }

    /// Notes that there is a connection; returns the maximum size in bytes of the response's head.
    fn note_connected(&mut self) -> usize {
        let connect_ms = self.elapsed_ms();
        self.note(|one| one.connect_ms = Some(connect_ms));
        self.is_sent = true;
        self.head_bytes_max()
    }

    fn head_bytes_max(&self) -> usize {
        let location = self.upstream_request.context.location();
        let answers = location.groups().own::<ProxyAnswers>();
        answers.proxy_buffer_size.value.bytes()
    }

    /// A connection of HTTP/2 that has room: one of the pool, or a new one, for which other requests wait.
    async fn shared(&mut self) -> Result<Rc<SharedConnection>, AttemptError> {
        let upstream_request = Rc::clone(&self.upstream_request);
        let upstream = &upstream_request.upstream;
        let loop_ = upstream_request.context.loop_();
        let pool = KeepalivePool::of(loop_);
        let timeout = upstream_request.passing.groups.asking.proxy_connect_timeout;
        let connect_ms = timeout.duration().as_millis() as u64;
        let mut opening = None;
        for _ in 0..OPENINGS_AWAITED_MAX {
            let framing = upstream_request.framing;
            if let Some(shared) = pool.take_shared(upstream, &self.like, framing) {
                self.is_kept = true;
                return Ok(shared);
            }
            if self.elapsed_ms() >= connect_ms {
                break;
            }
            match pool.begin_shared(upstream, &self.like, loop_).await {
                Turn::Again => {}
                Turn::Alone => break,
                Turn::Opens(guard) => {
                    opening = Some(guard);
                    break;
                }
            }
        }
        let connection = self.connect().await?;
        let (bytes, like) = (self.head_bytes_max(), self.like.clone());
        Ok(pool.share(upstream, connection, bytes, like, opening, loop_))
    }

    /// Waits until there is data to read.
    pub(super) async fn answer_comes(&mut self) -> Result<(), AttemptError> {
        let settings = &self.upstream_request.passing.groups.asking;
        let timeout = settings.proxy_read_timeout.duration();
        let exchange = self.exchange.as_mut().expect(IS_SENT);
        let outcome = exchange.answer_comes(timeout).await;
        outcome.map_err(|error| AttemptError::Exchange(error, READING_HEAD))
    }

    /// Waits for a head.
    pub(super) async fn head(&mut self) -> Result<AnswerHead, AttemptError> {
        let settings = &self.upstream_request.passing.groups.asking;
        let timeout = settings.proxy_read_timeout.duration();
        let reading = |error| AttemptError::Exchange(error, READING_HEAD);
        let is_sending = {
            let exchange = self.exchange.as_ref().expect(IS_SENT);
            self.rest.is_some() || !exchange.has_room()
        };
        let early = match is_sending {
            // Boxed: it is rare.
            true => Box::pin(self.head_while_sending()).await?,
            false => None,
        };
        let head = match early {
            Some(head) => head,
            None => {
                let exchange = self.exchange.as_mut().expect(IS_SENT);
                exchange.head(timeout).await.map_err(reading)?
            }
        };
        match head {
            AnswerHead::Final(head) if head.version < message::Version::HTTP_10 => {
                let why = "upstream sent no valid HTTP/1.0 header".to_owned();
                Err(reading(AnswerFault::Head(why).into()))
            }
            head => Ok(head),
        }
    }

    /// Counts an interim head. Returns whether it may be passed on: as in nginx, all of them together may be as large as the
    /// response's head.
    pub(super) fn takes_interim(&mut self, head: &ResponseHead) -> bool {
        self.interim_bytes += head.bytes.len() as u64;
        let fits = self.interim_bytes <= self.head_bytes_max() as u64;
        if !fits {
            let upstream = shown(&self.name, &self.upstream_request);
            let what = "upstream sent too big early hints";
            let context = &self.upstream_request.context;
            context.log(Level::Info, what, READING_HEAD, &upstream);
        }
        fits
    }

    /// Sends the rest of the body, unless a head comes before; `None`: all of it is sent. (An error stream or a 1xx is
    /// no reason to stop: the server may wait for the rest.)
    async fn head_while_sending(&mut self) -> Result<Option<AnswerHead>, AttemptError> {
        let settings = &self.upstream_request.passing.groups.asking;
        let timeout = settings.proxy_send_timeout.duration();
        let reading = |error| AttemptError::Exchange(error, READING_HEAD);
        let exchange = self.exchange.as_mut().expect(IS_SENT);
        loop {
            if let Some(head) = exchange.head_or_room(timeout).await.map_err(reading)? {
                return Ok(Some(head));
            }
            if !exchange.takes_more() {
                self.rest = None;
            }
            let Some(pieces) = &mut self.rest else {
                return Ok(None);
            };
            let piece = match pieces.is_over() {
                true => None,
                false => tokio::select! {
                    biased;
                    piece = pieces.next() => piece?,
                    () = exchange.more_comes() => continue,
                },
            };
            let queued = match piece {
                // The end goes with the last piece.
                Some(piece) if pieces.is_over() => {
                    self.rest = None;
                    exchange
                        .queue_piece(piece)
                        .and_then(|()| exchange.end_body(&[]))
                }
                Some(piece) => exchange.queue_piece(piece),
                None => {
                    self.rest = None;
                    exchange.end_body(&[])
                }
            };
            queued.map_err(|fault| AttemptError::Exchange(fault.into(), SENDING))?;
        }
    }

    /// A kept connection.
    fn kept(&mut self) -> Option<wire::UpstreamConnection> {
        let pool = KeepalivePool::of(self.upstream_request.context.loop_());
        let kept = pool.take(&self.upstream_request.upstream, &self.like);
        self.is_kept = kept.is_some();
        kept
    }

    /// A new connection, with TLS where that is asked for: both have `proxy_connect_timeout` together, as in nginx.
    async fn connect(&self) -> Result<wire::UpstreamConnection, AttemptError> {
        let upstream_request = &self.upstream_request;
        let loop_ = upstream_request.context.loop_();
        let timeout = upstream_request.passing.groups.asking.proxy_connect_timeout;
        let timeout = timeout.duration();
        // What the request waited before, for another one's connection, is not the server's.
        let begun_ms = wire::loop_clock::monotonic_ms();
        let pool = loop_.disk.disk().default_pool();
        let (address, options) = (&self.like.address, &upstream_request.options);
        let connecting = connect::connect(address, options, timeout, &pool, loop_);
        let mut connection = connecting.await?;
        if let Some(order) = &self.like.tls {
            let taken_ms = wire::loop_clock::monotonic_ms().saturating_sub(begun_ms);
            let left = timeout.saturating_sub(Duration::from_millis(taken_ms));
            let shaken = peer_tls::handshake(&mut connection, address, order, left, loop_);
            let ended = shaken.await;
            tls_metrics::count(loop_, &ended);
            ended.map_err(AttemptError::Tls)?;
        }
        Ok(connection)
    }

    pub(super) fn note(&self, write: impl FnOnce(&mut AttemptRecord)) {
        if let Some(one) = self.upstream_request.state.tries.borrow_mut().last() {
            write(one);
        }
    }

    /// Records the traffic of a connection that is of no further use.
    pub(super) fn end(&self, status: Option<u16>) {
        let Some(exchange) = &self.exchange else {
            return;
        };
        let elapsed_ms = self.elapsed_ms();
        self.note(|one| {
            one.bytes_sent = exchange.sent();
            one.bytes_received = exchange.received();
            one.response_ms = Some(elapsed_ms);
            if let Some(status) = status {
                one.status = status;
                one.header_ms = Some(elapsed_ms);
            }
        });
    }

    /// Records an attempt that was abandoned.
    pub(super) fn leave(&self) {
        let response_ms = Some(self.elapsed_ms());
        self.note(|one| one.response_ms = response_ms);
        self.end(None);
    }

    pub(super) fn record_failure(&self, status: u16) {
        let elapsed_ms = self.elapsed_ms();
        self.note(|one| {
            one.status = status;
            one.response_ms = Some(elapsed_ms);
        });
    }

    pub(super) fn log(&self, error: &AttemptError) {
        let upstream = shown(&self.name, &self.upstream_request);
        let mut level = Level::Error;
        let (what, action) = match error {
            AttemptError::Connect(error) => {
                let (sentence, is_critical) = error.sentence(&self.name);
                if is_critical {
                    level = Level::Crit;
                }
                (sentence, CONNECTING)
            }
            AttemptError::Tls(error) => (error.to_string(), HANDSHAKING),
            AttemptError::Exchange(error, action) => (error.to_string(), *action),
            AttemptError::Body(error) => (error.to_string(), SENDING),
        };
        self.upstream_request
            .context
            .log(level, &what, action, &upstream);
    }
}

/// Tells of lines of a head that are dropped since only the first one counts.
pub(super) fn tell_repeats(upstream_request: &UpstreamRequest, name: &str, head: &ResponseHead) {
    let mut seen = 0;
    for field in &head.fields {
        let bit = field.id.bit() & SINGLE_LINES;
        if seen & bit == 0 {
            seen |= bit;
            continue;
        }
        let shown_line = |field: &Field| {
            let part = |span: Span| String::from_utf8_lossy(span.of(&head.bytes));
            format!("\"{}: {}\"", part(field.name), part(field.value))
        };
        let before = head.fields.iter().find(|before| before.id == field.id);
        let what = format!(
            "upstream sent duplicate header line: {}, previous value: {}, ignored",
            shown_line(field),
            before.map(shown_line).unwrap_or_default(),
        );
        let upstream = shown(name, upstream_request);
        let context = &upstream_request.context;
        context.log(Level::Warn, &what, READING_HEAD, &upstream);
    }
}

/// Sends head and body. Returns the rest of the body if the server answers before it has taken all of it.
async fn send_body(
    upstream_request: &UpstreamRequest,
    exchange: &mut Exchange,
) -> Result<Option<Box<Pieces>>, AttemptError> {
    let sending = |error: ExchangeError| AttemptError::Exchange(error, SENDING);
    let settings = &upstream_request.passing.groups.asking;
    let timeout = settings.proxy_send_timeout.duration();
    let mut pieces = upstream_request.body.pieces();
    if let Some(whole) = pieces.take_memory() {
        exchange
            .queue_piece(whole)
            .map_err(|fault| sending(fault.into()))?;
    } else if Box::pin(send_pieces(&mut pieces, exchange, timeout)).await? == Flushed::AnswerCame {
        return Ok(Some(Box::new(pieces)));
    }
    exchange
        .end_body(&[])
        .map_err(|fault| sending(fault.into()))?;
    exchange.flush(timeout).await.map_err(sending)?;
    Ok(None)
}

/// Sends a body that is not in memory, piece after piece, until the server answers.
async fn send_pieces(
    pieces: &mut Pieces,
    exchange: &mut Exchange,
    timeout: Duration,
) -> Result<Flushed, AttemptError> {
    let sending = |error: ExchangeError| AttemptError::Exchange(error, SENDING);
    // The head goes with a piece that is available, and does not wait for one that is not.
    let mut is_due = !pieces.is_ready();
    while !pieces.is_over() {
        if is_due && exchange.flush(timeout).await.map_err(sending)? == Flushed::AnswerCame {
            return Ok(Flushed::AnswerCame);
        }
        is_due = true;
        let piece = tokio::select! {
            biased;
            piece = pieces.next() => piece?,
            () = exchange.answer_begins() => return Ok(Flushed::AnswerCame),
        };
        let Some(piece) = piece else { break };
        exchange
            .queue_piece(piece)
            .map_err(|fault| sending(fault.into()))?;
    }
    Ok(Flushed::All)
}

impl AttemptError {
    pub(super) fn failure(&self) -> Option<PeerFailure> {
        match self {
            AttemptError::Connect(error) => PeerFailure::of_connect(error),
            AttemptError::Tls(error) => PeerFailure::of_tls(error),
            AttemptError::Exchange(error, _) => PeerFailure::of_exchange(error),
            AttemptError::Body(_) => None,
        }
    }

    /// The status of a request that it ends.
    pub(super) fn status(&self) -> u16 {
        match self {
            AttemptError::Body(error) => error.status(),
            _ => self.failure().map_or(500, PeerFailure::status),
        }
    }
}
