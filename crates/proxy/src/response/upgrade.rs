//! The tunnel behind a 101, or behind the 200 of a CONNECT: bytes in both directions until one side has closed; a client's stream of HTTP/2 may
//! end before what is for it does.
//!
//! Knows nothing of their meaning. Invariant: at most one piece of each direction is held; it is sent before more is
//! read.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use logs::Level;
use wire::{Stream, call_failed};

use httpcore::transport::{ClientSide, Tunnel, TunnelEnd, TunnelOutcome};

use crate::response::response_body::BodyStream;
use crate::upstream_request::log_context::LogContext;
use crate::upstream_request::request::shown;

/// The status of a response that is followed by another protocol than HTTP.
pub(crate) const SWITCHING: u16 = 101;
const ACTION: &str = "proxying upgraded connection";

/// The server's side of a connection that has switched protocols.
pub(crate) struct SwitchedUpstream {
    server: Stream,
    /// The data that followed the response's head.
    early: Vec<u8>,
    /// Holds the peer, and records the attempt.
    behind: Box<dyn TunnelUpstream>,
}

/// The attempt that opened a tunnel. Gives the peer back when it is dropped.
pub(crate) trait TunnelUpstream {
    /// The request, for log lines.
    fn context(&self) -> &LogContext;
    /// The server, as the log names it.
    fn shown(&self) -> Vec<u8>;
    /// Maximum time without data.
    fn patience(&self) -> TunnelTimeouts;
    /// Called when it is over, with the bytes sent to the server and received from it.
    fn count(&mut self, sent: u64, received: u64);
}

/// The idle timeouts of a tunnel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TunnelTimeouts {
    /// Maximum time without data from either side.
    pub silence: Duration,
    /// Maximum time for which the server takes none of the data for it.
    pub taking: Duration,
}

impl TunnelTimeouts {
    /// Maximum time for which the server may do nothing.
    fn of_server(self, to_server: &Direction) -> Duration {
        match to_server.held.is_empty() {
            true => self.silence,
            false => self.silence.min(self.taking),
        }
    }
}

/// An end of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// What ends a tunnel before either side has.
enum Fault {
    /// Nothing has moved for too long, because of this end.
    Silence(Side),
    /// The call that failed, and the end that it was for.
    Failed(Side, &'static str, io::Error),
}

/// One direction.
struct Direction {
    to: Side,
    held: Vec<u8>,
    /// Bytes sent of the data that is held.
    gone: usize,
    is_closed: bool,
    /// Bytes that were read, without the early data.
    read: u64,
    /// Bytes that were sent.
    sent: u64,
}

impl SwitchedUpstream {
    /// A tunnel to a server that has sent `early` already.
    #[must_use]
    pub(crate) fn new(server: Stream, early: Vec<u8>, behind: Box<dyn TunnelUpstream>) -> Self {
        Self {
            server,
            early,
            behind,
        }
    }

    /// The tunnel behind a head.
    #[must_use]
    pub(crate) fn of(mut stream: BodyStream) -> Option<Self> {
        let taken = stream.take_tunnel();
        let behind = Box::new(SwitchedAttempt(stream));
        let (server, early) = taken?;
        Some(Self::new(server, early, behind))
    }
}

impl Tunnel for SwitchedUpstream {
    fn run<'a>(
        self: Box<Self>,
        client: ClientSide<'a>,
    ) -> Pin<Box<dyn Future<Output = TunnelOutcome> + 'a>> {
        Box::pin(run(self, client))
    }
}

/// Runs the tunnel to its end.
async fn run(mut tunnel: Box<SwitchedUpstream>, side: ClientSide<'_>) -> TunnelOutcome {
    let patience = tunnel.behind.patience();
    let client_takes = side.patience;
    let mut to_client = Direction::new(Side::Client, std::mem::take(&mut tunnel.early));
    let mut to_server = Direction::new(Side::Server, side.early);
    let (client, timer, owner) = (&side.stream, side.timer, side.owner);
    let server = &tunnel.server;
    let mut has_ended = false;
    let mut awaited = Side::Server;
    timer.arm(patience.silence);
    let outcome = poll_fn(|cx| {
        let moved = to_client.moved() + to_server.moved();
        // In turns: one that never stops must not use up the time of the other.
        while to_client.pump(server, client, &owner, cx)?
            | to_server.pump(client, server, &owner, cx)?
        {}
        if to_client.is_over() || (to_server.is_over() && !client.ends_apart()) {
            return Poll::Ready(Ok(()));
        }
        if to_server.is_over() {
            if !std::mem::replace(&mut has_ended, true) {
                server.close_notify();
                let ended = server.shutdown_write();
                ended.map_err(|error| Fault::Failed(Side::Server, "shutdown", error))?;
            }
            let checked = check(client, &owner, cx);
            checked.map_err(|error| Fault::Failed(Side::Client, "recv", error))?;
        }
        if to_client.moved() + to_server.moved() > moved {
            let of_server = patience.of_server(&to_server);
            let is_client = !to_client.held.is_empty() && client_takes <= of_server;
            let limit;
            (awaited, limit) = match is_client {
                true => (Side::Client, client_takes),
                false => (Side::Server, of_server),
            };
            timer.arm(limit);
        }
        ready!(timer.poll_expired(cx));
        Poll::Ready(Err(Fault::Silence(awaited)))
    })
    .await;
    timer.disarm();
    tunnel.behind.count(to_server.sent, to_client.read);
    if let Err(fault) = &outcome {
        log(&*tunnel.behind, fault);
    }
    TunnelOutcome {
        sent: to_client.sent,
        has_client_timed_out: matches!(outcome, Err(Fault::Silence(Side::Client))),
    }
}

/// Notices that a client that sends nothing more has left.
fn check(client: &impl TunnelEnd, owner: &wire::Loop, cx: &mut Context<'_>) -> io::Result<()> {
    match client.read_into(&mut Vec::new(), owner) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => match client.poll_readable(cx) {
            Poll::Ready(Err(error)) => Err(error),
            _ => Ok(()),
        },
    }
}

fn log(behind: &dyn TunnelUpstream, fault: &Fault) {
    // As in nginx a connection that says nothing for long is no error, nor is a client that leaves.
    let (level, what) = match fault {
        Fault::Silence(side) => {
            let who = match side {
                Side::Client => "client",
                Side::Server => "upstream",
            };
            let what = format!("{who} timed out (110: Connection timed out)");
            (Level::Info, what)
        }
        Fault::Failed(side, call, error) => {
            let level = match side {
                Side::Client => Level::Info,
                Side::Server => Level::Error,
            };
            (level, call_failed(call, error))
        }
    };
    let context = behind.context();
    context.log(level, &what, ACTION, &behind.shown());
}

/// The attempt whose server has switched protocols.
struct SwitchedAttempt(BodyStream);

impl TunnelUpstream for SwitchedAttempt {
    fn context(&self) -> &LogContext {
        &self.0.upstream_request().context
    }

    fn shown(&self) -> Vec<u8> {
        shown(self.0.peer(), self.0.upstream_request())
    }

    fn patience(&self) -> TunnelTimeouts {
        let settings = &self.0.upstream_request().passing.groups.asking;
        TunnelTimeouts {
            silence: settings.proxy_read_timeout.duration(),
            taking: settings.proxy_send_timeout.duration(),
        }
    }

    fn count(&mut self, sent: u64, received: u64) {
        self.0.count_tunnel(sent, received);
    }
}

impl Drop for SwitchedAttempt {
    fn drop(&mut self) {
        self.0.end_tunnel();
    }
}

impl Direction {
    fn new(to: Side, early: Vec<u8>) -> Direction {
        Direction {
            to,
            held: early,
            gone: 0,
            is_closed: false,
            read: 0,
            sent: 0,
        }
    }

    fn moved(&self) -> u64 {
        self.read + self.sent
    }

    /// Whether its source has closed and all data was sent.
    fn is_over(&self) -> bool {
        self.is_closed && self.held.is_empty()
    }

    /// A failure of the end that is read.
    fn reading(&self, error: io::Error) -> Fault {
        let from = match self.to {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        };
        Fault::Failed(from, "recv", error)
    }

    /// A failure of the end that is written to.
    fn writing(&self, error: io::Error) -> Fault {
        Fault::Failed(self.to, "send", error)
    }

    /// Moves a piece, if that needs no waiting. Returns whether there is more.
    fn pump(
        &mut self,
        from: &impl TunnelEnd,
        to: &impl TunnelEnd,
        owner: &wire::Loop,
        cx: &mut Context<'_>,
    ) -> Result<bool, Fault> {
        while !self.held.is_empty() {
            match to.try_write(&self.held[self.gone..]) {
                Ok(count) => self.sent_more(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match to.poll_writable(cx) {
                        Poll::Pending => return Ok(false),
                        Poll::Ready(ready) => ready.map_err(|error| self.writing(error))?,
                    }
                }
                Err(error) => return Err(self.writing(error)),
            }
        }
        if self.is_closed {
            return Ok(false);
        }
        match from.read_into(&mut self.held, owner) {
            Ok(0) => self.is_closed = true,
            Ok(count) => self.read += count as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                match from.poll_readable(cx) {
                    Poll::Pending => return Ok(false),
                    Poll::Ready(ready) => ready.map_err(|error| self.reading(error))?,
                }
            }
            Err(error) => return Err(self.reading(error)),
        }
        Ok(true)
    }

    fn sent_more(&mut self, count: usize) {
        self.sent += count as u64;
        self.gone += count;
        if self.gone == self.held.len() {
            self.held = Vec::new(); // an idle tunnel holds no buffer
            self.gone = 0;
        }
    }
}
