//! What `--explain-url https://…` says of TLS: which certificate the client is shown, and why.
//!
//! Not here: the handshake itself, which no explanation runs. Invariant: the choice is the one that handshakes make
//! (`Settings::server_of_name`, and the default server's certificate where the named one has none).

use std::cell::Cell;
use std::rc::Rc;

use config::Directive;
use httpcore::client::Client;
use httpcore::request::Request;
use httpcore::route::ServerId;
use httpcore::settings::Settings;
use httpcore::tls::certificate_metrics::first_name;
use httpcore::tls::{ClientTls, Rules};
use logs::wall_clock::Moment;
use tls::handshake::Facts;
use tls::hello::Hello;
use tls::sessions::KeptSessions;
use tls::verify::Verdict;
use tls::x509::certificate::Certificate;
use tls::x509::time;

use super::lines::{self, Lines};
use super::report::Report;

/// The version that a client of today speaks: TLS 1.3 (RFC 8446).
const VERSION: u16 = 0x0304;
/// The suite that is chosen then: TLS_AES_256_GCM_SHA384.
const CIPHER: u16 = 0x1302;

/// Has the client speak TLS, without a handshake, where its address does.
pub(super) fn begin(
    client: &Client,
    host: &str,
    generation: u64,
    settings: &Settings,
    entry: usize,
) {
    let name = host.as_bytes();
    let default = settings.listens.entries()[entry].default;
    let server = settings.server_of_name(entry, Some(name));
    client.set_tls(ClientTls {
        facts: Facts {
            version: VERSION,
            cipher: CIPHER,
            server_name: Some(name.to_vec()),
            ..Facts::default()
        },
        hello: Hello::default(),
        verdict: Cell::new(Verdict::None),
        judged: Cell::new((generation, Rules::default())),
        server: Cell::new((generation, server.unwrap_or(default))),
        is_early: Rc::default(),
        kept: KeptSessions::default(),
    });
}

/// Reports the certificate, and the server that it is of.
pub(super) fn tell(request: &Request, is_https: bool, lines: &Lines<'_>, report: &mut Report) {
    let settings = request.settings();
    let Some(entry) = request.client.entry(&request.generation) else {
        return;
    };
    let of_address = &settings.listens.entries()[entry];
    match (is_https, of_address.protocols.has_ssl) {
        (false, false) => return,
        (true, false) => {
            let text =
                "none: no server speaks TLS at this address; the request is taken as in clear";
            return report.say("TLS", text);
        }
        (false, true) => {
            let text =
                "none: this address speaks TLS, and a request in clear gets 400 (error_page 497)";
            return report.say("TLS", text);
        }
        (true, true) => {}
    }
    let tls = request.client.tls();
    let name = tls.and_then(|tls| tls.facts.server_name.as_deref());
    let named = settings.server_of_name(entry, name);
    let server = named.unwrap_or(of_address.default);
    let shows = |id: ServerId| {
        let tls = settings.server(id).tls.as_ref();
        tls.is_some_and(|tls| tls.handshakes.is_some())
    };
    let rejects = |id: ServerId| {
        let tls = settings.server(id).tls.as_ref();
        tls.is_some_and(|tls| tls.rejects)
    };
    let why = match named {
        Some(_) => "of the server whose name the client asks for (SNI)",
        None => "of the default server of this address, since no name is that of the host",
    };
    if rejects(server) {
        let block = block(settings, server, lines);
        let made = block
            .into_iter()
            .flat_map(|block| lines::named(block, &["ssl_reject_handshake"]));
        return report.say_by(
            "TLS",
            "none: the handshake is rejected",
            &made.collect::<Vec<_>>(),
        );
    }
    let (owner, why) = match shows(server) {
        true => (server, why),
        false => (
            of_address.default,
            "of the default server of this address, since the named one has none",
        ),
    };
    let text = match shows(owner) {
        true => format!("{} {why}", certificate(settings, owner)),
        false => "none: there is no certificate, and the handshake fails".to_owned(),
    };
    let made: Vec<_> = block(settings, owner, lines)
        .into_iter()
        .flat_map(|block| lines::named(block, &["ssl_certificate", "ssl_certificate_key"]))
        .collect();
    report.say_by("TLS", text, &made);
}

/// The block of a server.
fn block<'a>(settings: &Settings, server: ServerId, lines: &Lines<'a>) -> Option<&'a Directive> {
    let chain = lines.around(settings, settings.server(server).location);
    chain.last().copied()
}

/// The names of a server's certificates, and when they end.
fn certificate(settings: &Settings, server: ServerId) -> String {
    let tls = settings.server(server).tls.as_ref();
    if tls.is_some_and(|tls| tls.named.is_some()) {
        return "the certificate that the variables name".to_owned();
    }
    let handshakes = tls.and_then(|tls| tls.handshakes.as_ref());
    let now = Moment::now().second();
    let pairs = handshakes.map(|tls| tls.certificates().pairs());
    let mut all = Vec::new();
    for pair in pairs.unwrap_or_default() {
        let read = pair.cert.first().and_then(|der| Certificate::read(der));
        if let Some(read) = read {
            let end = match read.not_after < now {
                true => "which has ended,".to_owned(),
                false => format!("until {},", time::text(read.not_after)),
            };
            all.push(format!("\"{}\" {end}", first_name(&read)));
        }
    }
    match all.len() {
        0 => "a certificate that cannot be read,".to_owned(),
        1 => all.remove(0),
        _ => format!("by what the client can check, {}", all.join(" or ")),
    }
}
