//! An HTTP/1 connection: request after request, until one side ends it.
//!
//! Not here: how a request is answered ([`super::answer`]), framing ([`crate::transport::http1`]).

use std::future::Future;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use disk::in_place;
use logs::Level;
use message::RequestHead;
use wire::http1::request_parser::HeadLimits;
use wire::{Error as WireError, call_failed, turn};

use crate::http_loop::generation::Generation;
use crate::request::Request;
use crate::responder::Responder;
use crate::route::{NamedServer, ServerId};
use crate::transport::http1::Link;
use crate::transport::{Http1, Transport};
use runtime::timing::current_request;
use runtime::{Idle, Seat, Waiting};

use super::answer::{Counted, Refusal, Reply, Started};
use super::finish::After;
use super::http2::{self, Spoken};
use super::{proxy_protocol, tls_handshake, zones};
use crate::client::Client;
use crate::connection::answer;
use crate::connection::finish;
use crate::settings::connections::Lingering;

/// The line about a connection that makes place for others before its request has come.
pub(super) const REUSED: &str = "reusing connection while reading client request headers";

/// Serves a connection to its end.
#[expect(
    clippy::manual_async_fn,
    reason = "an `async fn` would hold its arguments twice as long as the connection lives"
)]
pub(super) fn run<R: Responder>(
    client: &Rc<Client>,
    seat: Seat,
    mut link: Option<Box<Link>>,
) -> impl Future<Output = ()> {
    async move {
        // Boxed: few connections begin so.
        if proxy_protocol::is_due(client)
            && let Some(open) = &mut link
            && !Box::pin(proxy_protocol::read(open, client)).await
        {
            return close(client, seat, link);
        }
        // Boxed: an open connection does not keep its room.
        if tls_handshake::is_due(client)
            && let Some(open) = &mut link
            && !Box::pin(tls_handshake::run(open, client)).await
        {
            return close(client, seat, link);
        }
        if http2::may_come(client)
            && let Some(open) = link.take()
        {
            match Box::pin(http2::detect(open, client)).await {
                Spoken::Http1(open) => link = Some(open),
                Spoken::Http2(open) => return http2::start::<R>(client, seat, *open),
                Spoken::Nothing(open) => return close(client, seat, Some(open)),
            }
        }
        let mut keepalive = None;
        while let Some(open) = &mut link
            && wait(open, client, keepalive).await
        {
            // A reload may have come in the meantime.
            let generation = client.generation();
            let client = Rc::clone(client);
            keepalive = in_place::boxed(|| exchange::<R>(&mut link, client, generation)).await;
            if keepalive.is_none() {
                break;
            }
        }
        close(client, seat, link);
    }
}

/// Closes the connection after it was removed from the counters: a client that sees the close may ask for them, on
/// another loop.
fn close(client: &Client, seat: Seat, link: Option<Box<Link>>) {
    if let Some(link) = &link {
        tls_handshake::count_fault(client, &link.wire.stream);
    }
    drop(seat);
    if let Some(link) = &link {
        link.wire.stream.close_notify();
    }
    drop(link);
}

/// Waits for the first byte of a request; `false`: the connection is over.
pub(super) async fn wait(link: &mut Link, client: &Client, keepalive: Option<Duration>) -> bool {
    let Link { wire, place, .. } = link;
    if wire.has_unread() {
        turn::go_on().await;
        current_request::another();
        return true;
    }
    let (idle, timeout): (Idle, Duration) = match keepalive {
        Some(_) if client.is_removed() => return false,
        Some(timeout) => (place.enter(Waiting::Kept), timeout),
        None => match first_timeout(client) {
            Some(timeout) => (place.enter(Waiting::New), timeout),
            None => return false,
        },
    };
    let outcome = tokio::select! {
        biased;
        outcome = wire.wait(timeout) => outcome,
        () = idle.told() => return false,
    };
    if keepalive.is_none() && matches!(outcome, Err(WireError::Timeout)) {
        client.log(
            &client.generation(),
            Level::Info,
            "client timed out (110: Connection timed out) while waiting for request",
        );
    }
    outcome.is_ok()
}

/// Maximum time that a new connection may still be silent: as in nginx, its first head has to be there in that time, after
/// all that comes before it. `None`: a reload removed its address.
fn first_timeout(client: &Client) -> Option<Duration> {
    let generation = client.generation();
    let settings = &generation.settings;
    let server = settings.server(client.default_server(&generation)?);
    Some(left_since_accept(
        client,
        server.settings.client_header_timeout.duration(),
    ))
}

/// What is left of a time that began with the connection.
fn left_since_accept(client: &Client, timeout: Duration) -> Duration {
    timeout.saturating_sub(Duration::from_millis(client.age_ms()))
}

/// Reads a request, answers it, and tidies up. Returns the connection, which is not closed before the metrics stop
/// counting the request.
#[expect(
    clippy::manual_async_fn,
    reason = "an `async fn` would hold its arguments twice, and this is allocated for every request"
)]
fn exchange<'a, R: Responder>(
    link: &'a mut Option<Box<Link>>,
    client: Rc<Client>,
    generation: Rc<Generation>,
) -> impl Future<Output = Option<Duration>> + use<'a, R> {
    async move {
        let open = link.as_mut()?;
        let mut counted = Counted::begin(&client.loop_);
        let is_pipelined = client.requests.get() > 0 && open.wire.has_unread();
        open.is_pipelined |= is_pipelined;
        let (head, server, start) = read(open, &client, &generation).await.ok()?;
        client.requests.set(client.requests.get() + 1);
        counted.answer();
        current_request::begin(head.line());
        let transport = Transport::Http1(Http1::new(link.take()?, &head, is_pipelined));
        let mut request = Request::new(transport, client, generation, head, server);
        counted.zone = zones::begin(&request);
        let start = answer::capture_server_name(&request, start);
        let after = answer::answer::<R>(&mut request, start).await;
        let after = finish::finish::<R>(&mut request, after).await;
        if let Some(keepalive) = kept_for(&request, after) {
            *link = Some(request.transport.into_http1()?.into_link());
            return Some(keepalive);
        }
        // Boxed: most connections are kept.
        Box::pin(leave(request, after, link)).await
    }
}

/// Maximum time that the connection waits for the next request, where nothing else is to be done before.
fn kept_for(request: &Request, after: After) -> Option<Duration> {
    let keepalive = &request.location().settings.keepalive;
    let is_at_once = keepalive.keepalive_min_timeout.duration().is_zero();
    let timeout = Duration::from_millis(keepalive.keepalive_timeout.timeout_ms);
    (after == After::Keep && is_at_once).then_some(timeout)
}

/// Keeps or closes the connection of a request that is over. One that is not kept has finished lingering.
async fn leave(
    request: Box<Request>,
    after: After,
    back: &mut Option<Box<Link>>,
) -> Option<Duration> {
    let generation = request.generation.clone();
    let settings = &generation.settings.location(request.location).settings;
    let (total, between) = (
        settings.closing.lingering_time.duration(),
        settings.closing.lingering_timeout.duration(),
    );
    let timeout = Duration::from_millis(settings.keepalive.keepalive_timeout.timeout_ms);
    let at_least = settings.keepalive.keepalive_min_timeout.duration();
    let http1 = request.transport.into_http1()?;
    let is_body_over = http1.is_body_over();
    let link = back.insert(http1.into_link());
    let is_pipelined = link.is_pipelined;
    let wire = &mut link.wire;
    match after {
        After::Keep => {
            return Box::pin(hold(wire, timeout, at_least)).await;
        }
        After::Reset => drop(wire.stream.set_reset_on_close()),
        After::TimedOut => {
            if settings.closing.reset_timedout_connection {
                let _ = wire.stream.set_reset_on_close();
            }
        }
        After::Close | After::Linger => {
            let is_due = match settings.closing.lingering_close {
                Lingering::Off => false,
                Lingering::On => {
                    after == After::Linger
                        || !is_body_over
                        || is_pipelined
                        || wire.has_unread()
                        || wire.may_have_more()
                }
                Lingering::Always => true,
            };
            if is_due {
                let lingering = Box::pin(wire.linger(total, between));
                link.place
                    .wait_for(Waiting::Lingering, pin!(lingering))
                    .await;
            }
        }
    }
    None
}

/// Keeps a connection, which cannot be told to close yet, for `at_least` or until the next request comes. Returns the
/// rest of `timeout`, if the connection goes on.
async fn hold(
    wire: &mut wire::Connection,
    timeout: Duration,
    at_least: Duration,
) -> Option<Duration> {
    let at_least = at_least.min(timeout);
    match wire.wait(at_least).await {
        Ok(()) => Some(timeout),
        Err(wire::Error::Timeout) if at_least < timeout => Some(timeout - at_least),
        Err(_) => None,
    }
}

/// Logs that the connection was closed, or broke, before the first byte of a request.
fn tell_lost(client: &Client, generation: &Generation, error: &WireError) {
    let is_first = client.requests.get() == 0;
    match error {
        WireError::Closed if is_first => {
            let text = "client closed connection while waiting for request";
            client.log(generation, Level::Info, text);
        }
        WireError::Closed => client.log_kept_closed(generation),
        // As in nginx: some clients reset a connection instead of closing it.
        WireError::Io(error) if !is_first && error.kind() == io::ErrorKind::ConnectionReset => {}
        WireError::Io(error) => {
            let told = call_failed("recv", error);
            let action = match is_first {
                true => "while waiting for request",
                false => "while keepalive",
            };
            client.log(generation, Level::Info, &format!("{told} {action}"));
        }
        _ => {}
    }
}

/// Reads a head and chooses the server by its host.
///
/// # Errors
/// The connection broke before a request had arrived.
pub async fn read(
    link: &mut Link,
    client: &Client,
    generation: &Generation,
) -> Result<(Box<RequestHead>, ServerId, Started), WireError> {
    let settings = &generation.settings;
    let entry = client.entry(generation).ok_or(WireError::Closed)?;
    let names = &settings.names[entry];
    let default = client.default_server_at(generation, entry);
    let first = settings.server(default);
    let mut chosen: Option<ServerId> = None;
    let mut choose = |host: &[u8]| -> Option<HeadLimits> {
        let NamedServer { server, .. } = names.find(host).ok()??;
        chosen = Some(server);
        Some(settings.server(server).limits)
    };
    let timeout = first.settings.client_header_timeout.duration();
    let timeout = match client.requests.get() {
        0 => left_since_accept(client, timeout),
        _ => timeout,
    };
    let outcome = {
        let Link { wire, place, .. } = link;
        let reading = pin!(wire.read_head(&first.limits, timeout, &mut choose));
        place.wait_for(Waiting::Head, reading).await
    };
    let Some(outcome) = outcome else {
        client.log(generation, Level::Info, REUSED);
        return Err(WireError::Closed);
    };
    // As in nginx: a host without a server is the address' default server's, whatever name the handshake was for.
    let named = |chosen: Option<ServerId>| {
        chosen.unwrap_or_else(|| settings.listens.entries()[entry].default)
    };
    match outcome {
        Ok(head) => {
            let server = match head.host() {
                Some(_) => named(chosen),
                None => named(names.nameless()),
            };
            Ok((head, server, Started::Fresh))
        }
        Err(WireError::Refused(refusal)) => {
            let server = match refusal.head.host() {
                Some(_) => named(chosen),
                None if refusal.is_whole => named(names.nameless()),
                None => default,
            };
            let reply = match (refusal.is_silent, refusal.must_linger) {
                (true, _) => Reply::Nothing,
                (false, true) => Reply::ResponseAndLinger,
                (false, false) => Reply::Response,
            };
            let start = Started::Refused(Box::new(Refusal {
                status: refusal.status,
                why: refusal.why,
                level: Level::Info,
                reply,
            }));
            Ok((Box::new(refusal.head), server, start))
        }
        Err(error) => {
            tell_lost(client, generation, &error);
            Err(error)
        }
    }
}
