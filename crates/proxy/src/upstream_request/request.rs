//! A request as it goes to an upstream server, with everything that was evaluated from the client's request.
//!
//! Not here: sending it (`exchange`). Invariant: it owns what it needs and borrows nothing of the client's request, so
//! that asking a server can go on when the client has left.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use logs::Level;
use message::{Framing, HeaderId, Method};
use wire::connect::ConnectOptions;
use wire::exchange::RequestKind;
use wire::http1::head_buffers;

use httpcore::Failure;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::request_body::{self, RequestBody};
use upstream::peer_tls::TlsOrder;
use upstream::sticky::StickySession;
use upstream::{Asker, Peer, Upstream};

use crate::settings::directives::HttpVersion;
use crate::settings::family::Family;
use crate::settings::proxy_pass::PassSettings;
use crate::state::upstream_state::{self, UpstreamState};
use crate::upstream_request::destination::{Destination, destination, resolved};
use crate::upstream_request::gateway_params;
use crate::upstream_request::head::HeadWriter;
use crate::upstream_request::log_context::LogContext;
use crate::upstream_request::resolve::Unresolved;
use crate::upstream_request::tls_order;
use crate::upstream_request::variation::Variation;

/// A request as it is sent to a server.
#[derive(Debug)]
pub struct UpstreamRequest {
    /// The request's data for logs.
    pub context: LogContext,
    /// The family whose directives apply, and so the protocol.
    pub family: Family,
    /// The directives that apply.
    pub passing: Arc<PassSettings>,
    /// The servers; none yet, where a name is to be resolved first.
    pub upstream: Arc<Upstream>,
    unresolved: Option<Unresolved>,
    /// The client's data, as far as the choice depends on it.
    pub asker: Asker,
    /// Its head, including the empty line, or its equivalent.
    pub head: Bytes,
    /// Position of the URI in the head (of HTTP/2: behind its fields); none, where it has none.
    uri: std::ops::Range<usize>,
    /// The framing of its body.
    pub framing: Framing,
    /// The kind of request, as far as the response's framing depends on it.
    pub asked: RequestKind,
    /// Its body.
    pub body: RequestBody,
    /// The client's method: some must not be sent twice.
    pub method: Method,
    /// The source address and options of connections.
    pub options: ConnectOptions,
    /// TLS on connections; `None`: they are in clear.
    pub tls: Option<Rc<TlsOrder>>,
    /// Its session, with sticky sessions.
    pub session: Option<StickySession>,
    /// `proxy_limit_rate` in bytes per second; 0: no limit.
    pub limit_rate: u64,
    /// The attempts.
    pub state: Rc<UpstreamState>,
}

impl UpstreamRequest {
    /// Evaluates a request.
    ///
    /// # Errors
    /// 500 where the configuration produces something that cannot be sent; it is logged.
    pub fn new(
        request: &Request,
        passing: &Arc<PassSettings>,
        to: &Destination,
        variation: &Variation,
        body: RequestBody,
    ) -> Result<Rc<UpstreamRequest>, Failure> {
        let state = request.states.share().unwrap_or_default();
        let writer = HeadWriter {
            request,
            passing,
            to,
            variation,
            framing: body.framing(),
        };
        let (head, uri, is_head) = written(&writer, passing, to)?;
        let settings = &passing.groups.asking;
        let rate = &passing.groups.answers.proxy_limit_rate;
        let asks_upgrade = request.head.get(HeaderId::Upgrade).is_some();
        // A stream of HTTP/2 has no 101 (RFC 9113, 8.6), and a response for others is stored or shown without it.
        let is_told = passing.family == Family::Proxy
            && !passing.is_http2()
            && !variation.is_cacheable
            && request.transport.takes_switching();
        let session = to.upstream.sticky().map(|sticky| sticky.session(request));
        // `new_cyclic` has the memory first: it is built in place.
        Ok(Rc::new_cyclic(|_| UpstreamRequest {
            context: LogContext::new(request),
            family: passing.family,
            passing: Arc::clone(passing),
            asker: (to.upstream).asker(request.client.ip(), session.as_ref(), request),
            session,
            upstream: Arc::clone(&to.upstream),
            unresolved: to.unresolved.clone(),
            head,
            uri,
            framing: body.framing(),
            asked: match (is_head, asks_upgrade) {
                (true, _) => RequestKind::Head,
                (false, true) if !passing.is_http2() => RequestKind::Upgrade,
                (false, false) if is_told => RequestKind::PlainTold,
                (false, _) => RequestKind::Plain,
            },
            body,
            method: request.method,
            options: ConnectOptions {
                from: settings
                    .proxy_bind
                    .as_ref()
                    .and_then(|bind| bind.address(request)),
                is_transparent: settings
                    .proxy_bind
                    .as_ref()
                    .is_some_and(|bind| bind.is_transparent),
                probes: settings.proxy_socket_keepalive,
                receive_bytes: buffer(settings.proxy_socket_rcvbuf),
                send_bytes: buffer(settings.proxy_socket_sndbuf),
            },
            tls: to
                .tls_host
                .as_ref()
                .and_then(|host| tls_order::of(request, passing, host)),
            // One that is no size is told with the response, on which it may depend.
            limit_rate: rate
                .as_ref()
                .map_or(0, |rate| rate.bytes(request).unwrap_or(0)),
            state,
        }))
    }

    /// The same with the servers behind its name. None: they cannot be had; the log says why.
    ///
    /// # Panics
    /// If it is shared: it is resolved before it is used.
    pub async fn resolved(mut self: Rc<Self>) -> Option<Rc<Self>> {
        let Some(name) = &self.unresolved else {
            return Some(self);
        };
        let wheel = &self.context.loop_().wire.wheel;
        // Boxed: most upstream requests do not need it.
        match Box::pin(name.resolve(self.context.location(), wheel)).await {
            Ok(upstream) => {
                let own = Rc::get_mut(&mut self);
                own.expect("nobody else has it before it is asked with")
                    .upstream = upstream;
                Some(self)
            }
            Err(why) => {
                self.context.log_alone(Level::Error, &why);
                None
            }
        }
    }

    /// Binds its session to this peer, for now.
    pub fn bind(&self, peer: &Peer) {
        if let Some(session) = &self.session {
            self.state.bind(&self.upstream, session, peer);
        }
    }

    /// The encoded fields of a request over HTTP/2.
    #[must_use]
    pub fn fields(&self) -> &[u8] {
        &self.head[..self.head.len() - self.uri.len()]
    }

    /// The URI as it is sent; empty where none is.
    #[must_use]
    pub fn uri(&self) -> &[u8] {
        &self.head[self.uri.clone()]
    }
}

/// The head or its equivalent, the place of the URI in it, and whether the method is HEAD.
fn written(
    writer: &HeadWriter<'_>,
    passing: &PassSettings,
    to: &Destination,
) -> Result<(Bytes, std::ops::Range<usize>, bool), Failure> {
    match &passing.params {
        None if passing.is_http2() => {
            let has_tls = to.tls_host.is_some();
            let (head, (uri, is_head)) =
                head_buffers::written(|out| writer.write_http2(has_tls, out))?;
            Ok((head, uri, is_head))
        }
        None => {
            let (head, (uri, method_len)) = head_buffers::written(|out| writer.write(out))?;
            let is_head = head[..method_len].eq_ignore_ascii_case(b"HEAD");
            Ok((head, uri, is_head))
        }
        Some(params) => {
            let (head, ()) = head_buffers::written(|out| writer.write_params(params, out))?;
            Ok((head, 0..0, gateway_params::is_head(params, writer.request)))
        }
    }
}

/// The size of a kernel buffer; 0: the default.
pub fn buffer(size: Option<config::Size>) -> u32 {
    size.map_or(0, |size| u32::try_from(size.0).unwrap_or(u32::MAX))
}

/// `http://NAME/URI`: the URL in log lines.
pub(crate) fn shown(name: &str, upstream_request: &UpstreamRequest) -> Vec<u8> {
    let scheme = upstream_request
        .family
        .scheme(upstream_request.tls.is_some());
    let scheme = scheme.as_bytes();
    [scheme, &shown_name(name), upstream_request.uri()].concat()
}

/// The name of a server as nginx writes it: a path ends with a colon.
pub(crate) fn shown_name(name: &str) -> Vec<u8> {
    let end: &[u8] = if name.starts_with("unix:") { b":" } else { b"" };
    [name.as_bytes(), end].concat()
}

/// Makes the upstream request for a request, with its body read.
///
/// # Errors
/// The response that the request gets instead.
pub async fn make(
    request: &mut Request,
    passing: &Arc<PassSettings>,
    variation: &Variation,
) -> Result<Rc<UpstreamRequest>, Outcome> {
    let mut to = destination(request, passing).map_err(Outcome::Failed)?;
    // A request for a cache resolves the name itself: there may be a response without it.
    if !variation.is_cacheable
        && let Some(name) = to.unresolved.take()
    {
        let found = Box::pin(resolved(request, &name)).await;
        to.upstream = found.inspect_err(|_| upstream_state::separate(request))?;
    }
    let body = outbound(request, passing).await?;
    let made = UpstreamRequest::new(request, passing, &to, variation, body);
    upstream_state::separate(request);
    made.map_err(Outcome::Failed)
}

/// The body to be sent: the configured one, else the client's.
async fn outbound(request: &mut Request, passing: &PassSettings) -> Result<RequestBody, Outcome> {
    let is_unread = request.body.body().is_none();
    let is_none = request.head.framing == Framing::None && is_unread;
    let (family, settings) = (passing.family, &passing.groups);
    let is_set = family == Family::Proxy && settings.proxy.proxy_set_body.is_some();
    if is_set || !settings.asking.proxy_pass_request_body {
        // The client's body may be part of it. One that is too large or malformed is refused, whatever is sent.
        if is_unread && !is_none {
            Box::pin(request_body::store(request)).await?;
        }
        let own = settings.proxy.proxy_set_body.as_ref();
        let own = own.filter(|_| family == Family::Proxy);
        return Ok(own.map_or(RequestBody::None, |body| {
            RequestBody::bytes(request.evaluate(body))
        }));
    }
    if is_none {
        return Ok(RequestBody::None);
    }
    let knows_no_chunks = || match family {
        Family::Proxy => settings.proxy.proxy_http_version == HttpVersion::Http10,
        Family::Fastcgi | Family::Grpc => false,
        Family::Uwsgi | Family::Scgi => true,
    };
    // Without chunks the length must be known first.
    let must_store = settings.asking.proxy_request_buffering
        || (request.head.framing == Framing::Chunked && knows_no_chunks());
    // Boxed, so that a request without a body needs no room for them.
    if must_store {
        Box::pin(request_body::store(request)).await
    } else {
        Box::pin(request_body::pass(request)).await
    }
}
