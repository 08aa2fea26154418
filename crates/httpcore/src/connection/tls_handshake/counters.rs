//! How handshakes ended, counted, and how long their work took; what ended connections behind them.

use disk::metrics::{Histogram, Number};
use runtime::timing::counters::{COUNTERS, sums};
use runtime::{families, label_values};
use slots::slotted;
use tls::Cause;
use tls::handshake::Facts;

use crate::handler::metrics::ModuleMetrics;

label_values! {
    /// How a handshake ended.
    pub(super) enum Outcome {
        /// With new keys.
        Full = "full",
        /// An old session was taken up.
        Resumed = "resumed",
        /// The client spoke HTTP in clear.
        PlainHttp = "plain_http",
        /// No version, suite, group, signature or protocol in common.
        NothingInCommon = "nothing_in_common",
        /// The client said no.
        Alert = "alert",
        /// Bytes that are not TLS, or not as TLS asks.
        Malformed = "malformed",
        /// `ssl_reject_handshake`.
        Rejected = "rejected",
        /// The client left.
        Closed = "closed",
        /// The client sent what costs work and brings nothing.
        Flood = "flood",
        /// The library failed, or there was no certificate.
        Library = "library",
        /// The time was over.
        TimedOut = "timed_out",
        /// The loop needed the connection's place, or the pool had no room.
        Dropped = "dropped",
    }
}

impl From<Cause> for Outcome {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::PlainHttp => Self::PlainHttp,
            Cause::NothingInCommon => Self::NothingInCommon,
            Cause::Alert => Self::Alert,
            Cause::Malformed => Self::Malformed,
            Cause::Rejected => Self::Rejected,
            Cause::Closed => Self::Closed,
            Cause::Flood => Self::Flood,
            Cause::Library => Self::Library,
        }
    }
}

/// The suites that are offered.
const SUITES: [u16; 9] = [
    0x1301, 0x1302, 0x1303, 0xc02b, 0xc02c, 0xcca9, 0xc02f, 0xc030, 0xcca8,
];

label_values! {
    /// What of a client's ended a connection behind its handshake.
    pub(super) enum Fault {
        /// The client said no.
        Alert = "alert",
        /// Records that are broken, or that may not come.
        Malformed = "malformed",
        /// Empty records, updates of keys, renegotiations, one after the other.
        Flood = "flood",
        /// The library failed.
        Library = "library",
    }
}

impl From<Cause> for Fault {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Alert | Cause::Closed | Cause::Rejected => Self::Alert,
            Cause::Malformed | Cause::PlainHttp | Cause::NothingInCommon => Self::Malformed,
            Cause::Flood => Self::Flood,
            Cause::Library => Self::Library,
        }
    }
}

/// The counters of one loop.
#[derive(Debug, Default)]
pub(super) struct HandshakeCounters {
    ended: [Number; Outcome::ALL.len()],
    /// Connections, by the place of their suite in [`SUITES`].
    suites: [Number; SUITES.len()],
    early: [Number; 1],
    faults: [Number; Fault::ALL.len()],
    steps: Histogram,
}

slotted!(COUNTERS: HandshakeCounters);

impl HandshakeCounters {
    pub(super) fn count(&self, outcome: Outcome) {
        self.ended[outcome as usize].add(1);
    }

    /// Counts a connection.
    pub(super) fn connected(&self, facts: &Facts, is_early: bool) {
        if let Some(at) = SUITES.iter().position(|suite| *suite == facts.cipher) {
            self.suites[at].add(1);
        }
        self.early[0].add(u64::from(is_early));
    }

    pub(super) fn count_fault(&self, fault: Fault) {
        self.faults[fault as usize].add(1);
    }

    /// Records the time of a step in nanoseconds.
    pub(super) fn took(&self, ns: u64) {
        self.steps.record(ns);
    }
}

families! {
    /// The families of these counters.
    FAMILIES;
    HANDSHAKES Counter "freewheel_tls_handshakes" "" ["outcome"] "Handshakes of TLS with clients, by how they ended: with new keys (full), with an old session (resumed), or why there is no connection.";
    CONNECTIONS Counter "freewheel_tls_connections" "" ["protocol", "cipher"] "Connections of clients with TLS, by version and cipher suite, in OpenSSL's words.";
    EARLY Counter "freewheel_tls_early_data_connections" "" [] "Connections whose client sent a request before the handshake was over (ssl_early_data).";
    FAULTS Counter "freewheel_tls_faults" "" ["cause"] "Connections of clients that ended behind their handshake for what came in place of data: an alert, records that are broken or may not come (malformed), work without data, as updates of keys (flood).";
    STEPS Histogram "freewheel_tls_handshake_step_seconds" "seconds" [] "Time of a step of a handshake: until its turn, in the pool's queue, and running.";
}

/// How they are shown.
pub static METRICS: ModuleMetrics = ModuleMetrics {
    families: FAMILIES,
    show: |shown, page| {
        let loops = shown.loops::<HandshakeCounters>();
        let counts = sums(&loops, |counters| &counters.ended);
        let is_used = shown.settings.is_some_and(|settings| {
            let mut entries = settings.listens.entries().iter();
            entries.any(|entry| entry.protocols.has_ssl)
        });
        if !is_used && counts == [0; Outcome::ALL.len()] {
            return;
        }
        for (outcome, count) in Outcome::ALL.iter().zip(counts) {
            page.whole(&HANDSHAKES, &[outcome.name()], count);
        }
        let suites = sums(&loops, |counters| &counters.suites);
        for (suite, count) in SUITES.iter().zip(suites).filter(|(_, count)| *count > 0) {
            // Suites of TLS 1.3 have numbers of their own (RFC 8446, B.4).
            let version = if suite >> 8 == 0x13 {
                "TLSv1.3"
            } else {
                "TLSv1.2"
            };
            let cipher = tls::suites::cipher_name(*suite).unwrap_or("unknown");
            page.whole(&CONNECTIONS, &[version, cipher], count);
        }
        let [early] = sums(&loops, |counters| &counters.early);
        page.whole(&EARLY, &[], early);
        let faults = sums(&loops, |counters| &counters.faults);
        for (fault, count) in Fault::ALL.iter().zip(faults) {
            page.whole(&FAULTS, &[fault.name()], count);
        }
        page.times(&STEPS, &[], loops.times(|counters| &counters.steps));
    },
};
