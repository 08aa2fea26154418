//! How a request to a peer ended, and how long it took.

/// The result of a request to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerOutcome {
    /// It was answered.
    Answered,
    /// The response is not wanted (`http_403` and `http_404` of `proxy_next_upstream`), but the peer is healthy.
    Unwanted,
    /// No response, a malformed one, or an error that counts towards `max_fails`.
    Failed,
    /// No response, since the connection broke that it shared with other requests: one of these has counted as the failure.
    BrokenOff,
}

/// Response times in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerTimes {
    /// To the head; `None` when none came.
    pub header_ms: Option<u64>,
    /// To the end.
    pub response_ms: u64,
}
