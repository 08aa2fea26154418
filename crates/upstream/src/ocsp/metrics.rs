//! Questions to OCSP responders, counted by what they were for and what came of them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use runtime::metrics::Page;
use runtime::{families, label_values};
use tls::ocsp::Status;

use super::fetch;

label_values! {
    /// Why a status is asked for.
    pub(super) enum Purpose {
        /// `ssl_ocsp`.
        Client = "client",
        /// `ssl_stapling`.
        Staple = "staple",
    }
}

label_values! {
    /// What came of it.
    pub(super) enum Outcome {
        /// The certificate is good.
        Good = "good",
        /// It is revoked.
        Revoked = "revoked",
        /// The responder does not know it.
        Unknown = "unknown",
        /// There is no answer, or it is worth nothing.
        Failed = "failed",
        /// The answer was known (`ssl_ocsp_cache`).
        Cached = "cached",
    }
}

impl From<Status> for Outcome {
    fn from(status: Status) -> Self {
        match status {
            Status::Good => Self::Good,
            Status::Revoked => Self::Revoked,
            Status::Unknown => Self::Unknown,
        }
    }
}

families! {
    /// The families of these metrics.
    pub FAMILIES;
    REQUESTS Counter "freewheel_tls_status_requests" "" ["purpose", "outcome"] "Certificates whose status was asked for (OCSP), of clients (ssl_ocsp) and our own (ssl_stapling), by what came of it: good, revoked, unknown; failed, where no responder gave an answer that counts; cached (ssl_ocsp_cache).";
    OPEN Gauge "freewheel_tls_status_requests_open" "" [] "Questions to OCSP responders that are asked or wait for their turn.";
}

static IS_USED: AtomicBool = AtomicBool::new(false);
static COUNTS: [[AtomicU64; Outcome::ALL.len()]; Purpose::ALL.len()] =
    [const { [const { AtomicU64::new(0) }; Outcome::ALL.len()] }; Purpose::ALL.len()];

/// Says that a configuration asks responders: the families are shown from now on.
pub(super) fn begin() {
    IS_USED.store(true, Ordering::Relaxed);
}

pub(super) fn count(purpose: Purpose, outcome: Outcome) {
    COUNTS[purpose as usize][outcome as usize].fetch_add(1, Ordering::Relaxed);
}

/// Shows them, once a configuration asks responders.
pub fn show(page: &mut Page) {
    if !IS_USED.load(Ordering::Relaxed) {
        return;
    }
    for purpose in Purpose::ALL {
        for outcome in Outcome::ALL {
            let count = COUNTS[purpose as usize][outcome as usize].load(Ordering::Relaxed);
            page.whole(&REQUESTS, &[purpose.name(), outcome.name()], count);
        }
    }
    page.whole(&OPEN, &[], fetch::open() as u64);
}
