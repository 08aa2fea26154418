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

fn judge(request: &Request, client: &ClientTls, server: &ServerTls) -> Option<u16> {
    match client.verdict.get() {
        Verdict::Failed(reason)
            if server.verify != VerifyClient::OptionalNoCa || !reason.is_optional() =>
        {
            let what = "client SSL certificate verify error:";
            let sentence = match reason.is_status() {
                true => format!("{what} {reason}"),
                false => format!("{what} ({}:{reason})", reason.number()),
            };
            tell(request, &sentence);
            Some(495)
        }
        Verdict::None if server.verify == VerifyClient::On => {
            tell(request, "client sent no required SSL certificate");
            Some(496)
        }
        _ => None,
    }
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
    // As in nginx: an address with one server has one set of rules, whatever the names.
    if settings.names[entry].are_all_of(settings.listens.entries()[entry].default) {
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
