//! The judges of a client: those whose verdicts `satisfy` combines. nginx-drop-in 49.
//!
//! To add a judge, add it to [`ask`], in nginx's order, and to [`is_any`]. Sub-requests are not judged.

use std::ops::ControlFlow;

use crate::Failure;
use crate::before::{access, auth_basic, auth_request};
use crate::outcome::Outcome;
use crate::request::Request;
use crate::satisfy::{self, Verdicts};
use crate::settings::Location;

/// Whether anybody judges at a location.
pub fn is_any(location: &Location) -> bool {
    access::is_on(location) || auth_basic::is_on(location) || auth_request::is_on(location)
}

/// Asks the judges; `Some`: the client is refused.
pub async fn run(request: &mut Request) -> Option<Outcome> {
    if request.is_subrequest() || !is_any(request.location()) {
        return None;
    }
    let failure = ask(request).await?;
    Some(satisfy::refuse(request, failure).await)
}

async fn ask(request: &mut Request) -> Option<Failure> {
    let mut verdicts = Verdicts::on(request);
    if let ControlFlow::Break(decision) = verdicts.add(access::judge(request)) {
        return decision;
    }
    if auth_basic::is_on(request.location()) {
        let verdict = Box::pin(auth_basic::judge(request)).await;
        if let ControlFlow::Break(decision) = verdicts.add(verdict) {
            return decision;
        }
    }
    if auth_request::is_on(request.location()) {
        let verdict = auth_request::judge(request).await;
        if let ControlFlow::Break(decision) = verdicts.add(verdict) {
            return decision;
        }
    }
    verdicts.decide(request)
}
