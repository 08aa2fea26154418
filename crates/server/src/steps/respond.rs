//! The life of a request: one function that reads like its description.
//!
//! To add a step, add a line in [`before`], [`content`] or [`after`]. Invariant: a failure becomes a response in one
//! place only, [`error_page::cover`].

use httpcore::connection::tls_handshake;
use httpcore::files::hot_files;
use httpcore::outcome::{Outcome, Settled, Start};
use httpcore::request::{Arrival, Request, URI_CHANGES_MAX};
use httpcore::steps::client_tls;
use httpcore::steps::error_page::{self, Cover};
use httpcore::steps::observe::Observe;
use httpcore::{Failure, Response};
use modules::realpath_root;

use super::{after, before, content};

/// Maximum number of rounds of one request: its changes of URI, the one that was too many, and its response.
const ROUNDS_MAX: usize = URI_CHANGES_MAX as usize + 2;

/// Makes the response to a request; `None` closes the connection without a byte.
pub(crate) async fn respond<O: Observe>(
    request: &mut Request,
    start: Start,
    observer: O,
) -> Option<Box<Response>> {
    let mut outcome = match start {
        Start::Fresh => match refused(request).await {
            Some(failure) => Outcome::Failed(failure),
            None => match hot_files::answer(request) {
                Some(response) => Outcome::Answer(response),
                None => pass(request, Arrival::Fresh, observer).await,
            },
        },
        Start::Content => content::make(request, observer).await,
        Start::Elsewhere(target) => {
            let arrival = request.redirect(*target);
            Box::pin(pass(request, arrival, observer)).await
        }
        Start::Refused(status) => {
            request.transport.close_after_response();
            Outcome::Failed(Failure::new(status))
        }
    };
    for _ in 0..ROUNDS_MAX {
        outcome = match settle(request, outcome, observer) {
            Settled::Response(response) => return Some(response),
            Settled::Close(status) => {
                request.silent_status = Some(status);
                return None;
            }
            Settled::Redirect(target) => {
                let may_go_on = request.may_change_uri();
                observer.goes_on(request, &target, !may_go_on);
                if !may_go_on {
                    request.log_cycle(&target);
                    outcome = Outcome::Failed(Failure::new(500));
                    continue;
                }
                let arrival = request.redirect(target);
                // Boxed, so that the many requests that are not redirected need no space for it.
                Box::pin(pass(request, arrival, observer)).await
            }
        }
    }
    None
}

/// Why the connection's TLS is not what the request needs.
#[inline]
async fn refused(request: &mut Request) -> Option<Failure> {
    if tls_handshake::is_outdated(request) {
        // Boxed: once for a connection behind a reload.
        let judged = Box::pin(tls_handshake::judge_again(request)).await;
        if let Err(failure) = judged {
            return Some(failure);
        }
    }
    client_tls::refused(request).map(Failure::new)
}

async fn pass<O: Observe>(request: &mut Request, arrival: Arrival, observer: O) -> Outcome {
    observer.begins(request);
    let early = before::run(request, arrival, observer).await;
    realpath_root::run(request).await;
    match early {
        Some(early) => early,
        None => content::make(request, observer).await,
    }
}

/// Turns the outcome into a response: by the error pages if it failed, and always through the steps after the
/// content.
fn settle<O: Observe>(request: &mut Request, mut outcome: Outcome, observer: O) -> Settled {
    loop {
        let response = match outcome {
            Outcome::Answer(response) => response,
            Outcome::Redirect(target) => return Settled::Redirect(target),
            Outcome::Close(status) => return Settled::Close(status),
            Outcome::Failed(failure) => {
                observer.fails(request, &failure);
                match error_page::cover(request, failure) {
                    Cover::Redirect(target) => return Settled::Redirect(target),
                    Cover::Answer(response) => response,
                    Cover::Close(status) => return Settled::Close(status),
                }
            }
        };
        match after::apply(request, response) {
            Ok(response) => return Settled::Response(response),
            Err(other) => outcome = other,
        }
    }
}
