//! The stapled response of one certificate: when to ask, and until when an answer is shown.
//!
//! Not here: fetching, or the certificate's place (`certificates`). Times are passed in. Invariant: what is shown is
//! signed by its issuer or by what the configuration trusts, says that the certificate is good, and its time is now.

use crate::ocsp::response::{Fault, Status, check_by};
use crate::verify::{Purpose, Trust};
use crate::x509::certificate::Certificate;
use crate::x509::time::Seconds;
use rustls::pki_types::CertificateDer;

/// Seconds until the responder is asked again, at most.
pub const REFRESH_SECONDS_MAX: Seconds = 3600;
/// Seconds before an answer ends at which the next one is asked for; and the longest pause behind failures.
pub const REFRESH_SECONDS_MIN: Seconds = 300;
/// Seconds until the responder is asked again behind an answer, at least. Behind answers that are worth nothing twice as
/// many each time, up to [`REFRESH_SECONDS_MIN`].
pub const RETRY_SECONDS_MIN: Seconds = 30;
/// The same where it could not be asked: it may be starting beside this server.
pub const RETRY_SECONDS_FIRST: Seconds = 1;

/// Whose signature is accepted.
#[derive(Debug)]
pub enum Verification {
    /// The issuer's, that of a responder that the issuer has named, and that of one of these certificates of the
    /// configuration (`ssl_stapling_verify off`).
    Signature(Vec<CertificateDer<'static>>),
    /// The issuer's or its responder's, if the server's own chain leads to a trusted certificate, or the issuer itself
    /// has signed and stands in that chain (`on`).
    Chain {
        /// What is trusted.
        trust: Trust,
        /// The server's certificate and those that it sends with it.
        chain: Vec<CertificateDer<'static>>,
    },
}

impl Verification {
    fn configured(&self) -> &[CertificateDer<'static>] {
        match self {
            Self::Signature(configured) => configured,
            Self::Chain { .. } => &[],
        }
    }

    fn accepts(&self, is_delegated: bool, issuer: &Certificate<'_>, now: Seconds) -> bool {
        let Self::Chain { trust, chain } = self else {
            return true;
        };
        let is_sent = chain.iter().any(|der| der.as_ref() == issuer.der);
        let mut chain = chain.clone();
        chain.push(CertificateDer::from(issuer.der.to_vec()));
        (is_sent && !is_delegated) || trust.verify(&chain, Purpose::Server, now).is_ok()
    }
}

/// What is known of a certificate's status.
#[derive(Clone, Debug, Default)]
pub struct Stapling {
    response: Option<Vec<u8>>,
    valid_until: Option<Seconds>,
    refresh_at: Seconds,
    /// Failures one behind the other.
    failures: u32,
}

impl Stapling {
    /// When the responder is to be asked next. What lies further ahead than any pause was reckoned by a clock that was
    /// set back since: it is asked now.
    #[must_use]
    pub fn refresh_at(&self, now: Seconds) -> Seconds {
        match self.refresh_at > now + REFRESH_SECONDS_MAX {
            true => now,
            false => self.refresh_at,
        }
    }

    /// The response to show now.
    #[must_use]
    pub fn response(&self, now: Seconds) -> Option<&[u8]> {
        let is_valid = self.valid_until.is_none_or(|until| now <= until);
        self.response.as_deref().filter(|_| is_valid)
    }

    /// When the response that is shown ends.
    #[must_use]
    pub fn valid_until(&self) -> Option<Seconds> {
        self.valid_until.filter(|_| self.response.is_some())
    }

    /// Takes an answer of the responder. It is shown only if it says that the certificate is good, as in nginx; any
    /// other one, and one that is worth nothing, leaves the one before for its time.
    ///
    /// # Errors
    /// The answer is worth nothing.
    pub fn take(
        &mut self,
        response: Vec<u8>,
        (certificate, issuer): (&Certificate<'_>, &Certificate<'_>),
        verification: &Verification,
        now: Seconds,
    ) -> Result<Status, Fault> {
        let configured = verification.configured();
        let answer = check_by(&response, certificate, issuer, configured, now);
        let accepts = |is_delegated| verification.accepts(is_delegated, issuer, now);
        let answer = answer.and_then(|answer| match accepts(answer.is_delegated) {
            true => Ok(answer),
            false => Err(Fault::Signature),
        });
        let good = answer.ok().filter(|answer| answer.status == Status::Good);
        let Some(good) = good else {
            self.pause(RETRY_SECONDS_MIN, now);
            return answer.map(|answer| answer.status);
        };
        self.failures = 0;
        self.refresh_at = refresh_at(good.next_update, now);
        self.valid_until = good.next_update;
        self.response = Some(response);
        Ok(good.status)
    }

    /// Says that the responder could not be asked: it is asked again later.
    pub fn failed(&mut self, now: Seconds) {
        self.pause(RETRY_SECONDS_FIRST, now);
    }

    /// The last attempt was by another configuration: where it failed, the responder is asked again now.
    pub fn hurry(&mut self) {
        if self.failures > 0 {
            self.refresh_at = 0;
        }
    }

    fn pause(&mut self, first: Seconds, now: Seconds) {
        let pause = first << self.failures.min(16);
        self.refresh_at = now + pause.min(REFRESH_SECONDS_MIN);
        self.failures += 1;
    }
}

/// nginx's time: five minutes before the end, an hour from now at most. Where the end is near, in the middle.
fn refresh_at(next_update: Option<Seconds>, now: Seconds) -> Seconds {
    let latest = now + REFRESH_SECONDS_MAX;
    let Some(end) = next_update else {
        return latest;
    };
    let early = end - REFRESH_SECONDS_MIN;
    let middle = now + (end - now) / 2;
    early.max(middle).clamp(now + RETRY_SECONDS_MIN, latest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_tried_again_later() {
        let mut stapling = Stapling::default();
        assert!(stapling.refresh_at(0) == 0 && stapling.response(0).is_none());
        for pause in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            stapling.failed(1000);
            assert_eq!(stapling.refresh_at(1000), 1000 + pause);
        }
    }

    #[test]
    fn a_clock_that_is_set_back_puts_nothing_off() {
        let mut stapling = Stapling::default();
        stapling.failed(40_000_000);
        assert_eq!(stapling.refresh_at(1000), 1000);
    }

    #[test]
    fn answers_are_asked_for_again_before_they_end() {
        for (end, at) in [
            (None, 3600),
            (Some(100_000), 3600),
            (Some(3000), 2700),
            (Some(400), 200),
            (Some(10), 30),
        ] {
            assert_eq!(refresh_at(end, 0), at, "{end:?}");
        }
    }
}
