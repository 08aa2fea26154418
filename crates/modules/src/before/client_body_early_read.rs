//! `client_body_early_read`: reads a request's body before anything is decided by the request.

use message::Framing;

use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::request_body;

use super::client_max_body_size;

/// Whether the server may want the body at once.
#[must_use]
pub fn may_be_wanted(request: &Request) -> bool {
    request.head.framing != Framing::None
        && !request.server().settings.client_body_early_read.is_empty()
}

/// Reads the body if one of the server's conditions holds, by the server's settings for bodies; `Some`: it cannot be
/// read.
pub async fn run(request: &mut Request) -> Option<Outcome> {
    let generation = request.generation.clone();
    let server = generation.settings.server(request.server);
    if !server.settings.client_body_early_read.hold(request) {
        return None;
    }
    if let Some(refused) = client_max_body_size::run(request) {
        return Some(refused);
    }
    request_body::store(request).await.err()
}
