//! How handshakes of TLS with servers ended, counted.

use disk::metrics::Number;
use httpcore::handler::metrics::ModuleMetrics;
use runtime::timing::counters::{COUNTERS, sums};
use runtime::{Loop, families, label_values};
use slots::slotted;
use upstream::peer_tls::{HandshakeKind, TlsError};

use crate::settings::proxy_pass::PassSettings;

label_values! {
    /// How a handshake ended.
    enum Outcome {
        /// With new keys.
        Full = "full",
        /// An old session was taken up.
        Resumed = "resumed",
        /// The server's certificate is not accepted.
        Untrusted = "untrusted",
        /// The server and this one did not agree, or the connection broke.
        Failed = "failed",
        /// The time was over.
        TimedOut = "timed_out",
        /// Our own certificate could not be used, or a pool had no room.
        Unable = "unable",
    }
}

/// The counters of one loop.
#[derive(Debug, Default)]
struct HandshakeCounters([Number; Outcome::ALL.len()]);

slotted!(COUNTERS: HandshakeCounters);

/// Counts a handshake.
pub(crate) fn count(loop_: &Loop, ended: &Result<HandshakeKind, TlsError>) {
    let outcome = match ended {
        Ok(HandshakeKind::Full) => Outcome::Full,
        Ok(HandshakeKind::Resumed) => Outcome::Resumed,
        Err(TlsError::Server(_)) => Outcome::Untrusted,
        Err(TlsError::Handshake(_) | TlsError::Broken(_)) => Outcome::Failed,
        Err(TlsError::Timeout) => Outcome::TimedOut,
        Err(TlsError::Certificate(_) | TlsError::Overflow(_) | TlsError::Late) => Outcome::Unable,
    };
    loop_.figures.of::<HandshakeCounters>().0[outcome as usize].add(1);
}

families! {
    /// The families of these counters.
    FAMILIES;
    HANDSHAKES Counter "freewheel_upstream_tls_handshakes" "" ["outcome"] "Handshakes of TLS with servers, by how they ended: with new keys (full), with an old session (resumed), or why there is no connection.";
}

/// How they are shown: where a location may ask servers over TLS.
pub static METRICS: ModuleMetrics = ModuleMetrics {
    families: FAMILIES,
    show: |shown, page| {
        let counts = sums(&shown.loops::<HandshakeCounters>(), |counters| &counters.0);
        let is_used = shown.settings.is_some_and(|settings| {
            let mut passing = settings
                .locations
                .iter()
                .filter_map(|one| one.made::<PassSettings>());
            passing.any(|passing| passing.tls.is_some())
        });
        if is_used || counts != [0; Outcome::ALL.len()] {
            for (outcome, count) in Outcome::ALL.iter().zip(counts) {
                page.whole(&HANDSHAKES, &[outcome.name()], count);
            }
        }
    },
};
