//! A client's connection: request after request, until one side ends it.
//!
//! Not here: what a request means ([`crate::steps`]), bytes on the socket (`wire`). Invariant: between two requests a
//! connection holds no buffer and no request; everything of a request is in one box that goes with it.

pub mod client;
pub mod directives;
mod finish;
pub mod panic_guard;
pub mod post_action;
pub mod proxy_protocol;
mod send;
mod send_error;
mod send_file;
mod tunnel;

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use logs::Level;
use message::RequestHead;
use runtime::timing::current_request;
use runtime::{Accepted, Idle, Loop, Seat, Serving, Waiting};
use wire::http1::request_parser::Limits;
use wire::{Error as WireError, Stream, turn};

use crate::generation::Generation;
use crate::http_loop::HttpLoop;
use crate::outcome::Start;
use crate::request::Request;
use crate::responder::Responder;
use crate::route::{NamedServer, ServerId};
use crate::status_zone::{self, Running};
use crate::transport::http1::Link;
use crate::transport::{Http1, Transport};

pub use client::{Client, Scheme};
use finish::After;
pub use send::TOGETHER_MAX;
pub use tunnel::Tunnel;

/// Logged status of a client that did not send what it announced.
const TIMED_OUT: u16 = 408;

/// Serves a connection to its end. A panic ends only this connection, with one line that names the client.
pub fn serve<R: Responder>(loop_: Rc<Loop>, http: Rc<HttpLoop>, accepted: Accepted) -> Serving {
    let Accepted {
        seat,
        socket,
        peer,
        listener,
        number,
    } = accepted;
    let Ok(stream) = Stream::from_accepted(socket, peer.is_some()) else {
        return Box::pin(async {});
    };
    let local = stream.local_addr().ok().flatten();
    let link = Link {
        wire: wire::Connection::new(stream, &loop_.wire),
        place: loop_.idle.place(),
    };
    let client = Rc::new(Client::new(loop_, http, number, peer, local, listener));
    // An idle connection is this block and what it holds: no value is in it twice.
    Box::pin(async move {
        let run = pin!(run::<R>(&client, seat, link));
        if let Err(words) = panic_guard::guard(&client, run).await {
            let text = format!("{words}, the connection is closed");
            client.log(&client.http.generation(), Level::Alert, &text);
        }
    })
}

#[expect(
    clippy::manual_async_fn,
    reason = "an `async fn` would hold its arguments twice as long as the connection lives"
)]
fn run<R: Responder>(client: &Rc<Client>, seat: Seat, mut link: Link) -> impl Future<Output = ()> {
    async move {
        // Boxed: few connections begin so.
        if proxy_protocol::is_due(client)
            && !Box::pin(proxy_protocol::read(&mut link, client)).await
        {
            return close(seat, link);
        }
        let mut keepalive = None;
        while wait(&mut link, client, keepalive).await {
            // A reload may have come in the meantime.
            let generation = client.http.generation();
            let left = Box::pin(exchange::<R>(link, Rc::clone(client), generation)).await;
            let Some(left) = left else {
                return;
            };
            link = left.link;
            keepalive = left.keepalive;
            if keepalive.is_none() {
                break;
            }
        }
        close(seat, link);
    }
}

/// Closes the connection after it was removed from the counters: a client that sees the close may ask for them, on
/// another loop.
fn close(seat: Seat, link: Link) {
    drop(seat);
    drop(link);
}

/// The connection, after the rest of a request was dropped.
struct Left {
    link: Link,
    /// Maximum time that it waits for the next request; `None`: it is closed.
    keepalive: Option<Duration>,
}

impl Left {
    fn to_close(link: Link) -> Self {
        Self {
            link,
            keepalive: None,
        }
    }
}

/// Waits for the first byte of a request; `false`: the connection is over.
async fn wait(link: &mut Link, client: &Client, keepalive: Option<Duration>) -> bool {
    let Link { wire, place } = link;
    if wire.has_unread() {
        turn::go_on().await;
        current_request::another();
        return true;
    }
    let (idle, timeout): (Idle, Duration) = match keepalive {
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
            &client.http.generation(),
            Level::Info,
            "client timed out (110: Connection timed out) while waiting for request",
        );
    }
    outcome.is_ok()
}

/// Maximum time that a new connection may stay silent; `None`: a reload removed its address.
fn first_timeout(client: &Client) -> Option<Duration> {
    let generation = client.http.generation();
    let settings = &generation.settings;
    let entry = client.entry(&generation)?;
    let server = settings.server(settings.listens.entries()[entry].default);
    Some(server.settings.client_header_timeout.duration())
}

/// Reads a request, answers it, and tidies up. Returns the connection, which is not closed before the metrics stop
/// counting the request.
#[expect(
    clippy::manual_async_fn,
    reason = "an `async fn` would hold its arguments twice, and this is allocated for every request"
)]
fn exchange<R: Responder>(
    mut link: Link,
    client: Rc<Client>,
    generation: Rc<Generation>,
) -> impl Future<Output = Option<Left>> {
    async move {
        let mut counted = Counted::begin(&client.loop_);
        let is_pipelined = link.wire.has_unread();
        let (head, server, start) = match read(&mut link, &client, &generation).await {
            Ok(read) => read,
            Err(error) => {
                tell_lost(&client, &generation, &error);
                return Some(Left::to_close(link));
            }
        };
        client.requests.set(client.requests.get() + 1);
        counted.answer();
        current_request::begin(head.line());
        let transport = Transport::Http1(Http1::new(link, &head, is_pipelined));
        let mut request = Request::new(transport, client, generation, head, server);
        counted.zone = status_zone::begin(&request);
        request.capture_server_name();
        tell_dropped(&request);
        let mut refused = After::close();
        let response = match start {
            Started::Fresh => match R::respond(&mut request, Start::Fresh).await {
                Some(response) if finish::must_judge(&request) => {
                    Box::pin(finish::judge::<R>(&mut request, response)).await
                }
                response => response,
            },
            Started::Refused {
                status,
                why,
                must_linger,
            } => {
                request.log(Level::Info, &|out| out.extend_from_slice(why.as_bytes()));
                refused = After::Close {
                    must_linger,
                    is_timeout: false,
                };
                Box::pin(R::respond(&mut request, Start::Refused(status))).await
            }
            Started::Silent { status, why } => {
                request.log(Level::Info, &|out| out.extend_from_slice(why.as_bytes()));
                request.silent_status = Some(status);
                refused = After::timed_out();
                None
            }
        };
        if request.body.is_streamed() && !request.transport.is_body_over() {
            request.transport.close_after_response();
        }
        let after = match response {
            Some(response) => match send::start(&mut request, response) {
                send::Started::Done(after) => after,
                send::Started::Left(left) => Box::pin(send::go_on(&mut request, left)).await,
            },
            None if request.silent_status == Some(TIMED_OUT) => After::timed_out(),
            None => refused,
        };
        let after = if after == After::close() {
            refused
        } else {
            after
        };
        finish::finish::<R>(request, after).await
    }
}

/// A connection between the first byte of a request and its end, as the metrics count it.
struct Counted {
    loop_: Rc<Loop>,
    is_answering: bool,
    zone: Option<Running>,
}

impl Counted {
    fn begin(loop_: &Rc<Loop>) -> Self {
        loop_.figures.in_exchange.add(1);
        Self {
            loop_: Rc::clone(loop_),
            is_answering: false,
            zone: None,
        }
    }

    /// Called when the head has arrived.
    fn answer(&mut self) {
        self.is_answering = true;
        self.loop_.figures.requests.add(1);
        self.loop_.figures.answering.add(1);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let figures = &self.loop_.figures;
        figures.answering.sub(u64::from(self.is_answering));
        figures.in_exchange.sub(1);
    }
}

/// Logs that the connection broke before a request had arrived.
fn tell_lost(client: &Client, generation: &Generation, error: &WireError) {
    if let WireError::Io(error) = error {
        let text = format!("recv() failed ({error}) while reading client request");
        client.log(generation, Level::Info, &text);
    }
}

/// Logs which header lines are ignored.
fn tell_dropped(request: &Request) {
    for line in &request.head.dropped {
        request.log(Level::Info, &|out| {
            out.extend_from_slice(b"client sent invalid header line: \"");
            out.extend_from_slice(request.head.text(*line));
            out.extend_from_slice(b"\" while reading client request headers");
        });
    }
}

/// The result of reading a request's head.
pub enum Started {
    /// A valid request.
    Fresh,
    /// A request that is refused with this status.
    Refused {
        /// The status.
        status: u16,
        /// The reason, for the log.
        why: String,
        /// Whether more of it is likely to arrive.
        must_linger: bool,
    },
    /// A request that gets no response; the log shows this status.
    Silent {
        /// The status.
        status: u16,
        /// The reason, for the log.
        why: String,
    },
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
    let default = settings.listens.entries()[entry].default;
    let first = settings.server(default);
    let mut chosen: Option<ServerId> = None;
    let mut choose = |host: &[u8]| -> Option<Limits> {
        let NamedServer { server, .. } = names.find(host)?;
        chosen = Some(server);
        Some(settings.server(server).limits)
    };
    let timeout = first.settings.client_header_timeout.duration();
    let outcome = {
        let Link { wire, place } = link;
        let reading = pin!(wire.read_head(&first.limits, timeout, &mut choose));
        place.wait_for(Waiting::Head, reading).await
    };
    let Some(outcome) = outcome else {
        let text = "reusing connection while reading client request headers";
        client.log(generation, Level::Info, text);
        return Err(WireError::Closed);
    };
    match outcome {
        Ok(head) => {
            let server = match head.host() {
                Some(_) => chosen,
                None => names.find(b"").map(|named| named.server),
            };
            Ok((head, server.unwrap_or(default), Started::Fresh))
        }
        Err(WireError::Refused(refusal)) => {
            let server = match refusal.head.host() {
                None if refusal.is_whole => names.find(b"").map(|named| named.server),
                _ => chosen,
            };
            let start = if refusal.is_silent {
                Started::Silent {
                    status: refusal.status,
                    why: refusal.why,
                }
            } else {
                Started::Refused {
                    status: refusal.status,
                    why: refusal.why,
                    must_linger: refusal.must_linger,
                }
            };
            Ok((Box::new(refusal.head), server.unwrap_or(default), start))
        }
        Err(error) => Err(error),
    }
}
