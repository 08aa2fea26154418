//! Ready responses of one loop for files that were sent recently, by URI: a hit skips the steps from the URI to
//! the file.
//!
//! A hit checks that the file is unchanged and sends the same response; the steps before the content, and the mapping
//! to the file, are known to give the same result. Not here: the places ([`crate::http_loop::ready_files`]), files that must
//! be opened or read (`modules::content::static_files`). Invariant: a response is kept only if no step, name or variable
//! could change it for the next request for the same URI.

use std::rc::Rc;

use disk::OpenFile;
use message::{Body, Framing, Method};

use crate::Response;
use crate::files::by_page::{TOGETHER_MAX, is_sent_by_page};
use crate::http_loop::ready_files::Prepared;
use crate::request::{Request, UriOrigin};

/// Maximum length in bytes of the URI of a ready response.
const URI_MAX: usize = 512;

/// Answers a request from a ready response and enters its location; `None` if there is none.
pub fn answer(request: &mut Request) -> Option<Box<Response>> {
    if request.method != Method::Get || request.head.framing != Framing::None {
        return None;
    }
    let client = Rc::clone(&request.client);
    let prepared = client.http.hot_files.0.get(&request.uri, |prepared| {
        *prepared.uri == *request.uri
            && prepared.server == request.server
            && prepared.generation == request.generation.number
    })?;
    let file = prepared.file.upgrade()?;
    if !client.loop_.disk.is_current(&file, request.moment) {
        return None;
    }
    let len = file.meta().len;
    let location = request.settings().location(prepared.location);
    let is_sent_as_file =
        || len > TOGETHER_MAX || is_sent_by_page(request, location, &file, 0, len);
    // A copy is asked for first: once it is written, it takes the place of the bytes in the heap.
    let bytes = match file.has_copy() {
        true => None,
        false => file.body(),
    };
    let body = match bytes {
        Some(bytes) => Body::bytes(bytes),
        None if is_sent_as_file() => Body::file(file, 0, len),
        None => return None,
    };
    request.enter(prepared.location);
    Some(Box::new(prepared.head.with_body(body)))
}

/// Keeps the response with this file, as it is before the steps after the content, if the next request for the URI
/// gets the same.
pub fn keep(request: &Request, file: &Rc<OpenFile>, response: &Response) {
    let is_whole = match &response.body {
        Body::Once(message::Chunk::Bytes(bytes)) => {
            file.body().is_some_and(|kept| kept.len() == bytes.len())
        }
        Body::Once(message::Chunk::File(range)) => file.is_kept() && range.len == file.meta().len,
        _ => false,
    };
    let is_same_for_all = is_whole
        && request.method == Method::Get
        && request.uri.len() <= URI_MAX
        && is_of_uri_alone(request);
    if !is_same_for_all {
        return;
    }
    let prepared = Prepared {
        uri: Box::from(&request.uri[..]),
        server: request.server,
        generation: request.generation.number,
        location: request.location,
        file: Rc::downgrade(file),
        head: response.with_body(Body::Empty),
    };
    let places = &request.client.http.hot_files.0;
    places.put(&request.uri, prepared);
}

/// Whether only the server and the URI led the request here.
fn is_of_uri_alone(request: &Request) -> bool {
    let server = request.settings().location(request.server().location);
    let location = request.location();
    !request.is_subrequest()
        && !request.is_internal
        && request.uri_origin == UriOrigin::Client
        && !request.has_captures()
        && request.settings().realpath_variables.is_empty()
        && !server.has_steps_before
        && !location.has_steps_before
        && location.settings.root.path.literal().is_some()
        && !location.has_variants
        && request.generation.stale_files(request.location).is_none()
}
