//! Makes the content of a response: by the location's own handler, else by nginx's three for files.
//!
//! To add a kind of content, add a line to [`make`], and one to [`is_any`] if it is asked for where that says so.

use message::Header;
use runtime::timing::current_request;

use crate::monitoring::directives::Shown;
use crate::monitoring::status;
use httpcore::handler;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::settings::Location;
use httpcore::steps::observe::{Observe, not_made};
use modules::after::charset;
use modules::content::{
    autoindex, dav, empty_gif, flv, gzip_static, index, mp4, random_index, static_files,
};
use proxy::settings::proxy_pass::Passing;
use proxy::tunnel_pass;
use proxy::tunnel_pass::TunnelTarget;

/// Lets content be made; it may leave that to the next kind.
macro_rules! may_make {
    ($observer:ident, $request:ident, $name:literal: $make:expr) => {{
        if !$observer.makes($name, $request) {
            return not_made();
        }
        let outcome: Option<Outcome> = $make;
        $observer.made($name, $request, outcome.as_ref());
        if let Some(outcome) = outcome {
            return outcome;
        }
    }};
}

/// Lets content be made; nothing comes behind it.
macro_rules! must_make {
    ($observer:ident, $request:ident, $name:literal: $make:expr) => {{
        if !$observer.makes($name, $request) {
            return not_made();
        }
        let outcome: Outcome = $make;
        $observer.made($name, $request, Some(&outcome));
        return outcome;
    }};
}

/// Makes the content of a request that passed the steps before it.
pub(crate) async fn make<O: Observe>(request: &mut Request, observer: O) -> Outcome {
    current_request::phase(current_request::Phase::Content);
    if request.location().has_content {
        if let Some(handler) = handler::of(request.location()).cloned() {
            must_make!(observer, request, "module": handler::make(request, &handler).await);
        }
        if let Some(shown) = request.location().made::<Shown>().copied() {
            must_make!(observer, request, "status": Box::pin(status::make(request, shown)).await);
        }
        if empty_gif::is_on(request.location()) {
            must_make!(observer, request, "empty_gif": empty_gif::make(request));
        }
        if flv::is_on(request.location()) {
            may_make!(observer, request, "flv": Box::pin(flv::make(request)).await);
        }
        if mp4::is_on(request.location()) {
            may_make!(observer, request, "mp4": Box::pin(mp4::make(request)).await);
        }
    }
    if request.location().is_passed_on {
        if request.location().made::<Passing>().is_some() {
            must_make!(observer, request, "proxy": proxy::pass::make(request).await);
        }
        if let Some(leading) = request.location().made::<TunnelTarget>().cloned() {
            must_make!(observer, request, "tunnel_pass": Box::pin(tunnel_pass::make(request, &leading)).await);
        }
    }
    if request.location().has_content {
        may_make!(observer, request, "dav": dav::make(request).await);
    }
    if request.uri.ends_with(b"/") {
        if random_index::is_on(request) {
            may_make!(observer, request, "random_index": Box::pin(random_index::make(request)).await);
        }
        may_make!(observer, request, "index": index::make(request).await);
        may_make!(observer, request, "autoindex": autoindex::make(request, charset::of_pages).await);
        must_make!(observer, request, "index": index::forbid(request));
    }
    if request.location().has_variants {
        // Boxed, so that a step that is not taken needs no space in every request.
        must_make!(observer, request, "gzip_static": Box::pin(precompressed_or_not(request)).await);
    }
    must_make!(observer, request, "static_files": static_files::make(request).await)
}

/// Whether a module may make content at a location, beside what passes requests on and plain files.
#[must_use]
pub(crate) fn is_any(location: &Location) -> bool {
    handler::of(location).is_some()
        || location.made::<Shown>().is_some()
        || empty_gif::is_on(location)
        || flv::is_on(location)
        || mp4::is_on(location)
        || dav::is_on(location)
}

/// Whether a location passes its requests on.
#[must_use]
pub(crate) fn is_passed_on(location: &Location) -> bool {
    location.made::<Passing>().is_some() || location.made::<TunnelTarget>().is_some()
}

/// Whether clients may get different files of a location for the same URI.
#[must_use]
pub(crate) fn has_variants(location: &Location) -> bool {
    gzip_static::is_on(location)
}

/// A file, precompressed if such a file exists and the client accepts it.
async fn precompressed_or_not(request: &mut Request) -> Outcome {
    let found = gzip_static::make(request).await;
    if let Some(outcome) = found.answer {
        return outcome;
    }
    let mut outcome = static_files::make(request).await;
    match &mut outcome {
        Outcome::Answer(response) => response.vary_accept_encoding |= found.varies,
        // A file that is there only compressed is missing for this client alone.
        Outcome::Failed(failure) if found.varies => {
            let line = Header::new("Vary", "Accept-Encoding");
            failure.headers.push(line);
        }
        _ => {}
    }
    outcome
}
