//! The error log lines of a request: its context, and the action that failed.
//!
//! Not here: where they go ([`logs`]), lines about an upstream server ([`proxy`]).

use bytes::Bytes;
use logs::{ErrorContext, Level};
use message::HeaderId;

use super::Request;
use crate::settings::connections::SizeTemplate;

impl Request {
    /// Its URI, if it is a sub-request.
    #[must_use]
    pub fn uri_of_subrequest(&self) -> Option<&Bytes> {
        (self.depth_of_subrequests() > 0).then_some(&self.uri)
    }

    /// Writes a line to the error logs of the location; a sub-request to those of the client's request.
    pub fn log(&self, level: Level, text: &dyn Fn(&mut Vec<u8>)) {
        let action = self.is_logging.get().then_some("logging request");
        self.log_while(action, level, text);
    }

    /// Writes a line about what a request's head lacks.
    pub fn log_reading(&self, level: Level, text: &dyn Fn(&mut Vec<u8>)) {
        self.log_while(Some("reading client request headers"), level, text);
    }

    /// Writes a line about what becomes of the answer's body on its way.
    pub fn log_sending(&self, level: Level, text: &dyn Fn(&mut Vec<u8>)) {
        let action = match self.is_of_upstream() {
            true => "sending to client",
            false => "sending response to client",
        };
        self.log_while(Some(action), level, text);
    }

    /// A size for this request in bytes. A text that is no size is told, and is 0 as in nginx: no limit.
    #[must_use]
    pub fn size(&self, size: &SizeTemplate) -> u64 {
        size.bytes(self).unwrap_or_else(|text| {
            self.log(Level::Error, &|out| {
                out.extend_from_slice(b"invalid size \"");
                out.extend_from_slice(&text);
                out.push(b'"');
            });
            0
        })
    }

    fn log_while(&self, action: Option<&str>, level: Level, text: &dyn Fn(&mut Vec<u8>)) {
        let logs = self.settings().location(self.logged_at()).error_logs();
        if !logs.wants(level) {
            return;
        }
        let context = ErrorContext {
            server: Some(&self.server().name),
            request: Some(self.head.line()),
            action: action.map(str::as_bytes),
            subrequest: self.uri_of_subrequest().map(|uri| &uri[..]),
            host: self.head.get(HeaderId::Host),
            referrer: self.head.get(HeaderId::Referer),
            ..ErrorContext::default()
        };
        self.client.tell(logs, level, context, text);
    }
}
