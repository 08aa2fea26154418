//! Who may pass: all of the steps that judge a client, or any of them (`satisfy`). nginx-drop-in 49.
//!
//! To add a judge, add a line to [`run`], in nginx's order. Sub-requests are not judged.

use config::directives;

use crate::Failure;
use crate::request::Request;
use crate::respond::Outcome;

use super::{access, auth_request};

config::choices! {
    /// `satisfy`.
    pub enum Satisfy {
        /// Every judge must let the client pass.
        All = "all",
        /// One is enough.
        Any = "any",
    }
}

directives! {
    /// Who may pass.
    pub struct Admission in Location {
        /// Says whether all that judge a client (`allow` and `deny`, `auth_request`) must let it pass, or whether one of them is
        /// enough.
        satisfy: Satisfy = "all", [HTTP | SERVER | LOCATION] 1;
    }
}

/// What one judge says.
#[derive(Debug)]
pub enum Verdict {
    /// Nothing: it has nothing to go by here.
    Silent,
    /// The client may pass.
    Passed,
    /// It may not, or nobody knows.
    Refused(Failure),
}

/// Asks the judges; `Some`: the client is refused.
pub async fn run(request: &mut Request) -> Option<Outcome> {
    let settings = &request.location().settings;
    let has_auth_request = settings.auth_request.auth_request.is_some();
    if request.is_subrequest() || (settings.access.rules.is_empty() && !has_auth_request) {
        return None;
    }
    let satisfy = settings.admission.satisfy;
    let mut refused = None;
    match weigh(satisfy, access::judge(request), &mut refused) {
        Weighed::Open => {}
        Weighed::Passed => return None,
        Weighed::Refused(failure) => return Some(Outcome::Failed(failure)),
    }
    if has_auth_request {
        let verdict = auth_request::judge(request).await;
        match weigh(satisfy, verdict, &mut refused) {
            Weighed::Open => {}
            Weighed::Passed => return None,
            Weighed::Refused(failure) => return Some(Outcome::Failed(failure)),
        }
    }
    let failure = refused?;
    if failure.status == 403 {
        access::log_forbidden(request);
    }
    Some(Outcome::Failed(failure))
}

/// What a verdict means for the whole.
enum Weighed {
    /// The next one is asked.
    Open,
    Passed,
    Refused(Failure),
}

/// With `any`, a 401 is remembered before a 403: the client may still prove who it is.
fn weigh(satisfy: Satisfy, verdict: Verdict, refused: &mut Option<Failure>) -> Weighed {
    match (satisfy, verdict) {
        (_, Verdict::Silent) | (Satisfy::All, Verdict::Passed) => Weighed::Open,
        (Satisfy::Any, Verdict::Passed) => Weighed::Passed,
        (Satisfy::Any, Verdict::Refused(failure)) if matches!(failure.status, 401 | 403) => {
            if refused.as_ref().is_none_or(|known| known.status != 401) {
                *refused = Some(failure);
            }
            Weighed::Open
        }
        (_, Verdict::Refused(failure)) => Weighed::Refused(failure),
    }
}
