//! `tunnel_pass`: CONNECT (RFC 9110, 9.3.6). Opens a connection to a server and relays bytes in both directions.
//!
//! Not here: relaying the bytes (`response::upgrade`). Invariant: nothing is sent to the server, and nothing read from
//! it, before the client has received its 200.

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use config::{
    Error, Flag, Groups, Msec, Number, Placed, Problem, Scope, Size, Template, Value, Word,
    directives,
};
use logs::Level;
use message::{Body, Method};
use runtime::listen::Address;
use wire::UpstreamConnection;
use wire::connect::{ConnectError, ConnectOptions};

use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::request_body::{self, Leaving};
use httpcore::{Failure, Response};
use upstream::next_upstream::PeerFailure;
use upstream::sticky::StickySession;
use upstream::{Choice, Now, PeerOutcome, PeerTimes, Upstream, Upstreams, connect};

use crate::response::upgrade::{SwitchedUpstream, TunnelTimeouts, TunnelUpstream};
use crate::settings::bind::Bind;
use crate::settings::url::{Host, Url};
use crate::state::upstream_state;
use crate::state::upstream_state::UpstreamState;
use crate::upstream_request::log_context::LogContext;
use crate::upstream_request::{request, resolve};

const CONNECTING: &str = "connecting to upstream";
const BAD_GATEWAY: u16 = 502;
/// The value of a line without an argument.
const AS_ASKED: &[u8] = b"tunnel_pass $host:$request_port;";

/// The argument of `tunnel_pass`.
#[derive(Debug, Clone)]
pub struct TunnelPass(Template);

impl Value for TunnelPass {
    const SYNTAX: &'static str = "[address]";

    fn parse(args: &[Word], scope: &mut Scope) -> Result<Self, Problem> {
        let template = match args.first() {
            Some(word) => Template::of_word(word, scope).map_err(|problem| problem.at(0))?,
            None => {
                let line = config::parse_bytes(AS_ASKED).map_err(|_| Problem::new("unreadable"))?;
                Template::of_word(&line.directives[0].args[0], scope)?
            }
        };
        Ok(Self(template))
    }
}

config::choice_set! {
    /// What makes a tunnel lead to the next server.
    pub struct TunnelNext: u32 {
        /// The connection failed.
        ERROR = "error",
        /// It took too long.
        TIMEOUT = "timeout",
        /// Nothing.
        OFF = "off",
    }
}

directives! {
    /// CONNECT tunnels.
    pub struct Tunnelling in Location {
        /// Responds to CONNECT with a tunnel to this address or group of servers, and to other methods with 405. May
        /// contain variables. Without an argument the client chooses the destination (`$host:$request_port`), which
        /// makes the server an open proxy unless access is restricted with `allow`, `deny` or the like.
        tunnel_pass: Option<Placed<TunnelPass>> = none, [SERVER | LOCATION | LOCATION_IF] 0..=1, inherit never;
        /// Sets the local address of tunnels, as `proxy_bind` does.
        tunnel_bind: Option<Bind> = none, [HTTP | SERVER | LOCATION] 1..=2;
        /// Limits the time to connect to a server.
        tunnel_connect_timeout: Msec = "60s", [HTTP | SERVER | LOCATION] 1;
        /// Limits the time in which no data passes through a tunnel.
        tunnel_read_timeout: Msec = "60s", [HTTP | SERVER | LOCATION] 1;
        /// Limits the time in which a server accepts none of the data waiting for it.
        tunnel_send_timeout: Msec = "60s", [HTTP | SERVER | LOCATION] 1;
        /// Sets the failures after which the next server of the group is tried.
        tunnel_next_upstream: TunnelNext = "error timeout", [HTTP | SERVER | LOCATION] 1..;
        /// Limits the number of servers tried for one tunnel; `0` means all of them.
        tunnel_next_upstream_tries: Number = "0", [HTTP | SERVER | LOCATION] 1;
        /// Limits the time in which a next server may be tried; `0` means no limit.
        tunnel_next_upstream_timeout: Msec = "0", [HTTP | SERVER | LOCATION] 1;
        /// Enables TCP keepalive on connections to servers (SO_KEEPALIVE).
        tunnel_socket_keepalive: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
        /// Sets the size of the kernel's receive buffer of connections to servers.
        tunnel_socket_rcvbuf: Option<Size> = none, [HTTP | SERVER | LOCATION] 1;
        /// Sets the size of the kernel's send buffer of connections to servers.
        tunnel_socket_sndbuf: Option<Size> = none, [HTTP | SERVER | LOCATION] 1;
    }
}

slots::slotted!(config::made::LOCATION: TunnelTarget);

/// Where a location's tunnels lead.
#[derive(Debug, Clone)]
pub enum TunnelTarget {
    /// To the same servers always.
    Fixed(Arc<Upstream>),
    /// Made for each request.
    Made(Template),
}

/// Makes the line of a location ready; `None` where it has none.
///
/// # Errors
/// A server that is not found, at its place.
pub fn build(
    settings: &dyn Groups,
    upstreams: &mut Upstreams,
) -> Result<Option<TunnelTarget>, Error> {
    let Some(pass) = &settings.own::<Tunnelling>().tunnel_pass else {
        return Ok(None);
    };
    let Some(text) = pass.value.0.literal() else {
        return Ok(Some(TunnelTarget::Made(pass.value.0.clone())));
    };
    let mut host = upstreams.hosts().asking();
    let linked = upstreams.link(text, 0, &mut host);
    let upstream = linked.map_err(|problem| pass.error(problem.sentence_for("tunnel_pass")))?;
    Ok(Some(TunnelTarget::Fixed(upstream)))
}

/// Opens a tunnel.
pub async fn make(request: &mut Request, leading: &TunnelTarget) -> Outcome {
    if request.method != Method::Connect {
        return Outcome::Failed(Failure::new(405));
    }
    upstream_state::begin_without_url(request);
    upstream_state::separate(request);
    let upstream = match servers(request, leading).await {
        Ok(upstream) => upstream,
        Err(failure) => return Outcome::Failed(failure),
    };
    let opening = TunnelOpening::new(request, upstream);
    match request_body::alongside(request, Leaving::Ends, pin!(opening.open())).await {
        Ok(Ok(tunnel)) => {
            request.transport.close_after_response();
            request.tunnel = Some(Box::new(tunnel));
            let mut response = Response::new(200);
            response.body = Body::Tunnel;
            let state = request.states.get::<UpstreamState>();
            if let Some(cookie) = state.and_then(|state| state.take_bound(request)) {
                response.headers.push("Set-Cookie", cookie);
            }
            Outcome::Answer(Box::new(response))
        }
        Ok(Err(status)) => upstream_state::bound(request, Outcome::Failed(Failure::new(status))),
        Err(outcome) => upstream_state::bound(request, outcome),
    }
}

/// The servers behind the address.
async fn servers(request: &Request, leading: &TunnelTarget) -> Result<Arc<Upstream>, Failure> {
    let template = match leading {
        TunnelTarget::Fixed(upstream) => return Ok(Arc::clone(upstream)),
        TunnelTarget::Made(template) => template,
    };
    let refuse = |level: Level, status: u16, why: &str| {
        request.log(level, &|out| out.extend_from_slice(why.as_bytes()));
        Failure::new(status)
    };
    // As in nginx no error: the client may have chosen it.
    let url = Url::of_place(&request.evaluate(template));
    let url = url.map_err(|why| refuse(Level::Info, 500, &why))?;
    let upstreams = request.settings().made::<Upstreams>();
    if let Host::Inet { name, port: None } = &url.host
        && upstreams.find(name, None).is_none()
    {
        let why = format!("no port in upstream \"{}\"", url.shown_place());
        return Err(refuse(Level::Error, 500, &why));
    }
    let (upstream, unresolved) = resolve::upstream(upstreams, &url);
    let Some(name) = unresolved else {
        return Ok(upstream);
    };
    let wheel = &request.client.loop_.wire.wheel;
    let found = name.resolve(request.location(), wheel).await;
    found.map_err(|why| refuse(Level::Error, 502, &why))
}

/// A tunnel that is being opened: owns what it needs, so that the request can be watched meanwhile.
struct TunnelOpening {
    context: LogContext,
    state: Rc<UpstreamState>,
    upstream: Arc<Upstream>,
    choice: Choice,
    /// The client's session (`sticky`).
    session: Option<StickySession>,
    options: ConnectOptions,
    begun_ms: u64,
}

impl TunnelOpening {
    fn new(request: &Request, upstream: Arc<Upstream>) -> TunnelOpening {
        let settings = request.location().own::<Tunnelling>();
        let session = upstream.sticky().map(|sticky| sticky.session(request));
        let asker = upstream.asker(request.client.ip(), session.as_ref(), request);
        let mut choice = upstream.choose(&asker);
        if settings.tunnel_next_upstream_tries.0 > 0 {
            let most = settings.tunnel_next_upstream_tries.0;
            choice.limit_tries(usize::try_from(most).unwrap_or(usize::MAX));
        }
        let bind = settings.tunnel_bind.as_ref();
        TunnelOpening {
            context: LogContext::new(request),
            state: request.states.share().unwrap_or_default(),
            upstream,
            choice,
            session,
            options: ConnectOptions {
                from: bind.and_then(|bind| bind.address(request)),
                is_transparent: bind.is_some_and(|bind| bind.is_transparent),
                probes: settings.tunnel_socket_keepalive,
                receive_bytes: request::buffer(settings.tunnel_socket_rcvbuf),
                send_bytes: request::buffer(settings.tunnel_socket_sndbuf),
            },
            begun_ms: wire::loop_clock::monotonic_ms(),
        }
    }

    /// Tries one server after the other; fails with the status of the last.
    async fn open(mut self) -> Result<SwitchedUpstream, u16> {
        // Ends since each turn takes an attempt, of which there are as many as peers.
        loop {
            let Some(peer) = self.choice.next(Now::read()) else {
                return Err(self.no_peer());
            };
            let (name, address) = (Arc::clone(&peer.name), peer.address.clone());
            if let Some(session) = &self.session {
                self.state.bind(&self.upstream, session, peer);
            }
            self.state.tries.borrow_mut().begin(Arc::clone(&name));
            let begun_ms = wire::loop_clock::monotonic_ms();
            match self.connect(&address).await {
                Ok(connection) => {
                    self.choice.count_opened();
                    let connected = OpenTunnel::new(self, name, begun_ms);
                    return Ok(SwitchedUpstream::new(
                        connection.into_stream(),
                        Vec::new(),
                        Box::new(connected),
                    ));
                }
                Err(error) => self.survive(&error, &name, begun_ms)?,
            }
        }
    }

    async fn connect(&self, address: &Address) -> Result<UpstreamConnection, ConnectError> {
        let loop_ = self.context.loop_();
        let timeout = self.settings().tunnel_connect_timeout.duration();
        let pool = loop_.disk.disk().default_pool();
        connect::connect(address, &self.options, timeout, &pool, loop_).await
    }

    fn settings(&self) -> &Tunnelling {
        self.context.location().own::<Tunnelling>()
    }

    fn no_peer(&self) -> u16 {
        let name = &*self.upstream.name();
        self.log(Level::Error, "no live upstreams", name);
        let mut tries = self.state.tries.borrow_mut();
        let one = tries.begin(name);
        one.status = BAD_GATEWAY;
        one.response_ms = Some(0);
        BAD_GATEWAY
    }

    /// An attempt failed: logs, records and gives back. `Err`: no other server is tried.
    fn survive(&mut self, error: &ConnectError, name: &str, begun_ms: u64) -> Result<(), u16> {
        let (sentence, is_critical) = error.sentence(name);
        let level = match is_critical {
            true => Level::Crit,
            false => Level::Error,
        };
        self.log(level, &sentence, name);
        let now = Now::read();
        let failure = PeerFailure::of_connect(error);
        let status = failure.map_or(500, PeerFailure::status);
        let response_ms = now.ms.saturating_sub(begun_ms);
        if let Some(one) = self.state.tries.borrow_mut().last() {
            one.status = status;
            one.response_ms = Some(response_ms);
        }
        let Some(failure) = failure else {
            self.choice
                .give_back(PeerOutcome::Answered, PeerTimes::default(), now);
            return Err(status);
        };
        let goes_on = self.goes_on(failure, now.ms);
        let times = PeerTimes {
            header_ms: None,
            response_ms,
        };
        if self.choice.give_back(PeerOutcome::Failed, times, now) {
            self.log(Level::Warn, "upstream server temporarily disabled", name);
        }
        if goes_on { Ok(()) } else { Err(status) }
    }

    /// Whether the next server is tried.
    fn goes_on(&self, failure: PeerFailure, now_ms: u64) -> bool {
        let settings = self.settings();
        let kind = match failure {
            PeerFailure::Timeout => TunnelNext::TIMEOUT,
            _ => TunnelNext::ERROR,
        };
        let limit_ms = settings.tunnel_next_upstream_timeout.0;
        settings.tunnel_next_upstream.contains(kind)
            && !settings.tunnel_next_upstream.contains(TunnelNext::OFF)
            && self.choice.tries_left() > 1
            && (limit_ms == 0 || now_ms.saturating_sub(self.begun_ms) < limit_ms)
    }

    fn log(&self, level: Level, what: &str, name: &str) {
        self.context
            .log(level, what, CONNECTING, &request::shown_name(name));
    }
}

/// The server side of a tunnel: dropping it gives the server back.
struct OpenTunnel {
    context: LogContext,
    state: Rc<UpstreamState>,
    choice: Choice,
    name: Arc<str>,
    begun_ms: u64,
    header_ms: u64,
}

impl OpenTunnel {
    fn new(opening: TunnelOpening, name: Arc<str>, begun_ms: u64) -> OpenTunnel {
        let mut connected = OpenTunnel {
            context: opening.context,
            state: opening.state,
            choice: opening.choice,
            name,
            begun_ms,
            header_ms: 0,
        };
        let now = Now::read();
        connected.header_ms = now.ms.saturating_sub(begun_ms);
        connected.choice.note_header(connected.header_ms, now);
        if let Some(one) = connected.state.tries.borrow_mut().last() {
            // It says no status, and none is shown, as in nginx.
            one.connect_ms = Some(connected.header_ms);
            one.header_ms = Some(connected.header_ms);
        }
        connected
    }
}

impl TunnelUpstream for OpenTunnel {
    fn context(&self) -> &LogContext {
        &self.context
    }

    fn shown(&self) -> Vec<u8> {
        request::shown_name(&self.name)
    }

    fn patience(&self) -> TunnelTimeouts {
        let settings = self.context.location().own::<Tunnelling>();
        TunnelTimeouts {
            silence: settings.tunnel_read_timeout.duration(),
            taking: settings.tunnel_send_timeout.duration(),
        }
    }

    fn count(&mut self, sent: u64, received: u64) {
        let now = Now::read();
        let response_ms = now.ms.saturating_sub(self.begun_ms);
        if let Some(one) = self.state.tries.borrow_mut().last() {
            one.response_ms = Some(response_ms);
            one.bytes_sent = sent;
            one.bytes_received = received;
        }
    }
}

impl Drop for OpenTunnel {
    fn drop(&mut self) {
        self.state.end();
        let now = Now::read();
        let times = PeerTimes {
            header_ms: Some(self.header_ms),
            response_ms: now.ms.saturating_sub(self.begun_ms),
        };
        self.choice.give_back(PeerOutcome::Answered, times, now);
    }
}
