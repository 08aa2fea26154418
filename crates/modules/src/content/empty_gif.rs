//! `empty_gif`: serves a transparent one-pixel image from memory.

use bytes::Bytes;
use config::directives;
use message::{Body, Method};

use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::settings::Location;
use httpcore::settings::given::Given;
use httpcore::{Failure, Response};

/// The picture (GIF89a): the colours black and white, of which the second is transparent, and one pixel of it.
const PICTURE: &[u8] = b"GIF89a\x01\0\x01\0\x80\x01\0\0\0\0\xff\xff\xff!\xf9\x04\x01\0\0\x01\0,\0\0\0\0\x01\0\x01\0\0\x02\x02L\x01\0;";
/// When nginx's picture was made: Mon, 28 Sep 1970 06:00:00 GMT.
const LAST_MODIFIED: i64 = 23_349_600;

directives! {
    /// One-pixel GIF.
    pub struct EmptyGif in Location {
        /// Responds with a transparent image of one pixel.
        empty_gif: Option<Given> = none, [LOCATION] 0, inherit never;
    }
}

/// Whether the location serves the picture.
#[must_use]
pub fn is_on(location: &Location) -> bool {
    location.own::<EmptyGif>().empty_gif.is_some()
}

/// Answers with the picture.
#[must_use]
pub fn make(request: &Request) -> Outcome {
    if !matches!(request.method, Method::Get | Method::Head) {
        return Outcome::Failed(Failure::new(405));
    }
    let mut response = Response::boxed(200);
    response.content_type = Bytes::from_static(b"image/gif");
    response.names_type = true;
    response.content_length = Some(PICTURE.len() as u64);
    response.last_modified = Some(LAST_MODIFIED);
    response.conditional = true;
    response.body = Body::bytes(Bytes::from_static(PICTURE));
    Outcome::Answer(response)
}
