//! The request that is passed on, as the error log names it: enough of it to write lines also when the request is gone.
//!
//! Invariant: owns everything that it names.

use std::rc::Rc;

use bytes::Bytes;
use logs::{ErrorContext, Level};
use message::{HeaderId, Span};
use runtime::Loop;

use crate::settings::directives::ProxyAnswers;
use crate::settings::family::Family;
use crate::settings::proxy_pass::PassSettings;
use httpcore::client::Client;
use httpcore::http_loop::generation::Generation;
use httpcore::request::Request;
use httpcore::route::{LocationId, ServerId};
use httpcore::settings::Location;

/// The action of lines about the head of a response.
pub(crate) const READING_HEAD: &str = "reading response header from upstream";

/// The action of lines about a request on its way to the server.
pub(crate) const SENDING: &str = "sending request to upstream";

/// The request, for log lines.
pub struct LogContext {
    /// The client, and the loop.
    pub client: Rc<Client>,
    /// The settings in force.
    pub generation: Rc<Generation>,
    /// The location that passes it on.
    pub location: LocationId,
    /// The location whose error logs have the lines.
    logged_at: LocationId,
    server: ServerId,
    /// The request's head, and the positions of the parts that logs show.
    head: Bytes,
    line: Span,
    host: Option<Span>,
    referrer: Option<Span>,
    /// The URI of a sub-request.
    subrequest: Option<Bytes>,
}

impl LogContext {
    /// Copies the parts of a request that are needed.
    #[must_use]
    pub fn new(request: &Request) -> LogContext {
        let head = &request.head;
        LogContext {
            client: Rc::clone(&request.client),
            generation: Rc::clone(&request.generation),
            location: request.location,
            logged_at: request.logged_at(),
            server: request.server,
            head: head.bytes.clone(),
            line: head.line,
            host: head.place(HeaderId::Host),
            referrer: head.place(HeaderId::Referer),
            subrequest: request.uri_of_subrequest().cloned(),
        }
    }

    /// The location that passes it on.
    #[must_use]
    pub fn location(&self) -> &Location {
        self.generation.settings.location(self.location)
    }

    /// The loop.
    #[must_use]
    pub fn loop_(&self) -> &Rc<Loop> {
        &self.client.loop_
    }

    /// The place of its response's temporary files.
    #[must_use]
    pub fn temporary_place(&self) -> disk::TemporaryPlace {
        let location = self.location();
        let family = location
            .made::<PassSettings>()
            .map(|passing| passing.family);
        let answers = location.own::<ProxyAnswers>();
        answers.temporary_place(family.unwrap_or(Family::Proxy), &self.generation.settings)
    }

    /// Writes `WHAT while ACTION, client: …, upstream: "UPSTREAM"` to the error logs of the client's request.
    pub fn log(&self, level: Level, what: &str, action: &str, upstream: &[u8]) {
        let context = ErrorContext {
            action: Some(action.as_bytes()),
            upstream: Some(upstream),
            ..ErrorContext::default()
        };
        self.write(level, what, context);
    }

    /// Writes `WHAT, client: …`.
    pub fn log_alone(&self, level: Level, what: &str) {
        self.write(level, what, ErrorContext::default());
    }

    fn write(&self, level: Level, what: &str, context: ErrorContext<'_>) {
        let logs = self
            .generation
            .settings
            .location(self.logged_at)
            .error_logs();
        if !logs.wants(level) {
            return;
        }
        let part = |span: Span| span.of(&self.head);
        let context = ErrorContext {
            server: Some(&self.generation.settings.server(self.server).name),
            request: Some(part(self.line)),
            subrequest: self.subrequest.as_deref(),
            host: self.host.map(part),
            referrer: self.referrer.map(part),
            ..context
        };
        self.client.tell(logs, level, context, &|out| {
            out.extend_from_slice(what.as_bytes());
        });
    }
}

impl std::fmt::Debug for LogContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line = self.line.of(&self.head);
        f.write_str(&line.escape_ascii().to_string())
    }
}
