//! Finds the location of a request: the search of [`crate::route`], applied to a request.

use bytes::Bytes;
use message::escape::Escape;

use crate::Failure;
use crate::regex::{Regex, Spans};
use crate::request::Request;
use crate::route::Found;

/// Finds the location of the current URI and enters it. `Some`: the redirect from `/a` to `/a/`, for a request whose
/// body is let in.
///
/// # Errors
/// 404: the location is for internal redirects alone. 500: a match failed, which as in nginx decides for no location.
pub fn run(request: &mut Request) -> Result<Option<Failure>, Failure> {
    let generation = request.generation.clone();
    let settings = &generation.settings;
    let server = settings.server(request.server);
    let uri = std::mem::take(&mut request.uri);
    let found = settings.location(server.location).inner.find(
        &uri,
        &|id| &settings.location(id).inner,
        &|regex: &Regex, spans: Spans| request.capture(regex, &uri, spans),
    );
    request.uri = uri;
    let (location, adds_slash) = match found {
        Found::Prefix(location) | Found::Final(location) => (location, false),
        Found::AddSlash(location) => (location, true),
        Found::Nothing => (server.location, false),
        Found::Failed(failed) => return Err(request.match_failed(&failed)),
    };
    request.enter(location);
    // Of the location itself: a `limit_except` inside, which may have been entered, says nothing of it.
    if settings.location(location).is_internal && !request.is_internal {
        return Err(Failure::new(404));
    }
    Ok(adds_slash.then(|| add_slash(request)))
}

/// 301 from `/a` to the prefix location `/a/`.
fn add_slash(request: &Request) -> Failure {
    let mut target = Escape::Uri.apply(&request.location().name);
    if !request.args().is_empty() {
        target.push(b'?');
        target.extend_from_slice(request.args());
    }
    Failure::redirect(301, Bytes::from(target))
}
