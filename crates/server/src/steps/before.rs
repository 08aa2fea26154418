//! The steps before the content: each may answer, refuse or redirect; otherwise the next one runs.
//!
//! To add a step behind the rewriting, add a line to [`steps_of_location`]; an earlier one is a line in [`run`] and one in
//! [`is_any`]. The order is that of nginx's phases: post read, server rewrite, find location, rewrite, preaccess, access,
//! precontent.

use runtime::timing::current_request;

use httpcore::Failure;
use httpcore::outcome::Outcome;
use httpcore::request::{Arrival, Request};
use httpcore::settings::Location;
use httpcore::steps::find_location;
use httpcore::steps::observe::Observe;
use modules::before::rewrite::Rewritten;
use modules::before::{
    acme_challenge, auth_request, client_body_early_read, client_max_body_size, mirror, real_ip,
    rewrite, try_files,
};
use modules::headers_more;
use modules::headers_more::HeadersMore;
use modules::realpath_root;

use super::judges;
use modules::limits::{limit_conn, limit_req};

/// Runs a step; its outcome is the list's, if it has one.
macro_rules! step {
    ($observer:ident, $request:ident, $name:literal: $run:expr) => {
        if $observer.lets($name, $request) {
            let outcome: Option<Outcome> = $run;
            $observer.ran($name, $request, outcome.as_ref());
            if outcome.is_some() {
                return outcome;
            }
        }
    };
}

/// Runs the steps; `None`: go on with the content.
pub(crate) async fn run<O: Observe>(
    request: &mut Request,
    arrival: Arrival,
    observer: O,
) -> Option<Outcome> {
    current_request::phase(current_request::Phase::Before);
    match arrival {
        Arrival::Lost => return Some(Outcome::Failed(Failure::new(500))),
        Arrival::Named => observer.ran("find_location", request, None),
        Arrival::Fresh | Arrival::Redirected => {
            if arrival == Arrival::Fresh && !request.is_subrequest() {
                if acme_challenge::may_be_wanted() {
                    step!(observer, request, "acme_challenge": acme_challenge::run(request));
                }
                if client_body_early_read::may_be_wanted(request) {
                    step!(observer, request, "client_body_early_read": Box::pin(client_body_early_read::run(request)).await);
                }
                if request.location().has_steps_before {
                    step!(observer, request, "real_ip": { real_ip::run(request); None });
                }
            }
            if let Some(early) = rewrite::run_server(request, observer).await {
                return Some(early);
            }
            if let Some(early) = find_location(request, observer) {
                return Some(early);
            }
        }
    }
    // At most `URI_CHANGES_MAX` times.
    loop {
        let moves = match rewrite::run_location(request, observer).await {
            Rewritten::Answered(outcome) => return Some(outcome),
            Rewritten::Stays => false,
            Rewritten::Moves => true,
        };
        // `headers_more` of the location where the rewriting ends applies, whether or not the URI moves on to another
        // one.
        if request.location().has_steps_before
            && request.location().own::<HeadersMore>().has_input()
        {
            step!(observer, request, "headers_more": headers_more::input::run(request).err().map(Outcome::Failed));
        }
        if !moves {
            break;
        }
        if let Some(early) = find_location(request, observer) {
            return Some(early);
        }
    }
    if !request.location().has_steps_before {
        return None;
    }
    // Where a subrequest sets variables, the root may be made of them.
    if !auth_request::sets(request.location()) {
        realpath_root::run(request).await;
    }
    run_at_location(request, observer).await
}

/// Finds the location. A body that is too large for it is refused before a redirect to the name with a slash. As in
/// nginx, a named location's own limit is not asked: the body was let in where the request came from.
fn find_location<O: Observe>(request: &mut Request, observer: O) -> Option<Outcome> {
    let mut redirect = None;
    step!(observer, request, "find_location": match find_location::run(request) {
        Ok(slash) => {
            redirect = slash;
            None
        }
        Err(failure) => Some(Outcome::Failed(failure)),
    });
    step!(observer, request, "client_max_body_size": client_max_body_size::run(request));
    redirect.map(Outcome::Failed)
}

/// Makes of one list the function that runs its steps, and the one that tells whether any of them has something to do.
macro_rules! steps_of_location {
    (|$request:ident, $observer:ident| $($name:literal if $is_on:path => $run:expr;)*) => {
        /// Runs the steps that follow the rewriting.
        async fn run_at_location<O: Observe>($request: &mut Request, $observer: O) -> Option<Outcome> {
            $(step!($observer, $request, $name: $run);)*
            None
        }

        /// Whether any of these steps has something to do at a location.
        fn is_any_at_location(location: &Location) -> bool {
            let any: &[fn(&Location) -> bool] = &[$($is_on),*];
            any.iter().any(|is_on| is_on(location))
        }
    };
}

steps_of_location! { |request, observer|
    "real_ip" if real_ip::is_on => { real_ip::run(request); None };
    "limit_req" if limit_req::is_on => limit_req::run(request).await;
    "limit_conn" if limit_conn::is_on => limit_conn::run(request);
    "satisfy" if judges::is_any => judges::run(request, observer).await;
    "try_files" if try_files::is_on => try_files::run(request).await;
    "mirror" if mirror::is_on => mirror::run(request).await;
}

/// Whether any step has something to do at a location for a request without a body. Found out once, when the
/// configuration is built: locations for which none has are answered without the steps.
#[must_use]
pub(crate) fn is_any(location: &Location) -> bool {
    location.is_internal
        || location.is_conditional
        || location.made::<rewrite::Program>().is_some()
        || location.own::<HeadersMore>().has_input()
        || is_any_at_location(location)
}
