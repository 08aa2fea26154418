//! `ssl_ocsp`: the status of a client's certificate, asked for behind the handshake and before the first request.
//!
//! Not here: responders (`upstream::ocsp`), the chain. Invariant: a certificate counts as good only if a responder, or the
//! cache of their answers, says so of each that is asked for.

use std::pin::pin;
use std::sync::Arc;

use logs::Level;
use tls::keys::CertificateDer;
use tls::ocsp::{AsksStatus, Status};
use tls::verify::Reason;
use tls::x509::certificate::Certificate;

use super::{Endpoint, Fault};

impl Endpoint<'_> {
    /// Asks for the status of a chain's certificates, one after the other; why it is not accepted, if it is not. The
    /// last one is trusted by the configuration.
    ///
    /// # Errors
    /// The time for the handshake is over.
    pub(super) async fn ask_status(
        &self,
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
            let wheel = &self.client.loop_.wire.wheel;
            let told = wheel.timeout(self.left(), pin!(asked)).await;
            match told.map_err(|_| wire::Error::Timeout)? {
                Ok(Status::Good) => {}
                Ok(Status::Revoked) => return Ok(Some(Reason::StatusRevoked)),
                Ok(Status::Unknown) => return Ok(Some(Reason::StatusUnknown)),
                Err(line) => {
                    self.client.log(self.generation, Level::Error, &line);
                    return Ok(Some(Reason::StatusRequest));
                }
            }
        }
        Ok(None)
    }
}
