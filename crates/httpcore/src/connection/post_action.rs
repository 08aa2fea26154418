//! `post_action`: the location that a request goes on to after it was answered.
//!
//! It is the same request with everything known of it (`$body_bytes_sent`, `$request_completion`), but without its
//! connection: nothing is sent, and a client that leaves does not end it. Its log lines are written at its end, as in
//! nginx.

use bytes::Bytes;
use message::Framing;

use crate::failure::CLOSED;
use crate::handler::metrics::ModuleMetrics;
use crate::outcome::{Start, Target};
use crate::request::Request;
use crate::request_body::{Arriving, RequestBody};
use crate::responder::Responder;
use crate::subrequest;

/// What its sub-requests are counted as.
static SUBREQUESTS: subrequest::Kind = subrequest::Kind::named("post_action");

/// How they are shown.
pub static METRICS: ModuleMetrics = ModuleMetrics {
    families: &[],
    show: |shown, page| {
        SUBREQUESTS.show(shown, page, |location| {
            location.settings.post_action.post_action.is_some()
        });
    },
};

/// Whether the location has a `post_action`.
#[must_use]
pub fn is_wanted(request: &Request) -> bool {
    request
        .location()
        .settings
        .post_action
        .post_action
        .is_some()
        && request.silent_status != Some(CLOSED)
}

/// Runs the `post_action` of an answered request.
pub async fn run<R: Responder>(request: &mut Request) {
    let body = match request.body.body() {
        Some(stored @ RequestBody::Stored(_)) => stored.clone(),
        _ if request.head.framing == Framing::None => RequestBody::None,
        // A body that was not kept is gone.
        _ => RequestBody::bytes(Bytes::new()),
    };
    let body = std::mem::replace(&mut request.body, Arriving::given(body));
    let stand_in = request.transport.stand_in();
    let transport = std::mem::replace(&mut request.transport, stand_in);
    // At most `URI_CHANGES_MAX` times.
    while let Some(target) = target(request) {
        if !request.may_change_uri() {
            request.log_cycle(&target);
            break;
        }
        let response = R::respond(request, Start::Elsewhere(Box::new(target))).await;
        subrequest::count(request, &SUBREQUESTS, response.as_deref());
        if let Some(mut response) = response {
            subrequest::take_what_came(std::mem::take(&mut response.body)).await;
            request.response = Some(response);
        }
    }
    request.body = body;
    let stand_in = std::mem::replace(&mut request.transport, transport);
    if !stand_in.is_persistent() {
        request.transport.close_after_response();
    }
}

fn target(request: &Request) -> Option<Target> {
    let to = request
        .location()
        .settings
        .post_action
        .post_action
        .clone()?;
    Some(match to.starts_with(b"/") {
        true => Target::Uri(to, Bytes::new()),
        false => Target::Named(to),
    })
}
