//! `proxy_pass`: passing requests on to upstream servers, and their responses back.
//!
//! The way of a request: [`url`] says where it goes, an [`upstream_request::Order`] is made of it, [`exchange`] asks
//! one server after the other, [`response_head`] makes our response of the upstream's, [`response_body`] is its body.
//! Invariants: an exchange borrows nothing of the request; a slow client does not hold the server of a buffered
//! response back, as far as a temporary file may reach.

pub mod accel;
mod attempt;
pub mod bind;
pub mod caching;
pub mod cookies;
pub mod directives;
pub mod early_hints;
pub mod exchange;
pub mod families;
pub mod gateways;
mod header_set;
pub mod https;
pub mod log_context;
pub mod params;
mod protocol;
pub mod proxy_pass;
pub mod proxy_redirect;
mod read_ahead;
pub mod resolve;
pub mod response_body;
pub mod response_head;
pub mod store;
mod temp_file;
pub mod tunnel_pass;
pub mod upgrade;
pub mod upstream_request;
pub mod upstream_state;
pub mod url;
pub mod variables;

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use logs::Level;
use message::{Body, Framing, Header, ResponseHead};
use runtime::timing::yield_turn;

use crate::caching::cache_state::Note;
use httpcore::Failure;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::request_body::{self, Leaving, RequestBody};
use httpcore::transport::Tunnel;
use upstream::Upstream;
use upstream::Upstreams;

pub use directives::{Asking, Hints, Proxy, ProxyAnswers, ProxyRewrites};
pub use proxy_pass::Passing;
pub use store::ProxyStore;

use directives::HttpVersion;
use exchange::{Answer, Coming, Step};
use families::Family;
use proxy_pass::{Target, groups};
use resolve::Unresolved;
use response_head::Origin;
use upgrade::ServerSide;
use upstream_request::{Destination, Order, Variation};
use upstream_state::Record;

/// Maximum size of a body that may wait until the other responses have arrived too, in bytes. A longer one is sent
/// while it is in the CPU cache: many waiting ones do not fit in there, and 64 KiB would cost a quarter more.
const IN_A_ROW_MAX: usize = 8 * 1024;
/// The status of a response that is followed by another protocol than HTTP.
pub const SWITCHING: u16 = 101;

/// Answers from a cache, or passes the request on.
///
/// Each is boxed: the state of an upstream exchange is large, and a response from a file does not need it, nor the
/// other way round.
pub async fn make(request: &mut Request) -> Outcome {
    request.is_passed_on = true;
    let outcome = match is_cached(request) {
        true => Box::pin(caching::lookup::make(request)).await,
        false => {
            // The record of an earlier location, which sent the request here, is not about this one.
            request.states.take::<Note>();
            None
        }
    };
    let outcome = match outcome {
        Some(outcome) => outcome,
        None => Box::pin(pass_on(request)).await,
    };
    bound(request, outcome)
}

/// A failure also carries the cookie of the server that was asked last (`sticky`).
fn bound(request: &Request, mut outcome: Outcome) -> Outcome {
    if let Outcome::Failed(failure) = &mut outcome
        && let Some(record) = request.states.get::<Record>()
        && let Some(bond) = record.bond.take()
        && let Some(cookie) = bond.cookie(request)
    {
        failure.headers.push(Header::new("Set-Cookie", cookie));
    }
    outcome
}

fn is_cached(request: &Request) -> bool {
    groups(request.location()).is_some_and(|groups| groups.caching.is_on())
}

async fn pass_on(request: &mut Request) -> Outcome {
    match answered(request).await {
        Ok(answer) => taken(request, answer).await,
        Err(outcome) => outcome,
    }
}

/// The client's view of a response.
pub async fn taken(request: &mut Request, answer: Answer) -> Outcome {
    if answer.body.is_whole_within(IN_A_ROW_MAX) {
        yield_turn::others_first().await;
    }
    if is_cached(request) {
        Box::pin(caching::purging::invalidate(request, answer.head.status)).await;
    }
    let Answer { mut head, mut body } = answer;
    if store::is_wanted(request, &head) {
        if let Coming::Flow(flow) = &mut body {
            head = limit(request, head, flow);
        }
        match Box::pin(store::body(request, &head, body)).await {
            Ok(body) => return response_head::shape(request, head, body, Origin::Server),
            Err(unstored) => body = unstored,
        }
    }
    let body = match body {
        Coming::Whole(whole) if whole.is_empty() => Body::Empty,
        Coming::Whole(whole) => Body::bytes(whole),
        Coming::Flow(mut flow) => {
            head = limit(request, head, &mut flow);
            flowing(request, &head, flow)
        }
    };
    response_head::shape(request, head, body, Origin::Server)
}

async fn answered(request: &mut Request) -> Result<Answer, Outcome> {
    let variation = Variation {
        // With a cache a HEAD may be sent as GET, though this response is not stored.
        as_get: request.states.get::<Note>().is_some()
            && caching::cache_request::asks_as_get(request),
        ..Variation::default()
    };
    let order = order(request, &variation).await?;
    let ignores =
        groups(request.location()).is_some_and(|groups| groups.asking.proxy_ignore_client_abort);
    let leaving = match ignores || store::is_on(request) {
        true => Leaving::IsIgnored,
        false => Leaving::Ends,
    };
    yield_turn::others_first().await;
    let mut asking = exchange::Asking::new(order);
    loop {
        // By reference: it is large, and is in place already.
        let step = request_body::alongside(request, leaving, pin!(asking.next())).await?;
        match step {
            Ok(Step::Answer(answer)) => return Ok(answer),
            Ok(Step::Interim(head)) => Box::pin(early_hints::pass(request, &head)).await,
            Err(none) => return Err(Outcome::Failed(Failure::new(none.status))),
        }
    }
}

/// Makes the upstream request for a request, with its body read.
///
/// # Errors
/// The response that the request gets instead.
pub async fn order(request: &mut Request, variation: &Variation) -> Result<Rc<Order>, Outcome> {
    let Some(passing) = request.location().made.share::<Passing>() else {
        return Err(Outcome::Failed(Failure::new(500)));
    };
    let mut to = destination(request, &passing).map_err(Outcome::Failed)?;
    // A request for a cache resolves the name itself: there may be a response without it.
    if !variation.is_cacheable
        && let Some(name) = to.unresolved.take()
    {
        to.upstream = Box::pin(resolved(request, &name)).await?;
    }
    let body = outbound(request, &passing).await?;
    Order::new(request, &passing, &to, variation, body).map_err(Outcome::Failed)
}

/// The body to be sent: the configured one, else the client's.
async fn outbound(request: &mut Request, passing: &Passing) -> Result<RequestBody, Outcome> {
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
        Family::Fastcgi => false,
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

/// `proxy_limit_rate` may depend on the response.
fn limit(
    request: &Request,
    head: Box<ResponseHead>,
    flow: &mut response_body::Flow,
) -> Box<ResponseHead> {
    let generation = Rc::clone(&request.generation);
    let settings = generation.settings.location(request.location).groups();
    let rate = settings.own::<ProxyAnswers>().proxy_limit_rate.as_ref();
    let record = request.states.get::<Record>();
    let (Some(rate), Some(record)) = (rate.filter(|rate| rate.varies()), record) else {
        return head;
    };
    *record.head.borrow_mut() = Some(head);
    flow.limit(rate.bytes(request));
    record.head.take().expect("it was put there")
}

/// The body after a response's head.
fn flowing(
    request: &mut Request,
    head: &ResponseHead,
    mut flow: Box<response_body::Flow>,
) -> Body<std::rc::Rc<disk::OpenFile>> {
    if flow.is_over() {
        return Body::Empty;
    }
    if head.status == SWITCHING {
        request.tunnel = ServerSide::of(*flow).map(|side| Box::new(side) as Box<dyn Tunnel>);
        return Body::Tunnel;
    }
    if accel::is_buffered(request.location(), head) {
        flow.buffer(request);
    }
    Body::Stream(flow)
}

/// The upstream for this request.
///
/// # Errors
/// The variables gave no valid URL.
pub fn destination(request: &mut Request, passing: &Passing) -> Result<Destination, Failure> {
    match &passing.target {
        Target::Fixed { url, upstream } => {
            upstream_request::begin(request, url.host_header.clone(), url.port_text.clone());
            Ok(Destination {
                upstream: Arc::clone(upstream),
                unresolved: None,
                uri: url.uri.clone(),
                is_whole: false,
            })
        }
        Target::Made(template) => {
            let whole = request.evaluate(template);
            let url = passing.url(&whole).map_err(|why| refuse(request, &why))?;
            upstream_request::begin(request, url.host_header.clone(), url.port_text.clone());
            let upstreams = request.settings().made::<Upstreams>();
            if passing.params.is_some()
                && let url::Host::Inet { name, port: None } = &url.host
                && upstreams.find(name, None).is_none()
            {
                let why = format!("no port in upstream \"{}\"", url.shown_place());
                return Err(refuse(request, &why));
            }
            let (upstream, unresolved) = resolve::upstream(upstreams, &url);
            Ok(Destination {
                upstream,
                unresolved,
                uri: with_slash(url.uri),
                is_whole: true,
            })
        }
    }
}

async fn resolved(request: &Request, name: &Unresolved) -> Result<Arc<Upstream>, Outcome> {
    let wheel = &request.client.loop_.wire.wheel;
    let found = name.resolve(request.location(), wheel).await;
    found.map_err(|why| {
        refuse(request, &why);
        Outcome::Failed(Failure::new(502))
    })
}

/// A URI that has only arguments gets a path.
#[must_use]
pub fn with_slash(uri: Bytes) -> Bytes {
    match uri.first() {
        Some(b'?') => [b"/", &uri[..]].concat().into(),
        _ => uri,
    }
}

fn refuse(request: &Request, why: &str) -> Failure {
    request.log(Level::Error, &|out| out.extend_from_slice(why.as_bytes()));
    Failure::new(500)
}
