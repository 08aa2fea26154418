//! The handshake of TLS that a client's connection begins with (`listen … ssl`).
//!
//! A loop reads and writes; key exchange, signatures and certificates are worked on in the pool for handshakes. Not here:
//! a handshake itself (crate `tls`), what a server offers ([`crate::tls`]). Invariants: a handshake has
//! `client_header_timeout`, however it is cut into pieces; what an unfinished one holds is bounded by the crate `tls`.

mod again;
mod client_status;
mod counters;
mod named;

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use disk::pool::Overflow;
use logs::Level;
use logs::wall_clock::Moment;
use runtime::timing::poll_timing;
use runtime::{Waiting, cpu_pool};
use tls::certificates::Certificates;
use tls::handshake::{Accepted, Complete, Handshake, NeedsInput};
use tls::hello::FirstByte;
use tls::keys::CertificateDer;
use tls::ocsp::AsksStatus;
use tls::verify::{Purpose, Trust, Verdict};
use tls::{Failure, configure};
use wire::{TlsLayer, loop_clock};

use crate::client::Client;
use crate::http_loop::HttpLoop;
use crate::http_loop::generation::Generation;
use crate::route::ServerId;
use crate::settings::Settings;
use crate::tls::{ClientTls, NamedCertificates, Rules, ServerTls, acme};
use crate::transport::http1::Link;

pub use again::{is_outdated, judge_again};
pub use counters::METRICS;
use counters::{HandshakeCounters, Outcome};

/// Maximum number of handshakes of a loop that are worked on, or wait for that, before connections for more are left in
/// the kernel's queue: some 50 to 200 ms of work.
pub const HANDSHAKES_MAX: usize = 512;

/// Whether the client's listener expects a handshake.
pub fn is_due(client: &Client) -> bool {
    let generation = client.generation();
    let entry = client.entry(&generation);
    entry.is_some_and(|entry| {
        let listens = &generation.settings.listens;
        listens.entries()[entry].protocols.has_ssl
    })
}

/// Whether a loop takes connections of an address now.
pub fn may_accept(http: &HttpLoop, address: &runtime::listen::Address) -> bool {
    if http.handshakes.get() < HANDSHAKES_MAX {
        return true;
    }
    let generation = http.generation();
    let listens = &generation.settings.listens;
    let entry = listens.find(address);
    entry.is_none_or(|entry| !listens.entries()[entry].protocols.has_ssl)
}

/// Counts what of the client's ended a connection behind its handshake.
pub fn count_fault(client: &Client, stream: &wire::Stream) {
    if let Some(cause) = stream.tls_fault() {
        let counters = client.loop_.figures.of::<HandshakeCounters>();
        counters.count_fault(cause.into());
    }
}

/// Runs the handshake; `false`: the connection is over. A request in clear is left to be read.
pub async fn run(link: &mut Link, client: &Client) -> bool {
    let Link { wire, place, .. } = link;
    let generation = client.generation();
    let Some(entry) = client.entry(&generation) else {
        return false;
    };
    let settings = &generation.settings;
    let default = settings.listens.entries()[entry].default;
    let timeout = settings.server(default).settings.client_header_timeout;
    let counters = client.loop_.figures.of::<HandshakeCounters>();
    let mut endpoint = Endpoint {
        wire,
        client,
        settings,
        entry,
        server: default,
        generation: &generation,
        until_ms: client.accepted_ms + timeout.duration().as_millis() as u64,
    };
    let shaken = place.wait_for(Waiting::New, pin!(endpoint.run())).await;
    let Some(shaken) = shaken else {
        counters.count(Outcome::Dropped);
        return false;
    };
    match shaken {
        Ok(outcome) => {
            counters.count(outcome);
            true
        }
        Err(fault) => {
            counters.count(fault.outcome());
            fault.tell(client, (&generation, endpoint.server));
            false
        }
    }
}

/// Why there is no connection with TLS.
enum Fault {
    /// The client left before its first byte.
    Silent,
    /// The connection broke.
    Wire(wire::Error),
    /// The handshake failed.
    Handshake(Failure),
    /// The pool is full of handshakes of clients that left.
    Overflow(Overflow),
    /// It has shown a challenge's certificate, which was all that the client wanted (RFC 8737).
    Challenged,
}

impl From<wire::Error> for Fault {
    fn from(error: wire::Error) -> Self {
        Self::Wire(error)
    }
}

impl Fault {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Silent | Self::Wire(wire::Error::Closed) => Outcome::Closed,
            Self::Wire(wire::Error::Timeout) => Outcome::TimedOut,
            Self::Wire(_) => Outcome::Closed,
            Self::Handshake(failure) => failure.cause.into(),
            Self::Overflow(_) => Outcome::Dropped,
            Self::Challenged => Outcome::Full,
        }
    }

    fn tell(&self, client: &Client, of: (&Generation, ServerId)) {
        let (level, text) = match self {
            Self::Challenged => return,
            Self::Silent => (Level::Info, "client closed connection".to_owned()),
            Self::Wire(wire::Error::Closed) => (Level::Info, Failure::closed().to_string()),
            Self::Wire(wire::Error::Io(error)) => {
                let text = format!("{} {}", Failure::closed(), wire::numbered(error));
                (Level::Info, text)
            }
            Self::Wire(error) => (Level::Info, error.to_string()),
            Self::Handshake(failure) => {
                let level = match failure.level {
                    tls::Level::Info => Level::Info,
                    tls::Level::Critical => Level::Crit,
                };
                (level, failure.to_string())
            }
            Self::Overflow(overflow) => (Level::Error, overflow.to_string()),
        };
        client.log_of(of, level, &format!("{text} while SSL handshaking"));
    }
}

/// What is left of a step.
struct Worked {
    handshake: Result<Handshake, Failure>,
    outgoing: Vec<u8>,
    judgement: Judgement,
}

/// What a client's certificate is worth.
#[derive(Default)]
struct Judgement {
    verdict: Verdict,
    /// Its chain, where it is accepted and the status of its certificates is asked for.
    chain: Vec<CertificateDer<'static>>,
}

/// Takes a step that needs no key exchange and no signature, on the loop.
fn worked_here(waiting: NeedsInput) -> Worked {
    let mut outgoing = Vec::new();
    Worked {
        handshake: waiting.step(&mut outgoing),
        outgoing,
        judgement: Judgement::default(),
    }
}

/// What a client is offered.
struct Offer {
    /// What its handshake uses; `None`: it is refused.
    handshakes: Option<Arc<configure::Server>>,
    /// The certificates that are read now.
    named: Option<Arc<NamedCertificates>>,
    /// What tells the status of its certificate.
    statuses: Option<Arc<dyn AsksStatus>>,
    /// What its certificate is judged by.
    rules: Rules,
    /// Whether that is `ssl_reject_handshake`.
    rejects: bool,
}

/// The server's end of a handshake.
struct Endpoint<'a> {
    wire: &'a mut wire::Connection,
    client: &'a Client,
    settings: &'a Settings,
    /// The entry of the listening table.
    entry: usize,
    /// The server that the client asks for; until then, and for other names, the default one.
    server: ServerId,
    generation: &'a Rc<Generation>,
    /// When the time for the handshake is over, in the loop's milliseconds.
    until_ms: u64,
}

impl Endpoint<'_> {
    async fn run(&mut self) -> Result<Outcome, Fault> {
        let first = self.receive().await.map_err(|fault| match fault {
            Fault::Wire(wire::Error::Closed) => Fault::Silent,
            other => other,
        })?;
        if FirstByte::of(first[0]) == FirstByte::Plain {
            self.wire.put_back(first);
            self.client.set_plain_on_tls();
            return Ok(Outcome::PlainHttp);
        }
        let accepted = self.read_hello(first).await?;
        if let Some(challenge) = acme::challenged(accepted.hello()) {
            // Boxed: few handshakes are of this kind.
            return Err(Box::pin(self.show_challenge(accepted, challenge)).await);
        }
        let offer = self.choose(&accepted);
        let Some(handshakes) = offer.handshakes else {
            return Err(self.refuse(accepted, offer.rejects).await);
        };
        let mut certificates = None;
        if let Some(named) = &offer.named {
            let to_server = (self.generation, self.server);
            let read = named::certificates(self.client, to_server, accepted.hello(), named);
            // Boxed: few servers have such names.
            let wheel = &self.client.loop_.wire.wheel;
            let read = Box::pin(wheel.timeout(self.left(), read)).await;
            certificates = read.map_err(|_| wire::Error::Timeout)?;
            if certificates.is_none() {
                return Err(self.refuse(accepted, false).await);
            }
        }
        let statuses = offer.statuses.filter(|_| handshakes.trust().is_some());
        let wants_chain = statuses.is_some();
        let negotiated = self.negotiate(accepted, handshakes, certificates, wants_chain);
        let (complete, judgement) = negotiated.await?;
        let mut verdict = judgement.verdict;
        if let Some(statuses) = statuses {
            // Boxed: few servers ask.
            let of = (&**self.generation, self.server);
            let (until_ms, chain) = (self.until_ms, &judgement.chain);
            let asked = client_status::ask(self.client, of, until_ms, &statuses, chain);
            let asked = Box::pin(asked).await?;
            verdict = asked.map_or(verdict, Verdict::Failed);
        }
        Ok(self.finish(*complete, (verdict, offer.rules)))
    }

    /// Time that is left; none is none, since a timer of 0 ms expires.
    fn left(&self) -> Duration {
        Duration::from_millis(self.until_ms.saturating_sub(loop_clock::monotonic_ms()))
    }

    /// The bytes that came, at least one.
    async fn receive(&mut self) -> Result<Vec<u8>, Fault> {
        let left = self.left();
        let all = |bytes: &[u8]| Some((bytes.len(), bytes.to_vec()));
        Ok(self.wire.read_prologue(left, all).await?)
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let left = self.left();
        Ok(self.wire.send_bytes(left, bytes).await?)
    }

    /// Sends what a step has made; a failed step's alert is sent as far as the socket takes it.
    async fn send_of(&mut self, worked: Worked) -> Result<(Handshake, Judgement), Fault> {
        let sent = self.send(&worked.outgoing).await;
        let handshake = worked.handshake.map_err(Fault::Handshake)?;
        sent.map(|()| (handshake, worked.judgement))
    }

    /// Reads the ClientHello, which takes microseconds.
    async fn read_hello(&mut self, first: Vec<u8>) -> Result<Accepted, Fault> {
        let mut waiting = NeedsInput::default();
        let mut bytes = first;
        loop {
            waiting.receive(&bytes);
            match self.send_of(worked_here(waiting)).await?.0 {
                Handshake::Accepted(accepted) => return Ok(accepted),
                Handshake::NeedsInput(next) => waiting = next,
                Handshake::Complete(_) => return Err(wire::Error::Closed.into()),
            }
            bytes = self.receive().await?;
        }
    }

    /// Goes on with the server of the name that the client asks for, if there is one: the TLS that it shows, which is
    /// the default server's where it has no certificate.
    fn choose(&mut self, accepted: &Accepted) -> Offer {
        let name = accepted.hello().server_name.as_deref();
        let named = self.settings.server_of_name(self.entry, name);
        self.server = named.unwrap_or(self.server);
        let server = self.server;
        let own = self.settings.server(server).tls.as_deref();
        let rejects = own.is_some_and(|tls| tls.rejects);
        let tls = tls_of(self.settings, self.entry, server);
        let of_address = self.settings.listens.entries()[self.entry].protocols;
        let has_http2 = of_address.has_http2 || self.settings.server(server).http2.http2;
        let handshakes = tls.and_then(|tls| tls.offering(has_http2));
        Offer {
            handshakes: handshakes.filter(|_| !rejects),
            named: tls.and_then(|tls| tls.named.clone()),
            statuses: tls.and_then(|tls| tls.statuses.clone()),
            rules: tls.map(Rules::of).unwrap_or_default(),
            rejects,
        }
    }

    async fn refuse(&mut self, accepted: Accepted, rejects: bool) -> Fault {
        let mut outgoing = Vec::new();
        let failure = match rejects {
            true => accepted.reject(&mut outgoing),
            false => accepted.fail(&mut outgoing),
        };
        match self.send(&outgoing).await {
            Ok(()) => Fault::Handshake(failure),
            Err(fault) => fault,
        }
    }

    /// Shows a challenge's certificate; nothing follows.
    async fn show_challenge(&mut self, accepted: Accepted, shown: Arc<configure::Server>) -> Fault {
        match self.negotiate(accepted, shown, None, false).await {
            Ok((mut complete, _)) => {
                let mut outgoing = Vec::new();
                complete.traffic.close(&mut outgoing);
                // The client may have left: it has what it wanted.
                let _ = self.send(&outgoing).await;
                Fault::Challenged
            }
            Err(fault) => fault,
        }
    }

    async fn negotiate(
        &mut self,
        accepted: Accepted,
        handshakes: Arc<configure::Server>,
        certificates: Option<Arc<Certificates>>,
        wants_chain: bool,
    ) -> Result<(Box<Complete>, Judgement), Fault> {
        let trust = handshakes.trust().cloned();
        let trust = trust.map(|trust| (trust, wants_chain));
        let choose =
            move |outgoing: &mut Vec<u8>| accepted.choose(&handshakes, certificates, outgoing);
        let mut worked = self.work(trust.clone(), choose).await?;
        loop {
            let waiting = match self.send_of(worked).await? {
                (Handshake::Complete(complete), judgement) => return Ok((complete, judgement)),
                (Handshake::NeedsInput(waiting), _) => waiting,
                (Handshake::Accepted(_), _) => return Err(wire::Error::Closed.into()),
            };
            // There is nothing to judge then: a client that is asked for a certificate waits.
            let mut waiting = match waiting.answer_early() {
                Ok(complete) => return Ok((complete, Judgement::default())),
                Err(waiting) => waiting,
            };
            waiting.receive(&self.receive().await?);
            worked = match waiting.is_work() {
                true => {
                    let step = move |outgoing: &mut Vec<u8>| waiting.step(outgoing);
                    self.work(trust.clone(), step).await?
                }
                false => worked_here(waiting),
            };
        }
    }

    /// Runs a step in the pool, and judges the client's certificate behind the last one.
    async fn work(
        &self,
        trust: Option<(Arc<Trust>, bool)>,
        step: impl FnOnce(&mut Vec<u8>) -> Result<Handshake, Failure> + Send + 'static,
    ) -> Result<Worked, Fault> {
        let loop_ = &self.client.loop_;
        let _counted = UnderWay::count(&self.client.http.handshakes);
        let begun = poll_timing::now_ns();
        let work = move || {
            let mut outgoing = Vec::new();
            let handshake = step(&mut outgoing);
            Worked {
                judgement: judge(&handshake, trust.as_ref()),
                handshake,
                outgoing,
            }
        };
        let worked = cpu_pool::run_handshake(Arc::clone(loop_.disk.disk()), work).await;
        let took = poll_timing::now_ns().saturating_sub(begun);
        loop_.figures.of::<HandshakeCounters>().took(took);
        worked.map_err(Fault::Overflow)
    }

    /// Puts TLS on the socket.
    fn finish(&mut self, complete: Complete, (verdict, rules): (Verdict, Rules)) -> Outcome {
        let outcome = match complete.facts.is_resumed {
            true => Outcome::Resumed,
            false => Outcome::Full,
        };
        let has_early = !complete.early.is_empty();
        let counters = self.client.loop_.figures.of::<HandshakeCounters>();
        counters.connected(&complete.facts, has_early);
        let layer = TlsLayer::new(complete.traffic, complete.rest, complete.early);
        let is_early = Rc::clone(layer.is_early());
        self.wire.stream.begin_tls(layer);
        self.client.set_tls(ClientTls {
            facts: complete.facts,
            hello: complete.hello,
            verdict: Cell::new(verdict),
            judged: Cell::new((self.generation.number, rules)),
            server: Cell::new((self.generation.number, self.server)),
            is_early,
            kept: complete.kept,
        });
        outcome
    }
}

/// The TLS that a handshake for a server shows: its own, or the default server's where it has no certificate.
fn tls_of(settings: &Settings, entry: usize, server: ServerId) -> Option<&ServerTls> {
    let tls_of = |id| settings.server(id).tls.as_deref();
    let has_certificate = |tls: &&ServerTls| tls.handshakes.is_some();
    let own = tls_of(server).filter(has_certificate);
    own.or_else(|| tls_of(settings.listens.entries()[entry].default))
}

/// What the client's certificate is worth: judged anew for each connection, since old sessions bring back certificates
/// that were not accepted.
fn judge(handshake: &Result<Handshake, Failure>, trust: Option<&(Arc<Trust>, bool)>) -> Judgement {
    let (Ok(Handshake::Complete(complete)), Some((trust, wants_chain))) = (handshake, trust) else {
        return Judgement::default();
    };
    let now = Moment::now().second();
    let shown = &complete.facts.certificates;
    let verdict = trust.verdict(shown, Purpose::Client, now);
    let chain = match *wants_chain && verdict == Verdict::Success {
        true => trust.chain(shown, now),
        false => Vec::new(),
    };
    Judgement { verdict, chain }
}

/// Counts a handshake that is worked on, until it is dropped.
struct UnderWay<'a>(&'a Cell<usize>);

impl<'a> UnderWay<'a> {
    fn count(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
