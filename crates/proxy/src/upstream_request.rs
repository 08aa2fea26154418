//! An order: a request as it goes to an upstream server, with everything that was evaluated from the client's request.
//!
//! Not here: sending it (`exchange`). Invariant: an order owns what it needs and borrows nothing of the request, so
//! that asking a server can go on when the client has left.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use logs::Level;
use message::escape::Escape;
use message::{Framing, HeaderId, HopByHop, Method};
use wire::connect::ConnectOptions;
use wire::exchange::RequestKind;
use wire::http1::head_buffers;
use wire::http1::request_writer::{self, Outgoing};

use httpcore::Failure;
use httpcore::request::Request;
use httpcore::request_body::RequestBody;
use upstream::sticky::StickySession;
use upstream::{Asker, Peer, Upstream};

use super::directives::HttpVersion;
use super::families::Family;
use super::log_context::About;
use super::params::Params;
use super::proxy_pass::Passing;
use super::resolve::Unresolved;
use super::upstream_state::{Bond, Record, record_of};

/// A request as it is sent to a server.
#[derive(Debug)]
pub struct Order {
    /// The request's data for logs.
    pub about: About,
    /// The family whose directives apply, and so the protocol.
    pub family: Family,
    /// The directives that apply.
    pub passing: Arc<Passing>,
    /// The servers; none yet, where a name is to be resolved first.
    pub upstream: Arc<Upstream>,
    unresolved: Option<Unresolved>,
    /// The client's data, as far as the choice depends on it.
    pub asker: Asker,
    /// Its head, including the empty line, or its equivalent.
    pub head: Bytes,
    /// Position of the URI in the head; none, where it has none.
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
    /// Its session, with sticky sessions.
    pub session: Option<StickySession>,
    /// `proxy_limit_rate` in bytes per second; 0: no limit.
    pub limit_rate: u64,
    /// The tries.
    pub record: Rc<Record>,
}

/// Differences between an upstream request and the client's.
#[derive(Debug, Clone, Default)]
pub struct Variation {
    /// Whether the response may be cached: then the client's conditions and ranges are not passed on.
    pub is_cacheable: bool,
    /// Whether the method is GET, whatever the client's is (`proxy_cache_convert_head`).
    pub as_get: bool,
    /// Further header lines: the conditions of a cache that revalidates.
    pub lines: Vec<(Bytes, Bytes)>,
}

/// The upstream of one request.
#[derive(Debug, Clone)]
pub struct Destination {
    /// The servers; none yet, where a name is to be resolved first.
    pub upstream: Arc<Upstream>,
    /// That name.
    pub unresolved: Option<Unresolved>,
    /// The URI that replaces the location's prefix, or (`is_whole`) the whole URI; empty: none.
    pub uri: Bytes,
    /// Whether the URI was made from variables and is sent unchanged.
    pub is_whole: bool,
}

impl Order {
    /// Evaluates a request.
    ///
    /// # Errors
    /// 500 where the configuration produces something that cannot be sent; it is logged.
    pub fn new(
        request: &Request,
        passing: &Arc<Passing>,
        to: &Destination,
        variation: &Variation,
        body: RequestBody,
    ) -> Result<Rc<Order>, Failure> {
        let record = request.states.share().unwrap_or_default();
        let writing = Writing {
            request,
            passing,
            to,
            variation,
            framing: body.framing(),
        };
        let (head, uri, is_head) = match &passing.params {
            None => {
                let (head, (uri, method_len)) = head_buffers::written(|out| writing.write(out))?;
                let is_head = head[..method_len].eq_ignore_ascii_case(b"HEAD");
                (head, uri, is_head)
            }
            Some(params) => {
                let (head, ()) = head_buffers::written(|out| writing.write_params(params, out))?;
                (head, 0..0, request.method == Method::Head)
            }
        };
        let settings = &passing.groups.asking;
        let rate = &passing.groups.answers.proxy_limit_rate;
        let asks_upgrade = request.head.get(HeaderId::Upgrade).is_some();
        let session = to.upstream.sticky().map(|sticky| sticky.session(request));
        Ok(Rc::new(Order {
            about: About::new(request),
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
                (false, true) => RequestKind::Upgrade,
                (false, false) => RequestKind::Plain,
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
            limit_rate: rate.as_ref().map_or(0, |rate| rate.bytes(request)),
            record,
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
        let wheel = &self.about.loop_().wire.wheel;
        // Boxed: most upstream requests do not need it.
        match Box::pin(name.resolve(self.about.location(), wheel)).await {
            Ok(upstream) => {
                let own = Rc::get_mut(&mut self);
                own.expect("nobody else has it before it is asked with")
                    .upstream = upstream;
                Some(self)
            }
            Err(why) => {
                self.about.log_alone(Level::Error, &why);
                None
            }
        }
    }

    /// Binds its session to this peer, for now.
    pub fn bind(&self, peer: &Peer) {
        let Some(session) = &self.session else { return };
        *self.record.bond.borrow_mut() = Some(Box::new(Bond {
            upstream: Arc::clone(&self.upstream),
            session: session.clone(),
            sid: Bytes::copy_from_slice(&peer.sid),
            is_over: false,
        }));
    }

    /// The URI as it is sent; empty where none is.
    #[must_use]
    pub fn uri(&self) -> &[u8] {
        &self.head[self.uri.clone()]
    }
}

/// The size of a kernel buffer; 0: the default.
pub fn buffer(size: Option<config::Size>) -> u32 {
    size.map_or(0, |size| u32::try_from(size.0).unwrap_or(u32::MAX))
}

/// A head that is being written.
struct Writing<'a> {
    request: &'a Request,
    passing: &'a Passing,
    to: &'a Destination,
    variation: &'a Variation,
    framing: Framing,
}

impl Writing<'_> {
    /// Appends the head; returns the position of the URI in it, and the method's length.
    fn write(&self, out: &mut Vec<u8>) -> Result<(std::ops::Range<usize>, usize), Failure> {
        let request = self.request;
        let (settings, asking) = (&self.passing.groups.proxy, &self.passing.groups.asking);
        let method = self.method();
        let target = self.target();
        if target.is_empty() {
            return Err(self.refuse("zero length URI to proxy"));
        }
        let is_http10 = settings.proxy_http_version == HttpVersion::Http10;
        let outgoing = Outgoing {
            method: &method,
            target: &target,
            is_http10,
            framing: self.framing,
        };
        let host = self.host(is_http10);
        let own = self.own_lines();
        let own = own.iter().map(|(name, value)| (&name[..], &value[..]));
        let host = host.iter().map(|value| (&b"Host"[..], &value[..]));
        let outcome = if asking.proxy_pass_request_headers {
            let hop_by_hop = HopByHop::new(request.head.get_each(HeaderId::Connection));
            let replaced = match self.variation.is_cacheable {
                true => &self.passing.replaced_for_cache,
                false => &self.passing.replaced,
            };
            let lines = request.head.iter();
            let passed_on = lines.filter(|(name, _, id)| {
                !replaced.has(name, *id) && !hop_by_hop.contains(name, *id)
            });
            request_writer::head_with(out, &outgoing, host.chain(own), passed_on)
        } else {
            request_writer::head(out, &outgoing, host.chain(own))
        };
        outcome.map_err(|fault| self.refuse(&fault.to_string()))?;
        let start = method.len() + 1;
        Ok((start..start + target.len(), method.len()))
    }

    /// Appends a gateway's equivalent of a head.
    fn write_params(&self, params: &Params, out: &mut Vec<u8>) -> Result<(), Failure> {
        let outcome = params.write(self.request, self.variation, self.framing, out);
        outcome.map_err(|fault| self.refuse(&fault.to_string()))
    }

    fn method(&self) -> Cow<'_, [u8]> {
        let settings = &self.passing.groups.proxy;
        if self.variation.as_get {
            return Cow::Borrowed(b"GET");
        }
        match &settings.proxy_method {
            Some(method) => Cow::Owned(self.request.evaluate(method).into()),
            None => Cow::Borrowed(self.request.method_text()),
        }
    }

    /// `Host`: none only where the configuration removes it and HTTP/1.0 is used.
    fn host(&self, is_http10: bool) -> Option<Bytes> {
        let usual = || {
            let record = self.request.states.get::<Record>();
            record.map_or_else(Bytes::new, |record| record.host.borrow().clone())
        };
        let host = match &self.passing.host {
            None => usual(),
            Some(set) => match self.request.evaluate(set) {
                empty if empty.is_empty() && !is_http10 => usual(),
                host => host,
            },
        };
        (!host.is_empty()).then_some(host)
    }

    /// The header lines that the configuration sets, and those of a cache.
    fn own_lines(&self) -> Vec<(Bytes, Bytes)> {
        let set = self.passing.lines.iter();
        let set = set.map(|line| (line.name.clone(), self.request.evaluate(&line.value)));
        set.chain(self.variation.lines.iter().cloned())
            .filter(|(_, value)| !value.is_empty())
            .collect()
    }

    fn target(&self) -> Cow<'_, [u8]> {
        let (request, to) = (self.request, self.to);
        if is_as_it_came(request, &to.uri) {
            return Cow::Borrowed(request.head.target());
        }
        let mut out = Vec::with_capacity(request.head.target().len() + 16);
        append_target(request, self.passing, (&to.uri, to.is_whole), &mut out);
        Cow::Owned(out)
    }

    fn refuse(&self, why: &str) -> Failure {
        self.request.log(Level::Error, &|out| {
            out.extend_from_slice(why.as_bytes());
        });
        Failure::new(500)
    }
}

/// Whether the client's own URI is sent, since nothing changed it.
fn is_as_it_came(request: &Request, uri: &Bytes) -> bool {
    uri.is_empty() && request.is_target_raw && !request.head.is_path_empty
}

/// Appends the URI: the client's own where nothing changed it, else made from the current one. `uri` is that of
/// `proxy_pass`, and whether it is the whole URI.
pub fn append_target(
    request: &Request,
    passing: &Passing,
    (uri, is_whole): (&Bytes, bool),
    out: &mut Vec<u8>,
) {
    if is_as_it_came(request, uri) {
        return out.extend_from_slice(request.head.target());
    }
    if is_whole && !uri.is_empty() {
        // Unchanged, except for bytes that would end the URI or the line.
        return escape_breaks(uri, out);
    }
    let mut skipped = 0;
    if request.is_location_valid {
        out.extend_from_slice(uri);
        if !uri.is_empty() {
            skipped = passing.prefix_len.min(request.uri.len());
        }
    }
    let rest = &request.uri[skipped..];
    if is_path_quoted(request.head.target()) || request.is_internal {
        Escape::Uri.write(rest, out);
    } else {
        escape_breaks(rest, out);
    }
    if !request.args.is_empty() {
        out.push(b'?');
        escape_breaks(&request.args, out);
    }
}

/// Whether the path of a raw target contains an escape.
fn is_path_quoted(target: &[u8]) -> bool {
    let path = memchr::memchr(b'?', target).map_or(target, |end| &target[..end]);
    memchr::memchr(b'%', path).is_some()
}

/// Appends a URI with escapes for blanks and control bytes, which would end it.
fn escape_breaks(uri: &[u8], out: &mut Vec<u8>) {
    for byte in uri {
        match byte {
            0..=0x20 | 0x7f => Escape::Uri.write(std::slice::from_ref(byte), out),
            other => out.push(*other),
        }
    }
}

/// Separates the tries: if the request was passed on before, the next ones follow a colon.
pub fn begin(request: &mut Request, host: Bytes, port: Bytes) {
    let record = record_of(request);
    record.tries.borrow_mut().redirect();
    record.head.take();
    *record.host.borrow_mut() = host;
    *record.port.borrow_mut() = port;
}
