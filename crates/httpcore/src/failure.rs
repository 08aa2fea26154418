//! A status that has no response yet, and the header fields that its response must have.

use bytes::Bytes;
use message::Header;

/// The status of a client that left before its response.
pub const CLIENT_CLOSED: u16 = 499;

/// The status of a request whose connection is closed without a response, on purpose: nginx's own, never sent.
pub const CLOSED: u16 = 444;

/// The reason why a request gets no content: a status on its way to an error page.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The status, nginx's own (444, 494–499) included; redirects are failures too.
    pub status: u16,
    /// `Location`, for redirects.
    pub location: Option<Bytes>,
    /// Header lines that the response keeps (`Content-Range` of a 416, `Retry-After` of a 503).
    pub headers: Vec<Header>,
    /// Whether clients that accept other codings would get something else.
    pub varies: bool,
}

impl Failure {
    /// A bare status.
    #[must_use]
    pub fn new(status: u16) -> Self {
        Self {
            status,
            location: None,
            headers: Vec::new(),
            varies: false,
        }
    }

    /// A redirect.
    #[must_use]
    pub fn redirect(status: u16, location: Bytes) -> Self {
        Self {
            location: Some(location),
            ..Self::new(status)
        }
    }

    /// Adds a header line that the response keeps.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: Bytes) -> Self {
        self.headers.push(Header::new(name, value));
        self
    }
}
