//! Conditional requests: 304 and 412 by nginx's rules (RFC 9110, 13; nginx-drop-in 23–25).
//!
//! Only for content that is marked as `conditional` (files, lists, texts, cached answers), and only for a 200.

use config::directives;
use message::conditional::{self, ConditionalVerdict, IfModifiedSince};

use httpcore::request::Request;
use httpcore::{Failure, Response};

config::choices! {
    /// How `If-Modified-Since` is compared.
    pub enum Comparison {
        /// Ignored: the answer always counts as modified.
        Off = "off",
        /// The dates must be equal.
        Exact = "exact",
        /// The answer must not be younger.
        Before = "before",
    }
}

directives! {
    /// Conditional requests.
    pub struct NotModified in Location {
        /// Sets how the time in `If-Modified-Since` is compared with that of the response: `off` ignores the field (the
        /// response always counts as modified), `exact` requires equality, `before` accepts any response that is not
        /// newer.
        if_modified_since: Comparison = "exact", [HTTP | SERVER | LOCATION] 1;
    }
}

/// Turns a 200 into a 304 if the request's conditions say so; `yields`: whether `If-None-Match` alone counts where it
/// stands beside `If-Modified-Since`.
///
/// # Errors
/// 412 when a precondition failed.
pub fn apply(
    request: &Request,
    settings: &NotModified,
    yields: impl FnOnce() -> bool,
    response: &mut Response,
) -> Result<(), Failure> {
    if response.status != 200 || !response.conditional {
        return Ok(());
    }
    let rule = match settings.if_modified_since {
        _ if yields() => IfModifiedSince::Yields,
        Comparison::Off => IfModifiedSince::Off,
        Comparison::Exact => IfModifiedSince::Exact,
        Comparison::Before => IfModifiedSince::Before,
    };
    match conditional::judge(
        &request.head,
        response.modified(),
        response.etag.as_ref(),
        rule,
    ) {
        ConditionalVerdict::Send => Ok(()),
        ConditionalVerdict::NotModified => {
            response.become_not_modified();
            Ok(())
        }
        ConditionalVerdict::Failed => Err(Failure::new(412)),
    }
}
