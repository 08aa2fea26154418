//! Which protocol a client speaks: the one chosen in the handshake of TLS, else what its first bytes say.

use std::pin::pin;
use std::time::Duration;

use logs::process_log::Level;
use runtime::loops::Waiting;
use wire::http2::session::PREFACE;

use crate::client::Client;
use crate::connection::http1;
use crate::transport::http1::Link;

const INVALID_PREFACE: &str = "client sent neither a request of HTTP/1 nor the preface of HTTP/2";

/// A connection, by the protocol that its client speaks.
pub enum Spoken {
    /// HTTP/1.
    Http1(Box<Link>),
    /// HTTP/2.
    Http2(Box<Link>),
    /// None: the connection is over.
    Nothing(Box<Link>),
}

/// Whether a client may speak HTTP/2: the default server of its address lets it, or it has chosen so.
pub fn may_come(client: &Client) -> bool {
    if let Some(tls) = client.tls() {
        return tls.facts.alpn.as_deref() == Some(b"h2");
    }
    if client.is_plain_on_tls() {
        return false;
    }
    let generation = client.generation();
    let settings = &generation.settings;
    client.entry(&generation).is_some_and(|entry| {
        let entry = &settings.listens.entries()[entry];
        entry.protocols.has_http2 || settings.server(entry.default).http2.http2
    })
}

/// Finds out what a client speaks that may speak HTTP/2. Of an HTTP/1 client the bytes that it has sent are kept.
pub async fn detect(mut link: Box<Link>, client: &Client) -> Spoken {
    if client.tls().is_some() {
        return Spoken::Http2(link);
    }
    if !http1::wait(&mut link, client, None).await {
        return Spoken::Nothing(link);
    }
    let begins = {
        let Link { wire, place, .. } = &mut *link;
        let reading = pin!(wire.begins_with(PREFACE, timeout(client)));
        place.wait_for(Waiting::Head, reading).await
    };
    match begins {
        Some(Ok(true)) => Spoken::Http2(link),
        Some(Ok(false)) if link.wire.first_line().is_some_and(is_of_neither) => {
            client.log(&client.generation(), Level::Info, INVALID_PREFACE);
            Spoken::Nothing(link)
        }
        // What has come is judged as the beginning of a request.
        Some(Ok(false) | Err(_)) if link.wire.has_unread() => Spoken::Http1(link),
        Some(Ok(false) | Err(_)) => Spoken::Nothing(link),
        None => {
            client.log(&client.generation(), Level::Info, http1::REUSED);
            Spoken::Nothing(link)
        }
    }
}

/// Whether a first line begins neither protocol: three words and more, and no version of HTTP among them. It is taken
/// for a broken preface: the connection ends without GOAWAY (RFC 9113 §3.4). A request of HTTP/0.9 has two words.
fn is_of_neither(line: &[u8]) -> bool {
    let words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    words.count() > 2 && memchr::memmem::find(line, b"HTTP/").is_none()
}

/// `client_header_timeout` of the default server.
pub(super) fn timeout(client: &Client) -> Duration {
    let generation = client.generation();
    let server = client.default_server(&generation);
    server.map_or(Duration::ZERO, |server| {
        let server = generation.settings.server(server);
        server.settings.client_header_timeout.duration()
    })
}
