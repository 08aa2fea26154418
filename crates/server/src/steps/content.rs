//! Makes the content of a response: by the location's own handler, else by nginx's three for files.
//!
//! To add a kind of content, add a line to [`make`].

use message::Header;
use runtime::timing::current_request;

use crate::after::charset;
use crate::content::{
    autoindex, dav, empty_gif, flv, gzip_static, index, module, mp4, proxy, random_index,
    static_files, status, tunnel_pass,
};
use crate::outcome::Outcome;
use crate::request::Request;

/// Makes the content of a request that passed the steps before it.
pub async fn make(request: &mut Request) -> Outcome {
    current_request::phase(current_request::Phase::Content);
    if let Some(handler) = request.location().handler.clone() {
        return module::make(request, &handler).await;
    }
    if let Some(shown) = request.location().shown {
        return Box::pin(status::make(request, shown)).await;
    }
    if request.location().settings.empty_gif.empty_gif.is_some() {
        return empty_gif::make(request);
    }
    if flv::is_on(request)
        && let Some(outcome) = Box::pin(flv::make(request)).await
    {
        return outcome;
    }
    if mp4::is_on(request)
        && let Some(outcome) = Box::pin(mp4::make(request)).await
    {
        return outcome;
    }
    if request.location().passing.is_some() {
        return proxy::make(request).await;
    }
    if let Some(leading) = request.location().tunnelling.clone() {
        return Box::pin(tunnel_pass::make(request, &leading)).await;
    }
    if let Some(outcome) = dav::make(request).await {
        return outcome;
    }
    if request.uri.ends_with(b"/") {
        if random_index::is_on(request)
            && let Some(outcome) = Box::pin(random_index::make(request)).await
        {
            return outcome;
        }
        if let Some(outcome) = index::make(request).await {
            return outcome;
        }
        if let Some(outcome) = autoindex::make(request, charset::of_pages).await {
            return outcome;
        }
        return index::forbid(request);
    }
    if request.location().settings.precompressed.is_on() {
        // Boxed, so that a step that is not taken needs no space in every request.
        return Box::pin(precompressed_or_not(request)).await;
    }
    static_files::make(request).await
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
