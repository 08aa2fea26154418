//! Matches of regular expressions with what a request has, and the captures that they set.
//!
//! Not here: the expressions ([`crate::regex`]). Invariant: a match that fails is logged, and passes neither for a match nor
//! for none.

use std::rc::Rc;

use bytes::Bytes;
use logs::Level;

use crate::Failure;
use crate::regex::{MatchFailed, Regex};

use super::Request;

impl Request {
    /// Whether a pattern matches. If so, the captures become those of this match.
    ///
    /// # Errors
    /// 500: the match failed.
    pub fn matches(&self, regex: &Regex, subject: &Bytes) -> Result<bool, Failure> {
        let matched = regex.captures(subject);
        let spans = matched.map_err(|failed| self.match_failed(&failed))?;
        let is_match = spans.is_some();
        if let Some(spans) = spans {
            self.capture(regex, subject, spans);
        }
        Ok(is_match)
    }

    /// Logs a match that failed; the failure is for a request that depends on it.
    pub fn match_failed(&self, failed: &MatchFailed) -> Failure {
        self.log(Level::Alert, &|out| {
            out.extend_from_slice(failed.sentence.as_bytes());
        });
        Failure::new(500)
    }

    /// Sets the captures of the server's name, where a regular expression chose it.
    ///
    /// # Errors
    /// The match with one failed: the server is the address' default one, in place of the one that is meant.
    pub fn capture_server_name(&self) -> Result<(), MatchFailed> {
        let generation = Rc::clone(&self.generation);
        let Some(entry) = self.client.entry(&generation) else {
            return Ok(());
        };
        let names = &generation.settings.names[entry];
        if !names.has_regexes() {
            return Ok(());
        }
        let Some(host) = self.head.host() else {
            return Ok(());
        };
        if let Some((regex, spans)) = names.find(host)?.and_then(|named| named.regex) {
            self.capture(regex, &Bytes::copy_from_slice(host), spans);
        }
        Ok(())
    }
}
