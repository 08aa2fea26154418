//! The verdict on a client's certificate, made anew on a connection that a reload has left open.
//!
//! Not here: what follows from a verdict ([`crate::steps::client_tls`]). Invariant: no request is judged by a verdict
//! of other rules than its configuration's.

use std::rc::Rc;
use std::sync::Arc;

use logs::wall_clock::Moment;
use runtime::cpu_pool;
use tls::verify::{Purpose, Verdict};
use wire::loop_clock;

use super::{client_status, tls_of};
use crate::Failure;
use crate::files;
use crate::request::Request;
use crate::tls::Rules;
use crate::transport::Transport;

/// Whether the connection's verdict may be of other rules than those of the request's configuration.
#[inline]
#[must_use]
pub fn is_outdated(request: &Request) -> bool {
    let tls = request.client.tls();
    tls.is_some_and(|tls| tls.judged.get().0 != request.generation.number)
}

/// Judges the certificates of the handshake by the rules that hold now, where those are others. A connection whose
/// certificate does not pass ends behind the request, since its client may show another one in a new handshake.
///
/// # Errors
/// The pool for handshakes is full, or a responder has not answered in `client_header_timeout`.
pub async fn judge_again(request: &mut Request) -> Result<(), Failure> {
    let (client, generation) = (Rc::clone(&request.client), Rc::clone(&request.generation));
    let settings = &generation.settings;
    let Some((tls, entry)) = client.tls().zip(client.entry(&generation)) else {
        return Ok(());
    };
    let server = client.default_server_at(&generation, entry);
    let shown = tls_of(settings, entry, server);
    let rules = shown.map(Rules::of).unwrap_or_default();
    let number = generation.number;
    if tls.judged.get().1 == rules {
        tls.judged.set((number, rules));
        return Ok(());
    }
    let trust = shown.and_then(|tls| tls.handshakes.as_ref()?.trust().cloned());
    let mut verdict = Verdict::None;
    if let Some(trust) = trust.filter(|_| !tls.facts.certificates.is_empty()) {
        let certificates = tls.facts.certificates.clone();
        let work = move || {
            let now = Moment::now().second();
            let verdict = trust.verdict(&certificates, Purpose::Client, now);
            (verdict, trust.chain(&certificates, now))
        };
        let disk = Arc::clone(client.loop_.disk.disk());
        let judged = cpu_pool::run_handshake(disk, work).await;
        let (judged, chain) = judged.map_err(|overflow| files::overflowed(request, &overflow))?;
        verdict = judged;
        let statuses = shown.and_then(|tls| tls.statuses.as_ref());
        if let Some(statuses) = statuses.filter(|_| judged == Verdict::Success) {
            let limit = settings.server(server).settings.client_header_timeout;
            let until_ms = loop_clock::monotonic_ms() + limit.duration().as_millis() as u64;
            let asked =
                client_status::ask(&client, (&generation, server), until_ms, statuses, &chain)
                    .await;
            let asked = asked.map_err(|_| Failure::new(503))?;
            verdict = asked.map_or(verdict, Verdict::Failed);
        }
    }
    tls.verdict.set(verdict);
    tls.judged.set((number, rules));
    if verdict != Verdict::Success {
        request.transport.close_after_response();
        if let Transport::Http2(stream) = &request.transport {
            stream.retire_connection();
        }
    }
    Ok(())
}
