//! What the input of a connection says, and what becomes of it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use logs::Level;
use wire::http1::request_parser::{HeadLimits, HeadRefusal};
use wire::http2::{Event, Reason, ResetCause, StreamKey};

use crate::client::Client;
use crate::connection::answer::{Refusal, Reply, Started};
use crate::http_loop::generation::Generation;
use crate::route::{NamedServer, ServerId};
use crate::transport::http2::{Http2Connection, Rest};

use super::figures::{Http2Counters, Reset};
use super::request::Opened;

/// The action of all log lines of a connection.
const ACTION: &str = "while processing HTTP/2 connection";

/// The status of a request to a server that does not speak the protocol of its connection.
const MISDIRECTED: u16 = 421;

/// The reason why the input was not used to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    /// The rest is the beginning of a frame.
    Partial,
    /// As many requests were begun as may be in one turn, or it is over.
    Turn,
    /// The connection is broken.
    Broken,
}

/// The input of one turn, on its way into the streams.
pub(super) struct Input<'a> {
    pub(super) connection: &'a Rc<Http2Connection>,
    pub(super) client: &'a Client,
    pub(super) generation: &'a Generation,
    /// The entry of the listening table.
    pub(super) entry: usize,
    /// The server of requests whose host no server has.
    pub(super) default: ServerId,
    pub(super) now_ms: u64,
    /// When the bytes had been read (CLOCK_MONOTONIC, ns).
    pub(super) moment: u64,
    /// The requests that were opened.
    pub(super) opened: &'a mut VecDeque<Opened>,
    /// Whether the last of the events begins or continues a request, and does not end it.
    pub(super) awaits_rest: bool,
}

impl Input<'_> {
    /// Takes the events of `bytes`; returns how many of these were used, and why no more.
    pub(super) fn take(&mut self, bytes: &[u8]) -> (usize, Pause) {
        let settings = &self.generation.settings;
        let names = &settings.names[self.entry];
        let chosen: Cell<Option<ServerId>> = Cell::new(None);
        let mut choose = |host: &[u8]| -> Option<HeadLimits> {
            let NamedServer { server, .. } = names.find(host).ok()??;
            chosen.set(Some(server));
            Some(settings.server(server).limits)
        };
        let mut used = 0;
        loop {
            let (count, event) = self
                .connection
                .with_session(|session| session.receive(&bytes[used..], self.now_ms, &mut choose));
            used += count;
            match event {
                Event::Partial => return (used, Pause::Partial),
                Event::TurnEnds => return (used, Pause::Turn),
                Event::Request(key, head, is_whole) => {
                    wire::turn::spend(head.bytes.len());
                    self.awaits_rest = !is_whole;
                    self.connection.open(key, is_whole);
                    let server = self.server(head.host().is_some(), chosen.take());
                    let start = self.start(key, server);
                    self.opened.push_back(Opened {
                        key,
                        head,
                        server,
                        start,
                        moment: self.moment,
                    });
                }
                Event::Refused(key, refusal, reason) => {
                    let opened = self.refused(key, refusal, reason, chosen.take());
                    self.opened.push_back(opened);
                }
                Event::Unopened(id, reason) => {
                    // Its head was decoded, however large.
                    wire::turn::spend_time();
                    self.unopened(id, reason);
                }
                Event::Data(key, data, is_last) => {
                    wire::turn::spend(data.len());
                    self.awaits_rest = !is_last;
                    self.connection.take_data(key, data, is_last);
                }
                // Nothing here asks for trailers.
                Event::Trailers(key, _) => {
                    self.awaits_rest = false;
                    self.connection.end_body(key, Rest::Nothing);
                }
                Event::Malformed(key, reason) => {
                    self.counters().resets[Reset::Fault as usize].add(1);
                    self.tell(reason);
                    self.connection.end_body(key, Rest::Malformed);
                }
                Event::Reset(key, cause) => self.reset(key, cause),
                Event::Closed(reason) => {
                    self.broken(reason);
                    return (used, Pause::Broken);
                }
                Event::Response(..) | Event::GoAway(..) | Event::Pong(_) => {}
            }
            if used < bytes.len() && !wire::turn::may_go_on() {
                return (used, Pause::Turn);
            }
        }
    }

    /// The server of a request, by its host. As in nginx: a host without a server is the address' default server's,
    /// whatever name the handshake was for.
    fn server(&self, has_host: bool, chosen: Option<ServerId>) -> ServerId {
        let settings = &self.generation.settings;
        let server = match has_host {
            true => chosen,
            false => settings.names[self.entry].nameless(),
        };
        server.unwrap_or_else(|| settings.listens.entries()[self.entry].default)
    }

    /// A request is answered, unless its server speaks no HTTP/2.
    fn start(&self, key: StreamKey, server: ServerId) -> Started {
        let settings = &self.generation.settings;
        let of_address = settings.listens.entries()[self.entry].protocols;
        if of_address.has_http2 || settings.server(server).http2.http2 {
            return Started::Fresh;
        }
        self.connection.with_session(|session| session.discard(key));
        self.connection.end_body(key, Rest::Nothing);
        let why = "client attempted to request the server name for which the negotiated protocol is disabled";
        refused(MISDIRECTED, why.to_owned())
    }

    fn refused(
        &self,
        key: StreamKey,
        refusal: Box<HeadRefusal>,
        reason: Reason,
        chosen: Option<ServerId>,
    ) -> Opened {
        wire::turn::spend(refusal.head.bytes.len());
        // It is reset a while after its answer.
        let is_reset = reason.is_malformed();
        self.counters().resets[Reset::Fault as usize].add(u64::from(is_reset));
        self.connection.open(key, true);
        let HeadRefusal {
            status,
            why,
            head,
            is_whole,
            ..
        } = *refusal;
        let has_host = head.host().is_some();
        let server = match has_host || is_whole {
            true => self.server(has_host, chosen),
            false => self.default,
        };
        Opened {
            key,
            server,
            head: Box::new(head),
            start: refused(status, why),
            moment: self.moment,
        }
    }

    fn unopened(&self, id: u32, reason: Reason) {
        self.counters().resets[Reset::Refused as usize].add(1);
        self.log(&format!("client {reason}, stream {id} is refused"));
    }

    fn counters(&self) -> &Http2Counters {
        self.client.loop_.figures.of::<Http2Counters>()
    }

    fn reset(&self, key: StreamKey, cause: ResetCause) {
        let counters = self.counters();
        match cause {
            ResetCause::Peer(code) => {
                counters.resets[Reset::Client as usize].add(1);
                let id = key.id();
                let text = match code.0 {
                    0 | 8 => format!("client canceled stream {id}"),
                    2 => format!("client terminated stream {id} due to internal error"),
                    code => format!("client terminated stream {id} with status {code}"),
                };
                self.log(&text);
            }
            ResetCause::Fault(reason) => {
                counters.resets[Reset::Fault as usize].add(1);
                self.tell(reason);
            }
            ResetCause::Unprocessed => {}
        }
        self.connection.close_stream(key);
    }

    fn broken(&self, reason: Reason) {
        self.counters().faults[reason as usize].add(1);
        match reason {
            Reason::Flood => self.log("http2 flood detected"),
            Reason::Preface => self.log("invalid connection preface"),
            reason => self.tell(reason),
        }
    }

    fn tell(&self, reason: Reason) {
        self.log(&format!("client {reason}"));
    }

    fn log(&self, text: &str) {
        let text = format!("{text} {ACTION}");
        self.client.log(self.generation, Level::Info, &text);
    }
}

/// Logs how a connection ended.
pub(super) fn log_end(client: &Client, text: &str) {
    let text = format!("{text} {ACTION}");
    client.log(&client.generation(), Level::Info, &text);
}

fn refused(status: u16, why: String) -> Started {
    Started::Refused(Box::new(Refusal {
        status,
        why,
        level: Level::Info,
        reply: Reply::Response,
    }))
}
