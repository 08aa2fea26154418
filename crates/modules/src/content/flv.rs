//! `flv`: sends a film from one byte on (`?start=`), after a new head.

use std::rc::Rc;

use bytes::Bytes;
use config::directives;
use message::{Body, Chunk, FileRange, uri};

use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::settings::Location;
use httpcore::settings::given::Given;

use super::static_files;

/// The header of every film: version 1, audio and video, no tag before the first.
const HEAD: &[u8] = b"FLV\x01\x05\0\0\0\x09\0\0\0\0";

directives! {
    /// FLV pseudo-streaming.
    pub struct Flv in Location {
        /// Responds to requests for FLV files with the content from the byte in the argument `start` on, after an FLV
        /// header.
        flv: Option<Given> = none, [LOCATION] 0, inherit never;
    }
}

/// Whether the location serves such films.
#[must_use]
pub fn is_on(location: &Location) -> bool {
    location.own::<Flv>().flv.is_some()
}

/// Responds with the film of the request's URI; `None` if the URI does not name a file.
pub async fn make(request: &mut Request) -> Option<Outcome> {
    let (file, mapped) = match static_files::open_film(request).await {
        Ok(opened) => opened,
        Err(instead) => return instead,
    };
    let size = file.meta().len;
    let start = uri::arg(request.args(), b"start").and_then(number);
    let Some(start) = start.filter(|start| (1..size).contains(start)) else {
        return Some(match static_files::of_file(request, &file, &mapped).await {
            Ok(response) => Outcome::Answer(response),
            Err(failure) => Outcome::Failed(failure),
        });
    };
    let len = size - start;
    let mut response = static_files::head_of(request, &file, HEAD.len() as u64 + len);
    response.body = Body::chunks(vec![
        Chunk::Bytes(Bytes::from_static(HEAD)),
        Chunk::File(FileRange {
            file: Rc::clone(&file),
            offset: start,
            len,
        }),
    ]);
    Some(Outcome::Answer(response))
}

/// Digits only, as nginx reads offsets.
fn number(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_number)?;
    text.parse().ok().filter(|n| *n <= i64::MAX as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_digits() {
        assert_eq!(number(b"0013"), Some(13));
        assert_eq!(number(b"9223372036854775807"), Some(i64::MAX as u64));
        for text in ["", "-1", "+1", "1k", "9223372036854775808"] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
    }
}
