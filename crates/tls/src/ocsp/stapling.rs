//! The stapled response of one certificate: when to ask, and until when an answer is shown.
//!
//! Not here: fetching, or the certificate's place (`certificates`). Times are passed in.

use crate::ocsp::response::{Fault, Status, check};
use crate::x509::certificate::Certificate;
use crate::x509::time::Seconds;

/// Seconds until the responder is asked again, at most.
pub const REFRESH_SECONDS_MAX: Seconds = 3600;
/// Seconds until the responder is asked again, at least.
pub const REFRESH_SECONDS_MIN: Seconds = 300;

/// What is known of a certificate's status.
#[derive(Clone, Debug, Default)]
pub struct Stapling {
    response: Option<Vec<u8>>,
    valid_until: Option<Seconds>,
    refresh_at: Seconds,
}

impl Stapling {
    /// Whether the responder is to be asked.
    #[must_use]
    pub fn is_due(&self, now: Seconds) -> bool {
        now >= self.refresh_at
    }

    /// The response to show now.
    #[must_use]
    pub fn response(&self, now: Seconds) -> Option<&[u8]> {
        let is_valid = self.valid_until.is_none_or(|until| now <= until);
        self.response.as_deref().filter(|_| is_valid)
    }

    /// Takes an answer of the responder. One that says that the certificate is revoked is shown, too; one that is worth
    /// nothing leaves the one before.
    ///
    /// # Errors
    /// The answer is worth nothing.
    pub fn take(
        &mut self,
        response: Vec<u8>,
        (certificate, issuer): (&Certificate<'_>, &Certificate<'_>),
        is_trusted: bool,
        now: Seconds,
    ) -> Result<Status, Fault> {
        self.failed(now);
        let answer = check(&response, certificate, issuer, is_trusted, now)?;
        let early = answer
            .next_update
            .map_or(now, |next| next - REFRESH_SECONDS_MIN);
        self.refresh_at = early.clamp(now + REFRESH_SECONDS_MIN, now + REFRESH_SECONDS_MAX);
        self.valid_until = answer.next_update;
        self.response = Some(response);
        Ok(answer.status)
    }

    /// Says that the responder could not be asked: it is asked again later.
    pub fn failed(&mut self, now: Seconds) {
        self.refresh_at = now + REFRESH_SECONDS_MIN;
    }

    /// Of a file's bytes (`ssl_stapling_file`), which are shown as they are.
    #[must_use]
    pub fn of_file(response: Vec<u8>) -> Self {
        Self {
            response: Some(response),
            valid_until: None,
            refresh_at: Seconds::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_tried_again_later() {
        let mut stapling = Stapling::default();
        assert!(stapling.is_due(0) && stapling.response(0).is_none());
        stapling.failed(1000);
        assert!(!stapling.is_due(1299) && stapling.is_due(1300));
        let file = Stapling::of_file(vec![1]);
        assert!(!file.is_due(Seconds::MAX - 1) && file.response(5) == Some(&[1]));
    }
}
