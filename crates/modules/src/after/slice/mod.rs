//! `slice`: a large answer made of slices that are requested (and cached) one by one. nginx-drop-in 77.
//!
//! A location opts in by sending `$slice_range` as `Range`. The answer to the first slice becomes the head of the
//! whole, from which the range step then cuts the client's range; `Slices` is its body. Invariant: only complete slices
//! of the same answer are put together; otherwise the connection is closed.

mod source;

use std::cell::{Cell, OnceCell};
use std::io::Write as _;
use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use config::{Size, directives};
use disk::OpenFile;
use logs::Level;
use message::range::RangeOutcome;
use message::range_fields::{ContentRange, start_of as start_of_range};
use message::response::Ranges;
use message::{Body, ETag, HeaderId, ResponseHead};

use httpcore::Response;
use httpcore::handler::metrics::ModuleMetrics;
use httpcore::outcome::Outcome;
use httpcore::request::Request;
use httpcore::request::state::State;
use httpcore::subrequest;

use source::Slices;

/// The log's sentence for a request whose slices cannot be put together.
const BAD_GATEWAY: u16 = 502;

directives! {
    /// Slices of large responses.
    pub struct Slicing in Location {
        /// Fetches large responses in slices of this size, each cached on its own: use `proxy_set_header Range
        /// $slice_range` and put `$slice_range` into the cache key. `0` switches slicing off.
        slice: Size = "0", [HTTP | SERVER | LOCATION] 1;
    }
}

httpcore::variables! {
    /// The range of the requested slice (`slice`).
    "slice_range" => fresh(append_range).made_by(&["slice"]);
}

/// The slice that is asked for: by a sub-request a later one, by the client's own request the first.
#[derive(Default)]
struct Asked {
    slice: OnceCell<RequestedSlice>,
    came: Cell<Came>,
}

/// What has come for the client's own request.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Came {
    #[default]
    Nothing,
    /// The slice that was asked for.
    Slice,
    /// A response that is no slice.
    Other,
}

impl State for Asked {
    fn survives_redirect(&self) -> bool {
        false
    }

    /// An update behind the request asks for the same one, and so does what asks for the rest of its body.
    fn is_for_stand_in(&self) -> bool {
        true
    }

    fn refuses(&self, head: &ResponseHead) -> bool {
        let Some(slice) = self.slice.get() else {
            return false;
        };
        // What is no slice may be the first one's response: it is the whole.
        let is_whole = slice.of.is_none() && head.status != 206;
        let etag = head.get(HeaderId::ETag).map(Bytes::copy_from_slice);
        let mut fields = head.iter();
        let range = fields.find(|(name, ..)| name.eq_ignore_ascii_case(b"Content-Range"));
        let range = range.map(|(_, value, _)| value);
        !is_whole && compare(head.status, etag.map(ETag::Text).as_ref(), range, slice).is_err()
    }
}

fn start_of(request: &Request) -> Option<u64> {
    let asked = request.states.get::<Asked>()?;
    asked.slice.get().map(|slice| slice.start)
}

fn ask_for(request: &Request, slice: RequestedSlice) {
    let asked = request.states.get_or_default::<Asked>();
    // A request asks for one only.
    let _ = asked.slice.set(slice);
}

/// Whether a sub-request asks for a slice.
#[must_use]
pub fn is_slice(request: &Request) -> bool {
    start_of(request).is_some()
}

/// The kind that the sub-requests for slices are counted as; the first slice needs none.
static SUBREQUESTS: subrequest::Kind = subrequest::Kind::named("slice");

/// How they are shown.
pub static METRICS: ModuleMetrics = ModuleMetrics {
    families: &[],
    show: |shown, page| {
        SUBREQUESTS.show(shown, page, |location| {
            location.own::<Slicing>().slice.0 > 0
        });
    },
};

/// Appends `$slice_range`, `bytes=0-1048575`: the range of the requested slice; for the client's own request it is the one in
/// which its range begins, and there is none once it turns out that the response is no slice.
fn append_range(request: &Request, out: &mut Vec<u8>) -> bool {
    let size = request.location().own::<Slicing>().slice.0;
    let is_no_slice = |asked: &Asked| asked.came.get() == Came::Other;
    let start = match start_of(request) {
        Some(_) if !request.is_subrequest() && request.states.get().is_some_and(is_no_slice) => {
            return false;
        }
        Some(start) => start,
        None if size == 0 || request.is_subrequest() || request.response.is_some() => return false,
        None => {
            let start = wanted(request) / size * size;
            let of = None;
            ask_for(request, RequestedSlice { start, size, of });
            start
        }
    };
    let last = start.saturating_add(size).saturating_sub(1);
    write!(out, "bytes={start}-{last}").is_ok()
}

/// The start of the client's range; 0 if it is not known before the whole is.
fn wanted(request: &Request) -> u64 {
    let head = &request.head;
    if head.get(HeaderId::IfRange).is_some() {
        return 0;
    }
    head.get(HeaderId::Range).map_or(0, start_of_range)
}

/// The first slice and the properties of the whole.
#[derive(Debug)]
pub struct Whole {
    slice: Range<u64>,
    /// Its body, which later steps do not see, since it may begin anywhere in the whole.
    body: Body<Rc<OpenFile>>,
    length: u64,
    size: u64,
    etag: Option<ETag>,
}

/// Makes the answer to the first slice the head of the whole; `None`: it is not a slice.
///
/// # Errors
/// It is not the slice that was asked for: the connection ends without an answer.
pub fn begin(request: &Request, response: &mut Response) -> Result<Option<Whole>, Outcome> {
    let asked = request.states.get::<Asked>();
    let asked = asked.filter(|asked| asked.came.get() == Came::Nothing);
    let is_slice = response.status == 206;
    if let Some(asked) = asked {
        asked
            .came
            .set(if is_slice { Came::Slice } else { Came::Other });
    }
    let start = asked.and_then(|_| start_of(request)).filter(|_| is_slice);
    let Some(start) = start else {
        return Ok(None);
    };
    let size = request.location().own::<Slicing>().slice.0;
    let asked = RequestedSlice {
        start,
        size,
        of: None,
    };
    if request.is_head() && is_clients(request, response, &asked) {
        request
            .states
            .get_or_default::<Asked>()
            .came
            .set(Came::Other);
        return Ok(None);
    }
    let (slice, length) =
        check(request, response, &asked).map_err(|Mismatch| Outcome::Close(BAD_GATEWAY))?;
    response.status = 200;
    response.status_line = None;
    response.content_length = Some(length);
    response.headers.remove(b"Content-Range");
    response.headers.remove(b"Accept-Ranges");
    response.ranges = Ranges::Single;
    Ok(Some(Whole {
        slice,
        body: std::mem::take(&mut response.body),
        length,
        size,
        etag: response.etag.clone(),
    }))
}

/// Gives the answer its body: the range `part` of the whole, or all of it.
pub fn end(request: &Request, response: &mut Response, whole: Whole, part: Option<Range<u64>>) {
    if request.is_head() || !matches!(response.status, 200 | 206) {
        return;
    }
    let part = part.unwrap_or(0..whole.length);
    let slices = Slices::new(request.twin(), whole, part);
    response.body = slices.body();
}

/// A requested slice.
#[derive(Debug)]
struct RequestedSlice {
    start: u64,
    size: u64,
    /// Length and tag of the whole that it must be part of, once they are known.
    of: Option<(u64, Option<ETag>)>,
}

/// The answer is not the requested slice.
#[derive(Debug)]
struct Mismatch;

/// Compares an answer with the requested slice; differences are logged.
fn check(
    request: &Request,
    response: &Response,
    asked: &RequestedSlice,
) -> Result<(Range<u64>, u64), Mismatch> {
    let range = response
        .headers
        .get(b"Content-Range")
        .map(|value| &value[..]);
    compare(response.status, response.etag.as_ref(), range, asked).map_err(|why| {
        request.log(Level::Error, &|out| out.extend_from_slice(why.as_bytes()));
        Mismatch
    })
}

/// Whether a 206 has the client's own range in place of the slice: a HEAD that no cache stores goes to a gateway as it is.
fn is_clients(request: &Request, response: &Response, asked: &RequestedSlice) -> bool {
    let range = response
        .headers
        .get(b"Content-Range")
        .map(|value| &value[..]);
    if compare(response.status, response.etag.as_ref(), range, asked).is_ok() {
        return false;
    }
    let wanted = request.head.get(HeaderId::Range);
    let found = range.and_then(ContentRange::parse);
    wanted.zip(found).is_some_and(|(wanted, found)| {
        let length = found.complete.unwrap_or_default();
        message::range::parse(wanted, length, 1) == RangeOutcome::Single(found.start..found.end)
    })
}

/// The range of a slice's response, and the length of the whole.
///
/// # Errors
/// The log's sentence of the first difference from what was asked for.
fn compare(
    status: u16,
    etag: Option<&ETag>,
    range: Option<&[u8]>,
    asked: &RequestedSlice,
) -> Result<(Range<u64>, u64), String> {
    let complain = |why: &str| Err(why.to_owned());
    if status != 206 {
        return Err(format!("unexpected status code {status} in slice response"));
    }
    let expected = asked.of.as_ref().and_then(|(_, etag)| etag.as_ref());
    if expected.is_some() && expected != etag {
        return complain("etag mismatch in slice response");
    }
    let Some(found) = range.and_then(ContentRange::parse) else {
        return complain("invalid range in slice response");
    };
    let Some(length) = found.complete else {
        return complain("no complete length in slice response");
    };
    let end = asked.start.saturating_add(asked.size).min(length);
    let is_same_whole = asked.of.as_ref().is_none_or(|(whole, _)| *whole == length);
    if found.start != asked.start || found.end != end || !is_same_whole {
        let (start, last) = (found.start, found.end);
        return Err(format!(
            "unexpected range in slice response: {start}-{last}, expected: {}-{end}",
            asked.start
        ));
    }
    Ok((found.start..found.end, length))
}
