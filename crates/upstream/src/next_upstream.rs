//! When a request that failed at one peer is sent to the next (`proxy_next_upstream`, `_tries`, `_timeout`).
//!
//! Not here: which peer that is, and what is sent. Invariant: a request that may change something is not sent twice
//! unless the configuration says `non_idempotent`.

use message::Method;
use wire::answer::AnswerFault;
use wire::connect::ConnectError;
use wire::exchange::ExchangeError;

use super::balancing::PeerOutcome;
use super::peer_tls::TlsError;

config::choice_set! {
    /// What makes a request go to the next server.
    pub struct NextUpstream: u32 {
        /// The connection failed, or ended before the answer's head.
        ERROR = "error",
        /// It took too long.
        TIMEOUT = "timeout",
        /// The answer's head cannot be understood.
        INVALID_HEADER = "invalid_header",
        /// Requests that may change something, too (POST, LOCK, PATCH), even when they were sent.
        NON_IDEMPOTENT = "non_idempotent",
        /// The answer is a 500.
        HTTP_500 = "http_500",
        /// The answer is a 502.
        HTTP_502 = "http_502",
        /// The answer is a 503.
        HTTP_503 = "http_503",
        /// The answer is a 504.
        HTTP_504 = "http_504",
        /// The answer is a 403.
        HTTP_403 = "http_403",
        /// The answer is a 404.
        HTTP_404 = "http_404",
        /// The answer is a 429.
        HTTP_429 = "http_429",
        /// Nothing here: it is a word of caches alone.
        UPDATING = "updating",
        /// Nothing, whatever stands beside it.
        OFF = "off",
    }
}

/// The failure of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerFailure {
    /// The connection failed, or ended before the answer's head.
    Error,
    /// It took too long.
    Timeout,
    /// The answer's head cannot be understood.
    InvalidHeader,
    /// An answer with this code, one of those that [`PeerFailure::of_status`] knows.
    Status(u16),
}

/// The rules of a location.
#[derive(Clone, Copy, Debug)]
pub struct NextRules {
    /// `proxy_next_upstream`.
    pub on: NextUpstream,
    /// `proxy_next_upstream_timeout`; 0: none.
    pub timeout_ms: u64,
}

/// The progress of a request.
#[derive(Clone, Copy, Debug)]
pub struct AttemptProgress {
    /// Its method.
    pub method: Method,
    /// Whether any of it was sent to the peer.
    pub is_sent: bool,
    /// Whether a part of its body, which is passed on as it comes (`proxy_request_buffering off`, gRPC), was taken: it cannot
    /// be sent again, not even where the peer has done nothing with it.
    pub is_body_taken: bool,
    /// Time since it went to its first peer.
    pub elapsed_ms: u64,
    /// Number of peers that may be tried, including this one ([`super::Choice::tries_left`]).
    pub tries_left: usize,
}

impl PeerFailure {
    /// The failure that a response's status may stand for.
    #[must_use]
    pub fn of_status(status: u16) -> Option<PeerFailure> {
        matches!(status, 403 | 404 | 429 | 500 | 502 | 503 | 504)
            .then_some(PeerFailure::Status(status))
    }

    /// The failure for a connection's error; none when the request itself is at fault, since no other peer would help.
    #[must_use]
    pub fn of_exchange(error: &ExchangeError) -> Option<PeerFailure> {
        Some(match error {
            ExchangeError::Timeout => PeerFailure::Timeout,
            ExchangeError::Answer(AnswerFault::Head(_)) => PeerFailure::InvalidHeader,
            ExchangeError::Request(_) => return None,
            ExchangeError::Answer(
                AnswerFault::Closed
                | AnswerFault::Chunks
                | AnswerFault::Record(_)
                | AnswerFault::Body(_),
            )
            | ExchangeError::Send(_)
            | ExchangeError::Receive(_) => PeerFailure::Error,
        })
    }

    /// The failure for the lack of a connection; none when this server itself is at fault
    /// (`proxy_bind`, a lack of descriptors).
    #[must_use]
    pub fn of_connect(error: &ConnectError) -> Option<PeerFailure> {
        match error {
            ConnectError::Timeout => Some(PeerFailure::Timeout),
            ConnectError::Refused(_) => Some(PeerFailure::Error),
            ConnectError::Bind { .. }
            | ConnectError::Transparent(_)
            | ConnectError::Local { .. } => None,
        }
    }

    /// The failure for the lack of TLS on a connection; none when this server itself is at fault.
    #[must_use]
    pub fn of_tls(error: &TlsError) -> Option<PeerFailure> {
        match error {
            TlsError::Timeout => Some(PeerFailure::Timeout),
            error => error.is_of_peer().then_some(PeerFailure::Error),
        }
    }

    /// The status that the client gets, and `$upstream_status` shows.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            PeerFailure::Error | PeerFailure::InvalidHeader => 502,
            PeerFailure::Timeout => 504,
            PeerFailure::Status(status) => status,
        }
    }

    /// The result that is recorded for the peer when the next one is tried.
    #[must_use]
    pub fn outcome(self) -> PeerOutcome {
        match self {
            PeerFailure::Status(403 | 404) => PeerOutcome::Unwanted,
            _ => PeerOutcome::Failed,
        }
    }

    fn flag(self) -> NextUpstream {
        match self {
            PeerFailure::Error => NextUpstream::ERROR,
            PeerFailure::Timeout => NextUpstream::TIMEOUT,
            PeerFailure::InvalidHeader => NextUpstream::INVALID_HEADER,
            PeerFailure::Status(403) => NextUpstream::HTTP_403,
            PeerFailure::Status(404) => NextUpstream::HTTP_404,
            PeerFailure::Status(429) => NextUpstream::HTTP_429,
            PeerFailure::Status(500) => NextUpstream::HTTP_500,
            PeerFailure::Status(503) => NextUpstream::HTTP_503,
            PeerFailure::Status(504) => NextUpstream::HTTP_504,
            PeerFailure::Status(_) => NextUpstream::HTTP_502,
        }
    }
}

impl NextRules {
    /// Whether the request is sent to the next peer.
    #[must_use]
    pub fn allows(&self, failure: PeerFailure, progress: &AttemptProgress) -> bool {
        let changes = matches!(progress.method, Method::Post | Method::Lock | Method::Patch);
        let mut needed = failure.flag();
        if progress.is_sent && changes {
            needed = needed.or(NextUpstream::NON_IDEMPOTENT);
        }
        progress.tries_left > 1
            && self.on.contains(needed)
            && !self.on.contains(NextUpstream::OFF)
            && !progress.is_body_taken
            && (self.timeout_ms == 0 || progress.elapsed_ms < self.timeout_ms)
    }
}

#[cfg(test)]
mod tests {
    use wire::http1::request_writer::RequestFault;

    use super::*;

    const SENT: AttemptProgress = AttemptProgress {
        method: Method::Get,
        is_sent: true,
        is_body_taken: false,
        elapsed_ms: 100,
        tries_left: 2,
    };

    fn rules(on: NextUpstream) -> NextRules {
        NextRules { on, timeout_ms: 0 }
    }

    #[test]
    fn only_what_is_named_goes_on() {
        let usual = rules(NextUpstream::ERROR.or(NextUpstream::TIMEOUT));
        assert!(
            usual.allows(PeerFailure::Error, &SENT) && usual.allows(PeerFailure::Timeout, &SENT)
        );
        assert!(!usual.allows(PeerFailure::InvalidHeader, &SENT));
        assert!(!rules(NextUpstream::OFF).allows(PeerFailure::Error, &SENT));
        let off = rules(NextUpstream::ERROR.or(NextUpstream::OFF));
        assert!(!off.allows(PeerFailure::Error, &SENT));
        for status in 100..600 {
            let Some(failure) = PeerFailure::of_status(status) else {
                continue;
            };
            let name = format!("http_{status}");
            let (flag, _) = NextUpstream::WORDS
                .iter()
                .find(|(_, word)| *word == name)
                .unwrap();
            assert!(rules(*flag).allows(failure, &SENT) && !usual.allows(failure, &SENT));
            assert_eq!(failure.status(), status);
            let is_wellness = matches!(status, 403 | 404);
            assert_eq!(failure.outcome() == PeerOutcome::Unwanted, is_wellness);
        }
        assert_eq!(PeerFailure::of_status(501), None);
    }

    #[test]
    fn what_may_change_something_is_not_sent_twice() {
        let usual = rules(NextUpstream::ERROR);
        for method in [Method::Post, Method::Lock, Method::Patch] {
            assert!(!usual.allows(PeerFailure::Error, &AttemptProgress { method, ..SENT }));
            assert!(usual.allows(
                PeerFailure::Error,
                &AttemptProgress {
                    method,
                    is_sent: false,
                    ..SENT
                }
            ));
            let all = rules(NextUpstream::ERROR.or(NextUpstream::NON_IDEMPOTENT));
            assert!(all.allows(PeerFailure::Error, &AttemptProgress { method, ..SENT }));
        }
        for is_sent in [true, false] {
            let taken = AttemptProgress {
                is_body_taken: true,
                is_sent,
                ..SENT
            };
            assert!(!usual.allows(PeerFailure::Error, &taken), "half of a body");
        }
    }

    #[test]
    fn errors_are_told_apart() {
        let of = |error: ExchangeError| PeerFailure::of_exchange(&error).map(PeerFailure::status);
        assert_eq!(of(ExchangeError::Timeout), Some(504));
        assert_eq!(of(AnswerFault::Closed.into()), Some(502));
        let invalid = PeerFailure::of_exchange(&AnswerFault::Head(String::new()).into());
        assert_eq!(invalid, Some(PeerFailure::InvalidHeader));
        assert_eq!(of(RequestFault::Chunked10.into()), None);
        assert_eq!(
            PeerFailure::of_connect(&ConnectError::Timeout),
            Some(PeerFailure::Timeout)
        );
    }

    #[test]
    fn tries_and_time_end_it() {
        let usual = rules(NextUpstream::ERROR);
        assert!(!usual.allows(
            PeerFailure::Error,
            &AttemptProgress {
                tries_left: 1,
                ..SENT
            }
        ));
        assert!(!usual.allows(
            PeerFailure::Error,
            &AttemptProgress {
                tries_left: 0,
                ..SENT
            }
        ));
        let hasty = NextRules {
            timeout_ms: 100,
            ..usual
        };
        assert!(!hasty.allows(PeerFailure::Error, &SENT));
        assert!(hasty.allows(
            PeerFailure::Error,
            &AttemptProgress {
                elapsed_ms: 99,
                ..SENT
            }
        ));
    }
}
