//! The judges of a client: those whose verdicts `satisfy` combines. nginx-drop-in 49.
//!
//! To add a judge, add a line to the list, in nginx's order. Sub-requests are not judged.

use std::ops::ControlFlow;

use httpcore::Failure;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::settings::Location;
use httpcore::steps::observe::Observe;
use httpcore::steps::satisfy::{self, Verdict, Verdicts};
use modules::before::{access, auth_basic, auth_request};

/// Asks the judges; `Some`: the client is refused.
pub(crate) async fn run<O: Observe>(request: &mut Request, observer: O) -> Option<Outcome> {
    if request.is_subrequest() || !is_any(request.location()) {
        return None;
    }
    let failure = ask(request, observer).await?;
    Some(satisfy::refuse(request, failure).await)
}

/// Makes of one list the function that asks its judges, and the one that tells whether there is any.
macro_rules! judges {
    (|$request:ident| $($name:literal if $is_on:path => $judge:expr;)*) => {
        /// Asks the judges in turn; one that decides, whatever the others would say, is the last.
        async fn ask<O: Observe>($request: &mut Request, observer: O) -> Option<Failure> {
            let mut verdicts = Verdicts::on($request);
            $(if $is_on($request.location()) {
                let verdict = if observer.lets($name, $request) {
                    $judge
                } else {
                    Verdict::Passed
                };
                observer.judged($name, $request, &verdict);
                if let ControlFlow::Break(decision) = verdicts.add(verdict) {
                    return decision;
                }
            })*
            verdicts.decide($request)
        }

        /// Whether a location has any judge.
        pub(crate) fn is_any(location: &Location) -> bool {
            let any: &[fn(&Location) -> bool] = &[$($is_on),*];
            any.iter().any(|is_on| is_on(location))
        }
    };
}

judges! { |request|
    "access" if access::is_on => access::judge(request);
    "auth_basic" if auth_basic::is_on => Box::pin(auth_basic::judge(request)).await;
    "auth_request" if auth_request::is_on => auth_request::judge(request).await;
}
