//! What a request needs of its connection's TLS: TLS at all, a certificate that its server takes, and the server that was
//! asked for in the handshake.
//!
//! Not here: what a certificate is worth ([`crate::connection`], judged in the handshake). Invariant: a server with
//! `ssl_verify_client` gets no request whose certificate was judged by another server's rules.

use logs::Level;
use tls::verify::Verdict;

use crate::request::Request;
use crate::tls::directives::VerifyClient;
use crate::tls::{ClientTls, ServerTls};

/// The status that the request is refused with, nginx's own ones included; `None`: it goes on.
#[inline]
#[must_use]
pub fn refused(request: &Request) -> Option<u16> {
    match request.client.tls() {
        None if !request.client.is_plain_on_tls() => None,
        None => {
            tell(request, "client sent plain HTTP request to HTTPS port");
            Some(497)
        }
        Some(client) => {
            let server = request.server().tls.as_deref();
            let server = server.filter(|server| server.verify != VerifyClient::Off)?;
            judge(request, client, server)
        }
    }
}

fn judge(request: &Request, client: &ClientTls, server: &ServerTls) -> Option<u16> {
    if is_misdirected(request, client) {
        tell(
            request,
            "client attempted to request the server name different from the one that was negotiated",
        );
        return Some(421);
    }
    match client.verdict {
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
    let (Some(asked), Some(host)) = (client.hello.server_name.as_deref(), request.head.host())
    else {
        return false;
    };
    let entry = request.client.entry(&request.generation);
    let is_known = |entry| settings.server_of_name(entry, Some(asked)).is_some();
    let is_same = || message::host::parse(asked).is_ok_and(|asked| *asked.name == *host);
    entry.is_some_and(is_known) && !is_same()
}

fn tell(request: &Request, sentence: &str) {
    request.log_reading(Level::Info, &|out| {
        out.extend_from_slice(sentence.as_bytes());
    });
}
