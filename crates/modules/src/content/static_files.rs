//! Serves a file as it is on disk: the most common response, and the shortest path.

use std::rc::Rc;

use bytes::Bytes;
use disk::{FileKind, OpenFile};
use logs::Level;
use message::escape::Escape;
use message::response::Ranges;
use message::{Body, ETag, Method};

use httpcore::files::by_page::{TOGETHER_MAX, goes_by_page};
use httpcore::files::path::{self, Mapped};
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::{Failure, Response};

use httpcore::files::{self, hot_files};

/// Answers with the file of the request's URI.
pub async fn make(request: &mut Request) -> Outcome {
    if !matches!(request.method, Method::Get | Method::Head | Method::Post) {
        return Outcome::Failed(Failure::new(405));
    }
    match open(request).await {
        Ok((file, mapped)) => answer(request, &file, &mapped).await,
        Err(failure) => Outcome::Failed(failure),
    }
}

/// Opens the file of the request's URI.
///
/// # Errors
/// The status for an error of the disk; it is logged.
pub async fn open(request: &Request) -> Result<(Rc<OpenFile>, Mapped), Failure> {
    let mut mapped = Mapped::default();
    path::map(request, &mut mapped)?;
    let access = files::access(request, &mapped.path)?;
    let disk = &request.client.loop_.disk;
    let opened = files::within(request, || disk.open(&mapped.path, &access)).await;
    match opened {
        Ok(file) => Ok((file, mapped)),
        Err(error) => Err(files::failure(request, &error, &mapped.path)),
    }
}

/// Opens the film of the request's URI, for what answers GET and HEAD with a part of it.
///
/// # Errors
/// The response to give instead; `None`: the URI does not name a file.
pub async fn open_film(request: &Request) -> Result<(Rc<OpenFile>, Mapped), Option<Outcome>> {
    if !matches!(request.method, Method::Get | Method::Head) {
        return Err(Some(Outcome::Failed(Failure::new(405))));
    }
    if request.uri.ends_with(b"/") {
        return Err(None);
    }
    let opened = open(request).await;
    let (file, mapped) = opened.map_err(|failure| Some(Outcome::Failed(failure)))?;
    match file.meta().kind {
        FileKind::File => Ok((file, mapped)),
        FileKind::Directory | FileKind::Other => Err(None),
    }
}

async fn answer(request: &Request, file: &Rc<OpenFile>, mapped: &Mapped) -> Outcome {
    match file.meta().kind {
        FileKind::Directory => return Outcome::Failed(add_slash(request)),
        FileKind::Other => {
            request.log(Level::Crit, &|out| {
                out.push(b'"');
                out.extend_from_slice(&mapped.path);
                out.extend_from_slice(b"\" is not a regular file");
            });
            return Outcome::Failed(Failure::new(404));
        }
        FileKind::File => {}
    }
    if request.method == Method::Post {
        return Outcome::Failed(Failure::new(405));
    }
    match of_file(request, file, mapped).await {
        Ok(response) => {
            hot_files::keep(request, file, &response);
            Outcome::Answer(response)
        }
        Err(failure) => Outcome::Failed(failure),
    }
}

/// A 200 with the whole file; a small one is read already, so that a disk's error still becomes a status.
///
/// # Errors
/// The failure of that read.
pub async fn of_file(
    request: &Request,
    file: &Rc<OpenFile>,
    mapped: &Mapped,
) -> Result<Box<Response>, Failure> {
    let meta = file.meta();
    let mut response = head_of(request, file, meta.len);
    response.body = match meta.len {
        0 => Body::Empty,
        _ if request.is_head() => Body::file(Rc::clone(file), 0, meta.len),
        1..=TOGETHER_MAX if !goes_by_page(request, file, 0, meta.len) => {
            Body::bytes(read(request, file, mapped).await?)
        }
        _ => Body::file(Rc::clone(file), 0, meta.len),
    };
    Ok(response)
}

/// A 200 for a file of which `len` bytes are sent, or content made from it; without a body yet.
pub fn head_of(request: &Request, file: &OpenFile, len: u64) -> Box<Response> {
    let meta = file.meta();
    let mut response = Response::boxed(200);
    response.content_type = request.content_type();
    response.content_length = Some(len);
    response.last_modified = Some(meta.mtime);
    if request.location().settings.static_files.etag {
        response.etag = Some(ETag::of_file(meta.mtime, len));
    }
    response.ranges = Ranges::Allowed;
    response.conditional = true;
    response
}

/// The contents of a small file.
async fn read(request: &Request, file: &Rc<OpenFile>, mapped: &Mapped) -> Result<Bytes, Failure> {
    if let Some(body) = file.body() {
        return Ok(body);
    }
    let len = usize::try_from(file.meta().len).unwrap_or(usize::MAX);
    let access = files::access(request, &mapped.path)?;
    let disk = &request.client.loop_.disk;
    let read = files::within(request, || disk.read(file, 0, len, &access)).await;
    let bytes = read.map_err(|error| files::failure(request, &error, &mapped.path))?;
    if bytes.len() < len {
        let error = disk::Error::Truncated {
            len: bytes.len() as u64,
        };
        return Err(files::failure(request, &error, &mapped.path));
    }
    Ok(bytes)
}

/// 301 to the same URI with a slash behind it.
fn add_slash(request: &Request) -> Failure {
    let mut target = Escape::Uri.apply(&request.uri);
    target.push(b'/');
    if !request.args().is_empty() {
        target.push(b'?');
        target.extend_from_slice(request.args());
    }
    Failure::redirect(301, Bytes::from(target))
}
