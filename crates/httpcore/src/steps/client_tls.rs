//! What a request needs of its connection's TLS: TLS at all, a certificate that its server takes, and the server that was
//! asked for in the handshake.
//!
//! Not here: what a certificate is worth ([`crate::connection`], judged in the handshake, and again behind a reload).
//! Invariant: a server with `ssl_verify_client` gets no request whose certificate was judged by another server's rules.

use std::rc::Rc;

use logs::Level;
use tls::verify::Verdict;

use crate::request::Request;
use crate::tls::directives::VerifyClient;
use crate::tls::{ClientTls, ServerTls};

const MISDIRECTED: u16 = 421;

/// The status that the request is refused with, nginx's own ones included; `None`: it goes on.
#[inline]
#[must_use]
pub fn refused(request: &mut Request) -> Option<u16> {
    match request.client.tls() {
        None if !request.client.is_plain_on_tls() => None,
        None => {
            tell(request, "client sent plain HTTP request to HTTPS port");
            Some(497)
        }
        Some(client) => {
            let server = request.server().tls.as_deref();
            let server = server.filter(|server| server.verify != VerifyClient::Off)?;
            if !is_misdirected(request, client) {
                return judge(request, client, server);
            }
            tell(
                request,
                "client attempted to request the server name different from the one that was negotiated",
            );
            leave(request);
            // As in nginx; over HTTP/2 its stream ends.
            request.transport.close_after_response();
            Some(MISDIRECTED)
        }
    }
}

/// What a client is told that was not judged for the server it asks for is the negotiated server's, as in nginx.
fn leave(request: &mut Request) {
    let generation = Rc::clone(&request.generation);
    if let Some(server) = request.client.default_server(&generation) {
        request.server = server;
        request.enter(generation.settings.server(server).location);
    }
}

/// What a client's certificate is worth at a server. As in nginx a client that is refused may show another one next time:
/// its session is not taken up.
fn judge(request: &Request, client: &ClientTls, server: &ServerTls) -> Option<u16> {
    let (status, sentence) = match client.verdict.get() {
        Verdict::Failed(reason)
            if server.verify != VerifyClient::OptionalNoCa || !reason.is_optional() =>
        {
            let what = "client SSL certificate verify error:";
            let sentence = match reason.is_status() {
                true => format!("{what} {reason}"),
                false => format!("{what} ({}:{reason})", reason.number()),
            };
            (495, sentence)
        }
        Verdict::None if server.verify == VerifyClient::On => {
            let sentence = "client sent no required SSL certificate";
            (496, sentence.to_owned())
        }
        _ => return None,
    };
    tell(request, &sentence);
    client.kept.forget();
    Some(status)
}

/// Whether the handshake was for a server with another name than the request's.
fn is_misdirected(request: &Request, client: &ClientTls) -> bool {
    let settings = &request.generation.settings;
    let Some(asked) = client.hello.server_name.as_deref() else {
        return false;
    };
    let Some(entry) = request.client.entry(&request.generation) else {
        return false;
    };
    // As in nginx: an address with one server has one set of rules, whatever the names; groups of a regex are looked up.
    let is_alone = settings.listens.entries()[entry].servers.len() == 1;
    if is_alone && !settings.names[entry].end_with_groups() {
        return false;
    }
    let is_known = settings.server_of_name(entry, Some(asked)).is_some();
    let is_same = || {
        let host = request.head.host();
        message::host::parse(asked).is_ok_and(|asked| host.is_some_and(|host| *asked.name == *host))
    };
    is_known && !is_same()
}

fn tell(request: &Request, sentence: &str) {
    request.log_reading(Level::Info, &|out| {
        out.extend_from_slice(sentence.as_bytes());
    });
}
