//! The judges of a client: those whose verdicts `satisfy` combines. nginx-drop-in 49.
//!
//! To add a judge, add it to `ask`, in nginx's order, and to `is_any`. Sub-requests are not judged.

use std::ops::ControlFlow;

use httpcore::Failure;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::settings::Location;
use httpcore::steps::observe::Observe;
use httpcore::steps::satisfy::{self, Verdict, Verdicts};
use modules::before::{access, auth_basic, auth_request};

/// Whether anybody judges at a location.
pub(crate) fn is_any(location: &Location) -> bool {
    access::is_on(location) || auth_basic::is_on(location) || auth_request::is_on(location)
}

/// Asks the judges; `Some`: the client is refused.
pub(crate) async fn run<O: Observe>(request: &mut Request, observer: O) -> Option<Outcome> {
    if request.is_subrequest() || !is_any(request.location()) {
        return None;
    }
    let failure = ask(request, observer).await?;
    Some(satisfy::refuse(request, failure).await)
}

/// Asks a judge; the decision, if no other one is asked, is the list's.
macro_rules! judge {
    ($observer:ident, $request:ident, $verdicts:ident, $name:literal: $judge:expr) => {{
        let verdict = if $observer.lets($name, $request) {
            $judge
        } else {
            Verdict::Passed
        };
        $observer.judged($name, $request, &verdict);
        if let ControlFlow::Break(decision) = $verdicts.add(verdict) {
            return decision;
        }
    }};
}

async fn ask<O: Observe>(request: &mut Request, observer: O) -> Option<Failure> {
    let mut verdicts = Verdicts::on(request);
    judge!(observer, request, verdicts, "access": access::judge(request));
    if auth_basic::is_on(request.location()) {
        judge!(observer, request, verdicts, "auth_basic": Box::pin(auth_basic::judge(request)).await);
    }
    if auth_request::is_on(request.location()) {
        judge!(observer, request, verdicts, "auth_request": auth_request::judge(request).await);
    }
    verdicts.decide(request)
}
