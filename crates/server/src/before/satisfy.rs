//! `satisfy`: whether all of the steps that judge a client must let it pass, or any of them. nginx-drop-in 49.
//!
//! To add a judge, add a line to [`run`], in nginx's order. Sub-requests are not judged.

use config::{Msec, directives};
use logs::Level;

use crate::Failure;
use crate::outcome::Outcome;
use crate::request::Request;
use crate::request_body::CLIENT_CLOSED;

use super::{access, auth_basic, auth_request};

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
    /// Combined access rules (satisfy).
    pub struct Admission in Location {
        /// Sets whether all access rules (`allow` and `deny`, `auth_basic`, `auth_request`) must allow a client, or
        /// whether one is enough.
        satisfy: Satisfy = "all", [HTTP | SERVER | LOCATION] 1;
        /// Delays responses with status 401 or 407, which slows down password guessing.
        auth_delay: Msec = "0", [HTTP | SERVER | LOCATION] 1;
    }
}

/// The verdict of one judge.
#[derive(Debug)]
pub enum Verdict {
    /// No verdict: there is nothing here to judge by.
    Silent,
    /// The client may pass.
    Passed,
    /// The client may not pass, or that could not be found out.
    Refused(Failure),
}

/// Asks the judges; `Some`: the client is refused.
pub async fn run(request: &mut Request) -> Option<Outcome> {
    let settings = &request.location().settings;
    let has_auth_request = settings.auth_request.auth_request.is_some();
    let has_auth_basic = settings.auth_basic.auth_basic.is_some();
    let has_rules = !settings.access.rules.is_empty();
    if request.is_subrequest() || !(has_rules || has_auth_basic || has_auth_request) {
        return None;
    }
    let failure = ask(request, has_auth_basic, has_auth_request).await?;
    if !asks_who(&failure) || request.location().settings.admission.auth_delay.0 == 0 {
        return Some(Outcome::Failed(failure));
    }
    Some(Box::pin(delay(request, failure)).await)
}

async fn ask(
    request: &mut Request,
    has_auth_basic: bool,
    has_auth_request: bool,
) -> Option<Failure> {
    let satisfy = request.location().settings.admission.satisfy;
    let mut refused = None;
    match weigh(satisfy, access::judge(request), &mut refused) {
        Weighed::Open => {}
        Weighed::Passed => return None,
        Weighed::Refused(failure) => return Some(failure),
    }
    if has_auth_basic {
        let verdict = Box::pin(auth_basic::judge(request)).await;
        match weigh(satisfy, verdict, &mut refused) {
            Weighed::Open => {}
            Weighed::Passed => return None,
            Weighed::Refused(failure) => return Some(failure),
        }
    }
    if has_auth_request {
        let verdict = auth_request::judge(request).await;
        match weigh(satisfy, verdict, &mut refused) {
            Weighed::Open => {}
            Weighed::Passed => return None,
            Weighed::Refused(failure) => return Some(failure),
        }
    }
    let failure = refused?;
    if failure.status == 403 {
        access::log_forbidden(request);
    }
    Some(failure)
}

/// Whether the failure asks the client for credentials.
fn asks_who(failure: &Failure) -> bool {
    matches!(failure.status, 401 | 407)
}

/// Refuses after a delay, unless the client leaves before.
async fn delay(request: &Request, failure: Failure) -> Outcome {
    request.log(Level::Info, &|out| {
        out.extend_from_slice(b"delaying unauthorized request");
    });
    request.client.loop_.figures.modules.delayed.add(1);
    let delay = request.location().settings.admission.auth_delay.duration();
    tokio::select! {
        () = request.client.loop_.wire.wheel.sleep(delay) => Outcome::Failed(failure),
        () = request.wire.peer_closed() => Outcome::Failed(Failure::new(CLIENT_CLOSED)),
    }
}

/// The effect of a verdict on the result.
enum Weighed {
    /// The next judge is asked.
    Open,
    Passed,
    Refused(Failure),
}

/// Weighs a verdict. With `any`, a 401 takes precedence over a 403: the client may still authenticate.
fn weigh(satisfy: Satisfy, verdict: Verdict, refused: &mut Option<Failure>) -> Weighed {
    match (satisfy, verdict) {
        (_, Verdict::Silent) | (Satisfy::All, Verdict::Passed) => Weighed::Open,
        (Satisfy::Any, Verdict::Passed) => Weighed::Passed,
        (Satisfy::Any, Verdict::Refused(failure))
            if failure.status == 403 || asks_who(&failure) =>
        {
            match refused {
                // Each challenge is sent.
                Some(known) if asks_who(known) => known.headers.extend(failure.headers),
                _ => *refused = Some(failure),
            }
            Weighed::Open
        }
        (_, Verdict::Refused(mut failure)) => {
            // Challenges of the judges before it are kept.
            let known = refused.take().map(|known| known.headers);
            failure.headers.splice(0..0, known.unwrap_or_default());
            Weighed::Refused(failure)
        }
    }
}
