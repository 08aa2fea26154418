//! The steps before the content: each may answer, refuse or redirect; otherwise the next one runs.
//!
//! To add a step, add a line to [`run`] and one to [`is_any`]: without the latter the step never runs. The order is
//! that of nginx's phases: post read, server rewrite, find location, rewrite, preaccess, access, precontent.

use runtime::timing::current_request;

use crate::Failure;
use crate::before::rewrite::Rewritten;
use crate::before::{
    client_body_early_read, client_max_body_size, limit_conn, limit_req, mirror, real_ip, rewrite,
    try_files,
};
use crate::find_location;
use crate::headers_more;
use crate::outcome::Outcome;
use crate::realpath_root;
use crate::request::{Arrival, Request};
use crate::settings::Location;

use super::judges;

/// Runs the steps; `None`: go on with the content.
pub async fn run(request: &mut Request, arrival: Arrival) -> Option<Outcome> {
    current_request::phase(current_request::Phase::Before);
    match arrival {
        Arrival::Lost => return Some(Outcome::Failed(Failure::new(500))),
        Arrival::Named => {}
        Arrival::Fresh | Arrival::Redirected => {
            if arrival == Arrival::Fresh && !request.is_subrequest() {
                if client_body_early_read::may_be_wanted(request)
                    && let Some(early) = Box::pin(client_body_early_read::run(request)).await
                {
                    return Some(early);
                }
                real_ip::run(request);
            }
            realpath_root::run(request).await;
            if let Some(early) = rewrite::run_server(request).await {
                return Some(early);
            }
            if let Some(early) = find_location::run(request) {
                return Some(early);
            }
        }
    }
    // At most `URI_CHANGES_MAX` times.
    loop {
        realpath_root::run(request).await;
        if let Some(early) = client_max_body_size::run(request) {
            return Some(early);
        }
        let moves = match rewrite::run_location(request).await {
            Rewritten::Answered(outcome) => return Some(outcome),
            Rewritten::Stays => false,
            Rewritten::Moves => true,
        };
        // `headers_more` of the location where the rewriting ends applies, whether or not the URI moves on to another
        // one.
        if request.location().settings.headers_more.has_input()
            && let Err(failure) = headers_more::input::run(request)
        {
            return Some(Outcome::Failed(failure));
        }
        if !moves {
            break;
        }
        if let Some(early) = find_location::run(request) {
            return Some(early);
        }
    }
    if !request.location().has_steps_before {
        return None;
    }
    real_ip::run(request);
    if let Some(early) = limit_req::run(request).await {
        return Some(early);
    }
    if let Some(early) = limit_conn::run(request) {
        return Some(early);
    }
    if let Some(early) = judges::run(request).await {
        return Some(early);
    }
    if let Some(early) = try_files::run(request).await {
        return Some(early);
    }
    mirror::run(request).await
}

/// Whether any step has something to do at a location for a request without a body. Found out once, when the
/// configuration is built: locations for which none has are answered without the steps.
#[must_use]
pub fn is_any(location: &Location) -> bool {
    location.is_internal
        || location.is_conditional
        || location.program.is_some()
        || location.settings.headers_more.has_input()
        || real_ip::is_on(location)
        || limit_req::is_on(location)
        || limit_conn::is_on(location)
        || judges::is_any(location)
        || try_files::is_on(location)
        || mirror::is_on(location)
}
