//! `mp4`: sends a film from one time on, or up to another (`?start=`, `?end=`), as a film of its own.
//!
//! The file's tables are read and cut in the pool; the response is a new head from memory and a range of the file.
//! Invariant: a damaged file fails only its request; it never takes more memory than the directives allow, and never
//! stops a loop.

mod boxes;
mod cut;
mod fault;
mod moov;
mod tables;
#[cfg(test)]
mod tests;

use std::rc::Rc;

use config::{Flag, Size, directives};
use disk::OpenFile;
use logs::Level;
use message::response::Ranges;
use message::{Body, Chunk, FileRange, uri};

use httpcore::Failure;
use httpcore::files::path::Mapped;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::settings::Location;
use httpcore::settings::given::Given;

use super::{large_body, static_files};
pub use boxes::{CutRequest, Mp4File, TRACKS_MAX};
pub use cut::CutMovie;
pub use fault::Fault;
use httpcore::files;

directives! {
    /// MP4 pseudo-streaming.
    pub struct Mp4 in Location {
        /// Responds to requests for MP4 files with the part between the times in the arguments `start` and `end`, in
        /// seconds.
        mp4: Option<Given> = none, [LOCATION] 0, inherit never;
        /// Sets how much of a file is read at a time.
        mp4_buffer_size: Size = "512k", [HTTP | SERVER | LOCATION] 1;
        /// Limits the memory for a file's metadata (`moov`); larger metadata results in 500.
        mp4_max_buffer_size: Size = "10m", [HTTP | SERVER | LOCATION] 1;
        /// Begins at the key frame before `start`, with an edit list that hides the part before `start`.
        mp4_start_key_frame: Flag = "off", [HTTP | SERVER | LOCATION] FLAG;
    }
}

/// Whether the location serves films.
#[must_use]
pub fn is_on(location: &Location) -> bool {
    location.own::<Mp4>().mp4.is_some()
}

/// Responds with the film of the request's URI, or a part of it; `None` if the URI does not name a file.
pub async fn make(request: &mut Request) -> Option<Outcome> {
    let (file, mapped) = match static_files::open_film(request).await {
        Ok(opened) => opened,
        Err(instead) => return instead,
    };
    Some(match answer(request, &file, &mapped).await {
        Ok(response) => Outcome::Answer(response),
        Err(failure) => Outcome::Failed(failure),
    })
}

async fn answer(
    request: &Request,
    file: &Rc<OpenFile>,
    mapped: &Mapped,
) -> Result<Box<httpcore::Response>, Failure> {
    let wish = wish(request);
    let part = match wish {
        Some(wish) => part(request, file, mapped, wish).await?,
        None => None,
    };
    let mut response = match part {
        None => static_files::of_file(request, file, mapped).await?,
        Some(CutMovie { head, data }) => {
            let len = data.end - data.start;
            let mut response = static_files::head_of(request, file, head.len() as u64 + len);
            let mut chunks = large_body::in_pieces(head, files::pool(request)?);
            chunks.push(Chunk::File(FileRange {
                file: Rc::clone(file),
                offset: data.start,
                len,
            }));
            response.body = Body::chunks(chunks);
            response
        }
    };
    if wish.is_some() {
        response.ranges = Ranges::Single;
    }
    Ok(response)
}

/// The part that the arguments ask for; `None`: the whole file, unchanged.
fn wish(request: &Request) -> Option<CutRequest> {
    let time = |name: &[u8]| uri::arg(request.args(), name).and_then(milliseconds);
    let (start, end) = (time(b"start"), time(b"end").filter(|end| *end > 0));
    let start_ms = start.or(end.map(|_| 0))?;
    let settings = request.location().own::<Mp4>();
    Some(CutRequest {
        start_ms,
        length_ms: end.map_or(0, |end| end.saturating_sub(start_ms)),
        from_key_frame: settings.mp4_start_key_frame,
        buffer: settings.mp4_buffer_size.0,
        buffer_max: settings.mp4_max_buffer_size.0,
    })
}

/// Parses seconds with any number of decimals, as milliseconds.
fn milliseconds(text: &[u8]) -> Option<u64> {
    const MAX: u64 = i64::MAX as u64;
    if text.is_empty() {
        return None;
    }
    let (mut value, mut decimals) = (0_u64, None);
    for byte in text {
        match byte {
            b'.' if decimals.is_none() => decimals = Some(0),
            b'0'..=b'9' => {
                if decimals.is_some_and(|count| count == 3) {
                    continue;
                }
                let digit = u64::from(byte - b'0');
                value = value.checked_mul(10)?.checked_add(digit)?;
                decimals = decimals.map(|count| count + 1);
            }
            _ => return None,
        }
        if value > MAX {
            return None;
        }
    }
    let scale = 10_u64.pow(3 - decimals.unwrap_or(0));
    value.checked_mul(scale).filter(|value| *value <= MAX)
}

/// The part that is wanted; `None`: it is the file as it is.
async fn part(
    request: &Request,
    file: &Rc<OpenFile>,
    mapped: &Mapped,
    wish: CutRequest,
) -> Result<Option<CutMovie>, Failure> {
    let access = files::access(request, &mapped.path)?;
    let disk = &request.client.loop_.disk;
    let work = move |reader: &disk::FileReader| {
        let file = Mp4File {
            len: reader.len(),
            read: &|offset, len| reader.read(offset, len),
        };
        find_and_cut(&file, &wish)
    };
    let found = match files::within(request, || disk.examine(file, &access, work)).await {
        Ok(found) => found,
        Err(error) => return Err(files::failure(request, &error, &mapped.path)),
    };
    found.map_err(|fault| failure(request, &fault, &mapped.path))
}

/// The part of a film that is wanted; `None`: it is the file as it is. What it takes from `file` it takes by waiting for it.
///
/// # Errors
/// Nothing can be cut from it.
pub fn find_and_cut(file: &Mp4File<'_>, wish: &CutRequest) -> Result<Option<CutMovie>, Fault> {
    match boxes::find(file, wish)? {
        None => Ok(None),
        Some(film) => cut::cut(film, file.len, wish).map(Some),
    }
}

fn failure(request: &Request, fault: &Fault, path: &[u8]) -> Failure {
    match fault {
        Fault::Disk(error) => files::failure(request, error, path),
        Fault::File {
            level,
            before,
            after,
        } => {
            let level: Level = *level;
            request.log(level, &|out| {
                out.extend_from_slice(before.as_bytes());
                out.push(b'"');
                out.extend_from_slice(path);
                out.push(b'"');
                out.extend_from_slice(after.as_bytes());
            });
            Failure::new(500)
        }
    }
}
