//! Makes the content of a response: by the location's own handler, else by nginx's three for files.
//!
//! To add a kind of content that a directive turns on, add a line to one of the two lists of [`content_of_location`].

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
use proxy::settings::proxy_pass::PassSettings;
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
    if request.location().has_content
        && let Some(outcome) = own::make(request, observer).await
    {
        return outcome;
    }
    if request.location().is_passed_on {
        if request.location().made::<PassSettings>().is_some() {
            must_make!(observer, request, "proxy": proxy::pass::make(request).await);
        }
        if let Some(leading) = request.location().made::<TunnelTarget>().cloned() {
            must_make!(observer, request, "tunnel_pass": Box::pin(tunnel_pass::make(request, &leading)).await);
        }
    }
    if request.location().has_content
        && let Some(outcome) = behind_passing::make(request, observer).await
    {
        return outcome;
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

/// Makes of one list the function that lets its kinds of content be made where a location has them, and the one that
/// tells whether it has any.
macro_rules! content_of_location {
    ($list:ident |$request:ident| $($name:literal if $is_on:path => $make:expr;)*) => {
        mod $list {
            use super::*;

            pub(super) async fn make<O: Observe>($request: &mut Request, observer: O) -> Option<Outcome> {
                $(if $is_on($request.location()) {
                    if !observer.makes($name, $request) {
                        return Some(not_made());
                    }
                    let outcome: Option<Outcome> = $make;
                    observer.made($name, $request, outcome.as_ref());
                    if outcome.is_some() {
                        return outcome;
                    }
                })*
                None
            }

            pub(super) fn is_any(location: &Location) -> bool {
                let any: &[fn(&Location) -> bool] = &[$($is_on),*];
                any.iter().any(|is_on| is_on(location))
            }
        }
    };
}

content_of_location! { own |request|
    "module" if has_handler => handled(request).await;
    "status" if has_status => Box::pin(status(request)).await;
    "empty_gif" if empty_gif::is_on => Some(empty_gif::make(request));
    "flv" if flv::is_on => Box::pin(flv::make(request)).await;
    "mp4" if mp4::is_on => Box::pin(mp4::make(request)).await;
}

content_of_location! { behind_passing |request|
    "dav" if dav::is_on => dav::make(request).await;
}

/// Whether a module may make content at a location, beside what passes requests on and plain files.
#[must_use]
pub(crate) fn is_any(location: &Location) -> bool {
    own::is_any(location) || behind_passing::is_any(location)
}

fn has_handler(location: &Location) -> bool {
    handler::of(location).is_some()
}

async fn handled(request: &mut Request) -> Option<Outcome> {
    let handler = handler::of(request.location()).cloned()?;
    Some(handler::make(request, &handler).await)
}

fn has_status(location: &Location) -> bool {
    location.made::<Shown>().is_some()
}

async fn status(request: &mut Request) -> Option<Outcome> {
    let shown = request.location().made::<Shown>().copied()?;
    Some(status::make(request, shown).await)
}

/// Whether a location passes its requests on.
#[must_use]
pub(crate) fn is_passed_on(location: &Location) -> bool {
    location.made::<PassSettings>().is_some() || location.made::<TunnelTarget>().is_some()
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
        Outcome::Failed(failure) => failure.varies |= found.varies,
        _ => {}
    }
    outcome
}
