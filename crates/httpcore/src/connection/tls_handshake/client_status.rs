//! `ssl_ocsp`: the status of a client's certificate, asked for behind the handshake and before the first request.
//!
//! Not here: responders (`upstream::ocsp`), the chain. Invariant: a certificate counts as good only if a responder, or the
//! cache of their answers, says so of each that is asked for.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use logs::Level;
use tls::keys::CertificateDer;
use tls::ocsp::{AsksStatus, Status};
use tls::verify::Reason;
use tls::x509::certificate::Certificate;

use wire::loop_clock;

use super::Fault;
use crate::client::Client;
use crate::http_loop::generation::Generation;
use crate::route::ServerId;

/// Asks for the status of a chain's certificates, one after the other; why it is not accepted, if it is not. The last
/// one is trusted by the configuration.
///
/// # Errors
/// `until_ms`, in the loop's milliseconds, is over.
pub(super) async fn ask(
    client: &Client,
    of: (&Generation, ServerId),
    until_ms: u64,
    statuses: &Arc<dyn AsksStatus>,
    chain: &[CertificateDer<'static>],
) -> Result<Option<Reason>, Fault> {
    let count_max = if statuses.wants_chain() {
        chain.len()
    } else {
        1
    };
    for pair in chain.windows(2).take(count_max) {
        let read = |at: usize| Certificate::read(&pair[at]);
        let (Some(certificate), Some(issuer)) = (read(0), read(1)) else {
            return Ok(Some(Reason::StatusRequest));
        };
        let asked = Arc::clone(statuses).ask(&certificate, &issuer);
        let left_ms = until_ms.saturating_sub(loop_clock::monotonic_ms());
        let left = Duration::from_millis(left_ms);
        let told = client.loop_.wire.wheel.timeout(left, pin!(asked)).await;
        match told.map_err(|_| wire::Error::Timeout)? {
            Ok(Status::Good) => {}
            Ok(Status::Revoked) => return Ok(Some(Reason::StatusRevoked)),
            Ok(Status::Unknown) => return Ok(Some(Reason::StatusUnknown)),
            Err(line) => {
                client.log_of(of, Level::Error, &line);
                return Ok(Some(Reason::StatusRequest));
            }
        }
    }
    Ok(None)
}
