//! Asking the servers of an order, one after the other, until one answers.
//!
//! Not here: what the answer means for the client (`answer`). Invariant: works on the order alone; every try is recorded, and its
//! peer given back, whatever becomes of it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use message::{BodyError, ResponseHead};
use wire::connect::ConnectError;
use wire::exchange::{AnswerHead, Exchange, ExchangeError, Flushed};
use wire::http1::answer::AnswerFault;

use crate::log::Level;
use crate::request_body::{PieceError, Pieces};
use crate::upstream::kept::Wanted;
use crate::upstream::next::{self, Failure, NextRules};
use crate::upstream::{Choice, Now, Outcome, Peer, Times, reach};

use super::families::Family;
use super::flow::{self, Beginning, Flow, Progress};
use super::order::Order;
use super::speaking;

/// What holds as long as nobody has answered.
const NOT_OVER: &str = "nothing is asked of it behind the answer";
/// What holds of a try that waits for its answer.
const IS_SENT: &str = "the request was sent";
const CONNECTING: &str = "connecting to upstream";
const SENDING: &str = "sending request to upstream";
pub(super) const READING_HEAD: &str = "reading response header from upstream";

/// An answer of which the head has come.
pub struct Answer {
    /// The head.
    pub head: Box<ResponseHead>,
    /// The body.
    pub body: Coming,
}

/// The body of an answer.
pub enum Coming {
    /// All of it came with the head: the connection is kept or closed already.
    Whole(Bytes),
    /// It is on its way.
    Flow(Box<Flow>),
}

impl Coming {
    /// Is all of it here, and not longer than this?
    #[must_use]
    pub fn is_whole_within(&self, len: usize) -> bool {
        matches!(self, Coming::Whole(bytes) if bytes.len() <= len)
    }

    /// The next piece; `None` at the end.
    pub async fn piece(&mut self) -> Option<Result<Bytes, BodyError>> {
        match self {
            Coming::Whole(bytes) if bytes.is_empty() => None,
            Coming::Whole(bytes) => Some(Ok(std::mem::take(bytes))),
            Coming::Flow(flow) => flow.piece().await,
        }
    }
}

/// No server answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoAnswer {
    /// The status that stands for it.
    pub status: u16,
    /// What went wrong with the last one; `None`: there was none to ask, or the request itself is at fault.
    pub failure: Option<Failure>,
}

/// How far an order has come.
pub enum Step {
    /// A 1xx has come; go on.
    Interim(Box<ResponseHead>),
    /// A server has answered.
    Answer(Answer),
}

/// A try that is being made.
struct Try {
    order: Rc<Order>,
    /// The peer's name.
    name: Arc<str>,
    /// What its connection is, or is to be like.
    like: Wanted,
    begun_ms: u64,
    is_kept: bool,
    is_sent: bool,
    /// Bytes of the heads before the answer's.
    interim_bytes: u64,
    /// Once it is connected. In a box: it is large, and handed on to the answer's body.
    exchange: Option<Box<Exchange>>,
}

/// Why a try failed.
enum Trouble {
    Connect(ConnectError),
    Exchange(ExchangeError, &'static str),
    /// The client's body cannot be read where it was stored.
    Body(PieceError),
}

impl From<PieceError> for Trouble {
    fn from(error: PieceError) -> Trouble {
        Trouble::Body(error)
    }
}

/// Asks the servers of an order; nobody wants a 1xx.
///
/// # Errors
/// None of them answered; every failure was logged.
pub async fn ask(order: Rc<Order>) -> Result<Answer, NoAnswer> {
    let mut asking = Asking::new(order);
    loop {
        if let Step::Answer(answer) = asking.next().await? {
            return Ok(answer);
        }
    }
}

/// An order on its way through the servers.
pub struct Asking {
    order: Rc<Order>,
    /// Until a server has answered.
    choice: Option<Choice>,
    begun_ms: u64,
    /// What was sent, and waits for its answer.
    current: Option<Try>,
}

impl Asking {
    /// Nobody was asked yet.
    #[must_use]
    pub fn new(order: Rc<Order>) -> Asking {
        let settings = &order.about.location().settings.asking;
        let mut choice = order.upstream.choose(&order.asker);
        if settings.proxy_next_upstream_tries.0 > 0 {
            let most = usize::try_from(settings.proxy_next_upstream_tries.0).unwrap_or(usize::MAX);
            choice.limit_tries(most);
        }
        Asking {
            order,
            choice: Some(choice),
            begun_ms: wire::clock::monotonic_ms(),
            current: None,
        }
    }

    /// Sends the request and waits until an answer comes, of which nothing is read yet.
    ///
    /// # Errors
    /// As [`ask`].
    pub async fn answer_comes(&mut self) -> Result<(), NoAnswer> {
        // Ends as [`Asking::next`] does.
        loop {
            let outcome = match &mut self.current {
                Some(one) => match one.answer_comes().await {
                    Ok(()) => return Ok(()),
                    Err(trouble) => Err(trouble),
                },
                None => self.send().await?,
            };
            if let Err(trouble) = outcome {
                self.survive(&trouble)?;
            }
        }
    }

    /// Goes on to the next head; not to be called after the answer's.
    ///
    /// # Errors
    /// As [`ask`].
    pub async fn next(&mut self) -> Result<Step, NoAnswer> {
        // Ends since each turn takes a try, or forgives one of a connection that was kept, of which there are not endlessly many.
        loop {
            let outcome = match &mut self.current {
                Some(one) => one.head().await,
                None => match self.send().await? {
                    Ok(()) => continue,
                    Err(trouble) => Err(trouble),
                },
            };
            match outcome {
                Ok(AnswerHead::Interim(head)) => {
                    if let Some(one) = &mut self.current {
                        one.interim_bytes += head.bytes.len() as u64;
                    }
                    return Ok(Step::Interim(head));
                }
                Ok(AnswerHead::Final(head)) => {
                    if let Some(answer) = self.judge(head) {
                        return Ok(Step::Answer(answer));
                    }
                }
                Err(trouble) => self.survive(&trouble)?,
            }
        }
    }

    /// Sends the request to the next server.
    async fn send(&mut self) -> Result<Result<(), Trouble>, NoAnswer> {
        let one = self.begin()?;
        let sent = one.send().await;
        let is_opened = one.is_sent && !one.is_kept;
        if is_opened && let Some(choice) = &self.choice {
            choice.count_opened();
        }
        Ok(sent)
    }

    /// Chooses the next server.
    fn begin(&mut self) -> Result<&mut Try, NoAnswer> {
        let choice = self.choice.as_mut().expect(NOT_OVER);
        let Some(peer) = choice.next(Now::read()) else {
            return Err(no_peer(&self.order));
        };
        self.order.bind(peer);
        Ok(self.current.insert(Try::new(&self.order, peer)))
    }

    /// Is it the answer? `None`: another server is to be asked.
    fn judge(&mut self, head: Box<ResponseHead>) -> Option<Answer> {
        let one = self.current.take()?;
        match Failure::of_status(head.status) {
            Some(failure) if self.goes_on(&one, failure) => {
                one.end(Some(failure.status()));
                self.give_back(&one, failure);
                None
            }
            _ => self.answer(one, head),
        }
    }

    /// Is the next server asked?
    fn goes_on(&self, one: &Try, failure: Failure) -> bool {
        let settings = &self.order.about.location().settings.asking;
        let rules = NextRules {
            on: settings.proxy_next_upstream,
            timeout_ms: settings.proxy_next_upstream_timeout.0,
        };
        let progress = next::Progress {
            method: self.order.method,
            is_sent: one.is_sent,
            is_unbuffered: !self.order.body.is_replayable(),
            elapsed_ms: wire::clock::monotonic_ms().saturating_sub(self.begun_ms),
            tries_left: self.choice.as_ref().map_or(0, Choice::tries_left)
                + usize::from(one.is_forgiven(failure)),
        };
        rules.allows(failure, &progress)
    }

    /// A try failed: logs, records and gives back.
    fn survive(&mut self, trouble: &Trouble) -> Result<(), NoAnswer> {
        let one = &self.current.take().expect("it was just being made");
        let failure = trouble.failure();
        one.end(None);
        one.log(trouble);
        one.record_failure(failure);
        let Some(failure) = failure else {
            let choice = self.choice.as_mut().expect(NOT_OVER);
            choice.give_back(Outcome::Answered, Times::default(), Now::read());
            return Err(NoAnswer {
                status: 500,
                failure: None,
            });
        };
        let goes_on = self.goes_on(one, failure);
        self.give_back(one, failure);
        if one.is_forgiven(failure) {
            self.choice.as_mut().expect(NOT_OVER).forgive_try();
        }
        if goes_on {
            return Ok(());
        }
        Err(NoAnswer {
            status: failure.status(),
            failure: Some(failure),
        })
    }

    /// The peer stays taken until the answer's end.
    fn answer(&mut self, mut one: Try, head: Box<ResponseHead>) -> Option<Answer> {
        let mut exchange = one.exchange.take()?;
        let header_ms = one.elapsed_ms();
        let mut choice = self.choice.take().expect(NOT_OVER);
        choice.note_header(header_ms, Now::read());
        one.note(|noted| {
            noted.status = head.status;
            noted.header_ms = Some(header_ms);
        });
        let progress = Progress {
            begun_ms: one.begun_ms,
            header_ms,
            head_bytes: one.interim_bytes + head.bytes.len() as u64,
        };
        let begun = match speaking::is_whole_wanted(&one.order, &head) {
            true => exchange.ready_piece(),
            false => Bytes::new(),
        };
        if exchange.is_ended() {
            flow::settle(&one.order, &exchange, &mut choice, &progress);
            flow::keep(&one.order, exchange, one.like);
            let body = Coming::Whole(begun);
            return Some(Answer { head, body });
        }
        // Its end writes these again; whoever does not wait for the end logs what there is.
        let (sent, received) = (exchange.sent(), exchange.received());
        one.note(|noted| {
            noted.bytes_sent = sent;
            noted.bytes_received = received;
            noted.response_ms = Some(header_ms);
        });
        let flow = Flow::new(Beginning {
            order: one.order,
            exchange,
            begun,
            choice,
            like: one.like,
            name: one.name,
            progress,
        });
        let body = Coming::Flow(Box::new(flow));
        Some(Answer { head, body })
    }

    fn give_back(&mut self, one: &Try, failure: Failure) {
        let times = Times {
            header_ms: None,
            response_ms: one.elapsed_ms(),
        };
        let choice = self.choice.as_mut().expect(NOT_OVER);
        let is_disabled = choice.give_back(failure.outcome(), times, Now::read());
        if is_disabled {
            let upstream = shown(&one.name, &one.order);
            let what = "upstream server temporarily disabled";
            let action = if one.is_sent {
                READING_HEAD
            } else {
                CONNECTING
            };
            self.order.about.log(Level::Warn, what, action, &upstream);
        }
    }
}

impl Drop for Asking {
    /// Who asked has left, or has what he wanted: how far the last try has come is what the log tells of it.
    fn drop(&mut self) {
        if let Some(one) = self.current.take() {
            one.leave();
        }
    }
}

fn no_peer(order: &Order) -> NoAnswer {
    let name = order.upstream.name();
    let upstream = shown(name, order);
    order
        .about
        .log(Level::Error, "no live upstreams", CONNECTING, &upstream);
    let mut tries = order.record.tries.borrow_mut();
    let one = tries.begin(name);
    one.status = 502;
    one.response_ms = Some(0);
    NoAnswer {
        status: 502,
        failure: None,
    }
}

/// `http://NAME/URI`, as the log names what was asked.
pub(super) fn shown(name: &str, order: &Order) -> Vec<u8> {
    // As nginx writes it: a path ends with a colon.
    let end: &[u8] = if name.starts_with("unix:") { b":" } else { b"" };
    let scheme = order.family.scheme().as_bytes();
    [scheme, name.as_bytes(), end, order.uri()].concat()
}

impl Try {
    fn new(order: &Rc<Order>, peer: &Peer) -> Try {
        let name = Arc::clone(&peer.name);
        order.record.tries.borrow_mut().begin(name);
        Try {
            order: Rc::clone(order),
            name: Arc::clone(&peer.name),
            like: Wanted {
                address: peer.address.clone(),
                family: order.family,
                options: order.options,
                location: order.about.location,
            },
            begun_ms: wire::clock::monotonic_ms(),
            is_kept: false,
            is_sent: false,
            interim_bytes: 0,
            exchange: None,
        }
    }

    /// A kept connection that turns out to be dead is no fault of its peer's.
    fn is_forgiven(&self, failure: Failure) -> bool {
        self.is_kept && failure == Failure::Error
    }

    fn elapsed_ms(&self) -> u64 {
        wire::clock::monotonic_ms().saturating_sub(self.begun_ms)
    }

    /// Connects, and sends the request.
    async fn send(&mut self) -> Result<(), Trouble> {
        let connection = match self.kept() {
            Some(kept) => kept,
            // Boxed since it is rare where it matters.
            None => Box::pin(self.connect()).await.map_err(Trouble::Connect)?,
        };
        let connect_ms = self.elapsed_ms();
        self.note(|one| one.connect_ms = Some(connect_ms));
        self.is_sent = true;
        let order = Rc::clone(&self.order);
        let settings = &order.about.location().settings;
        let buffer = settings.proxy_answers.proxy_buffer_size.bytes();
        let exchange = match order.family {
            Family::Proxy => {
                connection.begin(order.head.clone(), order.framing, order.asked, buffer)
            }
            _ => speaking::begin(&order, &self.name, connection, buffer),
        };
        send_body(&order, self.exchange.insert(exchange)).await
    }

    /// Waits until there is something to read.
    async fn answer_comes(&mut self) -> Result<(), Trouble> {
        let settings = &self.order.about.location().settings.asking;
        let timeout = settings.proxy_read_timeout.duration();
        let exchange = self.exchange.as_mut().expect(IS_SENT);
        let outcome = exchange.answer_comes(timeout).await;
        outcome.map_err(|error| Trouble::Exchange(error, READING_HEAD))
    }

    /// Waits for a head.
    async fn head(&mut self) -> Result<AnswerHead, Trouble> {
        let settings = &self.order.about.location().settings.asking;
        let timeout = settings.proxy_read_timeout.duration();
        let reading = |error| Trouble::Exchange(error, READING_HEAD);
        let exchange = self.exchange.as_mut().expect(IS_SENT);
        match exchange.head(timeout).await.map_err(reading)? {
            AnswerHead::Final(head) if head.version < message::Version::HTTP_10 => {
                let why = "upstream sent no valid HTTP/1.0 header".to_owned();
                Err(reading(AnswerFault::Head(why).into()))
            }
            head => Ok(head),
        }
    }

    /// A connection that is kept.
    fn kept(&mut self) -> Option<wire::UpstreamConnection> {
        let shelf = &self.order.about.loop_().shelf;
        let kept = shelf.take(&self.order.upstream, &self.like);
        self.is_kept = kept.is_some();
        kept
    }

    async fn connect(&self) -> Result<wire::UpstreamConnection, ConnectError> {
        let order = &self.order;
        let loop_ = order.about.loop_();
        let timeout = order.about.location().settings.asking.proxy_connect_timeout;
        let pool = loop_.disk.disk().default_pool();
        reach::connect(
            &self.like.address,
            &order.options,
            timeout.duration(),
            &pool,
            loop_,
        )
        .await
    }

    fn note(&self, write: impl FnOnce(&mut crate::upstream::tries::Try)) {
        if let Some(one) = self.order.record.tries.borrow_mut().last() {
            write(one);
        }
    }

    /// Records what went through a connection that is of no use any more.
    fn end(&self, status: Option<u16>) {
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

    /// Records a try that nobody waits for any more.
    fn leave(&self) {
        let response_ms = Some(self.elapsed_ms());
        self.note(|one| one.response_ms = response_ms);
        self.end(None);
    }

    fn record_failure(&self, failure: Option<Failure>) {
        let elapsed_ms = self.elapsed_ms();
        self.note(|one| {
            one.status = failure.map_or(500, Failure::status);
            one.response_ms = Some(elapsed_ms);
        });
    }

    fn log(&self, trouble: &Trouble) {
        let upstream = shown(&self.name, &self.order);
        let (what, action) = match trouble {
            Trouble::Connect(error) => (error.to_string(), CONNECTING),
            Trouble::Exchange(error, action) => (error.to_string(), *action),
            Trouble::Body(error) => (error.to_string(), SENDING),
        };
        self.order.about.log(Level::Error, &what, action, &upstream);
    }
}

/// Sends head and body; gives up on the body where the server answers before it has taken all of it.
async fn send_body(order: &Order, exchange: &mut Exchange) -> Result<(), Trouble> {
    let sending = |error: ExchangeError| Trouble::Exchange(error, SENDING);
    let settings = &order.about.location().settings.asking;
    let timeout = settings.proxy_send_timeout.duration();
    let mut pieces = order.body.pieces();
    if let Some(whole) = pieces.take_memory() {
        exchange
            .queue_piece(whole)
            .map_err(|fault| sending(fault.into()))?;
    } else if Box::pin(send_pieces(pieces, exchange, timeout)).await? == Flushed::AnswerCame {
        return Ok(());
    }
    exchange
        .end_body(&[])
        .map_err(|fault| sending(fault.into()))?;
    exchange.flush(timeout).await.map_err(sending)?;
    Ok(())
}

/// Sends a body that is not in memory, piece after piece.
async fn send_pieces(
    mut pieces: Pieces,
    exchange: &mut Exchange,
    timeout: Duration,
) -> Result<Flushed, Trouble> {
    let sending = |error: ExchangeError| Trouble::Exchange(error, SENDING);
    // The head goes with a piece that is here, and does not wait for one that is not.
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

impl Trouble {
    fn failure(&self) -> Option<Failure> {
        match self {
            Trouble::Connect(error) => Failure::of_connect(error),
            Trouble::Exchange(error, _) => Failure::of_exchange(error),
            Trouble::Body(_) => None,
        }
    }
}
